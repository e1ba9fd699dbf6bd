"""What depends on the hyperparameters alone is computed once for all steps of Newton, and these end where others do."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from laplacebook.base.jaxprs import ahead
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.hyperparameters import hyperparameters_of
from laplacebook.model.density import ModelDensity
from tests.beyond.practice import MODELS

X = np.linspace(0, 4, 40)
WAVE = 3 * np.sin(2 * X)
Y = WAVE + np.where(np.arange(40) == 20, 8, 0)


@jax.custom_jvp
def scale_of(h):
    return jnp.exp(h)


@scale_of.defjvp
def _no_slope(primals, tangents):
    raise AssertionError("it was differentiated in a hyperparameter")


def field(x, y):
    """Smooth, with an outlier far away, where the log likelihood is not concave."""
    scale = scale_of(numpyro.sample("h", dist.Normal(0, 1)))
    covariance = scale * jnp.exp(-((x[:, None] - x) ** 2) / 2) + 0.01 * jnp.eye(len(x))
    f = numpyro.sample("f", dist.MultivariateNormal(0, covariance))
    numpyro.sample("y", dist.StudentT(4, f, 0.3).to_event(1), obs=y)


@pytest.fixture(scope="module")
def effects():
    return Effects(ModelDensity.of(field, (X, Y)), ("h",))


def given(effects, start, monkeypatch, walks):
    monkeypatch.setitem(effects.__dict__, "_walks", walks)
    return effects.given(np.array([[0.5], [1.0], [np.nan]]), np.stack([start] * 3))


def test_walks_end_at_the_modes_that_are_found_without_and_nothing_is_differentiated_in_h(
    effects, monkeypatch
):
    assert effects._walks
    found, known = (given(effects, WAVE, monkeypatch, walks) for walks in (True, False))
    np.testing.assert_allclose(found.log_marginal, known.log_marginal, rtol=1e-6)
    np.testing.assert_allclose(found.mode, known.mode, atol=1e-6)
    np.testing.assert_allclose(found.root[:2], known.root[:2], rtol=1e-5, atol=1e-6)
    assert np.isnan(found.log_marginal).tolist() == [False, False, True]
    end, _, gradient, _ = effects._walked(found.hyper[:2], np.stack([WAVE, WAVE]), 1e-8)
    np.testing.assert_array_equal(end, found.mode[:2])
    assert abs(gradient).max() < 1e-6


def test_elsewhere_effects_walk_where_they_are_looked_at_often():
    case = MODELS["seeds"]
    density = ModelDensity.of(case.model, case.args)
    assert [Effects(density, case.over, often)._walks for often in (False, True)] == [False, True]


@pytest.mark.parametrize(("away", "is_bowl"), [(0.0, True), (5.0, False)])
def test_a_walk_ends_before_a_step_that_rises_or_that_no_hessian_tells_and_is_taken_over(
    effects, monkeypatch, away, is_bowl
):
    hyper, far = np.array([[0.5]]), Y + away
    end, f, gradient, hessian = effects._walked(hyper, far[None], 1e-8)
    there, _ = effects._looks(hyper, end - np.linalg.solve(hessian[0], gradient[0]))
    assert (np.linalg.eigvalsh(hessian[0]).min() > 0) == is_bowl
    assert not is_bowl or there > f
    found, known = (given(effects, at, monkeypatch, True) for at in (far, WAVE))
    np.testing.assert_allclose(found.log_marginal, known.log_marginal, rtol=1e-6)


def test_what_does_not_depend_on_the_argument_is_computed_once():
    def of(matrix):
        def f(x):
            root = jnp.linalg.cholesky(matrix)
            return {"solved": jnp.linalg.solve(root, x), "size": jnp.linalg.norm(root)}

        return f

    def twice(matrix, x):
        at = ahead(of(matrix), x)
        return at(x), at(x + 1)

    matrix, x = jnp.eye(3) + 0.5, jnp.arange(3.0)
    for found, known in zip(twice(matrix, x), map(of(matrix), (x, x + 1)), strict=True):
        jax.tree.map(np.testing.assert_allclose, found, known)
    program = jax.make_jaxpr(twice)(matrix, x)
    names = [equation.primitive.name for equation in program.eqns]
    assert (names.count("cholesky"), names.count("lu")) == (1, 1)


def test_what_only_prints_is_neither_computed_ahead_nor_a_reason_to_call_an_effect_a_hyperparameter():
    def loud(y):
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("n", len(y)):
            z = numpyro.sample("z", dist.Normal(0, tau))
            jax.debug.callback(lambda v: None, z[0])
            numpyro.sample("y", dist.Normal(z, 0.5), obs=y)

    assert hyperparameters_of(ModelDensity.of(loud, (Y[:6],)), None) == ("tau",)
    at = jax.jit(lambda x: ahead(lambda x: [jax.debug.callback(lambda v: None, x), x + 1][1], x)(x))
    assert at(1.0) == 2
