"""The verb ``mixture(fits)``: several Gaussians, each weighted by its evidence."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int, Key

from laplacebook.base.checks import require_numbers
from laplacebook.base.keys import split_into
from laplacebook.base.many_points import at_many
from laplacebook.base.namespace import logsumexp as host_logsumexp
from laplacebook.base.pytrees import on_host
from laplacebook.base.quick import in_full_precision, jit_quickly
from laplacebook.beyond.by_draws import ByDraws
from laplacebook.fit.digest import is_key
from laplacebook.fit.functions import number_of_draws
from laplacebook.fit.laplace import by_height, distinct, log_joint
from laplacebook.fit.require_fit import require_fit, require_posterior
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.saved_file import save
from laplacebook.fit.summary import improper_evidence, left_of_curvature, left_out
from laplacebook.gaussian.precision import Precision
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.model.fingerprint import is_data
from laplacebook.model.observations import observed_numbers, same_numbers
from laplacebook.model.plain_function import is_plain

KIND = "mixture"  # in the header of a file
_ROWS = 10  # shares that are printed
_LEAST = 64  # pairs of draws of a component
_OVERLAP = (
    0.1  # of the mass that another component holds at the mode of one: the evidence counts it twice
)


@in_full_precision
def mixture(fits: LaplaceApproximation | Sequence[LaplaceApproximation]) -> "MixtureApproximation":
    """The modes that were found, each a Gaussian weighted by its evidence.

    q(u) = sum over k of w_k N(u_k, A_k^-1), with w_k in proportion to the Laplace approximation of the integral of
    the joint density near mode k, of which the log evidence is the sum (Tierney and Kadane 1986, section 2; Gelman
    et al. 2013, Bayesian Data Analysis, section 13.2). A mode that was found twice, within a tenth of a posterior
    standard deviation, counts once. Distinct ones count each, copies by a symmetry of the model too: of the K! orders
    in which the components of a mixture model may be named those count that were found.

    In the book: :doc:`/book/trust`.

    Args:
        fits: a fit with other modes, as ``laplace(..., starts=8, key=...)`` returns it; or several fits of the same
            model and data, such as networks that were trained from several starts.

    Returns:
        A :class:`MixtureApproximation`.

    Raises:
        TypeError: one of them is no Laplace approximation.
        ValueError: there is none; one is a batch; they are of other models or data, in other spaces or of other
            curvatures (rows at a time and tolerances may differ, and a sparse Hessian is as whole as a dense one);
            within a compiled program.
        LaplaceError: a fit failed.

    >>> import numpyro, numpyro.distributions as dist
    >>> from laplacebook import laplace
    >>> def root(y):
    ...     x = numpyro.sample("x", dist.Normal(0, 3))
    ...     numpyro.sample("y", dist.Normal(x**2, 1), obs=y)
    >>> mixture(laplace(root, 4.0, starts=8, key=jax.random.key(0)))  # exactly -2.8956
    Mixture of 2 Laplace approximations of root, D = 1
      site  ...
      shares 0.5, 0.5: distinct modes, copies by symmetry among them, count each
      log evidence -2.9244
    """
    several = list(fits) if isinstance(fits, Iterable) else [fits]
    if not several:
        raise ValueError("mixture takes one fit or more, and here is none")
    for fit in several:
        require_fit(fit, mappable=False)
        require_posterior(fit.density)
    require_numbers("mixture", several)
    found = [mode for fit in several for mode in (alone(fit), *fit.other_modes)]
    _require_same(found)
    return MixtureApproximation(tuple(distinct(by_height(found))))


def alone(fit: LaplaceApproximation) -> LaplaceApproximation:
    """A fit without its other modes; what a diagnosis found stays known of it."""
    return _beside(fit, ()) if fit.other_modes else fit


def _beside(
    fit: LaplaceApproximation, others: tuple[LaplaceApproximation, ...]
) -> LaplaceApproximation:
    one = replace(fit, other_modes=others)
    one.remember(fit._diagnosed, fit.of_shape, fit.found, fit._unseen)
    return one


def _require_same(fits: Sequence[LaplaceApproximation]) -> None:
    """Refuse fits that are not of one posterior.

    Raises:
        ValueError: they are not.
    """
    first, *others = fits
    if others and first.settings.structure == "last_layer":
        raise ValueError(
            "Of a last layer the layers before are known, and others at each mode: these are fits of several "
            "models, each with a posterior of its own."
        )
    for fit in others:
        if (fit.density.sites, fit.space) != (first.density.sites, first.space):
            raise ValueError(
                f"The fits are of models with other latent sites, or in other spaces: {first.density.name}, "
                f"{first.space}, and {fit.density.name}, {fit.space}. A mixture is of one posterior; lb.compare "
                "compares several."
            )
        kinds = left_of_curvature(first.settings), left_of_curvature(fit.settings)
        if kinds[0] != kinds[1]:
            raise ValueError(
                f"The fits have other curvatures or structures: {' and '.join(kinds)}."
            )
        if not _same_data(first, fit):
            raise ValueError(
                f"The fits are of other models or other data: the numbers that {fit.density.name} is called with, or "
                "observes, differ. A mixture is of one posterior, and of its data in one order; lb.compare compares "
                "several."
            )
        here = float(_log_joint(first.density, fit.mode_vector))
        there = log_joint(fit)
        allowed = float(jnp.finfo(fit.mode_vector.dtype).eps) ** 0.5 * max(1.0, abs(there))
        if not abs(here - there) <= allowed:
            raise ValueError(
                f"The fits are of other models or other data: at the mode of one of them its log joint is {there:.8g}, "
                f"and that of the first {here:.8g}. A mixture is of one posterior; lb.compare compares several."
            )


def _same_data(first: LaplaceApproximation, fit: LaplaceApproximation) -> bool:
    """Whether the numbers among the arguments are the same or, of another function or form, the observed ones."""
    one, other = first.density, fit.density
    if one is other or one.placement is not None or other.placement is not None:
        return True
    given, numbers = _numbers_in(one.call), _numbers_in(other.call)
    if one.call.fixed_function == other.call.fixed_function and len(given) == len(numbers):
        return all(map(_are_equal, given, numbers))
    if is_plain(one) or is_plain(other):
        return True
    seen = observed_numbers(one, first.mode_vector)
    numbers_seen = observed_numbers(other, fit.mode_vector)
    return seen is None or numbers_seen is None or _are_equal(seen, numbers_seen)


def _numbers_in(call: Call) -> list[np.ndarray]:
    """Those among the arguments, one array each."""
    leaves = [
        x for x in jax.tree.leaves(call.arguments) if is_data(x) or isinstance(x, int | float)
    ]
    known = [np.ravel(np.asarray(x)) for x in leaves if not is_key(x)]
    return [x if x.dtype.kind == "f" else x.astype(float) for x in known if x.dtype.kind in "biuf"]


def _are_equal(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=True) or same_numbers(one, other)


@jit_quickly
def _log_joint(density: ModelDensity, u: Array) -> Array:
    return density.log_joint(u)


@dataclass(frozen=True, repr=False)
class MixtureApproximation(ByDraws):
    """Several Gaussians, each weighted by its evidence: what :func:`mixture` returns.

    Moments and quantiles are those of 16,384 draws with a fixed key (fewer above 4,096 coordinates), of each
    component by its share and at least 128, in pairs to both sides.

    In the book: :doc:`/book/trust`.

    Attributes:
        components: the Laplace approximations at the modes, by falling log joint.
    """

    components: tuple[LaplaceApproximation, ...]

    @property
    def title(self) -> str:
        """What it is, in words."""
        number = len(self.components)
        return f"Mixture of {number} Laplace approximation{'s' if number > 1 else ''}"

    @property
    def density(self) -> ModelDensity:
        """The log joint that is approximated."""
        return self.components[0].density

    @property
    def gaussians(self) -> tuple[LaplaceApproximation, ...]:
        """The components."""
        return self.components

    @property
    def log_evidence(self) -> float:
        """The logarithm of the sum of the evidences of the components."""
        return float(host_logsumexp(self._log_evidences))

    @property
    def shares(self) -> Float[np.ndarray, " K"]:
        """The share of each component in the evidence, its weight."""
        return np.exp(self._log_evidences - self.log_evidence)

    @in_full_precision
    def log_density(self, u: Float[Array, " D"]) -> Float[Array, ""]:
        """log q(u), for u of shape (D,), in the coordinates of the fits; any other is a ValueError."""
        logs = [one.log_density(u) for one in self.components]
        return logsumexp(jnp.stack(logs) + jnp.log(jnp.asarray(self.shares)))

    def _draw(self, key: Key[Array, ""], number: int) -> Float[np.ndarray, "S D"]:
        to_component, to_draw = split_into(key)
        logs = jnp.log(jnp.asarray(self.shares))
        index = np.asarray(jax.random.categorical(to_component, logs, shape=(number,)))
        size = self.components[0].mode_vector.size
        normal = np.asarray(jax.random.normal(to_draw, (number, size)), float)
        return self.points(index, normal)

    def points(
        self, index: Int[np.ndarray, " S"], normal: Float[np.ndarray, "S D"]
    ) -> Float[np.ndarray, "S D"]:
        """The points of some components, of vectors in posterior standard deviations.

        Args:
            index: of the component of each, shape (S,).
            normal: the vectors, shape (S, D).
        """
        u = np.empty_like(normal)
        for k, one in enumerate(self.components):
            mode, precision = on_host((one.mode_vector, one.precision))
            rows = index == k
            u[rows] = mode + np.asarray(precision.whitened(normal[rows].T.astype(mode.dtype))).T
        return u

    @property
    def doubt_at_a_glance(self) -> str | None:
        """What :attr:`doubt` says where no diagnosis was asked for, that components overlap, or one is doubtful."""
        overlap = self._overlap
        if overlap > _OVERLAP:
            return (
                f"the components overlap: at their modes the others hold {overlap:.0%} of the density, which the "
                "evidence counts twice"
            )
        return self.unseen or self._of_a_component("doubt_at_a_glance")

    @property
    def unseen(self) -> str | None:
        """What is known of modes that are none of the components, or None."""
        known = self._unseen or self._left_out
        return known or self._of_a_component("_unseen")

    @property
    def _left_out(self) -> str | None:
        found = [mode for one in self.components for mode in one.found]
        if not found:
            return None
        others = distinct([*self.components, *by_height(found)])[len(self.components) :]
        line = "lb.mixture([approx, *diagnosis.other_modes])"
        return left_out(self._log_evidences.tolist(), [one.log_evidence for one in others], line)

    @property
    def inherited(self) -> str | None:
        """The verdict on a component, without what it says of other modes; or None."""
        return self._of_a_component("of_shape", "diagnosed ")

    def _of_a_component(self, name: str, before: str = "") -> str | None:
        """What is said of the first of the large components of which something is."""
        for share, one in zip(self.shares, self.components, strict=True):
            said = getattr(one, name) if share > _OVERLAP else None
            if said:
                return f"of the component with a share of {share:.2f}, {before}{said}"
        return None

    def save(self, path: str | PathLike) -> None:
        """Write the numbers of the approximation to a file that :func:`~laplacebook.load` reads.

        Args:
            path: of the file, which is a NumPy ``.npz`` archive without pickled objects. The model
                and its data are not in it.

        Raises:
            UnsupportedModel: it is of a plain density.
        """
        first, *others = self.components
        save(_beside(first, tuple(others)), path, {"kind": KIND, **self._judged})

    def _lines(self) -> list[str]:
        shares = ", ".join(f"{share:.3g}" for share in self.shares[:_ROWS])
        more = f" and {len(self.shares) - _ROWS} more" if len(self.shares) > _ROWS else ""
        counted = "distinct modes, copies by symmetry among them, count each"
        return [
            f"shares {shares}{more}: {counted}"
            if len(self.components) > 1
            else "one mode: laplace(..., starts=8, key=...) looks for others",
            f"log evidence {self.log_evidence:.4f}",
            *improper_evidence(self.density),
        ]

    @cached_property
    def _log_evidences(self) -> Float[np.ndarray, " K"]:
        with jax.ensure_compile_time_eval():  # where the density is a part of a reader's program
            return np.array([float(one.log_evidence) for one in self.components])

    @cached_property
    def _overlap(self) -> float:
        if len(self.components) == 1:
            return 0.0
        modes = np.stack([np.asarray(one.mode_vector) for one in self.components])
        with np.errstate(divide="ignore"):
            logs = log_gaussians(self.components, modes) + np.log(self.shares)[:, None]
        own = np.diagonal(logs) - host_logsumexp(logs.T)
        return float(1 - self.shares @ np.exp(own))

    @cached_property
    def _joint(self) -> tuple[np.ndarray, np.ndarray]:
        each, size = self._pairs, self.components[0].mode_vector.size
        normal = np.random.default_rng(1).standard_normal((each.max(), size))
        both = np.concatenate([np.r_[normal[:n], -normal[:n]] for n in each])
        u = self.points(np.repeat(np.arange(len(each)), 2 * each), both)
        return u, np.repeat(self.shares / (2 * each), 2 * each)

    @property
    def _pairs(self) -> Int[np.ndarray, " K"]:
        """How many pairs of draws stand for each component."""
        number = number_of_draws(self.components[0].mode_vector.size)
        return np.maximum(np.ceil(number * self.shares), _LEAST).astype(int)

    @property
    def moment_error(self) -> float:
        """The standard error of its means, in standard deviations."""
        return float(np.sqrt(np.sum(self.shares**2 / self._pairs)))


def log_gaussians(
    components: Iterable[LaplaceApproximation], u: Float[np.ndarray, "S D"]
) -> Float[np.ndarray, "K S"]:
    """The log density of each of some Gaussians at each of some points.

    Args:
        components: Laplace approximations.
        u: points in their coordinates, shape (S, D).
    """
    logs = []
    for one in components:
        distances = at_many(_distance, (one.mode_vector, one.precision), u, progress_bar=False)
        logs.append(-np.asarray(distances, float) / 2 - float(one.precision.log_volume()))
    return np.stack(logs)


def _distance(mode: Float[Array, " D"], precision: Precision, u: Float[Array, " D"]) -> Array:
    """The squared distance from a mode in posterior standard deviations."""
    return (u - mode) @ precision.matvec(u - mode)
