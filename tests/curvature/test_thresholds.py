"""From both sides: what a curvature and its structures refuse."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.tree_util import Partial
from numpyro.distributions import constraints

import laplacebook as lb
from laplacebook.curvature import settings
from laplacebook.curvature.eigenvalues import top_eigenpairs
from laplacebook.curvature.hessian import prior_curvature
from laplacebook.curvature.precision_at import low_rank_at, precision_at
from laplacebook.curvature.settings import Settings, precision_bytes, require_memory
from laplacebook.model.density import ModelDensity
from tests.thresholds import Refused, check, sides

EPS = np.finfo(float).eps
X = np.random.default_rng(0).normal(size=(6, 2))


def tolerance(number):
    return Settings("gauss_newton", tolerance=number).tolerance


def skew(size):
    """A matrix whose products are off by so much: what its symmetric part has for eigenpairs."""
    matrix = jnp.array([[4.0, size], [-size, 1.0]])
    return top_eigenpairs(Partial(jnp.matmul, matrix), np.ones(2), 2)[1]


class Bend(dist.Distribution):
    """Of three numbers: a log density with the Hessian diag(-4, -1, c), which is no distribution's."""

    support, arg_constraints = constraints.real_vector, {"a": constraints.real_vector}
    pytree_data_fields = ("a",)

    def __init__(self, a, c):
        self.a, self.c = a, c
        super().__init__((), (3,), validate_args=False)

    pytree_aux_fields = ("c",)

    def log_prob(self, value):
        squares = self.a**2
        return -(4 * squares[0] + squares[1] - self.c * squares[2]) / 2 + 0 * value.sum()


def negative(size):
    """The eigenvalues of a low rank beside a prior of precision one."""

    def model():
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
        numpyro.sample("y", Bend(w, size), obs=np.zeros(3))

    found = low_rank_at(ModelDensity.of(model), jnp.zeros(3), 3)
    return np.asarray(found.values)


def several_scales(apart):
    """A weight whose two prior precisions differ by so much of one, and the factors of its block."""
    precisions = np.array([[1 - apart], [1 + apart]])

    def model(x):
        w = numpyro.sample("w", dist.Normal(0, precisions**-0.5).to_event(2))
        with numpyro.plate("N", len(x)):
            numpyro.sample("y", dist.Normal((x @ w)[:, 0], 1), obs=np.zeros(len(x)))

    density = ModelDensity.of(model, (X,))
    found = precision_at(density, jnp.zeros(2), Settings("gauss_newton", "kronecker"))
    return float(found.log_determinant())


def coupled(size):
    """Two coordinates of a prior that so much of their curvature couples: is it diagonal?"""

    def model():
        factor = jnp.array([[1.0, size], [size, 1.0]])
        numpyro.sample("w", dist.MultivariateNormal(jnp.zeros(2), precision_matrix=factor))

    return bool(prior_curvature(ModelDensity.of(model), jnp.zeros(2))[1])


WHOLE = float(np.linalg.slogdet(X.T @ X + np.eye(2))[1])
UNIT = 1e3 * EPS

THRESHOLDS = {
    "a tolerance": (
        tolerance,
        (5e-324, 5e-324),
        (1 - EPS, 1 - EPS),
        (0.0, Refused(ValueError, "above 0 and below 1, not 0.0")),
        (1.0, Refused(ValueError, "above 0 and below 1, not 1.0")),
    ),
    "a rank": (
        lambda rank: Settings("gauss_newton", "low_rank", rank=rank).rank,
        (1, 1),
        (0, Refused(ValueError, "rank must be a whole number, 1 or more, not 0")),
    ),
    "rows at a time": (
        lambda number: Settings("gauss_newton", batch_size=number).batch_size,
        (1, 1),
        (0, Refused(ValueError, "batch_size must be a whole number")),
    ),
    "eigenpairs that are none": (
        skew,
        (0.9 * 4 * UNIT, np.array([4.0, 1.0])),
        (1.1 * 4 * UNIT, Refused(lb.NotConverged, "A residual is 9.8e-13")),
    ),
    "a negative eigenvalue": (
        negative,
        (0.9 * 4 * UNIT, np.array([4.0, 1.0, 0.0])),
        (1.1 * 4 * UNIT, Refused(lb.NotPositiveDefinite, "negative eigenvalue, -9.8e-13")),
    ),
    "one prior precision": (several_scales, (0.9e-6, WHOLE), (1.1e-6, np.nan)),
    "a prior of one coordinate each": (coupled, (1e-13, True), (1.15e-13, False)),
}


@pytest.mark.parametrize(("act", "x", "result"), sides(THRESHOLDS))
def test_threshold(act, x, result):
    check(act, x, result)


@pytest.mark.parametrize("structure", ["dense", "diagonal"])
def test_memory_that_is_just_enough(monkeypatch, structure):
    sites = ModelDensity.of(lambda: numpyro.sample("w", dist.Normal(0, 1).expand([5]))).sites
    options = Settings("gauss_newton", structure)
    needed = precision_bytes(sites, options, float)
    assert needed == 6 * 8 * (25 if structure == "dense" else 5)
    monkeypatch.setattr(settings, "available_memory", lambda: needed)
    require_memory(sites, options, float)
    monkeypatch.setattr(settings, "available_memory", lambda: needed - 1)
    with pytest.raises(lb.LaplaceError, match="of 5 coordinates needs"):
        require_memory(sites, options, float)
