"""The log marginal alone is that which comes with the approximations of the effects, wherever it is asked for."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.beyond.lane import Lane
from laplacebook.model.density import ModelDensity

HYPER = np.array([[0.0], [-1.0], [0.7], [5.0]])


def counts(y):
    """Beyond log sd = 3 the effects have no mode."""
    sd = numpyro.sample("sd", dist.HalfNormal(1))
    with numpyro.plate("groups", y.size):
        z = numpyro.sample("z", dist.Normal(0, sd))
        numpyro.sample("y", dist.Poisson(jnp.exp(z)), obs=y)
    numpyro.factor("beyond", jnp.where(jnp.log(sd) > 3, jnp.sum(z**2), 0.0))


@pytest.fixture(scope="module")
def effects():
    return Effects(ModelDensity.of(counts, (np.array([0, 3, 1]),)), ("sd",))


def test_heights_are_those_of_the_conditionals_and_no_matrix_is_inverted(effects, monkeypatch):
    known = KnownPoints(effects, np.zeros(3)).conditional(HYPER, np.ones(1))
    assert np.isfinite(known.log_marginal).tolist() == [True, True, True, False]

    def refuse(_):
        raise AssertionError

    monkeypatch.setattr(Lane, "root", property(refuse))
    points = KnownPoints(effects, np.zeros(3))
    heights = points.heights(HYPER, np.ones(1))
    np.testing.assert_allclose(heights[:3], known.log_marginal[:3], rtol=1e-14)
    assert heights[3] == -np.inf
    np.testing.assert_array_equal(points.hyper, HYPER[:3])
    np.testing.assert_allclose(points.mode, known.mode[:3], rtol=1e-14)


def test_a_mode_is_foreseen_by_a_line_and_where_they_are_on_two_branches_by_the_nearest(effects):
    points, line = KnownPoints(effects, np.zeros(3)), np.array([1.0, -2.0, 0.5])
    start = np.zeros((3, 3))
    asked = np.array([[3.0], [100.0], [0.9]])
    assert points._foreseen(asked, np.ones(1), start) is start
    points.hyper = np.arange(3.0)[:, None]
    points.mode = 1 + points.hyper * line
    found = points._foreseen(asked, np.ones(1), start)
    np.testing.assert_allclose(found[[0, 2]], 1 + asked[[0, 2]] * line)
    assert (
        abs(found[1] - points.mode[-1]) <= 5 * 2 * abs(line) + 1e-9
    ).all()  # so far, and no farther
    whole = points.hyper, points.mode
    points.hyper, points.mode = points.hyper[:2], points.mode[:2]
    np.testing.assert_array_equal(points._foreseen(asked, np.ones(1), start)[0], whole[1][1])
    points.hyper, points.mode = whole
    points.mode[0] += 10
    np.testing.assert_allclose(points._foreseen(asked, np.ones(1), start), points.mode[[2, 2, 1]])
