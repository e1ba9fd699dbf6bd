"""A predictor that only looks linear at the mode is not averaged over as one that is."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb

X = np.random.default_rng(0).normal(size=40)
U = np.random.default_rng(1).uniform(size=40)
Y = (1 / (1 + np.exp(-2 * X)) > U).astype(int)
WEAK = (1 / (1 + np.exp(-0.9 * X)) > U).astype(int)  # of a slope whose sign is not quite known
NEW = np.array([-4.0, -2.0, 2.0, 4.0])


def classes(logits):
    def model(x, y=None):
        a = numpyro.sample("a", dist.Normal(0, 2))
        b = numpyro.sample("b", dist.Normal(0, 2))
        with numpyro.plate("N", len(x)):
            numpyro.sample("y", dist.Bernoulli(**logits(a, b, x)), obs=y)

    return model


BENT = {
    "cut off": lambda a, b, x: {"logits": jnp.clip(a + b * x, -3.5, 3.5)},
    "absolute value": lambda a, b, x: {"logits": a + jnp.abs(b) * x},
}
STRAIGHT = {
    "logits": lambda a, b, x: {"logits": a + b * x},
    "probabilities": lambda a, b, x: {"probs": jax.nn.sigmoid(a + b * x)},
}


@pytest.mark.parametrize("name", BENT)
def test_what_is_bent_farther_away_is_refused(name):
    fit = lb.laplace(classes(BENT[name]), X, WEAK if name == "absolute value" else Y)
    for method in ("quadrature", "probit"):
        with pytest.raises(lb.UnsupportedModel, match="needs a predictor that is linear"):
            lb.predict(fit, NEW, method=method)
    assert np.isnan(jax.jit(lambda x: lb.predict(fit, x))(NEW)).any()
    with pytest.raises(lb.UnsupportedModel, match="monte_carlo"):
        lb.predict(fit, NEW)
    key = jax.random.key(0)
    for spread in (False, True):
        found, drawn = (
            lb.predict(fit, NEW, key=key, with_spread=spread, **how)
            for how in ({}, {"method": "monte_carlo"})
        )
        assert type(found) is type(drawn) and str(found) == str(drawn)


@pytest.mark.parametrize("name", STRAIGHT)
@pytest.mark.parametrize("far", [1.0, 5.0])
def test_what_is_linear_is_not(name, far):
    """Where a probability is 1 to rounding, its logit is none any more; that changes no average."""
    fit = lb.laplace(classes(STRAIGHT[name]), X, Y)
    found = lb.predict(fit, far * NEW)
    design = np.stack([np.ones(4), far * NEW], axis=1)
    order = [site.name for site in fit.density.sites]
    design = design[:, [order.index("a"), order.index("b")]]
    mean = design @ np.array([float(fit.mode[n]) for n in order])
    sd = np.sqrt(np.einsum("ni,ij,nj->n", design, np.asarray(fit.covariance), design))
    nodes = np.linspace(-9, 9, 4001)
    weights = np.exp(-(nodes**2) / 2)
    exact = 1 / (1 + np.exp(-(mean[:, None] + sd[:, None] * nodes))) @ weights / weights.sum()
    np.testing.assert_allclose(found, exact, atol=1e-6)
