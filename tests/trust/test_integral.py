"""A verdict on a fit of a marginal model counts how far the integral behind it is off."""

from functools import partial

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats

import laplacebook as lb
from laplacebook.base.estimate import Estimate
from laplacebook.beyond.checked_integral import Integral, checked_integral
from laplacebook.trust.verdict import of_integral

KEY = jax.random.key(0)


def counts(k, n):
    mu = numpyro.sample("mu", dist.Normal(0, 3))
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", len(k)):
        u = numpyro.sample("u", dist.Normal(mu, tau))
        numpyro.sample("k", dist.Binomial(n, logits=u), obs=k)


def exact(k, n, mu, tau):
    """The logarithm of the integral over u of one group."""

    def joint(u):
        return stats.norm(mu, tau).pdf(u) * stats.binom(n, 1 / (1 + np.exp(-u))).pmf(k)

    return np.log(integrate.quad(joint, mu - 10 * tau, mu + 10 * tau, points=[mu], limit=200)[0])


def test_it_is_the_difference_to_quadrature():
    k = np.repeat([0, 1, 2, 4], [3, 6, 5, 2])
    fit = lb.laplace(lb.marginalize(counts, "u"), k, 6)
    found = checked_integral(fit.density, fit.mode)
    values = {name: float(x) for name, x in fit.mode.items()}
    truth = sum(exact(one, 6, **values) for one in k)
    off = float(fit.density.terms(fit.mode_vector).log_likelihood) - truth
    assert found.sites == ("u",)
    assert abs(off) > 5e-3
    assert found.off.value == pytest.approx(off, abs=4 * float(found.off.standard_error) + 1e-4)
    assert of_integral(found) == []


def test_of_a_partial_of_a_marginal_model_it_is_the_same():
    k = np.repeat([0, 1, 2, 4], [3, 6, 5, 2])
    model = lb.marginalize(counts, "u")
    whole, fit = lb.laplace(model, k, 6), lb.laplace(partial(model, n=6), k)
    assert float(fit.log_evidence) == float(whole.log_evidence)
    assert checked_integral(fit.density, fit.mode) == checked_integral(whole.density, whole.mode)
    with pytest.raises(lb.UnsupportedModel, match="does not have the sites that were integrated"):
        lb.predict(fit, None)


def test_effects_of_two_kinds_are_not_called_good():
    """Two of two or none of two: the integral is off by 1, and draws from a Gaussian do not tell it."""
    fit = lb.laplace(lb.marginalize(counts, ["u", "mu"]), np.repeat([0, 2], [17, 15]), 2)
    diagnosis = lb.diagnose(fit, KEY, starts=2)
    assert diagnosis.level == "usable"
    assert "draws cannot check the integral over mu and u by Laplace's method" in diagnosis.verdict
    assert diagnosis.integral.pareto_k > 0.7


def free(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("N", len(y)):
        numpyro.sample("rate", dist.Gamma(5.0, 1.0))
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def test_what_is_made_of_it_takes_the_integral_over():
    """The rates are in no likelihood: their integral is one, and Laplace's method says e^0.9."""
    fit = lb.laplace(lb.marginalize(free, "rate"), np.linspace(-1, 1, 60))
    found = lb.diagnose(fit, KEY, starts=2)
    assert found.level == "bad" and "is off by -0.9" in found.verdict
    assert [one.line for one in found.remedies] == [
        "numpyro.infer.MCMC(numpyro.infer.NUTS(free), ...)"
    ]
    again = lb.diagnose(lb.resampled(fit, KEY, 2_000), KEY, starts=2)
    assert again.level == "bad" and "the logarithm of the integral over rate" in again.verdict


@pytest.mark.parametrize(
    ("value", "error", "levels"),
    [
        (0.09, 0.001, []),
        (-0.12, 0.001, ["usable"]),
        (0.69, 0.001, ["usable"]),
        (-0.7, 0.001, ["bad"]),
        (0.0, np.inf, ["usable"]),
        (0.25, 1.5, ["usable"]),
        (0.0, 0.21, ["usable"]),
        (0.0, 0.19, []),
    ],
)
def test_thresholds(value, error, levels):
    found = of_integral(Integral(("u",), Estimate(value, error), 0.5))
    assert [one.level for one in found] == levels
