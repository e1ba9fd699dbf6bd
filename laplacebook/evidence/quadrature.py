"""The evidence by adaptive Gauss-Hermite quadrature: Laplace's method with more than one point."""

from functools import lru_cache
from warnings import warn

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.checks import require_number
from laplacebook.base.errors import DoubtfulFit
from laplacebook.base.many_points import at_many
from laplacebook.base.namespace import Numbers, logsumexp
from laplacebook.base.pytrees import from_host, is_traced, on_host
from laplacebook.base.weights import defined
from laplacebook.fit.require_fit import require_fit, require_proper, warn_of_modes
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity

DIMENSIONS = 5  # at most: a grid in more of them takes too many points
POINTS = 10**8  # at most
OUTSIDE = 0.01  # of q: a density that is cut off there by so much is no polynomial times q
NODES = 200  # at most in one dimension: of more, the outer ones have a weight that underflows


def gauss_hermite(
    approx: LaplaceApproximation, num_points: int = 20, *, progress_bar: bool | None = None
) -> Float[Array, ""]:
    """The log evidence by adaptive Gauss-Hermite quadrature, for at most five dimensions.

    On a grid of K points in each of D dimensions, centred at the mode and scaled and rotated by the
    factor L of A = L L' (Liu and Pierce 1994, Biometrika 81, 624-629). One point is the Laplace
    approximation; K points are exact where the posterior is q times a polynomial of degree 2K - 1
    in each coordinate. To see how far it has converged, compare two values of K: on a tail much
    heavier than that of q, or several modes, it converges slowly or not at all, and nothing in one
    value tells.

    In the book: :eq:`sigmoid-coin-rule` and :prf:ref:`sigmoid-coin-exact` of
    :doc:`/book/computing-evidence`.

    Args:
        approx: the approximation q = N(u_MAP, A^-1).
        num_points: K; the grid has K^D points.
        progress_bar: shown after two seconds; by default where standard error is a terminal.

    Returns:
        log p(D), a scalar: a deterministic number, without a standard error.

    Raises:
        ValueError: K is not a whole number between 1 and 200, D is above five, or the grid has
            above 10^8 points (the message says how many); ``approx`` is a batch.
        UnsupportedModel: a prior is improper, or left out (``maximum_likelihood``).
        NonFinite: the log joint is NaN at a point of the grid.
        LaplaceError: the fit failed.

    Warns:
        DoubtfulFit: other modes of it are known, by several starts or a diagnosis, with more than 1 % of the
            evidence; or more than 1 % of q lies where there is no density (``space="constrained"``), so that the
            rule sums over a jump.

    >>> import numpyro, numpyro.distributions as dist
    >>> from laplacebook import laplace
    >>> def coin(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)
    >>> approx = laplace(coin, jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0]))
    >>> for K in [1, 3, 20]:  # 1/110 in the end
    ...     print(f"{jnp.exp(-gauss_hermite(approx, K)):.1f}")
    113.3
    111.2
    110.0
    """
    require_number("num_points", num_points)
    require_fit(approx)
    require_proper(approx.density)
    warn_of_modes(approx, "quadrature")
    dimension, number = approx.mode_vector.size, int(num_points)
    if dimension > DIMENSIONS or number**dimension > POINTS:
        raise ValueError(
            f"{number} points in each of {dimension} dimensions are {number}^{dimension} evaluations "
            f"of the log joint; quadrature is for D <= {DIMENSIONS} and at most {POINTS:.0e}. Use "
            "importance_sampling, whose error does not depend on D in this way, or fewer points."
        )
    if number > NODES:
        raise ValueError(f"num_points is at most {NODES}, not {number}.")
    rule = _rule(number, approx.mode_vector.dtype.name)
    operands = (approx.density, approx.mode_vector, approx.precision, num_points, *rule)
    values = at_many(_at_node, operands, np.arange(number**dimension), progress_bar)
    if not is_traced(values):
        _warn_of_an_edge(approx.density.name, values, number, dimension, rule[1])
    log_sum = logsumexp(defined(values, approx.density.name, "points of the grid"))
    return from_host(log_sum + on_host(approx.precision).log_volume())


def _warn_of_an_edge(
    name: str, values: Float[Numbers, " n"], number: int, dimension: int, log_weights: np.ndarray
) -> None:
    """Warn where the density ends within q: there a Gauss rule converges slowly, without a sign of it."""
    outside = np.flatnonzero(np.isneginf(values))
    of_node = sum(log_weights[outside // number**d % number] for d in range(dimension))
    share = float(np.exp(of_node).sum())
    if number > 1 and share > OUTSIDE:
        warn(
            f"The log evidence of {name} by quadrature is doubtful: {share:.0%} of the weight is at points without "
            "density, and a Gauss rule converges slowly across an edge. importance_sampling does not mind one; in the "
            "unconstrained space a prior's bound is none.",
            DoubtfulFit,
            stacklevel=3,
        )


def _at_node(
    density: ModelDensity,
    mode: Array,
    precision: Precision,
    num_points: Array,
    nodes: Array,
    log_weights: Array,
    number: Array,
) -> Array:
    """The weighted ratio of the joint density and that of a standard normal at one point."""
    digits = number // num_points ** jnp.arange(mode.size) % num_points
    z, log_weight = jnp.asarray(nodes)[digits], jnp.asarray(log_weights)[digits].sum()
    return density.log_joint(mode + precision.whitened(z)) + z @ z / 2 + log_weight


@lru_cache
def _rule(number: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and logarithms of weights for the standard normal, the weights with a sum of one.

    Filled up to one length, so that one compiled program serves any number of points.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(number)
    filling = (0, NODES - number)
    log_weights = np.log(weights / weights.sum())
    return np.pad(nodes, filling).astype(dtype), np.pad(log_weights, filling).astype(dtype)
