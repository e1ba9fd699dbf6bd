"""The coin with a normal prior on its logit: what the chapter says, computed in other ways.

The truth is mpmath's quadrature with 30 digits; chi^2 divergences come from rules of their own.
"""

from functools import cache

import jax
import mpmath as mp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, optimize, stats
from scipy.special import expit, log_expit, roots_hermitenorm

import laplacebook as lb

HEADS, TOSSES = 7, 9
S = 20_000


def coin(y):
    theta = numpyro.sample("theta", dist.Normal(-2, 1))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=theta), obs=y)


def tosses(heads=HEADS):
    return np.repeat([1.0, 0.0], [heads, TOSSES - heads])


def log_joint(theta, heads=HEADS):
    """From SciPy's distributions, for an array of theta."""
    h = expit(np.asarray(theta, float)[..., None])
    return stats.bernoulli(h).logpmf(tosses(heads)).sum(-1) + stats.norm(-2, 1).logpdf(theta)


def exact_joint(theta, heads=HEADS):
    """The joint density in mpmath's digits."""
    return (
        mp.exp(heads * theta) / (1 + mp.exp(theta)) ** TOSSES * mp.npdf(theta, -2, 1)
    )  # of this sequence of tosses


@cache
def exact_log_evidence():
    with mp.workdps(30):
        return float(mp.log(mp.quad(exact_joint, [-40, -10, -2, 0, 1, 10, 40])))


@cache
def fit(heads=HEADS):
    return lb.laplace(coin, tosses(heads))


def gaussian(heads=HEADS):
    approx = fit(heads)
    return stats.norm(approx.mode_vector[0], approx.precision.matrix[0, 0] ** -0.5)


@cache
def posterior_on_grid():
    theta = np.linspace(-8, 8, 8001)
    p = np.exp(log_joint(theta))
    return theta, p / integrate.simpson(p, x=theta)


def square_over(log_proposal, low, high, heads=HEADS):
    """The integral of p(D, theta)^2 / r(theta) from low to high, over that of p(D, theta), squared."""
    pieces = mp.linspace(low, high, 13)
    with mp.workdps(20):
        square = mp.quad(lambda x: exact_joint(x, heads) ** 2 * mp.exp(-log_proposal(x)), pieces)
        return square / mp.quad(lambda x: exact_joint(x, heads), pieces) ** 2


def log_gaussian(heads=HEADS):
    q = gaussian(heads)
    m, s = mp.mpf(float(q.mean())), mp.mpf(float(q.std()))
    return lambda x: -(((x - m) / s) ** 2) / 2 - mp.log(s * mp.sqrt(2 * mp.pi))


def test_mode_and_precision_by_a_search_and_differences():
    approx = fit()
    best = optimize.minimize_scalar(lambda x: -log_joint(x), bounds=(-3, 3), method="bounded")
    assert approx.mode["theta"] == pytest.approx(best.x, abs=1e-5)
    h = expit(float(approx.mode["theta"]))
    assert TOSSES * h - HEADS + approx.mode["theta"] + 2 == pytest.approx(0, abs=1e-8)
    assert approx.precision.matrix[0, 0] == pytest.approx(1 + TOSSES * h * (1 - h), rel=1e-8)
    assert approx.precision.matrix[0, 0] == pytest.approx(3.2367, abs=5e-5)


def test_the_loss_is_convex_wherever_the_data_are():
    theta, step = np.linspace(-8, 8, 401), 1e-3
    for heads in range(TOSSES + 1):
        second = sum(w * log_joint(theta + x, heads) for x, w in ((-step, 1), (0, -2), (step, 1)))
        assert (-second / step**2 > 1 - 1e-5).all()


def test_evidence_and_laplaces_error():
    assert exact_log_evidence() == pytest.approx(-8.774251, abs=5e-7)
    assert fit().log_evidence - exact_log_evidence() == pytest.approx(-0.0129, abs=5e-5)


def test_the_first_correction_explains_the_error():
    def loss(x):
        return -(HEADS * jax.nn.log_sigmoid(x) + (TOSSES - HEADS) * jax.nn.log_sigmoid(-x))

    third = jax.grad(jax.grad(jax.grad(loss)))
    m, A = fit().mode_vector[0], float(fit().precision.matrix[0, 0])
    skewness, fourth = float(third(m)) / A**1.5, float(jax.grad(third)(m)) / A**2
    correction = 5 / 24 * skewness**2 - fourth / 8
    assert correction == pytest.approx(0.01329, abs=5e-6)
    assert correction == pytest.approx(exact_log_evidence() - float(fit().log_evidence), rel=0.05)


def by_points(number):
    z, w = roots_hermitenorm(number)
    q = gaussian()
    values = np.exp(log_joint(q.mean() + q.std() * z) + z**2 / 2)
    return np.log(w @ values * q.std())


def test_gauss_hermite_starts_at_laplace_and_converges():
    errors = [abs(by_points(number) - exact_log_evidence()) for number in (1, 3, 5, 7, 9, 11, 13)]
    falls = np.divide(errors[:-1], errors[1:])
    assert (falls > 10).all() and (falls < 60).all()
    assert by_points(1) == pytest.approx(float(fit().log_evidence), rel=1e-9)
    assert errors[1] < np.sqrt(20.90 / 1e6) / 10  # three points, and a million draws from the prior


@pytest.mark.parametrize("number", [1, 2, 5, 20])
def test_gauss_hermite_of_the_package(number):
    ours = float(lb.gauss_hermite(fit(), number))
    assert ours == pytest.approx(by_points(number), abs=1e-12)
    if number == 20:
        assert ours == pytest.approx(exact_log_evidence(), abs=1e-12)


def relative_variance_under_the_prior():
    """By a Gauss-Hermite rule about the prior, not about the mode."""
    z, w = roots_hermitenorm(150)
    likelihood = np.exp(log_joint(z - 2) - stats.norm.logpdf(z))
    first, second = (w @ likelihood**i / w.sum() for i in (1, 2))
    assert np.log(first) == pytest.approx(exact_log_evidence(), abs=1e-9)
    return second / first**2 - 1


def test_draws_that_prior_sampling_needs():
    chi2 = relative_variance_under_the_prior()
    assert chi2 == pytest.approx(20.90, abs=5e-3)
    error = fit().log_evidence - exact_log_evidence()
    assert chi2 / error**2 == pytest.approx(126_336, abs=1)
    inside = float(square_over(log_gaussian(), -10, 10)) - 1
    assert inside == pytest.approx(0.002475, abs=5e-7)
    assert chi2 / inside == pytest.approx(8446, abs=1)


def test_the_packages_estimates_follow_the_law():
    chi2 = relative_variance_under_the_prior()
    by_prior = lb.prior_sampling(coin, tosses(), key=jax.random.key(5), num_samples=S)
    by_q = lb.importance_sampling(fit(), jax.random.key(6), S, proposal="gaussian")
    for estimate, relative in ((by_prior, chi2), (by_q, 0.002475)):
        assert abs(estimate.value - exact_log_evidence()) < 4 * estimate.standard_error
        assert estimate.standard_error == pytest.approx(np.sqrt(relative / S), rel=0.15)
    assert (by_prior.standard_error / by_q.standard_error) ** 2 > 100


def test_the_error_of_prior_sampling_falls_as_one_over_the_root():
    """With NumPy's generator, 200 estimates at each of two sizes that differ by 16."""
    likelihood = np.exp(
        HEADS * np.log(expit(theta := np.random.default_rng(0).normal(-2, 1, (200, 16_000))))
        + (TOSSES - HEADS) * np.log(expit(-theta))
    )
    errors = [np.log(likelihood[:, :n].mean(1)) - exact_log_evidence() for n in (1000, 16_000)]
    few, many = (np.sqrt(np.mean(e**2)) for e in errors)
    assert few / many == pytest.approx(4, rel=0.25)
    assert many == pytest.approx(np.sqrt(20.90 / 16_000), rel=0.2)


@pytest.mark.parametrize(("distance", "sd"), [(0.0, 1.0), (2.15, 0.556), (-1.0, 1.3)])
def test_chi2_between_gaussians(distance, sd):
    p, r = stats.norm(distance, sd), stats.norm(0, 1)
    integral, _ = integrate.quad(lambda x: np.exp(2 * p.logpdf(x) - r.logpdf(x)), -60, 60)
    formula = np.exp(distance**2 / (2 - sd**2)) / (sd * np.sqrt(2 - sd**2))
    assert formula == pytest.approx(integral, rel=1e-7)


def test_weights_have_infinite_variance_where_a_exceeds_two():
    assert fit().precision.matrix[0, 0] > 2
    narrow, wide, wider = (square_over(log_gaussian(), -x, x) for x in (10, 30, 60))
    assert narrow < 1.01 and wide > 1e50 and wider > wide**3


def test_weights_have_finite_variance_where_a_is_below_two():
    """No heads at all: h at the mode is below 0.127."""
    assert expit(fit(0).mode_vector[0]) < 1 / 2 - np.sqrt(5) / 6
    assert fit(0).precision.matrix[0, 0] < 2
    narrow, wide = (square_over(log_gaussian(0), -x, x, heads=0) for x in (30, 60))
    assert float(wide) == pytest.approx(float(narrow), rel=1e-10)


def test_the_tail_of_the_weights_is_that_of_a_pareto_distribution():
    """log q(w > x) / log x tends to -A / (A - 1), along either tail."""
    q, A = gaussian(), float(fit().precision.matrix[0, 0])
    for theta in (-1e5, 1e5):
        log_likelihood = HEADS * log_expit(theta) + (TOSSES - HEADS) * log_expit(-theta)
        log_w = log_likelihood + stats.norm(-2, 1).logpdf(theta) - q.logpdf(theta)
        log_tail = q.logcdf(theta) if theta < 0 else q.logsf(theta)
        assert log_tail / log_w == pytest.approx(-A / (A - 1), rel=1e-3)
    shape = 1 - 1 / A
    assert shape == pytest.approx(0.69, abs=5e-3)


def test_student_weights_are_bounded():
    approx, q = fit(), gaussian()
    theta = np.linspace(-40, 40, 8001)
    proposal = stats.t(5, q.mean(), q.std())
    weights = np.exp(log_joint(theta) - proposal.logpdf(theta) - exact_log_evidence())
    assert weights.max() == pytest.approx(1.10, abs=0.01)
    chi2 = integrate.simpson(weights**2 * proposal.pdf(theta), x=theta) - 1
    assert chi2 == pytest.approx(0.0364, abs=5e-5)
    by_t = lb.importance_sampling(approx, jax.random.key(7), S, proposal="student_t")
    assert abs(by_t.value - exact_log_evidence()) < 4 * by_t.standard_error
    assert by_t.standard_error == pytest.approx(np.sqrt(chi2 / S), rel=0.15)


def test_moments_and_divergences():
    theta, p = posterior_on_grid()
    q = gaussian()

    def mean(values):
        return integrate.simpson(values * p, x=theta)

    m = mean(theta)
    sd = np.sqrt(mean((theta - m) ** 2))
    assert m == pytest.approx(0.1621, abs=5e-5)
    assert sd == pytest.approx(0.5702, abs=5e-5)
    assert mean((theta - m) ** 3) / sd**3 == pytest.approx(0.0287, abs=5e-5)
    assert mean(expit(theta)) == pytest.approx(0.5375, abs=5e-5)
    right = theta >= 0
    assert integrate.simpson(p[right], x=theta[right]) == pytest.approx(0.6116, abs=5e-5)
    assert q.sf(0) == pytest.approx(0.6092, abs=5e-5)
    log_ratio = np.log(p) - q.logpdf(theta)
    assert mean(log_ratio) == pytest.approx(0.001027, abs=5e-7)
    assert -integrate.simpson(q.pdf(theta) * log_ratio, x=theta) == pytest.approx(
        0.000897, abs=5e-7
    )


def test_what_q_says_about_heads():
    """The push-forward against draws of the package, which are on the scale of theta."""
    q = gaussian()
    draws = expit(np.asarray(fit().sample(jax.random.key(8), (S,))["theta"]))

    def below(h):
        return q.cdf(np.log(h / (1 - h)))

    assert stats.kstest(draws, below).pvalue > 0.001
    h, step = np.linspace(0.05, 0.95, 19), 1e-6
    density = q.pdf(np.log(h / (1 - h))) / (h * (1 - h))
    np.testing.assert_allclose((below(h + step) - below(h - step)) / (2 * step), density, rtol=1e-6)


def test_chi2_multiplies_over_independent_coins():
    """1 + chi^2 of two coins, by draws from both priors at once."""
    theta = np.random.default_rng(1).normal(-2, 1, (2, 1_000_000))
    likelihood = np.exp(log_joint_without_prior(theta)).prod(axis=0)
    ratio = np.mean(likelihood**2) / np.exp(4 * exact_log_evidence())
    assert ratio == pytest.approx((1 + relative_variance_under_the_prior()) ** 2, rel=0.1)


def log_joint_without_prior(theta):
    h = expit(theta)
    return HEADS * np.log(h) + (TOSSES - HEADS) * np.log1p(-h)


@pytest.mark.parametrize(("mean", "needed"), [(-4, 21_441_761), (0, 9_765), (1, 2_902)])
def test_draws_needed_under_other_priors(mean, needed):
    z, w = roots_hermitenorm(150)
    likelihood = np.exp(log_joint_without_prior(z + mean))
    first, second = (w @ likelihood**i / w.sum() for i in (1, 2))
    assert (second / first**2 - 1) / 0.01**2 == pytest.approx(needed, rel=1e-3)
