"""An outcome that depends on another one, which is not known, has no prediction but an error."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb


def chain(x, first=None, second=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("N", len(x)):
        before = numpyro.sample("first", dist.Normal(w * x, 1.0), obs=first)
        numpyro.sample("second", dist.Normal(w * before, 1.0), obs=second)


@pytest.fixture(scope="module")
def approx():
    return lb.laplace(chain, np.ones(3), np.array([1.0, 2.0, 1.0]), np.array([2.0, 1.0, 1.0]))


@pytest.mark.parametrize("method", ["linearized", "plug_in"])
def test_an_outcome_of_an_unknown_one_is_refused(approx, method):
    with pytest.raises(lb.UnsupportedModel, match="'second' depends on 'first', which"):
        lb.predict(approx, np.ones(2), site="second", method=method)


def test_with_the_other_known_it_is_predicted(approx):
    w, first = float(approx.mode["w"]), np.array([1.0, 3.0])
    assert lb.predict(approx, np.ones(2), site="first").mean == pytest.approx([w, w])
    known = lb.predict(approx, np.ones(2), first, site="second")
    assert known.mean == pytest.approx(w * first)


def test_an_outcome_without_a_mean_is_refused():
    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dist.Cauchy(w * x, 0.5).to_event(1), obs=y)

    fit = lb.laplace(model, np.ones(3), np.array([0.5, 1.0, 1.5]))
    with pytest.raises(lb.NonFinite, match="no mean, as the Cauchy"):
        lb.predict(fit, np.ones(2), method="plug_in")


@pytest.mark.parametrize("method", ["linearized", "plug_in", "monte_carlo"])
def test_a_scale_may_be_a_whole_number(method):
    """One whose square is more than 32 bits hold."""

    def model(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(w * x, 100_000), obs=y)

    fit = lb.laplace(model, np.ones(3), np.array([0.5, 1.0, 1.5]))
    found = lb.predict(fit, np.ones(2), method=method, key=jax.random.key(0), num_samples=9)
    np.testing.assert_allclose(found.noise, 1e10)
    assert found.noise.dtype == found.mean.dtype == float


def test_counts_of_classes_with_a_total_for_each_row():
    """As many rows as classes were taken for one bound a class."""
    totals = np.array([5, 900, 7])
    counts = np.array([[1, 2, 2], [180, 270, 450], [2, 1, 4]])

    def shares(totals, y=None):
        p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
        numpyro.sample("y", dist.Multinomial(totals, p), obs=y)

    fit = lb.laplace(shares, totals, counts)
    for given in (totals, totals[:2]):
        found = lb.predict(fit, given, key=jax.random.key(0)).mean
        share = (counts.sum(axis=0) + 1) / (counts.sum() + 3)
        np.testing.assert_allclose(found, given[:, None] * share, rtol=0.03)
