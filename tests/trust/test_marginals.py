"""Which numbers of which sites does q tell? Marginals by Laplace's method, against exact ones."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import logsumexp

import laplacebook as lb
from laplacebook.fit.glance import factorises, seen_at
from laplacebook.model.density import ModelDensity
from laplacebook.trust import marginals as module
from laplacebook.trust.marginals import marginals
from laplacebook.trust.slices import INTERVAL, Slice
from laplacebook.trust.verdict import HELD, MEDIAN, WIDTH, of_site, of_sites
from tests.models import line

KEY = jax.random.key(0)
EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
Y = np.array([0.3, -1.2, 2.5, 0.7, 1.9, -0.4])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def normal(y, unit=1.0):
    mean = numpyro.sample("mean", dist.Normal(0, 10 * unit))
    sd = numpyro.sample("sd", dist.HalfNormal(5 * unit))
    numpyro.sample("y", dist.Normal(mean, sd), obs=y)


def schools(y, errors):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.LogNormal(1, 1))
    with numpyro.plate("schools", len(y)):
        effect = numpyro.sample("effect", dist.Normal(mu, tau))
    numpyro.sample("y", dist.Normal(effect, errors), obs=y)


def moments(t, log_density):
    """Mean, sd and the mass within the 90 % interval of q, of a density on a fine grid."""
    p = np.exp(log_density - logsumexp(log_density))
    mean = p @ t
    return np.array([mean, np.sqrt(p @ (t - mean) ** 2), p[abs(t) < INTERVAL].sum()])


def told(marginal):
    return np.array([marginal.mean, marginal.standard_deviation, marginal.mass(INTERVAL)])


def test_of_a_gaussian_posterior_they_are_standard_normal():
    x = np.linspace(-1, 1, 20)
    approx = lb.laplace(line, np.c_[np.ones(20), x, x**2], np.sin(3 * x))
    found = marginals(approx)
    assert [one.axis for one in found] == approx.density.coordinate_names()
    assert np.allclose([told(one) for one in found], [0, 1, 0.9], atol=2e-4)


@pytest.mark.parametrize("unit", [1.0, 1e5])
def test_two_coordinates_against_quadrature(unit):
    approx = lb.laplace(normal, Y * unit, unit=unit)
    (m, log_sd), (a, b) = approx.mode_vector, np.sqrt(np.diag(approx.covariance))
    t = np.linspace(-12, 12, 1201)
    mean, sd = (m + a * t)[:, None] / unit, np.exp(log_sd + b * t) / unit
    joint = sum(stats.norm(mean, sd).logpdf(v) for v in Y)
    joint += stats.norm(0, 10).logpdf(mean) + stats.halfnorm(0, 5).logpdf(sd) + np.log(sd)
    exact = [moments(t, logsumexp(joint, axis=axis)) for axis in (1, 0)]
    found = [told(one) for one in marginals(approx)]
    assert np.allclose(found, exact, atol=0.05)
    # q itself would be farther off, by ten times
    assert abs(exact[1][0]) > 0.5 and exact[0][1] > 1.3


def test_a_scale_of_effects_that_no_line_through_the_mode_sees():
    approx = lb.laplace(schools, EFFECTS, ERRORS)
    (at,) = [i for i, one in enumerate(approx.density.coordinate_names()) if one == "tau"]
    center, sd = approx.mode_vector[at], np.sqrt(approx.covariance[at, at])
    t = np.linspace(-12, 12, 2401)
    tau = np.exp(center + sd * t)
    # Given tau the effects integrate out, and with them mu.
    variance = ERRORS[:, None] ** 2 + tau**2
    precision = 1 / 25 + np.sum(1 / variance, axis=0)
    mean = np.sum(EFFECTS[:, None] / variance, axis=0) / precision
    height = -np.sum(np.log(variance) + EFFECTS[:, None] ** 2 / variance, axis=0) / 2
    height += precision * mean**2 / 2 - np.log(precision) / 2 + stats.norm(1, 1).logpdf(np.log(tau))
    exact = moments(t, height)
    diagnosis = lb.diagnose(approx, KEY, 500, starts=1)
    assert np.allclose(told(diagnosis.marginals[at]), exact, rtol=1e-3, atol=1e-3)
    assert exact[0] > 7 and exact[2] < 1e-3
    assert max(abs(one.skewness) for one in diagnosis.slices) < 1.5
    rows = {row["site"]: row for row in diagnosis.sites.rows()}
    assert rows["tau"]["verdict"] == "bad" and rows["tau"]["mean"] == diagnosis.marginals[at].mean
    assert "tau 0%" in repr(diagnosis)


def test_of_one_coordinate_it_is_the_density():
    def rate(y):
        r = numpyro.sample("r", dist.Gamma(2, 1))
        numpyro.sample("y", dist.Poisson(r), obs=y)

    approx = lb.laplace(rate, 1)  # Gamma(3, 2), in log r
    t = np.linspace(-12, 12, 4801)
    u = approx.mode_vector[0] + np.sqrt(approx.covariance[0, 0]) * t
    exact = moments(t, 3 * u - 2 * np.exp(u))
    assert np.allclose(told(marginals(approx)[0]), exact, atol=2e-3)


def test_a_support_ends_it():
    def share(y):
        p = numpyro.sample("p", dist.Uniform(0, 1).expand([2]).to_event(1))
        numpyro.sample("y", dist.Binomial(10, p).to_event(1), obs=y)

    approx = lb.laplace(share, jnp.array([2, 5]), space="constrained")
    t = np.linspace(-12, 12, 4801)
    for marginal, heads in zip(marginals(approx), (2, 5), strict=True):
        p = heads / 10 + np.sqrt(heads * (10 - heads) / 1000) * t
        with np.errstate(divide="ignore"):
            exact = moments(t, stats.beta(heads + 1, 11 - heads).logpdf(p))
        assert np.allclose(told(marginal), exact, atol=0.02)


@pytest.mark.parametrize("y", [0.0, 0.2, 0.45])
def test_a_bound_between_two_steps_is_found(y):
    """Of a Gaussian that a bound cuts off the median, the interval and the sd are in closed form."""

    def bounded(y):
        m = numpyro.sample("m", dist.Uniform(-0.5, 10))
        numpyro.sample("y", dist.Normal(m, 0.5), obs=y)

    (one,) = marginals(lb.laplace(bounded, jnp.array(y), space="constrained"))
    exact = stats.truncnorm((-0.5 - y) / 0.5, (10 - y) / 0.5, y, 0.5)
    low, middle, high = exact.ppf([0.05, 0.5, 0.95])
    assert one.width_ratio == pytest.approx(INTERVAL / (high - low), abs=5e-3)
    assert one.median_off == pytest.approx((y - middle) / (high - low) * 2 * INTERVAL, abs=5e-3)
    assert one.spread_ratio == pytest.approx(0.5 / exact.std(), abs=0.015)


def test_a_mode_beside_a_bound_where_the_rate_is_zero():
    """There NumPyro's exponential has no value; a diagnosis counts the point as outside, and no error comes of it."""

    def waiting(y):
        rate = numpyro.sample("rate", dist.Gamma(1.0, 1.0))
        numpyro.sample("y", dist.Exponential(rate).expand([4]).to_event(1), obs=y)

    approx = lb.laplace(waiting, np.linspace(0.1, 2, 4), space="constrained")
    assert approx.density.log_joint(jnp.zeros(1)) == -np.inf
    assert approx.mode_vector[0] == pytest.approx(2 * approx.standard_deviation["rate"])
    assert lb.diagnose(approx, KEY, 400, starts=1).level in ("usable", "bad")


def test_not_known_where_the_others_have_no_mode():
    def opens(x):  # beyond x[0] = 1 it grows with x[1]
        return -(x[0] ** 2) / 2 - (1 - x[0]) * x[1] ** 2 / 2

    approx = lb.laplace_of_density(opens, jnp.zeros(2))
    first, _ = marginals(approx)
    assert np.isnan(first.mean) and np.isnan(first.density).all()
    diagnosis = lb.diagnose(approx, KEY, 200, starts=1)
    assert diagnosis.sites["verdict"][0] == "not known"
    assert diagnosis.sites.rows()[0]["90 % holds"] is None
    assert f"marginals not known, by what the 90% interval holds: {first.axis}" in repr(diagnosis)


def test_not_known_from_the_mode_on():
    side = np.zeros(1), np.array([np.nan])
    nowhere = module._joined("a", side, side)
    assert np.isnan(nowhere.mean) and np.isnan(nowhere.mass(INTERVAL))


def test_not_looked_at_in_a_large_fit(monkeypatch):
    approx = lb.laplace(normal, Y, unit=1.0)
    monkeypatch.setattr(module, "is_small", lambda *_: False)
    diagnosis = lb.diagnose(approx, KEY, 200, starts=1)
    assert diagnosis.marginals is None
    assert len(diagnosis.sites) == 0 and "not looked at" in repr(diagnosis.sites)
    assert "marginals" not in repr(diagnosis)


def bell(sd, axis="a", mean=0.0):
    t = np.linspace(-9, 9, 3601)
    return Slice(axis, t, stats.norm(mean, sd).pdf(t))


def sd_that_holds(share):
    return INTERVAL / stats.norm.ppf((1 + share) / 2)


@pytest.mark.parametrize(
    ("share", "level"),
    [(0.899, "good"), (0.8505, "good"), (0.8495, "usable"), (0.8301, "usable"), (0.8, "bad")],
)
def test_thresholds(share, level):
    """Of the share that is held; where the width is off by 20 %, 83 % are."""
    assert (HELD, MEDIAN, WIDTH) == ((0.85, 0.75), 0.3, 0.2)
    one = bell(sd_that_holds(share))
    assert abs(one.mass(INTERVAL) - share) < 1e-4
    assert of_site(one).level == level
    # of the whole fit the worst is said alone
    worst = of_sites([bell(1.0), one])
    assert [finding.level for finding in worst] == ([] if level == "good" else [level])


@pytest.mark.parametrize(
    ("one", "level"),
    [
        (bell(1.0, mean=0.299), "good"),
        (bell(1.0, mean=-0.301), "bad"),
        (bell(0.8331), "usable"),  # wider than it by 1 / 1.2, though it holds more than it should
        (bell(0.8334), "good"),
    ],
    ids=["median", "median beyond", "too wide", "as wide as may be"],
)
def test_medians_and_widths(one, level):
    assert of_site(one).level == ("bad" if level == "usable" else level)


def test_on_the_scale_of_the_site():
    """A log-normal number: its median and its interval in closed form, where the coordinate alone would be right."""
    found = marginals(lb.laplace_of_density(lambda x: -x @ x / 2, jnp.zeros(1)))[0]
    assert found.median_off == pytest.approx(0, abs=1e-6) and found.width_ratio == pytest.approx(
        1, abs=1e-4
    )

    def gamma():
        numpyro.sample("r", dist.Gamma(2.0, 1.0))

    (one,) = marginals(lb.laplace(gamma))
    exact = stats.gamma(2).ppf([0.05, 0.5, 0.95])
    ours = 2 * np.exp(np.array([-INTERVAL, 0, INTERVAL]) / np.sqrt(2))
    assert np.allclose(one.scale, [*exact, *ours], rtol=2e-3)
    assert one.median_off == pytest.approx(
        (ours[1] - exact[1]) / np.ptp(exact) * 2 * INTERVAL, abs=2e-3
    )
    assert one.width_ratio == pytest.approx(np.ptp(ours) / np.ptp(exact), rel=2e-3)


def overdispersed(y):
    mu = numpyro.sample("mu", dist.Gamma(1.0, 0.05))
    k = numpyro.sample("k", dist.Exponential(0.1))
    numpyro.sample("y", dist.NegativeBinomial2(mu, k).expand([10]).to_event(1), obs=y)


def test_a_long_tail_whose_interval_is_right_is_not_good():
    """Beside quadrature: the sd of mu is a third short, its interval a sixth."""
    counts = np.array([1, 5, 0, 2, 9, 5, 1, 4, 0, 2])
    u, v = np.meshgrid(np.linspace(-3, 5, 801), np.linspace(-5, 7, 1201), indexing="ij")
    mu, k = np.exp(u), np.exp(v)
    log_p = stats.gamma(1, scale=20).logpdf(mu) + stats.expon(scale=10).logpdf(k) + u + v
    log_p += sum(stats.nbinom(k, k / (k + mu)).logpmf(count) for count in counts)
    p = np.exp(log_p - log_p.max())
    p /= p.sum()
    exact = np.sqrt(np.sum(p * mu**2) - np.sum(p * mu) ** 2)

    approx = lb.laplace(overdispersed, counts)
    diagnosis = lb.diagnose(approx, KEY, starts=1)
    of_mu, _ = diagnosis.marginals
    ours = float(approx.standard_deviation["mu"])
    assert of_mu.spread_of_number == pytest.approx([exact, ours], rel=0.04)
    assert of_mu.spread_ratio == pytest.approx(0.69, abs=0.03)
    assert abs(of_mu.width_ratio - 1) < WIDTH
    assert diagnosis.level == "usable"
    assert "its sd is off by -31% (up to 20%)" in diagnosis.verdict
    assert diagnosis.sites["spread"][0] == of_mu.spread_ratio


@pytest.mark.parametrize("sd", [2.0, 3.0, 5.0])
def test_of_a_very_long_tail_no_more_is_told_than_of_the_gaussians(sd):
    """A log-normal number, of which q is exact: most of its variance lies beyond what is looked at."""

    def long(y):
        x = numpyro.sample("x", dist.LogNormal(0.0, sd))
        numpyro.sample("y", dist.Normal(jnp.log(x), 8.0), obs=y)

    (one,) = marginals(lb.laplace(long, 1.0))
    assert one.spread_ratio == pytest.approx(1, abs=0.1)
    assert of_site(one).level == "good"


def test_an_overflow_far_out_leaves_the_interval():
    def wide():
        x = numpyro.sample("x", dist.LogNormal(0.0, 1e4))
        z = jnp.log(x) / 250
        numpyro.factor("f", -(z**2) / 2 - 0.01 * z**4)

    (one,) = marginals(lb.laplace(wide))
    assert one.scale is not None and one.spread_of_number is None
    assert of_site(one).level == "bad"


@pytest.mark.parametrize(
    ("ratio", "level"),
    [(0.801, "good"), (0.799, "usable"), (1.199, "good"), (1.201, "usable"), (0.1, "usable")],
)
def test_a_standard_deviation_that_is_off_is_usable(ratio, level):
    one = replace(bell(1.0), spread_of_number=np.array([1.0, ratio]))
    assert of_site(one).level == level
    assert ("its sd is off" in of_site(one).words) == (level == "usable")


def test_of_a_simplex_it_is_told_in_the_coordinates():
    def shares():
        numpyro.sample("p", dist.Dirichlet(jnp.array([5.0, 6, 7])))

    assert all(one.scale is None for one in marginals(lb.laplace(shares)))


def test_the_worst_is_named_and_the_unknown_left_out():
    nothing = Slice("c", np.zeros(2), np.full(2, np.nan))
    (finding,) = of_sites([bell(1.0), bell(1.3, "b", mean=1.0), nothing, bell(1.2, "d")])
    share = stats.norm(1.0, 1.3).cdf([-INTERVAL, INTERVAL])
    held = f"the 90% interval of b holds {share[1] - share[0]:.0%} of its marginal"
    off = "its width is off by -23% (up to 20%) and the median by -0.77 sd (up to 0.3)"
    assert finding.words == f"{held}, {off}"
    assert of_sites([nothing]) == [] == of_sites([])
    assert of_site(nothing).words == "the marginal of c is not known"


def classes(x, y):
    """A Gaussian process, not centred."""
    scale = numpyro.sample("scale", dist.HalfNormal(2.0))
    noise = numpyro.sample("noise", dist.Normal(0, 1).expand([len(x)]).to_event(1))
    covariance = scale**2 * jnp.exp(-((x[:, None] - x) ** 2) / 2) + 1e-6 * jnp.eye(len(x))
    f = jnp.linalg.cholesky(covariance) @ noise
    numpyro.sample("y", dist.Bernoulli(logits=f), obs=y)


def test_where_matrices_are_factorised_the_least_gaussian_of_each_site(monkeypatch):
    x = np.linspace(-2, 2, 12)
    approx = lb.laplace(classes, x, (x**2 > 1).astype(int))
    looks = []
    monkeypatch.setattr(module, "seen_at", lambda *args: looks.append(1) or seen_at(*args))
    diagnosis = lb.diagnose(approx, KEY, 500, starts=1)
    some, few = diagnosis.marginals, len(looks)
    monkeypatch.setattr(module, "factorises", lambda density, u: False)
    every = {one.axis: one for one in marginals(approx)}
    assert [one.axis for one in some][0] == "scale" and len(some) == 5 and len(every) == 13
    assert few < (len(looks) - few) / 2
    for one in some:
        assert np.array_equal(told(one), told(every[one.axis]), equal_nan=True)
        assert one.scale is None or np.array_equal(one.scale, every[one.axis].scale)

    def off(one):
        return abs(np.log(one.standard_deviation)) + abs(one.mean)

    # Chosen well: what was left out is told better by q than what was looked at.
    left = [off(one) for name, one in every.items() if name not in {one.axis for one in some}]
    assert np.nanmedian(left) < np.nanmedian([off(one) for one in some[1:]])
    assert len(diagnosis.sites) == 5 and "not looked at" not in repr(diagnosis.sites)
    assert "marginals looked at: 5 of 13" in repr(diagnosis)
    assert len(diagnosis.plot("noise").axes) == 4


def test_a_model_without_large_factorisations_is_looked_at_as_a_whole():
    approx = lb.laplace(schools, EFFECTS, ERRORS)
    assert not factorises(approx.density, approx.mode_vector)

    def correlated(y):
        factor = numpyro.sample("factor", dist.LKJCholesky(2))
        effect = numpyro.sample("effect", dist.MultivariateNormal(0, scale_tril=factor).expand([6]))
        numpyro.sample("y", dist.Normal(effect, 0.1).to_event(2), obs=y)

    density = ModelDensity.of(correlated, (np.zeros((6, 2)),))
    assert density.dimension == 13
    assert not factorises(density, jnp.zeros(13))
