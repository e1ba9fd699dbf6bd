"""The evidence with the next term of its expansion."""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.corrected import Corrected
from laplacebook.base.errors import LaplaceError, or_in_double
from laplacebook.base.namespace import logsumexp, namespace
from laplacebook.base.pytrees import from_host, is_traced, loud, on_host
from laplacebook.base.quick import jit_quickly, numbers_in
from laplacebook.base.weights import defined
from laplacebook.curvature.hessian import twice_differentiable
from laplacebook.evidence.expansion import (
    Parabola,
    along,
    at_rows,
    dense,
    lines_at,
    loss_of,
    others_of,
    require_expansion,
)
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.require_fit import require_fit, require_proper
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity

DIMENSIONS = 50  # at most: fourth derivatives along 1,275 pairs of coordinates
LARGEST = 0.5  # nats that may be left out
_ROUNDING = (
    4  # units in the last place of the log joint: each of its terms takes several operations
)
_WORK = 100  # numbers that the fourth derivative along a pair computes for each of the data, about


def corrected_evidence(approx: Approximation) -> Corrected:
    """The log evidence of a fit with the next term of the expansion, of the order 1/N.

    With S = A^-1 and f the negative log joint, whose derivatives are taken at the mode in the
    coordinates u, Laplace's log evidence is corrected by

        f_ijk f_lmn S_ij S_kl S_mn / 8 + f_ijk f_lmn S_il S_jm S_kn / 12 - f_ijkl S_ij S_kl / 8

    (Shun and McCullagh 1995, Journal of the Royal Statistical Society B 57, 749-760; in one
    variable 5 a^2 / 24 - b / 8 with a = f''' / A^(3/2), b = f'''' / A^2). What is left out is of
    the order 1/N^2. An expansion is asymptotic: its terms are of use where they fall. So ``truncation``
    is the square of the correction or, if that is more, what the log joint leaves out along 32 or more
    lines through the mode, by 16 points on each, with what rounding does to it (in single precision a quarter
    of a nat of half a million); and there is no number where it is above half a nat.
    Of 63 beta, gamma, Student and quartic densities and regressions with 2 to 50 coefficients ten were
    refused, and the others off by at most 1.4 times ``truncation``, half of them by less than 0.4 times.

    It sees one mode; of a :func:`~laplacebook.mixture` it is the logarithm of the sum of the evidences about each,
    of the part of the posterior that is in proportion to the component there, so that nothing is counted twice.
    Of a model of :func:`~laplacebook.marginalize` it corrects the outer integral. Of one fit it works within ``jit``,
    ``vmap`` and ``grad``, where it is NaN instead of an error.

    In the book: :eq:`accuracy-corrected`, :eq:`laplace-several` and :prf:ref:`laplace-error` of :doc:`/book/accuracy`.

    Args:
        approx: what :func:`~laplacebook.laplace`, :func:`~laplacebook.laplace_of_density` or
            :func:`~laplacebook.mixture` returned.

    Returns:
        A :class:`Corrected`: ``value``, the log evidence; ``correction``; ``truncation``; and ``doubt``, which is
        printed, where a diagnosis called the fit bad or other modes of it are known.

    Raises:
        LaplaceError: more than half a nat is left out; or the fit failed.
        UnsupportedModel: a prior is improper, or left out; D is above 50; the precision is not the
            whole Hessian; JAX has not four derivatives of the log joint.
        NonFinite: the log joint is NaN on one of the lines.
        TypeError: ``approx`` is none of these.
        ValueError: ``approx`` is a batch.

    >>> import numpyro, numpyro.distributions as dist
    >>> from laplacebook import laplace
    >>> def coin(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)
    >>> approx = laplace(coin, jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0]))
    >>> corrected_evidence(approx)  # exactly log(1/110) = -4.7005
    -4.7004, corrected by 0.0297; leaves out about 0.0009
    """
    if isinstance(approx, LaplaceApproximation) or not isinstance(approx, Approximation):
        return _about_one(approx)
    if not approx.gaussians:
        raise TypeError(
            "corrected_evidence expands about the mode of a fit, or the modes of a mixture, and "
            f"{type(approx).__name__} is neither: pass the fit that it was made from. Of lb.nested and lb.resampled "
            "the log_evidence needs no further term."
        )
    parts = evidences_about(approx.gaussians)
    values = np.array([float(part.value) for part in parts])
    value = float(logsumexp(values))
    truncation = np.exp(values - value) @ [float(part.truncation) for part in parts]
    correction = value - float(approx.log_evidence)
    return Corrected(value, correction, float(truncation), doubt=approx.known_doubt)


def evidences_about(gaussians: Sequence[LaplaceApproximation]) -> list[Corrected]:
    """The corrected evidence of each component of a mixture: of that part of the posterior which it has.

    Raises:
        As :func:`corrected_evidence`.
    """
    return [_about_one(one, gaussians) for one in gaussians]


def _about_one(
    approx: LaplaceApproximation, gaussians: Sequence[LaplaceApproximation] = ()
) -> Corrected:
    require_fit(approx)
    require_proper(approx.density)
    require_expansion(approx, DIMENSIONS, "use importance_sampling(approx, key)")
    others = others_of(approx, gaussians)
    with twice_differentiable("four times"):
        correction, ratios, left_out = on_host(
            _expanded(approx.density, approx.mode_vector, dense(approx.precision), others)
        )
    defined(ratios, approx.density.name, "points on lines through the mode")
    truncation = namespace(correction).maximum(correction**2, left_out)
    small = truncation <= LARGEST
    if not is_traced(small) and not small:
        raise _not_small(approx, float(correction), float(truncation))
    factor = loud(small, correction.dtype)
    value = (on_host(approx.log_evidence) + correction) * factor
    numbers = map(from_host, (value, correction * factor, truncation * factor))
    return Corrected(*numbers, doubt=approx.known_doubt)


def _work(density: ModelDensity, mode: Array, precision: Precision, others: tuple) -> int:
    return _WORK * mode.size**2 * numbers_in((density, mode))


@partial(jit_quickly, work=_work, half=True)
def _expanded(
    density: ModelDensity,
    mode: Float[Array, " D"],
    precision: Precision,
    others: tuple[Parabola, ...],
) -> tuple[Float[Array, ""], Float[Array, " S"], Float[Array, ""]]:
    """The correction; the ratios along the lines; and how much more these say than it."""
    f = loss_of(density)
    steps = precision.whitened(jnp.eye(mode.size, dtype=mode.dtype)).T

    def of_pair(v: Array, w: Array) -> tuple[Array, Array]:
        """The third derivatives along v, w and each step, and the fourth along v, v, w and w."""
        third, bend = jax.jvp(jax.grad(along(f, v, w)), (mode,), (w,))
        return steps @ third, bend @ v

    lines = lines_at(density, mode, precision, others)
    i, j = np.triu_indices(mode.size)
    first, other = (jnp.concatenate([steps[k], lines.ways]) for k in (i, j))
    thirds, fourths = at_rows(of_pair, density, first, other)
    pairs, times = i.size, np.where(i == j, 1, 2)
    lean = thirds[:pairs][i == j].sum(axis=0)
    correction = lean @ lean / 8 + times @ jnp.sum(thirds[:pairs] ** 2, axis=1) / 12
    correction -= times @ fourths[:pairs] / 8

    third = jnp.sum(thirds[pairs:] * lines.units, axis=1)
    # Of these terms the mean over all of q is known: one, and the correction.
    told = (
        jnp.outer(third**2, lines.radii**6) / 72 - jnp.outer(fourths[pairs:], lines.radii**4) / 24
    )
    rest = lines.mean_of_each(lines.ratios.mean(axis=2) - 1 - told)
    mass = jnp.maximum(1 + correction + rest.mean(), 0)
    rounding = _ROUNDING * jnp.finfo(mode.dtype).eps * jnp.abs(f(mode))
    noise = jnp.hypot(rest.std() / rest.size**0.5, rounding)
    return correction, lines.ratios.ravel(), jnp.hypot(jnp.log(mass) - correction, noise)


def _not_small(approx: LaplaceApproximation, correction: float, truncation: float) -> LaplaceError:
    size = approx.mode_vector.size
    small = "gauss_hermite(approx), or " if size <= 5 else ""
    return LaplaceError(
        f"The next term of the log evidence of {approx.density.name} is {correction:.2g}, and what it "
        f"leaves out about {truncation:.2g}, more than {LARGEST} nats: the expansion says nothing here.",
        causes=[
            f"few data for D = {size} coordinates, or a strong lean or long tail",
            "a log joint that its derivatives at the mode do not tell: a kink, or another mode near by",
        ],
        remedy=f"use {small}importance_sampling(approx, key), whose error is known; or other "
        f"coordinates, in which the posterior is nearer to a Gaussian.{or_in_double(approx.mode_vector)}",
    )
