"""A refused hierarchical model is told what answers: the effects integrated out, by a call that works."""

import re
from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import optimize, stats

import laplacebook as lb
from laplacebook.model.density import ModelDensity
from laplacebook.model.hierarchy import integrate_out, scales_of_effects
from tests.models import coin, logistic

SCHOOLS = (
    np.array([28.0, 8, -3, 7, -1, 1, 18, 12]),
    np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
)


def schools(y, s):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfNormal(5))
    with numpyro.plate("J", len(y)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, s), obs=y)


def by_variance(y, s):
    variance = numpyro.sample("variance", dist.Exponential(0.02))
    with numpyro.plate("J", len(y)):
        theta = numpyro.sample("theta", dist.Normal(0, jnp.sqrt(variance)))
        numpyro.sample("y", dist.Normal(theta, s), obs=y)


def crossed(y, s):
    tau = numpyro.sample("tau", dist.HalfNormal(5).expand([2]).to_event(1))
    theta = numpyro.sample("theta", dist.Normal(0, tau[0]).expand([8]).to_event(1))
    delta = numpyro.sample("delta", dist.Normal(0, tau[1]).expand([8]).to_event(1))
    numpyro.sample("y", dist.Normal(theta + delta, s).to_event(1), obs=y)


def of_schools(u):
    """Minus the log posterior density of the mean and the logarithm of the scale, the effects integrated out."""
    (mu, t), (y, s) = u, SCHOOLS
    value = stats.norm(mu, np.sqrt(s**2 + np.exp(2 * t))).logpdf(y).sum() + t
    return -value - stats.norm(0, 5).logpdf(mu) - stats.halfnorm(scale=5).logpdf(np.exp(t))


@cache
def advice():
    """What the refusal of the schools says to call."""
    with pytest.raises(lb.LaplaceError) as caught:
        lb.laplace(schools, *SCHOOLS)
    text = " ".join(str(caught.value).split())
    assert "non-centred" not in text and "keeps a scale from zero" not in text
    assert "A joint mode does not answer for" in text and "integrate 'theta' out" in text
    return text


def test_what_a_refusal_says_to_call_is_the_answer():
    assert "lb.nested(schools, y, s)" in advice()
    call = re.search(r"lb\.laplace\(lb\.marginalize\(.*\)(?=\.)", advice())[0]
    names = {"lb": lb, "schools": schools, "y": SCHOOLS[0], "s": SCHOOLS[1]}
    approx = eval(call, names)  # noqa: S307
    best = optimize.minimize(of_schools, [4.0, 1.0], options={"gtol": 1e-9})
    np.testing.assert_allclose(approx.mode_vector, best.x, atol=1e-5)
    assert float(approx.log_likelihood + approx.log_prior) == pytest.approx(-best.fun, rel=1e-8)


def test_the_scales_are_found():
    def found(model, *args):
        return scales_of_effects(ModelDensity.of(model, args))

    assert found(schools, *SCHOOLS) == {"tau": ["theta"]}
    assert found(by_variance, *SCHOOLS) == {"variance": ["theta"]}
    call = "lb.laplace(lb.marginalize(by_variance, ['theta']), y, s)"
    assert call in integrate_out(ModelDensity.of(by_variance, SCHOOLS))
    assert found(crossed, *SCHOOLS) == {"tau": ["theta", "delta"]}
    assert found(coin, np.ones(3)) == {}
    assert found(logistic, np.ones((4, 2)), np.ones(4)) == {}


def rats(days, weights):
    """The growth of young rats, of Gelfand et al. (1990), centred and with proper priors."""
    mu = numpyro.sample("mu", dist.Normal(0, 1000).expand([2]).to_event(1))
    sd = numpyro.sample("sd", dist.HalfNormal(np.array([100.0, 10.0])).to_event(1))
    noise = numpyro.sample("noise", dist.HalfNormal(50))
    with numpyro.plate("rats", len(weights)):
        each = numpyro.sample("each", dist.Normal(mu, sd).to_event(1))
    grown = each[:, :1] + each[:, 1:] * (days - 22)
    numpyro.sample("y", dist.Normal(grown, noise).to_event(2), obs=weights)


def test_effects_that_the_data_move_apart_have_their_mode_from_the_default_start():
    rng, days = np.random.default_rng(0), np.array([8.0, 15, 22, 29, 36])
    true = rng.normal([243, 6.2], [14, 0.5], size=(30, 2))
    weights = true[:, :1] + true[:, 1:] * (days - 22) + rng.normal(0, 6, size=(30, 5))
    approx = lb.laplace(rats, days, weights)
    each = np.polyfit(days - 22, weights.T, 1)[::-1].T
    start = {"mu": each.mean(0), "sd": each.std(0), "noise": 6.0, "each": each}
    by_least_squares = lb.laplace(rats, days, weights, start=start)
    np.testing.assert_allclose(approx.mode["sd"], by_least_squares.mode["sd"], rtol=1e-5)
    assert 0.3 < approx.mode["sd"][1] < 0.7


def test_all_effects_are_integrated_out():
    text = integrate_out(ModelDensity.of(crossed, SCHOOLS))
    assert "integrate 'theta' and 'delta' out" in text
    assert "lb.laplace(lb.marginalize(crossed, ['theta', 'delta']), y, s)" in text
    marginal = ModelDensity.of(lb.marginalize(schools, ["theta"]), SCHOOLS)
    assert integrate_out(marginal) == ""


def test_others_are_not_told_so():
    def collinear(x):
        flat = dist.ImproperUniform(dist.constraints.real, (), ())
        total = numpyro.sample("a", flat) + numpyro.sample("b", flat)
        numpyro.sample("y", dist.Normal(total, 1), obs=x)

    with pytest.raises(lb.NotPositiveDefinite) as caught:
        lb.laplace(collinear, np.ones(3))
    assert "integrate" not in str(caught.value)
