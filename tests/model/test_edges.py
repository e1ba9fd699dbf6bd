"""Outcomes at the edge of what can be observed: right where the density is finite, else named."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb

BELOW, ABOVE = np.array([0.0, 0.5, 0.2]), np.array([0.5, 0.2, 1.0])
BESIDE = 1e-13
PARTS = np.array([[0.4, 0.6, 0.0], [0.2, 0.3, 0.5]])


def fit(kind, y):
    def model(y):
        numpyro.sample("y", kind(numpyro.sample("a", dist.Gamma(3.0, 2.0))), obs=y)

    return lb.laplace(model, y)


def one_and(*others):
    return jnp.stack([*others, jnp.ones(()), jnp.ones(())])


FINITE = {
    "Beta(a, 1) at 1": (lambda a: dist.Beta(a, 1.0), ABOVE),
    "Beta(1, a) at 0": (lambda a: dist.Beta(1.0, a), BELOW),
    "mean and concentration": (lambda a: dist.BetaProportion(0.5, 2.0 + 0 * a), BELOW),
    "Kumaraswamy(a, 1) at 1": (lambda a: dist.Kumaraswamy(a, 1.0), ABOVE),
    "Weibull(a, 1)": (lambda a: dist.Weibull(a, 1.0), BELOW),
    "a mixture": (
        lambda a: dist.MixtureSameFamily(
            dist.Categorical(probs=jnp.array([0.3, 0.7])), dist.Gamma(1.0, jnp.stack([a, 2 * a]))
        ),
        BELOW,
    ),
    "Chi2(2), scaled": (
        lambda a: dist.TransformedDistribution(
            dist.Chi2(2.0),
            dist.transforms.AffineTransform(0, a, domain=dist.constraints.positive),
        ),
        BELOW,
    ),
    "a part of 0": (lambda a: dist.Dirichlet(one_and(a)), PARTS),
}


@pytest.mark.parametrize(("kind", "y"), FINITE.values(), ids=FINITE)
def test_a_finite_density(kind, y):
    """As the same outcome a hair within: the density is continuous there."""
    beside = np.where(y == 0, BESIDE, np.where(y == 1, 1 - BESIDE, y))
    at, near = fit(kind, y), fit(kind, beside)
    np.testing.assert_allclose(at.log_evidence, near.log_evidence, rtol=1e-9)
    np.testing.assert_allclose(at.mode["a"], near.mode["a"], rtol=1e-9)


NEVER = {
    "an exposure of 0": (
        lambda a: dist.Poisson(a * jnp.array([0.0, 1.0, 2.0])),
        np.array([0, 1, 3]),
        lambda a: dist.Poisson(a * jnp.array([1.0, 2.0])),
        np.array([1, 3]),
    ),
    "a class that is none": (
        lambda a: dist.Multinomial(4, probs=jnp.stack([a, 1 + 0 * a, 0 * a]) / (1 + a)),
        np.array([1, 3, 0]),
        lambda a: dist.Binomial(4, probs=a / (1 + a)),
        1,
    ),
}


@pytest.mark.parametrize(("kind", "y", "without", "rest"), NEVER.values(), ids=NEVER)
def test_what_cannot_happen_and_did_not(kind, y, without, rest):
    at, alone = fit(kind, y), fit(without, rest)
    np.testing.assert_allclose(at.log_evidence, alone.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(at.covariance, alone.covariance, rtol=1e-12)


INFINITE = {
    "Gamma(.5, a)": (lambda a: dist.Gamma(0.5, a), BELOW, r"0\.0 at \[0\]"),
    "Weibull": (lambda a: dist.Weibull(1.0, a), BELOW, r"0\.0 at \[0\]"),
    "Beta, an event": (lambda a: dist.Beta(a, a).expand([3]).to_event(1), ABOVE, r"1\.0 at \[2\]"),
    "Kumaraswamy": (lambda a: dist.Kumaraswamy(a, 2.0), ABOVE, r"1\.0 at \[2\]"),
    "Dirichlet": (lambda a: dist.Dirichlet(a * jnp.ones(3)), PARTS, r"\[0\.4, 0\.6, 0\.0\] at \[0\]"),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "y", "outcome"), INFINITE.values(), ids=INFINITE)
def test_a_density_that_is_zero_or_infinite(kind, y, outcome):
    with pytest.raises(lb.NonFinite, match=rf"outcome\s+{outcome}(?s:.)*site\s+'y'.*\s+.*edge"):
        fit(kind, y)


def test_a_power_that_is_zero_at_the_start_alone():
    """The gradient would be 0 there, if the power stayed what it is."""
    with jax.ensure_compile_time_eval():
        centre = float(jax.scipy.special.digamma(1.0))

    def model(y):
        z = numpyro.sample("z", dist.Normal(centre, 1))
        numpyro.sample("y", dist.Gamma(jnp.exp(z), 1.0), obs=y)

    with pytest.raises(lb.LaplaceError, match="edge"):
        lb.laplace(model, np.array([0.0, 3.0]), start={"z": 0.0})


def test_what_cannot_happen_and_did():
    with pytest.raises(lb.NonFinite, match=r"first\s+for\s+the\s+outcome\s+2\s+at\s+\[1\]"):
        fit(lambda a: dist.Poisson(a * jnp.array([1.0, 0.0])), np.array([1, 2]))


def test_hidden_by_a_mask():
    seen = np.array([False, True, True])
    hidden = fit(lambda a: dist.LogNormal(0.0, a).mask(seen), BELOW)
    without = fit(lambda a: dist.LogNormal(0.0, a), BELOW[1:])
    np.testing.assert_allclose(hidden.log_evidence, without.log_evidence, rtol=1e-12)


def test_of_a_factor_no_outcome_is_named():
    with pytest.raises(lb.NonFinite) as caught:
        lb.laplace_of_density(lambda u: jnp.inf * u.sum(), np.ones(1))
    assert "outcome" not in str(caught.value)


@pytest.mark.parametrize(
    ("prior", "law", "y", "cause"),
    [
        (dist.Pareto(1.0, 2.0), lambda t: dist.Uniform(0, t), [0.5, 2.7, 1.1], "is a latent site"),
        (dist.Gamma(2.0, 2.0), lambda t: dist.Beta(t, 2), [0.5, 1.7, 0.1], "bound that is known"),
    ],
)
def test_data_outside_of_a_support_are_told_what_may_be_wrong(prior, law, y, cause):
    def model(y):
        t = numpyro.sample("t", prior)
        numpyro.sample("y", law(t).expand([len(y)]).to_event(1), obs=y)

    with pytest.raises(lb.NonFinite, match="outside the support") as caught:
        lb.laplace(model, np.array(y))
    assert cause in " ".join(str(caught.value).split())
