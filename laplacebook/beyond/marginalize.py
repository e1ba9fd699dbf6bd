"""A NumPyro model without some of its latent sites, which Laplace's method integrates out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jaxtyping import Array, Float, Key
from numpyro import handlers
from numpyro.distributions import biject_to

from laplacebook.base.checks import names_of_sites, require_key
from laplacebook.base.errors import LaplaceError, UnsupportedModel
from laplacebook.base.pytrees import is_traced
from laplacebook.base.quick import at_once, jit
from laplacebook.beyond.hyperparameters import others_than, refuse_dependence
from laplacebook.beyond.kept_integrals import keep_integral, kept_integral
from laplacebook.beyond.reference import begin_at, reference_of
from laplacebook.beyond.sparse_integral import SparseIntegral
from laplacebook.curvature.hessian import hessian_product
from laplacebook.curvature.sparse_pattern import generic_point
from laplacebook.fit.laplace import laplace
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.summary import values_at
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.model.not_finite import require_entries
from laplacebook.model.trace import integrals_are_wanted
from laplacebook.model.working_precision import InWorkingPrecision
from laplacebook.search.looks import middle
from laplacebook.search.search import search
from laplacebook.search.sparse_search import known_pattern


def marginalize(
    model: Callable, sites: str | Sequence[str], structure: str = "dense"
) -> "MarginalModel":
    """A NumPyro model with the same arguments and without these latent sites, integrated out.

    For each value of the other latent sites h, the hyperparameters, it finds the mode of the sites z
    given h and adds the Laplace approximation of the logarithm of their integral, as a factor:

    ``log p(D | h) = log p(D, z_MAP | h) + (d/2) log 2 pi - (1/2) log |A|``, with z_MAP and A both at h

    (Tierney and Kadane 1986, Journal of the American Statistical Association 81, 82-86). It is exact
    where z is Gaussian given h and the data. Derivatives go through the mode of z, to second order, so
    that :func:`~laplacebook.laplace`, NumPyro's NUTS and SVI take it as any other model, under ``jit``,
    ``vmap`` and ``grad``. The mode is certified wherever the density is evaluated; where there is none
    the density is NaN, and a fit of the marginal model says why. Of several modes of z given h one is
    counted, whatever takes the marginal model; :func:`~laplacebook.diagnose` of a fit of it searches for others at the
    mode of h. The search for it begins in the middle of the prior; of a hundred effects or more, in a program that
    knows the data, such as that of NUTS, at their mode given the middle of the prior of h, if that has the higher log
    joint. It is found once, saves half of the steps or more, and no search depends on those before it.

    The mode of the marginal model under :func:`~laplacebook.maximum_likelihood` is the estimate of TMB,
    glmmTMB and lme4 (``REML=FALSE``); with the fixed effects among the sites, under a flat prior
    (``dist.ImproperUniform``), it is that of restricted maximum likelihood (REML).

    In the book: :eq:`hierarchical-marginal` of :doc:`/book/hierarchical`, and for thousands of sites
    :prf:ref:`latent-fields-slope` of :doc:`/book/latent-fields`.

    Args:
        model: a NumPyro model with continuous latent sites.
        sites: the name, or names, of those to integrate out: random effects, a latent field.
        structure: of their precision: ``"dense"``; or ``"sparse"``, for thousands of them (``pip install
            "laplacebook[sparse]"``). Then derivatives are exact to first order, and there is no second: the
            Hessian of a fit of the marginal model is that of differences of its gradients, as in TMB
            (Kristensen et al. 2016, Journal of Statistical Software 70(5)), and what follows gradients, such
            as NUTS, takes it as it is. Each search for a mode begins at the last one, and of 64 one begins in the
            middle of the prior as well, as each of a dense structure does: where these end at different modes, all
            begin there from then on. A fit ends with such a look; where it followed another mode it warns
            (:class:`DoubtfulFit`), and is made again. In double precision alone.

    Returns:
        A :class:`MarginalModel`, called as ``model`` is.

    Raises:
        ValueError: ``sites`` names none, or there is no such structure. When the model is first run:
            it has no latent site of such a name, or no other.
        TypeError: ``sites`` are no names, or the model is no function.
        UnsupportedModel: when it is first run: the prior of another latent site depends on one of them; the
            Hessian is not sparse, where it should be; or, of a sparse one, in single precision, or within a program
            that takes the data as an argument and was not shown them before (``prepare``).

    >>> import numpyro.distributions as dist
    >>> def groups(y):
    ...     tau = numpyro.sample("tau", dist.HalfNormal(2))
    ...     with numpyro.plate("groups", y.size):
    ...         z = numpyro.sample("z", dist.Normal(0, tau))
    ...         numpyro.sample("y", dist.Normal(z, 1), obs=y)
    >>> laplace(marginalize(groups, "z"), jnp.array([2.0, -1.0, 0.5, -3.0]))
    Laplace approximation of groups without z, unconstrained space, D = 1
      site   mode      sd     5 %   95 %
      tau   1.708  0.8229  0.8542  3.416
      log evidence -8.9190 = log likelihood -8.2255 + log Occam factor -0.6935
      mode certified: Newton decrement 2e-13, condition number 1, 6 iterations
    """
    names = names_of_sites("sites", sites)
    if not callable(model):
        raise TypeError(f"A model is a function of its data, not {model!r}.")
    if structure not in ("dense", "sparse"):
        raise ValueError(f'structure is "dense" or "sparse", not {structure!r}')
    return MarginalModel(model, names, structure)


@dataclass(frozen=True)
class MarginalModel:
    """What :func:`marginalize` returns: a NumPyro model.

    In the book: :eq:`hierarchical-marginal` of :doc:`/book/hierarchical`.

    Attributes:
        model: the model with all its sites.
        sites: the names of those that are integrated out.
        structure: of their precision.
        pattern: which of the patterns that data of the same shapes had is in its programs.
    """

    model: Callable
    sites: tuple[str, ...]
    structure: str = "dense"
    pattern: int = 0
    is_marginal: ClassVar[bool] = True  # told by this where its class is not known

    @property
    def __name__(self) -> str:
        return f"{getattr(self.model, '__name__', 'model')} without {' and '.join(self.sites)}"

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """Sample the other latent sites, and add the log of the integral over these."""
        call, hyper, hidden = self._seen(args, kwargs)
        with handlers.trace() as trace, handlers.block(hide=hidden):
            handlers.substitute(self.model, substitute_fn=self._placeholder)(*args, **kwargs)
        if not integrals_are_wanted():
            numpyro.factor(f"integral of {self._listed}", jnp.zeros(()))
            return
        values = {name: jnp.asarray(trace[name]["value"], float) for name in hyper}
        try:
            with InWorkingPrecision():
                integral = self._integral(call, values, self._reference(values, args, kwargs))
        except LaplaceError as error:
            if is_traced(values):
                raise
            raise self.refusal(values, error) from error
        numpyro.factor(f"integral of {self._listed}", integral)

    def given(self, hyper: Mapping[str, Any], *args: Any, **kwargs: Any) -> LaplaceApproximation:
        """The approximation of the sites that are integrated out, given the others.

        Args:
            hyper: site -> value of the other latent sites.
            args: the model's positional arguments.
            kwargs: its keyword arguments.

        Raises:
            ValueError: a site is missing in ``hyper``, or has another shape.
            LaplaceError: there is none: as :func:`~laplacebook.laplace` says.
        """
        call, names, _ = self._seen(args, kwargs)
        values = _values("hyper", hyper, call, names, ())
        return laplace(_Given(), call, values, structure=self.structure)

    def density_given(self, hyper: Mapping[str, Any], *args: Any, **kwargs: Any) -> ModelDensity:
        """The log joint of the sites that are integrated out, with the others at these values.

        Args:
            hyper: site -> value of the other latent sites.
            args: the model's positional arguments.
            kwargs: its keyword arguments.
        """
        call, names, _ = self._seen(args, kwargs)
        return ModelDensity.of(_Given(), (call, {name: hyper[name] for name in names}))

    def sample(
        self, key: Key[Array, ""], samples: Mapping[str, Any], *args: Any, **kwargs: Any
    ) -> dict[str, Array]:
        """Draws of the sites that were integrated out, one for each draw of the others.

        With these, ``{**samples, **draws}`` has all sites of the model, for NumPyro's ``Predictive`` and
        for ArviZ.

        Args:
            key: a JAX random key.
            samples: site -> draws of the other latent sites, as ``mcmc.get_samples()`` or
                ``approx.sample(key, (S,))`` of the marginal model returns them, shape ``(S, *value shape)``.
            args: the model's positional arguments.
            kwargs: its keyword arguments.

        Returns:
            A dict of site -> draws, shape ``(S, *value shape)``.

        Raises:
            ValueError: a site is missing in ``samples``, or has another shape, as draws by chain.
            TypeError: ``key`` is no random key.
            LaplaceError: at a draw the sites have no mode: as :meth:`given` says there.
        """
        require_key(key)
        call, names, _ = self._seen(args, kwargs)
        first = np.shape(samples.get(names[0], ()))[:1]
        values = _values("samples", samples, call, names, first or ("S",))
        number = first[0]
        if self.structure == "sparse":  # of numbers, one by one
            keys = jax.random.split(key, number)
            given = [
                self.given({n: x[i] for n, x in values.items()}, *args, **kwargs)
                for i in range(number)
            ]
            each = [one.sample(k) for one, k in zip(given, keys, strict=True)]
            return jax.tree.map(lambda *x: jnp.stack(x), *each)
        draws, sound = _draws(call, values, jax.random.split(key, number))
        failed = np.flatnonzero(~np.asarray(sound))
        if failed.size:
            self.given({name: value[failed[0]] for name, value in values.items()}, *args, **kwargs)
        return draws

    def refusal(self, values: Mapping[str, Any], error: LaplaceError) -> LaplaceError:
        """The error of a fit of the sites given the others, with the values of these.

        Args:
            values: site -> value of the others.
            error: what :meth:`given` raised there.
        """
        at = ", ".join(
            f"{k} = {np.array2string(np.asarray(v), precision=4)}" for k, v in values.items()
        )
        refusal = type(error)(f"{self._listed} cannot be integrated out where {at}:")
        refusal.args = (f"{refusal}\n{error}",)
        return refusal

    def log_joints_at(
        self, density: ModelDensity, points: Float[np.ndarray, "S D"], progress_bar: bool | None
    ) -> Float[np.ndarray, " S"]:
        """As :func:`laplacebook.beyond.log_joints_at.log_joints_at`, for what is below this room."""
        from laplacebook.beyond.log_joints_at import log_joints_at

        return log_joints_at(density, points, progress_bar)

    def prepare(self, args: tuple, kwargs: Mapping[str, Any]) -> "MarginalModel":
        """Look at the data where their numbers are known, before a program is made of the model.

        Args:
            args: the model's positional arguments.
            kwargs: its keyword arguments.

        Returns:
            The same model, which is another one to compiled programs where the pattern is not theirs.
        """
        if self.structure == "dense" or is_traced((args, dict(kwargs))):
            return self
        _require_double()
        with at_once(), InWorkingPrecision():
            given = self._given_somewhere(args, kwargs)
            if given is None:
                raise UnsupportedModel(
                    f"{self.__name__!r} closes over a number that is not known within jit, vmap or grad, and where "
                    "its Hessian has entries is looked up in numbers.",
                    remedy='make that number a latent site, in which there are derivatives; or structure="dense".',
                )
            return replace(self, pattern=keep_integral(given))

    def followed(self, args: tuple, kwargs: Mapping[str, Any]) -> SparseIntegral | None:
        """What remembers the last mode of these data, where ``structure`` is sparse and they were looked at."""
        with at_once(), InWorkingPrecision():
            given = self._given_somewhere(args, kwargs)
            return None if given is None else kept_integral(given)

    def _given_somewhere(self, args: tuple, kwargs: Mapping[str, Any]) -> ModelDensity | None:
        """The effects given the others; None where the model closes over what is not known."""
        call, hyper, _ = self._seen(args, dict(kwargs))
        whole = ModelDensity(call, "unconstrained")
        point = middle(whole)
        if is_traced(point):
            return None
        point = np.asarray(point, float)
        if self.structure == "sparse":
            if is_traced(hessian_product(whole, point, np.ones_like(point))):
                return None
            point = generic_point(whole, point)
        known = jax.tree.map(lambda x: x[0], values_at(whole, point[None]))
        return ModelDensity.of(_Given(), (call, {name: known[name] for name in hyper}))

    def _reference(
        self, values: dict[str, Array], args: tuple, kwargs: dict
    ) -> Float[np.ndarray, " d"] | None:
        """Near where searches are to begin, in a program that knows the data, as those of samplers do."""
        if self.structure == "sparse" or not is_traced(values) or is_traced((args, kwargs)):
            return None
        with at_once(), InWorkingPrecision():
            given = self._given_somewhere(args, kwargs)
            return None if given is None else reference_of(given)

    def _integral(
        self, call: Call, values: dict[str, Array], reference: Float[np.ndarray, " d"] | None
    ) -> Float[Array, ""]:
        density = ModelDensity.of(_Given(), (call, values))
        if reference is not None:
            fit = search(density, begin_at(density, reference))
            return fit.log_likelihood + fit.log_prior + fit.precision.log_volume()
        if self.structure == "dense":
            return laplace(_Given(), call, values).log_evidence
        _require_double()
        if kept_integral(density) is None:
            self.prepare(*call.arguments)
        integral = kept_integral(density)
        if integral is None:
            raise UnsupportedModel(
                "Where its Hessian has entries cannot be seen within a compiled program that takes the data as "
                "an argument.",
                remedy=f"call {self.__name__!r}.prepare((data, ...), {{}}) first, or close over the data.",
            )
        found = integral(density)
        if not is_traced(found) and np.isnan(found):
            laplace(_Given(), call, values, structure="sparse")  # which raises, and says why
            if known_pattern(density) is not integral.pattern:
                raise LaplaceError(
                    f"The Hessian of {self._listed} has entries there that it did not have where its pattern was "
                    "looked for.",
                    causes=[
                        "a term that is zero until some effects have passed a threshold, within a loop"
                    ],
                    remedy="do the same once more: the pattern is that of this point from now on.",
                )
        return found

    @property
    def _listed(self) -> str:
        return " and ".join(self.sites)

    def _seen(self, args: tuple, kwargs: dict) -> tuple[Call, list[str], list[str]]:
        """The call, the latent sites that are left, and the names of those that are not to be seen."""
        with InWorkingPrecision():
            call = Call.of(self.model, args, kwargs)
            density = ModelDensity(call, "unconstrained")
            require_entries(density)  # here, where the arguments have their names
        left = others_than(self.sites, density, "none would be left; use laplace.")
        refuse_dependence(density, left, self.sites, "marginalize over {left} as well.")
        return call, left, sorted(density.names - set(left))

    def _placeholder(self, message: dict) -> Array | None:
        """Any value for a site of which the value is not used."""
        if message["type"] != "sample" or message["name"] not in self.sites:
            return None
        bijection = biject_to(message["fn"].support)
        return bijection(jnp.zeros(bijection.inverse_shape(message["fn"].shape())))


def _values(
    name: str, given: Mapping[str, Any], call: Call, sites: list[str], leading: tuple
) -> dict[str, Array]:
    """The values of some sites, each of its shape after the leading ones."""
    if missing := [site for site in sites if site not in given]:
        raise ValueError(f"{name} lacks the latent sites {missing}; it has {list(given)}.")
    values = {site: jnp.asarray(given[site], float) for site in sites}
    for site in ModelDensity(call, "unconstrained").sites:
        shape = (*leading, *site.value_shape)
        if site.name in values and values[site.name].shape != shape:
            raise ValueError(
                f"{name}['{site.name}'] has to be of shape {shape}, not {values[site.name].shape}"
            )
    return values


@dataclass(frozen=True)
class _Given:
    """A model given some of its latent sites, without their priors."""

    __name__ = "the model given its other sites"

    def __call__(self, call: Call, values: dict[str, Array]) -> None:
        args, kwargs = call.arguments
        with handlers.block(hide=list(values)), handlers.substitute(data=values):
            call.function(*args, **kwargs)


def _require_double() -> None:
    if jnp.result_type(float) != np.float64:
        raise UnsupportedModel(
            'marginalize(model, sites, structure="sparse") works in double precision, and this is float32: the '
            "gradients of the integral, of which its Hessian is made by differences, would have too few digits.",
            remedy="call numpyro.enable_x64() at the top of the program, before any array is made.",
        )


def _draw(
    call: Call, values: dict[str, Array], key: Key[Array, ""]
) -> tuple[dict[str, Array], Array]:
    """A draw given the others, and whether there is an approximation to draw from."""
    approx = laplace(_Given(), call, values)
    return approx.sample(key), approx.certificate.converged


@jit
def _draws(call: Call, values: dict[str, Array], keys: Array) -> tuple[dict[str, Array], Array]:
    return jax.lax.map(lambda point: _draw(call, *point), (values, keys))
