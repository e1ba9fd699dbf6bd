"""Modes of the effects given the hyperparameters that a nested approximation does not count."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.beyond.other_inner_modes import inner_modes_at
from laplacebook.model.density import ModelDensity


def two_places(y, share):
    """Each effect is near y, or with this share of the mass near -y; a symmetric prior leaves that as it is."""
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    u = numpyro.sample("u", dist.Normal(0, tau).expand([y.size]).to_event(1))
    near, far = dist.Normal(y, 0.2).log_prob(u), dist.Normal(-y, 0.2).log_prob(u)
    numpyro.factor("y", jnp.logaddexp(jnp.log1p(-share) + near, jnp.log(share) + far).sum())


def factors(y):
    """Signs of the loadings and of the factor may change together."""
    s = numpyro.sample("s", dist.HalfNormal(1))
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    f = numpyro.sample("f", dist.Normal(0, 1).expand([y.shape[0]]).to_event(1))
    numpyro.sample("y", dist.Normal(f[:, None] * w, s).to_event(2), obs=y)


def outliers(y):
    """Of each effect the tails of two laws have a mode between them, far from the other."""
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    u = numpyro.sample("u", dist.Normal(0, tau).expand([y.size]).to_event(1))
    numpyro.sample("y", dist.StudentT(3, u, 0.3).to_event(1), obs=y)


def fit(share, y, **options):
    return lb.nested(two_places, jnp.asarray(y), np.float64(share), over="tau", **options)


@pytest.mark.parametrize(
    ("share", "sign", "structure"),
    [(0.2, 1, "dense"), (0.03, 1, "dense"), (0.2, -1, "dense"), (0.03, 1, "sparse")],
)
def test_the_share_of_a_far_mode(share, sign, structure):
    """Whichever of the two the search has found, from where it began."""
    found = fit(share, [sign * 2.0], structure=structure)
    other = share if float(found.mean["u"][0]) * sign > 0 else 1 - share
    assert found.inner_modes.share == pytest.approx(other, abs=1e-3)
    assert "have other modes" in found.doubt


def test_a_diagnosis_calls_it_bad():
    found = fit(0.2, [2.0])
    assert lb.diagnose(found, jax.random.key(0), 200, starts=1).level == "bad"
    assert "have other modes" in found.doubt


def test_modes_of_single_effects_add_up():
    """A search for all at once ends where half of them are elsewhere, which holds nothing."""
    share, y = 0.003, 2 + 0.2 * np.random.default_rng(0).normal(size=12)
    found = fit(share, y)
    assert np.all(found.mean["u"] > 0)
    odds = y.size * share / (1 - share)
    assert found.inner_modes.share == pytest.approx(odds / (1 + odds), abs=1e-4)


def test_what_holds_less_than_a_hundredth_is_no_doubt():
    found = fit(0.005, [2.0])
    assert found.inner_modes is None
    assert found.doubt is None
    assert lb.diagnose(found, jax.random.key(0), 200, starts=2).level != "bad"


def test_signs_that_change_together():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(20, 1)) * np.array([1.0, -2, 1.5]) + 0.3 * rng.normal(size=(20, 3))
    found = lb.nested(factors, y, over="s")
    assert found.inner_modes.share == pytest.approx(0.5, abs=1e-4)


def test_a_mode_without_mass_is_no_doubt():
    y = np.array([0.1, -0.2, 0.4, 0.0, -0.5, 12.0])
    found = lb.nested(outliers, y)
    assert found.inner_modes is None


def test_of_a_marginal_model():
    model, key = lb.marginalize(two_places, "u"), jax.random.key(0)
    fits = [lb.laplace(model, jnp.array([2.0]), np.float64(share)) for share in (0.2, 0.005)]
    diagnosis, other = (lb.diagnose(fit, key, 100, 1) for fit in fits)
    assert diagnosis.level == "bad"
    assert "hold 20% of their mass" in " ".join(diagnosis.verdict.split())
    assert diagnosis.remedies == ()
    assert other.inner_modes is None


def test_of_a_marginal_model_whose_effects_begin_between_two_modes():
    """There the middle of the prior is a saddle."""

    def squares(y):
        s = numpyro.sample("s", dist.HalfNormal(1))
        u = numpyro.sample("u", dist.Normal(0, 2).expand([y.size]).to_event(1))
        numpyro.sample("y", dist.Normal(u**2, s).to_event(1), obs=y)

    density = ModelDensity.of(lb.marginalize(squares, "u"), (jnp.array([4.0, 5.0, 3.0]),))
    told = inner_modes_at(density, {"s": jnp.array(0.3)}, jax.random.key(0), 8)
    assert "hold 50% of their mass" in told
