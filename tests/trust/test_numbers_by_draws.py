"""Numbers that several coordinates decide are judged as such: beside quadrature, and the beta laws of a simplex."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from laplacebook.trust.numbers_by_draws import numbers_by_draws

KEY = jax.random.key(0)


def shares(y):
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("y", dist.Multinomial(12, p), obs=y)


def test_of_a_simplex_each_share_is_judged():
    y = np.array([9, 3, 0])
    fit = lb.laplace(shares, y)
    found = numbers_by_draws(fit, KEY)["p"]
    assert [one.axis for one in found] == ["p[0]", "p[1]", "p[2]"]
    ours = np.asarray(fit.quantiles([0.05, 0.5, 0.95])["p"])
    for j, one in enumerate(found):
        law = stats.beta(y[j] + 1, 14 - y[j])
        exact = law.ppf([0.05, 0.5, 0.95])
        width = np.ptp(exact)
        assert one.width_ratio == pytest.approx(np.ptp(ours[:, j]) / width, rel=0.06)
        assert one.median_off == pytest.approx((ours[1, j] - exact[1]) / width * 3.29, abs=0.06)
        assert one.held == pytest.approx(law.cdf(ours[2, j]) - law.cdf(ours[0, j]), abs=0.02)
        sd = float(fit.standard_deviation["p"][j])
        assert one.spread_ratio == pytest.approx(sd / law.std(), rel=0.06)
    verdict = lb.diagnose(fit, KEY, starts=1)
    assert verdict.sites["site"] == ["p[0]", "p[1]", "p[2]"]
    assert verdict.sites["width"][2] == pytest.approx(1.13, abs=0.04)
    assert verdict.sites["mean"] == [None] * 3


def below(y):
    a = numpyro.sample("a", dist.Uniform(0, 3))
    b = numpyro.sample("b", dist.Uniform(0, a))
    numpyro.sample("y", dist.Normal(jnp.array([a, b]), 0.4).to_event(1), obs=y)


def test_a_site_whose_support_depends_on_another():
    """Its coordinate has an interval that is off by 30 %, the number itself one by 15 %."""
    a = np.linspace(0, 3, 1201)[1:, None]
    b = np.linspace(0, 3, 1201)[1:]
    p = np.exp(-((a - 1.8) ** 2 + (b - 0.9) ** 2) / 0.32) / a * (b < a)
    mass = np.cumsum(p.sum(0)) / p.sum()
    exact = np.interp([0.05, 0.5, 0.95], mass, b)
    fit = lb.laplace(below, np.array([1.8, 0.9]))
    ours = np.asarray(fit.quantiles([0.05, 0.5, 0.95])["b"])
    diagnosis = lb.diagnose(fit, KEY, starts=2)
    (of_a, of_b), coordinate = diagnosis.judged_of_sites, diagnosis.marginals[1]
    assert (of_a.axis, of_b.axis, coordinate.axis) == ("a", "b", "b")
    assert of_b.width_ratio == pytest.approx(np.ptp(ours) / np.ptp(exact), abs=0.04)
    assert of_b.width_ratio > 0.8 > 0.72 > coordinate.width_ratio
    assert diagnosis.level == "usable"


def test_constants_are_left_out_and_names_have_two_indices():
    def correlated(y):
        factor = numpyro.sample("L", dist.LKJCholesky(2, 2.0))
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(2), scale_tril=factor), obs=y)

    fit = lb.laplace(correlated, np.random.default_rng(0).normal(size=(12, 2)))
    assert [one.axis for one in numbers_by_draws(fit, KEY)["L"]] == ["L[1, 0]", "L[1, 1]"]


def test_where_draws_do_not_tell_the_coordinates_are_judged(monkeypatch):
    monkeypatch.setattr("laplacebook.trust.numbers_by_draws._WORTH", 10_001)
    fit = lb.laplace(shares, np.array([8, 3, 1]))
    assert numbers_by_draws(fit, KEY) == {}
    found = lb.diagnose(fit, KEY, 400, starts=1)
    assert found.judged_of_sites == found.marginals
    plain = lb.laplace_of_density(lambda x: -x @ x / 2, jnp.zeros(2))
    assert lb.diagnose(plain, KEY, 400, starts=1).numbers == {}
