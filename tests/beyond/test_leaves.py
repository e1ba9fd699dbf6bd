"""Effects that meet none of each other are integrated out first: the same Gaussian, however it is kept."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from laplacebook.beyond import conditional
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.dense_conditional import Conditional
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.beyond.lane import Lane
from laplacebook.beyond.leaves import Factor, Layout
from laplacebook.model.density import ModelDensity
from tests.beyond.practice import MODELS

SIZE = 130


@pytest.fixture(scope="module")
def found():
    """The effects of epil at two points: visits given patients and coefficients; and the Hessians there."""
    case = MODELS["epil"]
    effects = Effects(ModelDensity.of(case.model, case.args), case.over)
    hyper = np.array([[-0.7, -1.0], [0.2, -1.6]])
    given = effects.given(hyper, np.zeros((2, 301)))
    return given, effects._columns.hessians(hyper, given.mode)[2]


def test_visits_are_leaves(found):
    given, _ = found
    assert given.leaves.places.size == 4 * 59
    assert given.root.shape == (2, 59 + 6, 59 + 6)


def test_it_is_the_gaussian_of_the_hessian(found):
    given, hessian = found
    covariance = np.linalg.inv(hessian)
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    np.testing.assert_allclose(given.deviations, sd, rtol=1e-9)
    np.testing.assert_allclose(2 * given.log_roots, np.linalg.slogdet(hessian)[1], rtol=1e-12)
    for k in range(2):
        np.testing.assert_allclose(given.precision(k).matrix, hessian[k], rtol=1e-9, atol=1e-9)
        ways = given.ways(k, np.array([0, 7, 300]))
        exact = covariance[k, [0, 7, 300]] / sd[k, [0, 7, 300], None]
        np.testing.assert_allclose(ways, exact, rtol=1e-7, atol=1e-9)
    roots = given.roots()
    np.testing.assert_allclose(roots.swapaxes(1, 2) @ roots, covariance, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("held", [2**20, 1])
def test_along_its_lines_the_log_joint_is_that_of_the_model(found, monkeypatch, held):
    """The mode counts as one point, of both sides and all effects, also where each point is looked at by itself."""
    monkeypatch.setattr(conditional, "_HELD", held)
    given, _ = found
    case, places = MODELS["epil"], np.array([-3.0, 0.5])
    effects = Effects(ModelDensity.of(case.model, case.args), case.over)
    lines = effects.along(given, places)
    assert lines.shape == (2, 2, 301)
    for k, p, i in [(0, 0, 0), (1, 0, 300), (1, 1, 17)]:
        away = places[p] * given.ways(k, np.array([i]))[0]
        points = effects.joined(given.hyper[[k, k]], given.mode[k] + np.array([0 * away, away]))
        at_mode, there = (float(effects.density.log_joint(jnp.asarray(u))) for u in points)
        assert lines[k, p, i] == pytest.approx(there - at_mode, abs=1e-9)


def test_draws_have_its_covariance(found):
    given, hessian = found
    index, normal = np.repeat([0, 1], 301), np.tile(np.eye(301), (2, 1))
    offset = given.offsets(index, normal)
    for k in range(2):
        of_k = offset[index == k]
        np.testing.assert_allclose(of_k.T @ of_k @ hessian[k], np.eye(301), atol=1e-9)
    np.testing.assert_allclose(given.squares(index, offset), 1, rtol=1e-9)
    exact = np.einsum("si,sij,sj->s", offset, hessian[index], offset)
    np.testing.assert_allclose(given.squares(index, offset), exact, rtol=1e-9)


def test_without_leaves_it_is_the_same(found):
    given, _ = found
    whole = given.without_leaves()
    assert whole.leaves is None
    assert (whole.without_leaves() is whole) and np.all(np.triu(whole.root, 1) == 0)
    np.testing.assert_allclose(whole.deviations, given.deviations, rtol=1e-9)
    np.testing.assert_allclose(whole.log_roots, given.log_roots, rtol=1e-12)
    both = Conditional.joined([given.at([0]), whole.at([1])])
    np.testing.assert_array_equal(both.root[1], whole.root[1])
    np.testing.assert_allclose(both.root[0], whole.root[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(both.mode, given.mode)


def far(y):
    """Above one each effect meets its mirror image, which it does not meet elsewhere."""
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.Normal(0, scale).expand([SIZE]).to_event(1))
    both = (z - 1) ** 2 * (z[::-1] - 1) ** 2
    numpyro.factor("far", -0.1 * jnp.sum(jnp.where(z > 1, both, 0)))
    numpyro.sample("y", dist.Poisson(jnp.exp(z)).to_event(1), obs=y)


def test_where_leaves_meet_the_whole_hessian_is_kept(monkeypatch):
    """Of the four points the third is such a one; the first has no mode from where its search begins."""
    density = ModelDensity.of(far, (20.0 + np.arange(SIZE) % 3,))
    hyper, start = np.array([[-2.5], [-2.0], [1.0], [-3.0]]), np.zeros((4, SIZE))
    start[0] = np.inf
    points = KnownPoints(Effects(density, ("scale",)), np.zeros(SIZE))
    monkeypatch.setattr(points, "_foreseen", lambda *_: start)
    mixed = points.conditional(hyper, np.ones(1))
    assert mixed.leaves is None
    monkeypatch.setattr(Layout, "of", lambda _: None)
    exact = Effects(density, ("scale",)).given(hyper, np.zeros((4, SIZE)))
    assert abs(exact.mode[2]).min() > 1
    np.testing.assert_allclose(mixed.log_marginal, exact.log_marginal, rtol=1e-12)
    np.testing.assert_allclose(mixed.mode, exact.mode, atol=1e-6)
    np.testing.assert_allclose(mixed.root, exact.root, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("leaf", [0, 1])
def test_a_saddle_is_left_whether_a_leaf_bends_downwards_or_another_effect(leaf):
    layout = Layout(np.array([leaf]), np.array([1 - leaf]))
    lane = Lane(np.array([1e-9, 0.5]), 1e-7, layout)
    while lane.is_going:
        x, y = lane.z
        bends = np.array([3 * x**2 - 1, 2.0])
        hessian = np.array([bends[leaf], 0, bends[1 - leaf]]) if lane.wants_hessian else None
        lane.take(float((x**2 - 1) ** 2 / 4 + y**2), np.array([x**3 - x, 2 * y]), hessian)
    assert lane.found
    np.testing.assert_allclose(lane.z, [1, 0], atol=1e-6)


@pytest.mark.parametrize("place", range(4))
def test_what_is_not_finite_has_no_factor(place):
    layout, hessian = Layout(np.array([1]), np.array([0])), np.array([2.0, 0.5, 1.0])
    hessian[place % 3] = np.inf if place == 3 else np.nan
    assert Factor.of(hessian, layout) is None
