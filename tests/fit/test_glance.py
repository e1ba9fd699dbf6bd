"""The cheap look at a fit of which nobody asked for a diagnosis, and the one line that it prints."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import expit

import laplacebook as lb
from laplacebook.fit import glance

KEY = jax.random.key(0)


def proportions(y, n):
    with numpyro.plate("groups", 40):
        p = numpyro.sample("p", dist.Uniform(0, 1))
        numpyro.sample("y", dist.Binomial(n, p), obs=y)


FEW, TEN = jnp.arange(40.0) % 5, jnp.array(10.0)
DOUBTFUL = "64 draws from it are worth"


@pytest.fixture(scope="module")
def skewed():
    return lb.laplace(proportions, FEW, TEN)


def worth_by_hand(y, n=10.0):
    """The effective sample size of the same 64 draws, of 40 independent Beta(y + 1, n - y + 1)."""
    a, b = y + 1, n - y + 1
    mode, sd = np.log(a / b), np.sqrt((a + b) / (a * b))
    z = np.random.default_rng(0).standard_normal((64, 40))
    theta = expit(mode + sd * z)
    exact = stats.beta(a, b).logpdf(theta) + np.log(theta * (1 - theta))
    log_weights = (exact - stats.norm.logpdf(z) + np.log(sd)).sum(axis=1)
    weights = np.exp(log_weights - log_weights.max())
    return weights.sum() ** 2 / np.sum(weights**2)


def test_many_small_errors_are_doubted(skewed):
    worth = worth_by_hand(np.asarray(FEW))
    assert worth < 64 / 3
    assert skewed.doubt == f"{DOUBTFUL} {worth:.0f} from the posterior"
    assert repr(skewed).endswith(f"doubtful: {skewed.doubt}")


def test_a_large_fit_is_looked_at_by_a_program_of_its_own(skewed, monkeypatch):
    monkeypatch.setattr(glance, "is_small", lambda *_: False)
    assert lb.laplace(proportions, FEW, TEN).doubt == skewed.doubt


def test_the_threshold_is_a_third():
    # A count and a miss more in each group, and they are worth 21.40 draws.
    worth = worth_by_hand(np.asarray(FEW) + 1, 12.0)
    assert 64 / 3 < worth < 1.01 * 64 / 3
    assert lb.laplace(proportions, FEW + 1, TEN + 2).doubt is None


def test_a_normal_posterior_is_not_doubted():
    def normal(y):
        m = numpyro.sample("m", dist.Normal(0, 1).expand([50]).to_event(1))
        numpyro.sample("y", dist.Normal(m, 1).to_event(1), obs=y)

    assert lb.laplace(normal, jnp.linspace(-3, 3, 50)).doubt is None


def test_draws_without_a_density_are_doubted():
    # Beyond 1, less than two standard deviations from the mode, the rate is negative.
    def rate(y):
        x = numpyro.sample("x", dist.Normal(0, 1))
        numpyro.sample("y", dist.Poisson(1 - x), obs=y)

    with numpyro.validation_enabled(False):
        approx = lb.laplace(rate, 1)
    assert approx.doubt == "the log joint is not a number at some of 64 draws from it"


def test_draws_beyond_the_support_have_no_weight():
    def share(y):
        with numpyro.plate("groups", 12):
            p = numpyro.sample("p", dist.Uniform(0, 1))
            numpyro.sample("y", dist.Binomial(10, p), obs=y)

    inside, edge = (lb.laplace(share, jnp.full(12, y), space="constrained") for y in (5.0, 1.0))
    assert inside.doubt is None
    # The mode is .1, and a standard deviation .095.
    z = np.random.default_rng(0).standard_normal((64, 12))
    beyond = np.sum(np.any(0.1 + 0.09**0.5 / 10**0.5 * z < 0, axis=1))
    assert edge.doubt == EDGE.format(beyond)


EDGE = (
    "{} of 64 draws from it have density zero: an edge lies within it, beyond which its evidence and its intervals "
    "reach"
)


def cut(edge):
    """A normal number, of which what lies above an edge is impossible."""
    x = numpyro.sample("x", dist.Normal(0, 1))
    numpyro.factor("c", jnp.where(x < edge, 0.0, -jnp.inf))


@pytest.mark.parametrize("is_small", [True, False])
def test_an_edge_beside_the_mode_is_doubted(is_small, monkeypatch):
    """A tenth of a standard deviation away, where the evidence is log Phi(.1), and not 0."""
    if not is_small:
        monkeypatch.setattr(glance, "is_small", lambda *_: False)
    approx = lb.laplace(cut, jnp.array(0.1))
    assert bool(approx.certificate.converged)
    assert approx.log_evidence - stats.norm.logcdf(0.1) == pytest.approx(0.616, abs=1e-3)
    beyond = np.sum(np.random.default_rng(0).standard_normal(64) >= 0.1)
    assert approx.doubt == EDGE.format(beyond)
    assert repr(approx).endswith(f"doubtful: {approx.doubt}")


def test_a_tenth_of_draws_beyond_an_edge_is_the_threshold():
    z = np.sort(np.random.default_rng(0).standard_normal(64))
    six, seven = z[-7:-5].mean(), z[-8:-6].mean()
    assert lb.laplace(cut, jnp.array(six)).doubt is None
    assert lb.laplace(cut, jnp.array(seven)).doubt == EDGE.format(7)


def test_within_transformations_an_edge_is_not_looked_for():
    def evidence(edge):
        approx = lb.laplace(cut, edge)
        assert approx.doubt is None
        return approx.log_evidence

    edges = jnp.array([0.1, 0.3])
    found = jax.jit(jax.vmap(jax.value_and_grad(evidence)))(edges)
    np.testing.assert_allclose(found, np.zeros((2, 2)), atol=1e-9)


def test_comparison_names_who_is_doubtful(skewed):
    told = repr(lb.compare({"skewed": skewed, "again": skewed}))
    worth = skewed.doubt
    assert f"doubtful, the evidence may be far off: 'again' ({worth}), 'skewed' ({worth})" in told


def test_averages_over_its_draws_warn(skewed):
    with pytest.warns(lb.DoubtfulFit, match=f"proportions is doubtful.*{DOUBTFUL}"):
        lb.predict(skewed, None, method="monte_carlo", key=KEY)
    lb.predict(skewed, None, method="plug_in")


def test_not_looked_at_where_it_cannot_be(skewed, monkeypatch):
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), skewed)  # as jax.vmap returns it
    assert batch.doubt is None
    other = lb.laplace(proportions, FEW, TEN, curvature="gauss_newton")
    assert other.doubt is None
    monkeypatch.setattr(glance, "_WORK", 64 * (40 + 1 + 40) - 1)
    assert lb.laplace(proportions, FEW, TEN).doubt is None
    monkeypatch.setattr(glance, "_WORK", 64 * (40 + 1 + 40))
    assert lb.laplace(proportions, FEW, TEN).doubt == skewed.doubt


def test_a_fit_of_chunks_holds_no_data_to_look_at():
    def rows(y):
        m = numpyro.sample("m", dist.Normal(0, 1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(m, 1), obs=y)

    approx = lb.laplace_of_chunks(rows, [np.array([0.5, 1.0]), np.array([2.0])])
    assert approx.doubt is None and "doubtful" not in repr(approx)


def test_a_fit_that_failed_is_no_more_doubtful_than_none():
    failed = lb.laplace(proportions, jnp.full(40, jnp.nan), TEN, throw=False)
    assert failed.doubt is None
