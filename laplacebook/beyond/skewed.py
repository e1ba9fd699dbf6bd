"""The verb ``skewed(approx)``: a Gaussian made skew by third derivatives along each draw."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from math import log, pi, prod, sqrt
from os import PathLike

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jaxtyping import Array, Float, Key
from scipy import special

from laplacebook.base.checks import coordinates, require_numbers
from laplacebook.base.errors import LaplaceError, UnsupportedModel
from laplacebook.base.many_points import at_many
from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import on_host
from laplacebook.base.quick import in_full_precision, jit_quickly
from laplacebook.beyond.by_draws import ByDraws
from laplacebook.curvature.hessian import twice_differentiable
from laplacebook.fit.functions import number_of_draws
from laplacebook.fit.require_fit import require_fit, require_posterior
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.saved_file import save
from laplacebook.fit.summary import improper_evidence
from laplacebook.model.density import ModelDensity

KIND = "skewed"  # in the header of a file
LARGE = (
    0.7  # nats: of single gamma-like and beta-like posteriors the mean is then off by 0.2 to 0.3 sd
)
_ROOT = sqrt(2 * pi) / 12
_DOUBTFUL = 0.4  # nats: there by 0.1
_LOOKED = 512  # directions
EXACT = ("dense", "sparse")  # structures that keep the whole Hessian


@in_full_precision
def skewed(approx: LaplaceApproximation) -> "SkewedApproximation":
    """The approximation made skew by the third derivatives of the log joint at its mode.

    With x = u - u_MAP, q(u) = N(u_MAP, A^-1) and the third derivative of the log joint along x, t(x), the density is

    ``2 q(u) Phi(sqrt(2 pi)/12 t(x))``,

    with the normal distribution function Phi. It is normalised whatever t is, since t is odd, and agrees with the
    posterior up to the term of order N^(-1/2) that a Gaussian leaves out: its error in total variation falls as 1/N,
    up to a power of log N (Durante, Pozza and Szabo 2024, Annals of Statistics 52, 2714-2737, section 4). A
    draw of it is a draw x of the Gaussian, or -x with the probability ``1 - Phi(...)``: exact, for one derivative
    of third order along x, which costs about eight evaluations of the log joint.

    Means and quantiles move towards the longer tail; mean squares about the mode stay those of q, and so does the log
    evidence, whose next term :func:`~laplacebook.corrected_evidence` adds.

    In the book: :eq:`accuracy-skewed`, and its order, :prf:ref:`accuracy-skew-order`, of :doc:`/book/accuracy`.

    Args:
        approx: what :func:`~laplacebook.laplace` returned, with the exact Hessian as its curvature.

    Returns:
        A :class:`SkewedApproximation`.

    Raises:
        TypeError: ``approx`` is no Laplace approximation.
        ValueError: it is a batch; within a compiled program.
        UnsupportedModel: its curvature is not the Hessian, or only a part of it was kept; JAX cannot
            differentiate the log joint three times.
        LaplaceError: the fit failed; the cubic term is too large for an expansion, above 0.7 nats at a
            typical draw.

    >>> import numpyro, numpyro.distributions as dist
    >>> from laplacebook import laplace
    >>> def coin(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)
    >>> skewed(laplace(coin, jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0])))  # mean 0.7692, interval 0.5619 to 0.9281
    Skewed Laplace approximation of coin, D = 1
      site     mean      sd     5 %    95 %
      theta  0.7678  0.1067  0.5712  0.9186
      cubic term 0.23 nats at a typical draw of the Gaussian
      log evidence -4.7301 (that of the Gaussian)
      mode certified: ...
    """
    require_fit(approx, mappable=False)
    require_numbers("skewed", approx)
    require_posterior(approx.density)
    settings = approx.settings
    if settings.curvature != "hessian" or settings.structure not in EXACT:
        raise UnsupportedModel(
            "The skew correction is a term of the expansion about a mode of which the second one is the whole "
            f"Hessian; this fit has curvature={settings.curvature!r}, structure={settings.structure!r}.",
            remedy='fit with curvature="hessian" and structure="dense", or "sparse" where there are many '
            "coordinates.",
        )
    size = cubic_term(approx)
    if not size <= LARGE:
        raise LaplaceError(
            f"The cubic term of the log joint of {approx.density.name} is {size:.2g} nats at a typical draw of the "
            f"approximation: an expansion in which it is to be small, up to {LARGE}, says nothing.",
            causes=[
                "a long tail or a bound near the mode",
                "few data for many coordinates, of which each adds to it",
            ],
            remedy="take weighted draws, lb.resampled(approx, key), if their k-hat allows; integrate the "
            "hyperparameters of a hierarchy, lb.nested(model, ...); or sample, lb.nuts(approx, key).",
        )
    return SkewedApproximation(approx, size)


@dataclass(frozen=True, repr=False)
class SkewedApproximation(ByDraws):
    """A Gaussian made skew by third derivatives: what :func:`skewed` returns.

    Moments and quantiles are those of 8,192 pairs of draws (fewer above 4,096 coordinates) to both sides of the mode
    with a fixed key, each weighted by its probability: means have a standard error of about a hundredth of the
    standard deviation.

    In the book: :eq:`accuracy-skewed` of :doc:`/book/accuracy`.

    Attributes:
        gaussian: the Laplace approximation.
        cubic: the root mean square of the cubic term of the log joint at draws of it, in nats.
    """

    gaussian: LaplaceApproximation
    cubic: float

    @property
    def title(self) -> str:
        """What it is, in words."""
        return "Skewed Laplace approximation"

    @property
    def density(self) -> ModelDensity:
        """The log joint that is approximated."""
        return self.gaussian.density

    @property
    def log_evidence(self) -> Array:
        """The log evidence of the Laplace approximation, to which a term that is odd about the mode adds nothing."""
        return self.gaussian.log_evidence

    @in_full_precision
    def log_density(self, u: Float[Array, " D"]) -> Float[Array, ""]:
        """The logarithm of the density at u of shape (D,), in the coordinates of the fit; any other is a ValueError."""
        mode = self.gaussian.mode_vector
        offset = coordinates(u, mode.shape, name="u") - mode
        tilt = _ROOT * _third(self.density, mode, offset)
        return log(2) + self.gaussian.log_density(u) + log_ndtr(tilt)

    def log_densities(
        self, offset: Float[np.ndarray, "S D"], log_gaussian: Float[np.ndarray, " S"]
    ) -> Float[np.ndarray, " S"]:
        """The same at many points, of which the distance from the mode and the Gaussian density are known."""
        return log(2) + log_gaussian + special.log_ndtr(_ROOT * _thirds(self.gaussian, offset))

    def _draw(self, key: Key[Array, ""], number: int) -> Float[np.ndarray, "S D"]:
        normal, side = jax.device_get(_random(key, number, self.gaussian.mode_vector.size))
        offset = _offsets(self.gaussian, normal.astype(float))
        is_right = side < self._right(offset)
        return np.asarray(self.gaussian.mode_vector) + np.where(is_right[:, None], offset, -offset)

    @property
    def unseen(self) -> str | None:
        """What is known of modes elsewhere, by a diagnosis of it or of the fit that it is made of; or None."""
        return self._unseen or self.gaussian.unseen

    @property
    def inherited(self) -> str | None:
        """The verdict on the fit that it is made of, whose log evidence it has; or None."""
        of_shape = self.gaussian.of_shape
        return f"the Gaussian was diagnosed {of_shape}" if of_shape else None

    @property
    def doubt_at_a_glance(self) -> str | None:
        """What :attr:`doubt` says where no diagnosis was asked for, that the cubic term is above 0.4 nats.

        Or that the fit knows other modes, with more than 1 % of the evidence.
        """
        others = self.unseen
        if others is not None or self.cubic <= _DOUBTFUL:
            return others
        return (
            f"the cubic term is {self.cubic:.2f} nats at a typical draw, so that the terms that are left out "
            "are not small"
        )

    def save(self, path: str | PathLike) -> None:
        """Write the numbers of the approximation to a file that :func:`~laplacebook.load` reads.

        Args:
            path: of the file, which is a NumPy ``.npz`` archive without pickled objects. The model
                and its data are not in it.

        Raises:
            UnsupportedModel: it is of a plain density.
        """
        save(self.gaussian, path, {"kind": KIND, "cubic": self.cubic, **self._judged})

    def _lines(self) -> list[str]:
        return [
            f"cubic term {self.cubic:.2g} nats at a typical draw of the Gaussian",
            f"log evidence {self.log_evidence:.4f} (that of the Gaussian)",
            *improper_evidence(self.density),
            str(self.gaussian.certificate),
        ]

    @cached_property
    def _joint(self) -> tuple[np.ndarray, np.ndarray]:
        size = self.gaussian.mode_vector.size
        normal = np.random.default_rng(1).standard_normal((number_of_draws(size), size))
        offset = _offsets(self.gaussian, normal)
        right = self._right(offset)
        weights = np.concatenate([right, 1 - right]) / len(offset)
        return np.asarray(self.gaussian.mode_vector) + np.r_[offset, -offset], weights

    def _right(self, offset: Float[np.ndarray, "S D"]) -> Float[np.ndarray, " S"]:
        """The probability of each side, against that opposite to the mode."""
        return special.ndtr(_ROOT * _thirds(self.gaussian, offset))


@partial(jit_quickly, work=lambda _, *shape: prod(shape), static_argnames=("number", "size"))
def _random(key: Key[Array, ""], number: int, size: int) -> tuple[Array, Array]:
    """What so many draws are made of: normal vectors, and uniform numbers for their sides."""
    to_offset, to_side = jax.random.split(key)
    return jax.random.normal(to_offset, (number, size)), jax.random.uniform(to_side, (number,))


def cubic_term(approx: LaplaceApproximation) -> float:
    """The root mean square of the cubic term of the log joint under the Gaussian, in nats.

    Of the sixth power of the length of a draw the mean is known; directions are drawn.

    Args:
        approx: with the exact Hessian as its curvature.

    Raises:
        UnsupportedModel: JAX cannot differentiate the log joint three times.
    """
    size = approx.mode_vector.size
    normal = np.random.default_rng(0).standard_normal((_LOOKED, size))
    ways = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    cubic = _thirds(approx, _offsets(approx, ways)) / 6
    return float(np.sqrt(size * (size + 2) * (size + 4) * np.mean(cubic**2)))


def _offsets(
    approx: LaplaceApproximation, normal: Float[np.ndarray, "S D"]
) -> Float[np.ndarray, "S D"]:
    """Vectors in posterior standard deviations, as steps from the mode."""
    mode, precision = on_host((approx.mode_vector, approx.precision))
    return np.asarray(precision.whitened(normal.T.astype(mode.dtype))).T


def _thirds(approx: LaplaceApproximation, offset: Float[Numbers, "S D"]) -> Float[np.ndarray, " S"]:
    if not len(offset):
        return np.empty(0)
    with twice_differentiable():
        thirds = at_many(_third, (approx.density, approx.mode_vector), offset, progress_bar=False)
    return np.asarray(thirds, float)


def _third(density: ModelDensity, mode: Float[Array, " D"], way: Float[Array, " D"]) -> Array:
    """The third derivative of the log joint at the mode along a way."""

    def slope(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
        return lambda t: jax.jvp(function, (t,), (jnp.ones_like(t),))[1]

    def height(t: Array) -> Array:
        return -density.loss(mode + t * way)[0]

    return slope(slope(slope(height)))(jnp.zeros((), mode.dtype))
