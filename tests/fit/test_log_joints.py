"""The log joint at many points: where sites are integrated out by searches that go together, as one by one."""

from functools import partial

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from tqdm import tqdm

import laplacebook as lb
from laplacebook.base.many_points import at_many
from laplacebook.beyond import log_joints_at
from laplacebook.evidence.importance import importance_weights
from laplacebook.fit import log_joints as module
from laplacebook.fit.log_joints import log_joint_at, log_joints, searches_together
from laplacebook.search import looks, search
from tests.base.test_one_thread import threads
from tests.models import coin
from tests.trust.test_integral import counts

KEY = jax.random.key(0)
K = np.repeat([0, 1, 2, 4], [3, 6, 5, 2])


def one_by_one(density, points):
    return np.asarray(at_many(log_joint_at, (density,), points, progress_bar=False))


@pytest.fixture(scope="module")
def fit():
    return lb.laplace(lb.marginalize(counts, "u"), K, 6)


@pytest.mark.parametrize(
    "model",
    [
        lb.marginalize(counts, "u"),
        lb.marginalize(counts, ["u", "mu"]),
        partial(lb.marginalize(counts, ["mu", "u"]), n=6),
    ],
    ids=["effects", "effects and their mean", "partial"],
)
def test_they_are_those_of_each_point_alone(model):
    args = (K,) if isinstance(model, partial) else (K, 6)
    fit = lb.laplace(model, *args)
    points = fit.mode_vector + 2 * np.random.default_rng(0).normal(size=(80, fit.mode_vector.size))
    assert searches_together(fit.density)
    found = log_joints(fit.density, np.asarray(points))
    np.testing.assert_allclose(found, one_by_one(fit.density, points), rtol=0, atol=1e-5)


def test_what_has_no_mode_together_is_told_by_itself(fit, monkeypatch):
    points = np.asarray(fit.mode_vector) + np.array([[0.0, 0.0], [0, 800], [1, 0]])  # tau infinite
    expected = one_by_one(fit.density, points)
    left = []
    monkeypatch.setattr(
        module, "at_many", lambda *given: left.append(len(given[2])) or at_many(*given)
    )
    found = log_joints(fit.density, points)
    assert left == [1]
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    assert not np.isfinite(found[1])


def test_weights_are_those_of_the_program_that_draws(fit, monkeypatch):
    together = importance_weights(fit, KEY, 150, 5.0)
    monkeypatch.setattr("laplacebook.evidence.importance.searches_together", lambda _: False)
    np.testing.assert_allclose(together, importance_weights(fit, KEY, 150, 5.0), atol=1e-6)


def test_other_densities_are_evaluated_as_ever(fit):
    plain = lb.laplace(coin, np.array([1.0, 0.0, 1.0]))
    constrained = lb.laplace(lb.marginalize(counts, "u"), K, 6, space="constrained")
    seen = []
    jax.eval_shape(lambda density: seen.append(searches_together(density)), fit.density)
    assert not any(
        [searches_together(plain.density), searches_together(constrained.density), *seen]
    )
    points = np.linspace(-1, 1, 7)[:, None]
    assert np.array_equal(log_joints(plain.density, points), one_by_one(plain.density, points))


def test_a_search_with_searches_in_it_is_driven_however_long_it_takes(monkeypatch):
    """As one program it takes a minute to compile for three hundred effects."""
    driven, drive = [], search._driven
    monkeypatch.setattr(search, "LONG", 0)
    monkeypatch.setattr(search, "_driven", lambda *given: driven.append(1) or drive(*given))
    for _ in range(3):
        lb.laplace(lb.marginalize(counts, "u"), K, 6)
    assert len(driven) == 3


def test_a_look_has_one_thread_where_several_would_wait_for_each_other(fit, monkeypatch):
    seen, bend = [], looks._bend
    monkeypatch.setattr(looks, "_bend", lambda *given: seen.append(threads()) or bend(*given))
    looks.look(fit.density, np.asarray(fit.mode_vector))
    assert seen == [{1}]


def test_progress_is_told_as_often_as_points_are_done(fit, monkeypatch):
    moved = []

    class Bar(tqdm):
        def update(self, n=1):
            moved.append(n)
            return super().update(n)

    monkeypatch.setattr("laplacebook.base.progress.tqdm", Bar)
    monkeypatch.setattr(log_joints_at, "_TOGETHER", 40)
    log_joints(fit.density, np.tile(fit.mode_vector, (150, 1)), progress_bar=False)
    assert moved == [64, 40, 40, 6]


def test_without_the_priors_of_the_others_none_are_added():
    fit = lb.maximum_likelihood(lb.marginalize(counts, "u"), K, 6)
    points = np.asarray(fit.mode_vector) + np.array([[0.0, 0.0], [1, -0.5]])
    found = log_joints(fit.density, points)
    np.testing.assert_allclose(found, one_by_one(fit.density, points), rtol=1e-12)
    assert found[0] == pytest.approx(float(fit.log_likelihood), rel=1e-9)


def test_within_handlers_a_model_that_is_known_is_not_looked_at_anew(fit):
    expected = importance_weights(fit, KEY, 100, 5.0)
    with numpyro.handlers.block():
        assert not searches_together(fit.density)
        found = importance_weights(fit, KEY, 100, 5.0)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def far_apart(y):
    mean = numpyro.sample("mean", dist.Normal(0, 2))
    sd = numpyro.sample("sd", dist.HalfNormal(3))
    with numpyro.plate("groups", len(y)):
        u = numpyro.sample("u", dist.Normal(mean, sd))
        numpyro.sample("y", dist.Cauchy(u, 0.2), obs=y)


def test_of_effects_with_several_modes_each_point_has_the_one_that_it_has_alone():
    """From where another point leads a search may end at a lower one."""
    fit = lb.laplace(lb.marginalize(far_apart, "u"), np.array([-4.0, -1, 0, 3, 8]))
    sd = np.sqrt(np.diagonal(fit.covariance))
    points = fit.mode_vector + 1.5 * sd * np.random.default_rng(0).normal(size=(400, 2))
    alone = one_by_one(fit.density, points)
    np.testing.assert_allclose(log_joints(fit.density, points), alone, rtol=0, atol=1e-4)
    np.testing.assert_allclose(log_joints(fit.density, points[::-1]), alone[::-1], atol=1e-4)
