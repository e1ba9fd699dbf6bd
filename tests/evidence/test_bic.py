"""BIC against statsmodels, at either mode, and what has none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

import laplacebook as lb
from tests.fit.test_maximum_likelihood import BINARY, COIN, REAL, X, linear, logistic
from tests.models import coin


def test_bic_of_least_squares_counts_the_noise():
    fit, exact = lb.maximum_likelihood(linear, X, REAL), sm.OLS(REAL, X).fit()
    # statsmodels counts the three weights, R and we the noise scale too.
    np.testing.assert_allclose(lb.bic(fit, 60), exact.bic + np.log(60), rtol=1e-9)


def test_bic_of_a_generalised_linear_model():
    exact = sm.Logit(BINARY, X).fit(disp=0, tol=1e-12)
    fit = lb.maximum_likelihood(logistic, X, BINARY)
    np.testing.assert_allclose(lb.bic(fit, np.int64(60)), exact.bic, rtol=1e-9)


def test_bic_at_the_posterior_mode_is_bishops():
    approx = lb.laplace(coin, COIN)
    expected = np.log(9) - 2 * stats.bernoulli(10 / 13).logpmf(COIN).sum()
    np.testing.assert_allclose(lb.bic(approx, 9), expected, rtol=1e-9)
    assert lb.bic(approx, 9) > lb.bic(lb.maximum_likelihood(coin, COIN), 9)


@pytest.mark.parametrize("number", [0, 0.5, -3, np.nan, np.inf, True, np.ones(2)])
def test_bic_checks_the_number_of_observations(number):
    with pytest.raises(ValueError, match="1 or more"):
        lb.bic(lb.laplace(coin, COIN), number)


def test_bic_refuses_what_has_no_likelihood():
    with pytest.raises(lb.LaplaceError, match="The fit failed"):
        lb.bic(lb.laplace(coin, np.append(COIN, np.nan), throw=False), 10)
    with pytest.raises(lb.UnsupportedModel, match="plain density"):
        lb.bic(lb.laplace_of_density(lambda z: -(z**2), 1.0), 10)


def test_bic_of_a_batch():
    each = [lb.laplace(coin, y) for y in (COIN, 1 - COIN)]
    batch = jax.tree.map(lambda *parts: jnp.stack(parts), *each)
    expected = [lb.bic(one, 9) for one in each]
    np.testing.assert_allclose(jax.vmap(lambda one: lb.bic(one, 9))(batch), expected)
    np.testing.assert_allclose(lb.bic(batch, 9), expected)
