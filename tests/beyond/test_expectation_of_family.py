"""Posterior means by approximations that are no single Gaussian, against quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from tests.beyond.test_family import POINTS, log_joint, members
from tests.beyond.test_mixture import GRID, root

KEY = jax.random.key(0)


def rate(sites):
    return jnp.exp(sites["a"] + sites["b"])


def product(sites):
    return sites["a"] * sites["b"]


def steep(sites):
    return sites["b"] > 1.01


@pytest.fixture(scope="module")
def truth():
    a, b = POINTS.T
    logs = log_joint(POINTS)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    return {rate: weights @ np.exp(a + b), product: weights @ (a * b), steep: weights @ (b > 1.01)}


@pytest.fixture(scope="module")
def family():
    return members()


@pytest.mark.parametrize("name", ["skewed", "mixture", "resampled", "resampled skewed", "nested"])
def test_of_each_member_it_is_that_of_the_posterior(name, family, truth):
    """Not that of the approximation: one Gaussian is off by .27 standard deviations in a."""
    for g, exact in truth.items():
        found = lb.expectation(family[name], g, method="draws", key=KEY, num_samples=8_000)
        assert found.method == "draws"
        assert abs(found.value - exact) < 3.5 * found.standard_error < 0.15
        assert np.isfinite(found.correction) == (name == "mixture")


def test_what_has_no_mode_has_draws_alone(family):
    found = lb.expectation(family["skewed"], rate, num_samples=2_000)
    assert found.why == "SkewedApproximation is no sum of Gaussians"
    assert "by draws (SkewedApproximation is no sum of Gaussians)" in repr(found)
    with pytest.raises(lb.UnsupportedModel, match=r"(?s)no\s+sum\s+of\s+Gaussians.*method='draws'"):
        lb.expectation(family["nested"], rate, method="delta")


def test_a_mixture_of_one_has_what_the_fit_has(family):
    fit, mixture = (lb.expectation(family[name], rate) for name in ("laplace", "mixture"))
    assert (mixture.method, mixture.why) == (fit.method, fit.why)
    assert mixture.value == pytest.approx(float(fit.value), rel=1e-12)
    assert mixture.truncation == pytest.approx(float(fit.truncation), rel=1e-9)


def test_what_depends_in_groups_has_the_error_of_groups(family):
    """Eight draws of a nested fit share their hyperparameter b, and know its mean no better than one."""
    of_b, of_a = (
        lb.expectation(family["nested"], lambda s, n=name: s[n], method="draws", num_samples=8_000)
        for name in "ba"
    )
    b, a = (float(family["nested"].standard_deviation[name]) for name in "ba")
    assert of_b.standard_error / b == pytest.approx(8_000**-0.5 * 8**0.5, rel=0.15)
    assert of_a.standard_error / a < 0.9 * of_b.standard_error / b


@pytest.fixture(scope="module")
def modes():
    """A mixture of both roots, and its density on a grid."""
    logs = stats.norm(0, 3).logpdf(GRID) + stats.norm(GRID**2, 1).logpdf(4.0) + 0.2 * GRID
    mixture = lb.mixture(lb.laplace(root, 4.0, 0.2, starts=8, key=KEY))
    assert len(mixture.components) == 2
    return mixture, np.exp(logs) / np.exp(logs).sum()


@pytest.mark.parametrize(
    "g", [lambda x: x, lambda x: x**2, lambda x: 1 / (1 + x**2)], ids=["x", "x^2", "1/(1+x^2)"]
)
@pytest.mark.parametrize("method", ["delta", "tierney_kadane"])
def test_of_several_modes_the_means_are_weighted_by_their_evidence(modes, g, method):
    mixture, density = modes
    found = lb.expectation(mixture, lambda s: g(s["x"]), method=method)
    assert abs(found.value - density @ g(GRID)) <= 1.1 * found.truncation
    assert found.truncation < 0.1 * np.sqrt(density @ (g(GRID) - density @ g(GRID)) ** 2)


def test_what_is_left_out_of_the_shares_counts(modes):
    """Of a function that is flat near each mode, but for what keeps it from being one, nothing else is left out."""
    mixture, density = modes
    found = lb.expectation(mixture, lambda s: jnp.tanh(50 * s["x"]) + 1e-3 * s["x"], method="delta")
    evidences = [lb.corrected_evidence(one) for one in mixture.components]
    error = abs(found.value - density @ (np.tanh(50 * GRID) + 1e-3 * GRID))
    least = sum(
        share * abs(np.sign(float(one.mode["x"])) - float(found.value)) * evidence.truncation
        for share, one, evidence in zip(mixture.shares, mixture.components, evidences, strict=True)
    )
    assert max(error, 0.9 * least) < found.truncation


def test_a_step_between_modes_is_left_to_draws(modes):
    mixture, density = modes
    found = lb.expectation(mixture, lambda s: jnp.where(s["x"] > 0, 1.0, 0.0), key=KEY)
    assert "derivatives of <lambda> at the mode are zero" in found.why
    assert abs(found.value - density[GRID > 0].sum()) < 3 * found.standard_error < 0.02


def test_values_that_modes_bound_have_no_long_tail(modes):
    """Of x itself: Pareto k-hat of what lies beyond the lower of two bounds is 3.4."""
    mixture, density = modes
    found = lb.expectation(mixture, lambda s: s["x"], method="draws")
    assert abs(found.value - density @ GRID) < 3 * found.standard_error < 0.06


def test_a_mixture_whose_shares_have_no_expansion_is_left_to_draws():
    mixture = lb.mixture(lb.laplace(root, 0.7, 0.2, starts=8, key=KEY))
    with pytest.raises(lb.LaplaceError, match="says nothing here"):
        lb.corrected_evidence(mixture)
    found = lb.expectation(mixture, lambda s: s["x"])
    assert (found.method, found.why) == (
        "draws",
        "the evidences about the modes, by which they are weighted, have none",
    )


@pytest.mark.parametrize("method", ["delta", "tierney_kadane"])
def test_a_sparse_hessian_is_whole(method):
    def counts(y):
        rate = numpyro.sample("rate", dist.Gamma(2, 1).expand([3]).to_event(1))
        numpyro.sample("y", dist.Poisson(rate).to_event(1), obs=y)

    found, expected = (
        lb.expectation(
            lb.laplace(counts, np.array([3, 5, 9]), structure=s), lambda s: s["rate"], method=method
        )
        for s in ("sparse", "dense")
    )
    np.testing.assert_allclose(found.value, [2.5, 3.5, 5.5], rtol=0.01)
    np.testing.assert_allclose(found.value, expected.value)
    np.testing.assert_allclose(found.truncation, expected.truncation, rtol=1e-6)


def two_bumps(x, far, xp=jnp):
    return xp.logaddexp(-(x**2) / 2, -1.5 - (x - far) ** 2 / 2)


@pytest.mark.parametrize("far", [np.float64(4), np.float64(6)])
def test_each_mode_has_the_part_of_the_posterior_about_it(far):
    """A line about one sees nothing of the other, at which g is elsewhere."""

    mixture = lb.mixture([lb.laplace_of_density(two_bumps, x, far) for x in (0.0, far)])
    grid = np.linspace(-9, far + 9, 10_001)
    weights = np.exp(two_bumps(grid, far, np))
    found = lb.expectation(mixture, lambda sites: jnp.exp(sites["x"] / 8), method="delta")
    exact = weights @ np.exp(grid / 8) / weights.sum()
    assert abs(found.value - exact) < 1.1 * found.truncation < 0.05
