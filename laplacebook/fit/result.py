"""What ``laplace`` returns: the Gaussian that stands for the posterior, and the evidence it implies."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from os import PathLike
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key
from numpyro.infer.autoguide import AutoLaplaceApproximation

from laplacebook.base.checks import (
    coordinates,
    require_key,
    require_numbers,
    require_one,
    require_sample_shape,
)
from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import STATIC, Leaf, from_host, is_traced, on_host, register_dataclass
from laplacebook.base.quick import in_full_precision, is_eager
from laplacebook.base.table import Table, percentages, tails
from laplacebook.curvature.settings import DENSE_HESSIAN, Settings
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.numpyro_and_arviz import laplace_guide
from laplacebook.fit.saved_file import save
from laplacebook.fit.summary import (
    improper_evidence,
    left_out,
    marginals,
    modes_found,
    rounding_told,
    settings_lines,
    summary_table,
    values_at,
)
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity
from laplacebook.search.certificate import Certificate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from laplacebook.fit.functions import Of


@register_dataclass
@dataclass(frozen=True, repr=False)
class LaplaceApproximation(Approximation):
    """The Gaussian q(u) = N(u_MAP, A^-1) that stands for the posterior, and the evidence it implies.

    u are the latent sites through NumPyro's bijections to R^D (``space="unconstrained"``) or the
    latent sites themselves (``space="constrained"``), site by site in the order of the model.
    If no mode was found (possible only under a JAX transformation or with ``throw=False``) the
    certificate says so and every other number is NaN.

    In the book: :eq:`laplace-posterior` and :eq:`laplace-evidence` of :doc:`/book/laplace`; for
    its prices, :eq:`model-comparison-log-occam` of :doc:`/book/model-comparison`.

    Attributes:
        mode: u_MAP by site, taken to the scale on which the user wrote the model.
        mode_vector: u_MAP, shape (D,).
        precision: A: the Hessian of the negative log joint at u_MAP, or what ``settings`` name.
        log_likelihood: log p(data | mode).
        log_prior: log p(mode), with the log Jacobian in the unconstrained space.
        certificate: how far the point is from the mode, and whether that is near enough.
        density: the log joint that was approximated.
        other_modes: the approximations at the other modes that several starts found, by falling
            log joint; each stands for the posterior near its own mode.
        settings: the curvature, what was kept of it, and the tolerance.
    """

    mode: dict[str, Leaf]
    mode_vector: Leaf
    precision: Precision
    log_likelihood: Leaf
    log_prior: Leaf
    certificate: Certificate
    density: ModelDensity
    other_modes: tuple["LaplaceApproximation", ...] = ()
    settings: Settings = field(default=DENSE_HESSIAN, metadata=STATIC)
    #: of the verdict of a diagnosis what is bad about the fit at its own mode, and the other modes that it found
    of_shape: ClassVar[str] = ""
    found: ClassVar[tuple["LaplaceApproximation", ...]] = ()

    @property
    def gaussians(self) -> tuple["LaplaceApproximation", ...]:
        """Itself alone."""
        return (self,)

    @property
    def covariance(self) -> Float[Array, "*B D D"]:
        """A^-1, dense, shape (D, D), in the coordinates u."""
        return from_host(on_host(self.precision).inverse())

    @property
    def log_occam_factor(self) -> Float[Array, "*B"]:
        """``log p(mode) + (D/2) log 2 pi - (1/2) log |A|``, the price of the parameters.

        Bishop (2006), equation 4.137. In the book: :eq:`model-comparison-log-occam` of
        :doc:`/book/model-comparison`.
        """
        return from_host(self._log_occam_factor_on_host())

    def _log_occam_factor_on_host(self) -> Float[Numbers, "*B"]:
        log_prior, precision = on_host((self.log_prior, self.precision))
        return log_prior + precision.log_volume()

    @property
    def log_evidence(self) -> Float[Array, "*B"]:
        """The Laplace approximation of log p(data), log likelihood at the mode + log Occam factor.

        In the book: :eq:`laplace-evidence` of :doc:`/book/laplace`.
        """
        return from_host(on_host(self.log_likelihood) + self._log_occam_factor_on_host())

    @property
    def space(self) -> str:
        """The space in which q is Gaussian."""
        return self.density.space

    @in_full_precision
    def log_density(self, u: Float[Array, " D"]) -> Float[Array, ""]:
        """log q(u), for u of shape (D,); any other is a ValueError, a list a TypeError."""
        self._not_a_batch()
        offset = coordinates(u, self.mode_vector.shape, name="u") - self.mode_vector
        quadratic = offset @ self.precision.matvec(offset)
        return -self.precision.log_volume() - quadratic / 2

    def sample_vector(
        self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*S D"]:
        """Draws of u from q, shape ``sample_shape + (D,)``."""
        self._not_a_batch()
        require_sample_shape(sample_shape)
        mode, offsets = on_host((self.mode_vector, self.precision.sample(key, sample_shape)))
        return from_host(mode + offsets)

    def sample(self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()) -> dict[str, Array]:
        """Draws from q, on the scale on which the user wrote the model.

        Args:
            key: a JAX random key.
            sample_shape: leading shape of the draws.

        Returns:
            A dict of site -> array of shape ``sample_shape + site shape``, the images of
            ``sample_vector(key, sample_shape)``. In the constrained space q is a Gaussian on the
            model's own scale, so draws may leave the support.
        """
        u = on_host(self.sample_vector(key, sample_shape))
        draws = on_host(values_at(self.density, from_host(u.reshape(-1, u.shape[-1]))))
        return {
            name: from_host(v.reshape((*sample_shape, *v.shape[1:]))) for name, v in draws.items()
        }

    @property
    def standard_deviation(self) -> dict[str, Array]:
        """Standard deviations under q, by site, on the scale on which the user wrote the model.

        Where each number of a site is a function of one coordinate, by the trapezoidal rule for its
        one-dimensional marginal; NaN where its tail is too long for that (a log-normal number whose
        logarithm has a standard deviation above eight), or half of the nodes give another value (a
        probability whose logit has one above thirty). Elsewhere (a simplex, a correlation
        matrix, an ordered vector, a support that depends on another site) from 65,536 draws with a
        fixed key, of which the relative standard error is 0.3 % where the marginal is near a
        Gaussian.
        """
        return self._marginals([])[0]

    def quantiles(
        self, probabilities: ArrayLike | Sequence[float], key: Key[Array, ""] | None = None
    ) -> dict[str, Array]:
        """Marginal quantiles under q, by site, on the scale on which the user wrote the model.

        Where each number of a site is a function of one coordinate they are exact: quantiles of a
        normal number through a monotone bijection. Elsewhere (as in :attr:`standard_deviation`)
        they are those of 65,536 draws, with a standard error at 5 % of about a hundredth of the
        standard deviation.

        Args:
            probabilities: numbers between 0 and 1, shape (P,), known when the program is compiled.
            key: for the sites that need draws; a fixed one by default.

        Returns:
            A dict of site -> array of shape ``(P, *site shape)``.

        Raises:
            ValueError: a probability is not between 0 and 1, or they are not a vector.
            TypeError: ``key`` is no random key.
        """
        if key is not None:
            require_key(key)
        levels = np.asarray(probabilities, float)
        if levels.ndim != 1 or not np.all((levels > 0) & (levels < 1)):
            raise ValueError(
                f"probabilities must be a vector of numbers between 0 and 1, not {levels}"
            )
        return self._marginals(levels, key)[1]

    def summary(self, probability: float = 0.9, of: "Of | None" = None) -> Table:
        """Mode, standard deviation and a central interval of each number of each latent site.

        All on the scale on which the user wrote the model. The mode is that of q in the
        coordinates u, taken to that scale.

        Args:
            probability: of the interval under q.
            of: what else to look at in place of the sites: a name, or several, of ``numpyro.deterministic``
                sites, or functions of the dict of sites by the names of their rows, such as
                ``{"contrast": lambda sites: sites["a"][1] - sites["a"][0]}``. Their means and the rest are
                those of 16,384 draws with a fixed key, in pairs to both sides of the mode.

        Returns:
            A :class:`~laplacebook.Table` with the columns ``site``, ``mode`` (``mean`` of a function), ``sd`` and two
            quantiles, ``5 %`` and ``95 %`` by default.

        Raises:
            ValueError: ``probability`` is not between 0 and 1, or too close to one of them; there is no such site.
            UnsupportedModel: a function returns no numbers.
        """
        if of is not None:
            from laplacebook.fit.functions import functions_table, symmetric_draws

            self._not_a_batch()
            require_numbers("summary(of=...)", self)
            u = symmetric_draws(self.mode_vector, self.precision)
            return functions_table(self.density, u, np.full(len(u), 1 / len(u)), of, probability)
        return summary_table(self.density, self._columns(probability))

    def plot(self, site: str, probability: float = 0.9) -> "Figure":
        """The mode of each number of a one-dimensional site, and a central interval, against its index.

        Of more than a thousand numbers each place of the picture stands for several, from their lowest to
        their highest.

        Args:
            site: its name, such as that of the states of a series.
            probability: of the interval under q.

        Returns:
            The Matplotlib figure: the last value of a notebook's cell shows it, and its ``savefig``
            writes it to a file.

        Raises:
            ValueError: there is no such site, its value is no vector, or ``probability`` is not between 0 and 1.
        """
        from laplacebook.fit.by_site import plot_along_index

        shapes = {one.name: one.value_shape for one in self.density.sites}
        if len(shapes.get(site, ())) != 1:
            listed = ", ".join(f"{name!r} of shape {shape}" for name, shape in shapes.items())
            raise ValueError(
                f"site is the name of a latent site whose value is a vector, not {site!r}; there are {listed}. "
                "lb.diagnose(approx, key).plot(site) draws the marginal density of each coordinate of any."
            )
        (_, mode), _, (low, lower), (high, upper) = self._columns(probability).items()
        ends = np.asarray(lower[site]), np.asarray(upper[site])
        return plot_along_index(site, np.asarray(mode[site]), *ends, f"{low} to {high}")

    def save(self, path: str | PathLike) -> None:
        """Write the numbers of the approximation to a file that :func:`~laplacebook.load` reads.

        Args:
            path: of the file, which is a NumPy ``.npz`` archive without pickled objects. The model
                and its data are not in it.

        Raises:
            LaplaceError: the fit failed, so there is nothing to save; or it is of a plain density.
        """
        self._not_a_batch()
        save(self, path)

    @functools.cached_property
    @in_full_precision
    def guide(self) -> AutoLaplaceApproximation:
        """The approximation as NumPyro's own guide, for ``Predictive(model, guide=..., params=...)``.

        Raises:
            UnsupportedModel: the approximation was made in the constrained space; NumPyro's guide
                is Gaussian in the unconstrained one.
            LaplaceError: the fit failed.
            ValueError: it is a batch, or its numbers are not known yet (``jit``, ``vmap``, ``grad``).
        """
        self._not_a_batch()
        return laplace_guide(self.density, self.mode, self.mode_vector, self.precision.matrix)

    @property
    def params(self) -> dict[str, Array]:
        """The parameters that go with :attr:`guide`."""
        return {"auto_loc": self.mode_vector}

    def __reduce__(self) -> tuple[type, tuple, dict]:
        kept = vars(self).keys() & {"_diagnosed", "of_shape", "found", "_unseen"}
        args = tuple(getattr(self, field.name) for field in fields(self))
        return type(self), args, {name: vars(self)[name] for name in kept}

    def __repr__(self) -> str:
        if self._is_one:
            return repr(self._report())
        return f"LaplaceApproximation(mode_vector={self.mode_vector})"

    def _repr_html_(self) -> str | None:
        return self._report()._repr_html_() if self._is_one else None

    def _report(self) -> Table:
        from laplacebook.fit.by_site import table_by_site

        table = table_by_site(self.density, self._columns(0.9))
        evidence = (
            f"log evidence {self.log_evidence:.4f} = log likelihood {self.log_likelihood:.4f} "
            f"+ log Occam factor {self.log_occam_factor:.4f}"
        )
        constant = [*rounding_told([self.log_likelihood]), *improper_evidence(self.density)]
        modes = modes_found(self.log_evidence, [other.log_evidence for other in self.other_modes])
        lines = (evidence, *constant, *modes, *settings_lines(self.settings), str(self.certificate))
        doubt = () if self.doubt is None else (f"doubtful: {self.doubt}",)
        return replace(table, footer=table.footer + lines + doubt)

    def remember(
        self,
        verdict: str | None,
        of_shape: str = "",
        found: tuple["LaplaceApproximation", ...] = (),
        unseen: str | None = None,
    ) -> None:
        """Keep the verdict of a diagnosis, for whatever is made of this fit.

        Args:
            verdict: empty if it may be used.
            of_shape: what of it is bad at the mode of the fit.
            found: the other modes that were found.
            unseen: other modes of what was integrated out, in words.
        """
        vars(self).update(_diagnosed=verdict, of_shape=of_shape, found=found, _unseen=unseen)

    @property
    def unseen(self) -> str | None:
        """That it leaves out modes elsewhere that are known, with a hundredth of the evidence or more, or None."""
        others = self.found or self.other_modes
        if not others or not is_eager():
            return self._unseen
        joined = "lb.mixture" + ("" if self.other_modes else "([approx, *diagnosis.other_modes])")
        logs = [one.log_evidence for one in others]
        return left_out([self.log_evidence], logs, joined) or self._unseen

    @property
    def doubt(self) -> str | None:
        """Why to doubt the approximation, or None; it is printed below it, and below a comparison.

        The verdict of :func:`~laplacebook.diagnose`, if that was asked and said bad. Where it was not
        asked, that 64 draws of q are worth less than a third as many of the posterior, or that more than a
        tenth of them have density zero, as where the posterior ends beside its mode. None is no proof:
        so few draws see no tail, and none another mode. Nor are they looked at of a batch or within a
        compiled program, where the curvature is not the Hessian, where the data are spread over devices
        or came in chunks, or where 64 evaluations of the log joint would take longer than a moment.
        """
        if self._diagnosed is not None:
            return f"diagnosed {self._diagnosed}" if self._diagnosed else None
        return self.doubt_at_a_glance

    @property
    def doubt_at_a_glance(self) -> str | None:
        """What :attr:`doubt` says where no diagnosis was asked for."""
        return self._glanced if self._diagnosed is None and is_eager() else None

    @functools.cached_property
    @in_full_precision
    def _glanced(self) -> str | None:
        from laplacebook.fit.glance import doubt_at_a_glance

        seen = self._is_one and self.density.has_data and self.settings.curvature == "hessian"
        if not seen or not bool(self.certificate.converged):
            return None
        return doubt_at_a_glance(self.density, self.mode_vector, self.precision)

    def _columns(self, probability: float) -> dict[str, dict[str, Leaf]]:
        """Mode, standard deviation and the ends of a central interval, by site: on the host."""
        ends = tails(probability)
        deviations, quantiles = on_host(self._marginals(ends))
        columns = {"mode": on_host(self.mode), "sd": deviations}
        for i, end in enumerate(percentages(ends)):
            columns[end] = {name: values[i] for name, values in quantiles.items()}
        return columns

    def _marginals(
        self, levels: ArrayLike | Sequence[float], key: Key[Array, ""] | None = None
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        self._not_a_batch()
        levels = np.asarray(levels, float)
        return marginals(self.density, self.mode_vector, self.precision, levels, key)

    @property
    def _is_one(self) -> bool:
        return not is_traced(self.mode_vector) and getattr(self.mode_vector, "ndim", None) == 1

    def _not_a_batch(self) -> None:
        require_one("This approximation", self.mode_vector.shape, 1)
