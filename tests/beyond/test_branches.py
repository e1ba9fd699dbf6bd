"""Modes in which hyperparameters and effects have moved together: all counted, none by its neighbour's effects."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb

KEY = jax.random.key(0)
PLACES = np.array(
    [[0.0, 0.3], [0.0, -0.3]]
)  # of the lines, so that they do not change places for nothing


def lines(x, y):
    """A mixture of two regressions; the likelihood and the other priors are the same if they change places."""
    w = numpyro.sample("w", dist.Beta(2, 2))
    b = numpyro.sample("b", dist.Normal(PLACES, 2.0).to_event(2))
    s = numpyro.sample("s", dist.HalfNormal(1.0).expand([2]).to_event(1))
    shares, means = jnp.stack([w, 1 - w]), b[:, 0] + x[:, None] * b[:, 1]
    with numpyro.plate("rows", len(y)):
        law = dist.MixtureSameFamily(dist.Categorical(shares), dist.Normal(means, s))
        numpyro.sample("y", law, obs=y)


def fitted(seed, share, sds):
    rng = np.random.default_rng(seed)
    x, first = rng.normal(size=80), rng.uniform(size=80) < share
    one, other = 1 + 2 * x + sds[0] * rng.normal(size=80), -1 - x + sds[1] * rng.normal(size=80)
    return lb.nested(lines, x, np.where(first, one, other))


@pytest.fixture(scope="module")
def fit():
    return fitted(0, 0.4, (0.3, 0.6))


def require_both(fit):
    """The odds of the two orders are a mean over one of them of the ratio of the priors."""
    b = np.asarray(fit.sample(KEY, (4_000,))["b"])
    one = b[:, 0, 1] > b[:, 1, 1]
    log_prior = [-np.sum((each - PLACES) ** 2, axis=(1, 2)) / 8 for each in (b, b[:, ::-1])]
    odds = np.mean(np.exp(log_prior[1] - log_prior[0])[one])
    assert 0.55 < 1 / (1 + odds) < 0.65
    assert np.mean(one) == pytest.approx(1 / (1 + odds), abs=0.03)


def test_an_order_whose_hyperparameters_a_grid_about_the_other_holds_is_counted():
    require_both(fitted(1, 0.48, (0.5, 0.55)))


def test_both_orders_of_two_lines_have_their_share(fit):
    """And the evidence is that of both."""
    require_both(fit)
    np.testing.assert_allclose(sorted(fit.mean["b"][:, 1]), sorted([0.745, 0.032]), atol=0.1)
    assert fit.log_evidence == pytest.approx(-105.488, abs=0.02)


def test_a_diagnosis_finds_no_mode_beside_them(fit):
    found = lb.diagnose(fit, KEY)
    assert found.level != "bad", found
    assert "2 modes on the grid" in repr(fit)


def test_a_diagnosis_finds_the_other_order_where_a_grid_has_one(fit, monkeypatch):
    monkeypatch.setattr("laplacebook.beyond.other_outer_modes._along_other_effects", lambda *_: [])
    one = lb.nested(lines, *fit.density.arguments[0])
    monkeypatch.undo()
    assert one.log_evidence == pytest.approx(-105.975, abs=0.02)
    found = lb.diagnose(one, KEY)
    assert found.level == "bad" and "modes beside the grid hold 38%" in found.verdict, found
