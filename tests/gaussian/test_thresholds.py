"""From both sides: which matrices are those of a normal distribution."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.gaussian.memory import require_dense
from laplacebook.gaussian.normal import kl_divergence, marginal
from tests.thresholds import Refused, check, sides

EPS = np.finfo(float).eps
ROOT = EPS**0.5


def normal(kind, matrix):
    return dist.MultivariateNormal(jnp.zeros(2), **{kind: jnp.asarray(matrix)}, validate_args=False)


def asymmetric(kind):
    """Of what the two variances allow, so much."""

    def deviation(apart):
        p = normal(kind, [[4.0, 0.0], [2 * apart, 1.0]])
        return float(marginal(p, [0]).scale_tril[0, 0])

    return deviation


def singular(kind):
    """A variable of which the other one leaves so many units in the last place."""

    def divergence(units):
        left = 1 + units * EPS
        matrix = (
            [[1.0, 1.0], [1.0, left]] if kind == "covariance_matrix" else [[left, 1.0], [1.0, 1.0]]
        )
        p = normal(kind, matrix)
        return float(kl_divergence(p, p))

    return divergence


def diagonal(entry):
    return float(lb.DiagonalPrecision(jnp.array([2.0, entry])).log_determinant())


def factor_entry(entry):
    p = normal("scale_tril", [[entry, 0.0], [0.0, 1.0]])
    return float(marginal(p, [0]).scale_tril[0, 0])


def semidefinite(eigenvalue):
    """A Kronecker factor of order two with the eigenvalues 1 and this, times 1, beside a prior of 1."""
    block = lb.KroneckerBlock(jnp.diag(jnp.array([1.0, eigenvalue])), jnp.eye(1), 1.0)
    return float(lb.KroneckerPrecision.of((block,)).log_determinant())


def beside(prior_precision):
    """The same without one of the eigenvalues."""
    block = lb.KroneckerBlock(jnp.diag(jnp.array([1.0, 0.0])), jnp.eye(1), prior_precision)
    return float(lb.KroneckerPrecision.of((block,)).log_determinant())


def low_rank(value):
    found = lb.LowRankPrecision.of(jnp.ones(2), jnp.eye(2), jnp.array([1.0, value]))
    return float(found.log_determinant())


TINY = 1e-300
SINGULAR = Refused(lb.NotPositiveDefinite, r"is singular in float64")

THRESHOLDS = {
    "a symmetric covariance": (
        asymmetric("covariance_matrix"),
        (0.9 * ROOT, 2.0),
        (1.1 * ROOT, Refused(ValueError, r"not symmetric: element \[0, 1\]")),
        (-1.1 * ROOT, Refused(ValueError, "not symmetric")),
    ),
    "a symmetric precision": (
        asymmetric("precision_matrix"),
        (0.9 * ROOT, 0.5),
        (1.1 * ROOT, Refused(ValueError, "not symmetric")),
    ),
    "a covariance that is not singular": (singular("covariance_matrix"), (3, 0.0), (2, SINGULAR)),
    "a precision that is not singular": (singular("precision_matrix"), (3, 0.0), (2, SINGULAR)),
    "a factor with a positive diagonal": (
        factor_entry,
        (TINY, TINY),
        (0.0, Refused(lb.NotPositiveDefinite, "no Cholesky factor with a positive diagonal")),
    ),
    "a positive diagonal": (diagonal, (TINY, np.log(2 * TINY)), (0.0, np.nan), (-TINY, np.nan)),
    "a factor without a negative eigenvalue": (
        semidefinite,
        (-19 * EPS, np.log(2)),
        (-21 * EPS, np.nan),
    ),
    "a block without a zero": (beside, (TINY, np.log(TINY)), (0.0, np.nan)),
    "a low rank of what data tell": (low_rank, (0.0, np.log(2)), (-TINY, np.nan)),
}


@pytest.mark.parametrize(("act", "x", "result"), sides(THRESHOLDS))
def test_threshold(act, x, result):
    check(act, x, result)


def test_memory_for_a_matrix_made_of_the_identity(monkeypatch):
    needed = 2 * 8 * 1_000**2
    monkeypatch.setattr("laplacebook.gaussian.memory.available_memory", lambda: needed)
    require_dense(1_000, float)
    monkeypatch.setattr("laplacebook.gaussian.memory.available_memory", lambda: needed - 1)
    with pytest.raises(lb.LaplaceError, match="A dense matrix of 1,000 coordinates"):
        require_dense(1_000, float)
    require_dense(10, float)
