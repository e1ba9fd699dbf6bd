"""Truncated and censored distributions, in their tails, against arithmetic of four hundred digits."""

from functools import partial

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from laplacebook.model.tails import log_above, log_below, right_in_tails
from tests.models import single_precision

# Standard deviations from the mean: around it, either tail, narrow, beyond what a cdf can tell.
BOUNDS = [(-1, 2), (3, 4), (-4, -3), (9, 10), (-10, -9), (60, 70), (5, 5.001), (0, 1e-6), (-9, 30)]
BOUNDS += [(-3, np.inf), (20, np.inf), (300, np.inf), (-np.inf, 3), (-np.inf, -20)]


def truth(low, high, x):
    """Log density, mean and variance of a standard normal between two bounds."""
    with mp.workdps(400):
        if high <= 0:
            log_density, mean, variance = truth(-high, -low, -x)
            return log_density, -mean, variance
        low, high = mp.mpf(low), mp.mpf(high)
        inside = mp.ncdf(-low) - mp.ncdf(-high)
        at_low, at_high = (mp.npdf(z) / inside for z in (low, high))
        ends = low * at_low if mp.isfinite(low) else 0
        ends -= high * at_high if mp.isfinite(high) else 0
        mean = at_low - at_high
        return [float(v) for v in (mp.log(mp.npdf(x) / inside), mean, 1 + ends - mean**2)]


def within(low, high):
    if np.isfinite(low + high):
        return low + 0.4 * (high - low)
    return low + 0.01 if np.isfinite(low) else high - 0.01


def truncated(low, high, loc=0.0, scale=1.0):
    ends = [None if np.isinf(end) else loc + scale * end for end in (low, high)]
    return dist.TruncatedNormal(loc, scale, low=ends[0], high=ends[1], validate_args=False)


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_a_truncated_normal(low, high):
    x = within(low, high)
    log_density, mean, variance = truth(low, high, x)
    fn = right_in_tails(truncated(low, high))
    assert float(fn.log_prob(x)) == pytest.approx(log_density, rel=1e-8, abs=1e-12)
    assert float(fn.mean) == pytest.approx(mean, rel=1e-14)
    assert float(fn.variance) == pytest.approx(variance, rel=1e-12)


@pytest.mark.parametrize(("low", "high"), BOUNDS[1::3])
def test_so_in_single_precision(low, high):
    x = within(low, high)
    _, mean, variance = truth(low, high, x)
    with single_precision():
        fn = right_in_tails(truncated(low, high))
        assert fn.mean.dtype == jnp.float32
        assert float(fn.mean) == pytest.approx(mean, rel=1e-6, abs=1e-6)
        assert float(fn.variance) == pytest.approx(variance, rel=1e-3)


OTHERS = {
    "Laplace": (dist.Laplace, stats.laplace),
    "logistic": (dist.Logistic, stats.logistic),
    "soft Laplace": (dist.SoftLaplace, stats.hypsecant),
    "Cauchy": (dist.Cauchy, stats.cauchy),
    "Student-t": (lambda *a: dist.StudentT(5.0, *a), stats.t(5)),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize("sides", [1, 2])
def test_others_that_are_truncated(name, side, sides):
    ours, theirs = OTHERS[name]
    ends = np.array([30.0, 40.0]) if sides == 2 else np.array([300.0, np.inf])
    inside = theirs.sf(ends[0]) - theirs.sf(ends[1])
    low, high = (float(e) if np.isfinite(e) else None for e in np.sort(side * ends))
    x = side * (ends[0] + 1)
    fn = right_in_tails(dist.TruncatedDistribution(ours(0.0, 1.0), low=low, high=high))
    assert float(fn.log_prob(x)) == pytest.approx(theirs.logpdf(x) - np.log(inside), rel=1e-9)


SURVIVAL = {
    "normal": (dist.Normal(0.0, 1.0), stats.norm),
    "logistic": (dist.Logistic(0.0, 1.0), stats.logistic),
    "Laplace": (dist.Laplace(0.0, 1.0), stats.laplace),
    "Gumbel": (dist.Gumbel(0.0, 1.0), stats.gumbel_r),
    "exponential": (dist.Exponential(1.0), stats.expon),
    "Weibull": (dist.Weibull(1.0, 2.0), stats.weibull_min(2)),
    "gamma": (dist.Gamma(2.0, 1.0), stats.gamma(2)),
    "chi-squared": (dist.Chi2(3.0), stats.chi2(3)),
    "log-normal": (dist.LogNormal(0.0, 1.0), stats.lognorm(1)),
    "Pareto": (dist.Pareto(0.5, 2.0), stats.pareto(2, scale=0.5)),
    "Student-t": (dist.StudentT(5.0, 0.0, 1.0), stats.t(5)),
    "half-Cauchy": (dist.HalfCauchy(1.0), stats.halfcauchy),
    "inverse gamma": (dist.InverseGamma(2.0, 1.0), stats.invgamma(2)),
}


@pytest.mark.parametrize("name", SURVIVAL)
def test_the_logarithm_of_either_tail(name):
    ours, theirs = SURVIVAL[name]

    @jax.jit
    def tails(x):
        return [jax.value_and_grad(partial(tail, ours))(x) for tail in (log_above, log_below)]

    for x in (-30.0, -1.0, 0.7, 8.5, 35.0):
        at = -x if x < theirs.support()[0] else x
        for (value, slope), exact in zip(tails(at), (theirs.logsf, theirs.logcdf), strict=True):
            assert float(value) == pytest.approx(exact(at), rel=1e-8, abs=1e-15)
            assert np.isfinite(slope)


def test_half_distributions_and_gompertz_where_scipy_has_no_digits_left():
    assert float(log_above(dist.HalfNormal(1.0), 50.0)) == pytest.approx(-1254.13821396, rel=1e-10)
    assert float(log_above(dist.Gompertz(2.0, 1.0), 3.0)) == pytest.approx(-2 * np.expm1(3))


def test_where_no_formula_is_known_and_no_digits_are_left_there_is_no_answer():
    beta = dist.Beta(2.0, 8.0)
    assert float(log_above(beta, 0.7)) == pytest.approx(stats.beta(2, 8).logsf(0.7), rel=1e-8)
    assert np.isnan(log_above(beta, 0.995))
    assert np.isnan(log_below(dist.StudentT(50.0, 0.0, 1.0), -1e9))


CENSORED = {
    "above": (dist.RightCensoredDistribution, 12.0, lambda z: mp.ncdf(z - 12)),
    "below": (dist.LeftCensoredDistribution, -45.0, lambda z: mp.ncdf(-45 - z)),
}


def evidence(likelihood):
    """The log of the integral over z of N(z | 0, 0.3^2) and a likelihood that is log-concave."""
    with mp.workdps(30):
        z = [mp.mpf(i) / 20 for i in range(-160, 161)]
        return float(mp.log(mp.fsum(mp.npdf(v, 0, 0.3) * likelihood(v) for v in z) / 20))


def fit(distribution, value):
    def model(y):
        z = numpyro.sample("z", dist.Normal(0, 0.3))
        numpyro.sample("y", distribution(z), obs=y)

    return lb.laplace(model, value)


@pytest.mark.parametrize("name", CENSORED)
def test_the_evidence_of_censored_data(name):
    kind, value, likelihood = CENSORED[name]
    approx = fit(lambda z: kind(dist.Normal(z, 1.0), True), value)
    assert float(approx.log_evidence) == pytest.approx(evidence(likelihood), abs=2e-3)


@pytest.mark.parametrize(("side", "wrap"), [(-1, "none"), (1, "all")])
def test_the_evidence_of_data_truncated_in_a_tail(side, wrap):
    """At a mean some 9 sd below or above the interval."""
    ends = np.sort([side * 9.0, side * 10.0])

    def truncated_likelihood(z):
        return mp.npdf(9.2 - z) / (mp.ncdf(z - 9) - mp.ncdf(z - 10))

    def distribution(z):
        fn = dist.TruncatedNormal(z, 1.0, low=ends[0], high=ends[1])
        return fn if wrap == "none" else fn.expand([1]).to_event(1).mask(True)

    approx = fit(distribution, side * 9.2 * np.ones(1 if wrap == "all" else ()))
    exact = evidence(truncated_likelihood)
    assert float(approx.log_evidence) == pytest.approx(exact, abs=2e-3)


INTERVALS = {
    "in the upper tail": ([9.0, 10.0], False, False, lambda s: s.sf(9.0) - s.sf(10.0)),
    "in the lower tail": ([-10.0, -9.0], False, False, lambda s: s.cdf(-9.0) - s.cdf(-10.0)),
    "around the middle": ([-1.0, 2.0], False, False, lambda s: s.cdf(2.0) - s.cdf(-1.0)),
    "above": ([9.0, np.inf], False, True, lambda s: s.sf(9.0)),
    "below": ([-np.inf, -9.0], True, False, lambda s: s.cdf(-9.0)),
    "outside": ([-9.0, 9.5], True, True, lambda s: s.cdf(-9.0) + s.sf(9.5)),
    "a point": ([9.0, 9.0], False, False, lambda s: s.pdf(9.0)),
}


@pytest.mark.parametrize("name", INTERVALS)
def test_intervals(name):
    ends, left, right, probability = INTERVALS[name]

    def log_prob(z):
        fn = dist.IntervalCensoredDistribution(dist.Normal(z, 1.0), left, right)
        return right_in_tails(fn).log_prob(jnp.array(ends))

    assert float(log_prob(0.0)) == pytest.approx(np.log(probability(stats.norm)), rel=1e-10)
    slope = (log_prob(1e-5) - log_prob(-1e-5)) / 2e-5
    assert float(jax.grad(log_prob)(0.0)) == pytest.approx(float(slope), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("low", "high"), BOUNDS[::3])
def test_gradients_of_a_truncated_normal(low, high):
    """Of the mean by loc at fixed bounds: the variance of the truncated, over that of the normal."""
    ends = [None if np.isinf(end) else float(end) for end in (low, high)]

    def mean(loc):
        return right_in_tails(dist.TruncatedNormal(loc, 1.0, low=ends[0], high=ends[1])).mean

    assert float(jax.grad(mean)(0.0)) == pytest.approx(truth(low, high, 0)[2], rel=1e-6)


def test_what_is_neither_truncated_nor_censored_is_left_alone():
    for fn in (dist.Normal(0, 1), dist.Gamma(2.0, 1.0).expand([3]).to_event(1)):
        assert right_in_tails(fn) is fn


def test_what_is_mixed_is_exchanged_too():
    censored = [dist.RightCensoredDistribution(dist.Normal(m, 1.0), True) for m in (0.0, 1.0)]
    mixing = dist.Categorical(probs=jnp.array([0.5, 0.5]))
    fn = right_in_tails(dist.MixtureGeneral(mixing, censored))
    expected = np.logaddexp(stats.norm.logsf(30), stats.norm.logsf(29)) - np.log(2)
    assert float(fn.log_prob(30.0)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("predictor", [-700.0, -35.0, 0.3, 40.0])
@pytest.mark.parametrize("label", [0, 1, 2])
def test_ordered_classes(predictor, label):
    with mp.workdps(700):
        ends = [-mp.inf, mp.mpf(-1), mp.mpf("1.5"), mp.inf]
        below = [
            0 if i == 0 else 1 if i == 3 else 1 / (1 + mp.exp(predictor - e))
            for i, e in enumerate(ends)
        ]
        expected = float(mp.log(below[label + 1] - below[label]))

    def log_prob(predictor, cut=1.5):
        return right_in_tails(dist.OrderedLogistic(predictor, jnp.array([-1.0, cut]))).log_prob(
            label
        )

    assert float(log_prob(predictor)) == pytest.approx(expected, rel=1e-12, abs=1e-15)
    slope = (log_prob(predictor + 1e-5) - log_prob(predictor - 1e-5)) / 2e-5
    assert float(jax.grad(log_prob)(predictor)) == pytest.approx(float(slope), rel=1e-5, abs=1e-6)
    assert np.isfinite(jax.grad(log_prob, 1)(predictor, 1.5))


def test_ordered_classes_of_several_rows_and_cut_points():
    predictors, labels = jnp.array([0.2, -0.4, 1.3]), np.array([2, 0, 1])
    for cuts in (jnp.array([-1.0, 0.5]), jnp.array([[-1.0, 0.5], [-0.3, 0.4], [0.1, 2.0]])):
        theirs = dist.OrderedLogistic(predictors, cuts)
        pair = jax.jit(lambda fn: (right_in_tails(fn).log_prob(labels), fn.log_prob(labels)))
        np.testing.assert_allclose(*pair(theirs), rtol=1e-12)
