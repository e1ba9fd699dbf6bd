"""Nested fits among the models that are compared, and what takes only one Gaussian."""

from dataclasses import replace

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb

Y = np.array([2.5, -1.0, 0.5, -3.0, 1.0])


def one_group(y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    numpyro.sample("y", dist.Normal(mu, 1).expand([5]).to_event(1), obs=y)


def many_groups(y=None):
    mu, tau = numpyro.sample("mu", dist.Normal(0, 2)), numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", 5):
        z = numpyro.sample("z", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(z, 1), obs=y)


def without_a_prior(y=None):
    mu = numpyro.sample("mu", dist.ImproperUniform(dist.constraints.real, (), ()))
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", 5):
        z = numpyro.sample("z", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(z, 1), obs=y)


@pytest.fixture(scope="module")
def fit():
    return lb.nested(many_groups, Y)


def exact():
    """By quadrature over tau, given which the data are normal."""
    taus = (np.arange(600) + 0.5) * 0.03
    same = np.eye(5)
    logs = [
        stats.multivariate_normal(np.zeros(5), 4 + (1 + t**2) * same).logpdf(Y)
        + stats.halfnorm(scale=2).logpdf(t)
        for t in taus
    ]
    return np.log(np.sum(np.exp(logs)) * 0.03)


def test_a_hierarchy_against_one_group_has_the_exact_bayes_factor(fit):
    one = lb.laplace(one_group, Y)
    table = lb.compare({"one": one, "many": fit})
    log_one = stats.multivariate_normal(np.zeros(5), 4 + np.eye(5)).logpdf(Y)
    assert table["model"] == ["many", "one"]
    assert table["log evidence"] == pytest.approx([exact(), log_one], abs=1e-3)
    assert table["log Bayes factor"][1] == pytest.approx(log_one - exact(), abs=1e-3)
    assert table["log likelihood"] == [None, pytest.approx(float(one.log_likelihood))]
    assert table["log Occam factor"] == [None, pytest.approx(float(one.log_occam_factor))]
    assert table["D"] == [7, 1]
    assert table.footer == ()
    assert "—" in repr(table)
    assert list(lb.compare({"many": fit}).columns)[-2:] == ["probability", "D"]


def test_what_is_refused_of_laplace_fits_is_refused_of_nested_ones(fit):
    other = lb.nested(many_groups, Y + 1)
    with pytest.raises(lb.LaplaceError, match="different data, 'a' to 5 numbers from -3 to 2.5"):
        lb.compare({"a": fit, "b": other})
    with pytest.raises(lb.LaplaceError, match="different data"):
        lb.compare({"a": lb.laplace(one_group, Y + 1), "b": fit})
    flat = lb.nested(without_a_prior, Y)
    with pytest.raises(lb.UnsupportedModel, match="prior of 'mu' is improper"):
        lb.compare({"a": fit, "b": flat})
    diagonal = lb.laplace(one_group, Y, structure="diagonal")
    with pytest.raises(lb.LaplaceError, match=r"(?s)different curvatures.*'a' with hessian"):
        lb.compare({"a": fit, "b": diagonal})


def counts(y=None):
    """Zeros alone, and hardly a prior: the posterior of each log rate goes far down."""
    tau = numpyro.sample("tau", dist.HalfNormal(3))
    with numpyro.plate("groups", 4):
        z = numpyro.sample("z", dist.Normal(0, 5 + tau))
        numpyro.sample("y", dist.Poisson(np.exp(1.0) ** z), obs=y)


def test_a_doubt_is_told_wherever_the_fit_goes_and_names_the_effect(fit):
    assert fit.doubt is None
    doubtful = lb.nested(counts, np.array([0, 0, 3, 2]), over="tau")
    assert "far from Gaussian" in doubtful.doubt
    skewer = replace(doubtful.skewed, image=doubtful.skewed.image - [[[0], [0], [2], [0]]])
    assert "skewness moves the mean of z[2] by 2" in replace(doubtful, skewed=skewer).doubt
    assert f"doubtful: {doubtful.doubt}" in repr(doubtful)
    with pytest.warns(lb.DoubtfulFit, match="far from Gaussian"):
        lb.predict(doubtful, key=jax.random.key(0), num_samples=100)
    told = lb.compare({"a": doubtful}).footer
    assert any("doubtful, the evidence may be far off: 'a'" in line for line in told)


@pytest.mark.parametrize(
    "verb", [lambda fit: lb.importance_sampling(fit, jax.random.key(0)), lb.gauss_hermite]
)
@pytest.mark.usefixtures("types_unchecked")
def test_what_needs_one_gaussian_says_so(fit, verb):
    with pytest.raises(TypeError, match=r"NestedApproximation.*doubt.*diagnose"):
        verb(fit)
