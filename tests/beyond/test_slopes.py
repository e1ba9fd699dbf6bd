"""The gradient of the log marginal of hyperparameters, beside differences."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.slopes import followed
from laplacebook.beyond.sparse_effects import SparseEffects
from laplacebook.model.density import ModelDensity

Y = np.array([1, 0, 4, 2, 7, 3])
STEP = 1e-4


def counts(y, is_walk):
    mean, sd = numpyro.sample("mean", dist.Normal(0, 1)), numpyro.sample("sd", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.Normal(0, sd).expand([len(y)]).to_event(1))
    rate = jnp.exp(mean + (jnp.cumsum(z) if is_walk else z))
    numpyro.sample("y", dist.Poisson(rate).to_event(1), obs=y)


def effects(is_walk, kind=Effects):
    return kind(ModelDensity.of(counts, (Y, is_walk), {}), ("mean", "sd"))


HYPER = np.array([[0.4, -0.3], [1.0, -1.2]])
BEGIN = np.zeros((2, len(Y)))


@pytest.mark.parametrize("is_walk", [True, False])
def test_the_slope_and_the_turn_are_those_of_differences(is_walk):
    """Of a walk each effect meets all others; else one product of the Hessian has its trace."""
    known = effects(is_walk)
    assert (known.pattern is None) == is_walk
    found = followed(known, HYPER, known.given(HYPER, BEGIN).mode)
    for i, way in enumerate(STEP * np.eye(2)):
        up, down = (known.given(HYPER + side, BEGIN) for side in (way, -way))
        slope = (up.log_marginal - down.log_marginal) / (2 * STEP)
        np.testing.assert_allclose(found.slopes[:, i], slope, atol=1e-5)
        turn = (up.mode - down.mode) / (2 * STEP)
        np.testing.assert_allclose(found.turns[..., i], turn, atol=1e-5)


def test_those_of_sparse_effects_are_the_same():
    dense = followed(effects(False), HYPER, BEGIN)
    sparse = followed(effects(False, SparseEffects), HYPER, BEGIN)
    np.testing.assert_allclose(sparse.heights, dense.heights, atol=1e-4)
    np.testing.assert_allclose(sparse.slopes, dense.slopes, atol=1e-3)
    np.testing.assert_allclose(sparse.modes, dense.modes, atol=1e-2)


def test_where_the_effects_have_no_mode_there_is_no_slope():
    found = followed(effects(False), np.array([[0.4, np.nan], [0.4, -0.3]]), BEGIN)
    assert np.isnan(found.heights[0]) and np.isnan(found.slopes[0]).all()
    assert np.isfinite(found.slopes[1]).all()
