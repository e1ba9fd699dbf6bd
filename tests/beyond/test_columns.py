"""The Hessian in many effects by products with few vectors is the one that JAX computes, wherever it is asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from laplacebook.beyond.columns import Columns
from laplacebook.beyond.conditional import Effects
from laplacebook.model.density import ModelDensity
from tests.beyond.practice import MODELS, Case


def hidden(y):
    """Far from its middle each effect meets one that it does not meet there."""
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.Normal(0, scale).expand([50]).to_event(1))
    numpyro.factor("far", -jnp.sum(jnp.where(z > 1, (z - 1) ** 2 * z[::-1], 0)))
    numpyro.sample("y", dist.Poisson(jnp.exp(z)).to_event(1), obs=y)


def crossed(y, of_each=1):
    scale = numpyro.sample("scale", dist.HalfNormal(1))
    rows = numpyro.sample("rows", dist.Normal(0, scale).expand([12 * of_each]).to_event(1))
    columns = numpyro.sample("columns", dist.Normal(0, scale).expand([12]).to_event(1))
    rates = jnp.exp(rows[:, None] + columns)
    numpyro.sample("y", dist.Poisson(rates).to_event(2), obs=y)


COUNTS = np.random.default_rng(3).poisson(1, (36, 12))
CROSSED = Case(crossed, (COUNTS[:12],), ("scale",))
CASES = {
    "few": (MODELS["seeds"], 1),
    "crossed": (Case(crossed, (COUNTS, 3), ("scale",)), 3),
    "rows": (MODELS["epil"], 2),
    "dense": (MODELS["icar"], None),
}


@pytest.mark.parametrize("name", CASES)
def test_entries_are_read_off_few_products(name):
    case, looks = CASES[name]
    effects = Effects(ModelDensity.of(case.model, case.args), case.over)
    columns = require_right(effects, 0.3)
    assert (columns.pattern and columns.pattern.looks) == looks


@pytest.mark.parametrize("name", ["few", "crossed", "rows"])
def test_where_it_is_asked_often_one_look_tells_a_hessian(name):
    """Also where the last product is the one that checks the others: it misses an entry that was not there before."""
    case, _ = CASES[name]
    effects = Effects(ModelDensity.of(case.model, case.args), case.over, often=True)
    assert require_right(effects, 0.3).looks == 1
    other = Effects(ModelDensity.of(hidden, (np.arange(50) % 3,)), ("scale",), often=True)
    assert require_right(other, 1.5).looks == 1


def test_what_one_point_did_not_show_is_seen_at_another():
    effects = Effects(ModelDensity.of(hidden, (np.arange(50) % 3,)), ("scale",))
    assert require_right(effects, 1.5).pattern is not None


@pytest.mark.parametrize("case", [MODELS["pumps"], CROSSED, MODELS["gp_classification"]])
def test_few_effects_and_factorised_covariances_are_left_to_jax(case):
    effects = Effects(ModelDensity.of(case.model, case.args), case.over)
    assert Columns.of(effects.density, case.over, effects.dimensions[1]) is None


def require_right(effects, spread):
    of_hyper, of_effects = effects.dimensions
    points = spread * np.random.default_rng(7).normal(size=(3, of_hyper + of_effects))
    hyper, z = points[:, :of_hyper], points[:, of_hyper:]
    columns = Columns.of(effects.density, effects.over, of_effects, effects.often)
    f, gradient, hessian = columns.hessians(hyper, z)
    loss = lambda u: effects.density.loss(u)[0]  # noqa: E731
    known = jax.jit(lambda u: (loss(u), jax.grad(loss)(u), jax.hessian(loss)(u)))
    place = effects.places[1]
    for k, u in enumerate(jnp.asarray(effects.joined(hyper, z))):
        value, slope, bend = known(u)
        exact = bend[np.ix_(place, place)]
        np.testing.assert_allclose(hessian[k], exact, rtol=1e-9, atol=1e-9 * abs(exact).max())
        np.testing.assert_allclose(f[k], value, rtol=1e-12)
        np.testing.assert_allclose(gradient[k], slope[place], rtol=1e-9, atol=1e-9)
    return columns
