"""Predictions of a nested fit: of groups that it has seen, and of new ones in a larger plate."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from scipy import stats

import laplacebook as lb

KEY = jax.random.key(3)
SEEN = 5
GROUP = np.repeat(np.arange(SEEN), [1, 2, 4, 4, 6])
RNG = np.random.default_rng(2)
Y = RNG.normal(1.5 * RNG.normal(size=SEEN)[GROUP], 1.0)
NOISE, OF_MEAN, OF_TAU = 0.8, 3.0, 2.0


def groups(group, number, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, OF_MEAN))
    tau = numpyro.sample("tau", dist.HalfNormal(OF_TAU))
    with numpyro.plate("groups", number):
        z = numpyro.sample("z", dist.Normal(mu, tau))
    with numpyro.plate("rows", len(group)):
        numpyro.sample("y", dist.Normal(z[group], NOISE), obs=y)


def exactly(new):
    """Mean and variance of the mean of group 0, of a new group's, and E tau^2, by quadrature over tau."""
    taus = (np.arange(200) + 0.5) * 0.06
    counts = np.bincount(GROUP)
    totals = np.bincount(GROUP, Y)
    log_weights, moments = [], []
    for tau in taus:
        precision = np.diag([OF_MEAN**-2.0] + [0.0] * SEEN)
        for j in range(SEEN):
            way = np.zeros(SEEN + 1)
            way[[0, j + 1]] = 1, -1
            precision += np.outer(way, way) / tau**2
            precision[j + 1, j + 1] += counts[j] / NOISE**2
        covariance = np.linalg.inv(precision)
        mean = covariance @ np.append(0, totals / NOISE**2)
        same = GROUP[:, None] == GROUP
        marginal = OF_MEAN**2 + tau**2 * same + NOISE**2 * np.eye(len(Y))
        log_weights.append(
            stats.multivariate_normal(np.zeros(len(Y)), marginal).logpdf(Y)
            + stats.halfnorm(scale=OF_TAU).logpdf(tau)
        )
        k = 0 if new else 1
        moments.append([mean[k], covariance[k, k] + new * tau**2 + mean[k] ** 2])
    weights = np.exp(np.array(log_weights) - max(log_weights))
    first, second = weights @ np.array(moments) / weights.sum()
    return first, second - first**2


@pytest.fixture(scope="module")
def fit():
    return lb.nested(groups, GROUP, SEEN, Y)


def test_outcomes_of_an_old_group_and_of_a_new_one_have_the_exact_moments(fit):
    number = 8_000
    found = lb.predict(fit, np.array([0, SEEN]), SEEN + 2, key=KEY, num_samples=number)
    for i, new in enumerate([False, True]):
        mean, variance = exactly(new)
        error = np.sqrt(variance / number)
        assert found.standard_error[i] == pytest.approx(error, rel=0.05)
        assert abs(found.mean[i] - mean) < 4 * error
        # A variance of draws with tails that are longer than a normal one's.
        assert found.epistemic[i] == pytest.approx(variance, rel=0.05)
    np.testing.assert_allclose(found.noise, NOISE**2)
    assert found.epistemic[1] > 3 * found.epistemic[0]


def test_old_groups_are_the_same_in_a_larger_plate_and_new_ones_are_drawn_apart_by_the_key(fit):
    whole = np.append(GROUP, [SEEN, SEEN + 1])
    old = lb.predict(fit, GROUP, SEEN, key=KEY, num_samples=50)
    one, again, other = (
        lb.predict(fit, whole, SEEN + 2, key=key, num_samples=50)
        for key in (KEY, KEY, jax.random.key(4))
    )
    np.testing.assert_allclose(old.mean, one.mean[:-2], rtol=1e-12)
    np.testing.assert_allclose(old.epistemic, one.epistemic[:-2], rtol=1e-9)
    np.testing.assert_array_equal(one.mean, again.mean)
    means = np.asarray(one.mean)
    assert means[-1] != means[-2]
    assert not np.any(means == np.asarray(other.mean))


def test_a_larger_plate_around_an_event_and_within_another():
    """Slopes of groups, and groups within regions: only the plates that are larger have new entries."""

    def model(number, regions, y=None):
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("regions", regions, dim=-2), numpyro.plate("groups", number, dim=-1):
            z = numpyro.sample("z", dist.Normal(0, tau).expand([2]).to_event(1))
            numpyro.sample("y", dist.Normal(z, 0.5).to_event(1), obs=y)

    y = np.random.default_rng(0).normal(size=(2, 3, 2)) + 2
    fit = lb.nested(model, 3, 2, y)
    old = lb.predict(fit, 3, 2, key=KEY, num_samples=400)
    larger = lb.predict(fit, 4, 3, key=KEY, num_samples=400)
    assert larger.mean.shape == (3, 4, 2)
    np.testing.assert_allclose(larger.mean[:2, :3], old.mean, rtol=1e-12)
    tau = fit.sample(jax.random.split(KEY)[0], (400,))["tau"]
    is_new = np.ones((3, 4), bool)
    is_new[:2, :3] = False
    np.testing.assert_allclose(larger.epistemic[is_new].mean(), np.mean(tau**2), rtol=0.1)
    assert np.all(abs(larger.mean[is_new]) < 5 * larger.standard_error[is_new])


# What is refused


def test_the_mean_count_of_a_new_group_that_does_not_exist_is_refused():
    """E exp(z) for z normal with a standard deviation that has the tail of a half-Cauchy is infinite."""

    def model(exposure, y=None):
        tau = numpyro.sample("tau", dist.HalfCauchy(1))
        with numpyro.plate("groups", len(exposure)):
            z = numpyro.sample("z", dist.Normal(0, tau))
            numpyro.sample("y", dist.Poisson(exposure * jnp.exp(z)), obs=y)

    fit = lb.nested(model, np.ones(5), np.array([0, 9, 2, 31, 1]))
    known = lb.predict(fit, np.ones(5), key=KEY)
    assert np.all(known.mean > 0)
    with pytest.raises(lb.NonFinite, match=r"the\s+largest weigh too") as refused:
        lb.predict(fit, np.ones(6), key=KEY)
    assert "plug_in" not in str(refused.value)


def test_an_outcome_of_an_unknown_one_is_refused():
    def model(x, first=None, second=None):
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("groups", len(x)):
            z = numpyro.sample("z", dist.Normal(0, tau))
            before = numpyro.sample("first", dist.Normal(z * x, 1.0), obs=first)
            numpyro.sample("second", dist.Normal(z * before, 1.0), obs=second)

    x, y = np.ones(4), np.array([1.0, -2.0, 0.5, 2.0])
    fit = lb.nested(model, x, y, y + 0.5, over="tau")
    lb.predict(fit, np.ones(5), site="first", key=KEY, num_samples=20)
    with pytest.raises(lb.UnsupportedModel, match="'second' depends on 'first', which"):
        lb.predict(fit, np.ones(5), site="second", key=KEY, num_samples=20)
    with pytest.raises(ValueError, match=r"Name one observed site as site=: there are \['first'"):
        lb.predict(fit, x, key=KEY)


def test_an_index_outside_its_plate_is_refused(fit):
    with pytest.raises(lb.NonFinite, match=r"(?s)label 5\b.*indexes 5 entries.*has no entry for"):
        lb.predict(fit, np.array([0, SEEN]), SEEN, key=KEY)
    with pytest.raises(lb.NonFinite, match=r"(?s)label 7\b.*indexes\s+7\s+entries"):
        lb.predict(fit, np.array([0, 7]), SEEN + 2, key=KEY)


def test_a_smaller_plate_is_refused(fit):
    with pytest.raises(lb.UnsupportedModel, match=r"'z' has shape \(5,\) in the fit, and \(4,\)"):
        lb.predict(fit, np.array([0]), SEEN - 1, key=KEY)


def test_a_larger_plate_stays_an_error_of_a_laplace_fit():
    gaussian = lb.laplace(groups, GROUP, SEEN, Y)
    told = r"(?s)'z' has shape \(5,\) in the fit, and \(6,\).*new\s+groups\s+of\s+a\s+plate\s+from\s+lb.nested"
    with pytest.raises(lb.LaplaceError, match=told):
        lb.predict(gaussian, np.array([0]), SEEN + 1, method="monte_carlo", key=KEY)


@pytest.mark.parametrize("method", ["linearized", "plug_in", "probit"])
def test_other_methods_are_of_one_gaussian(fit, method):
    with pytest.raises(ValueError, match=f'"{method}" is of one Gaussian.*there is "monte_carlo"'):
        lb.predict(fit, GROUP, SEEN, key=KEY, method=method)


def test_a_key_is_needed(fit):
    with pytest.raises(ValueError, match=r"needs a random key: key=jax\.random\.key\(0\)\.$"):
        lb.predict(fit, GROUP, SEEN)


def whole(times, steps, places, groups, y=None):
    """Four sites, each as long as an argument."""
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    covariance = tau**2 * jnp.exp(-((times[:, None] - times) ** 2)) + 1e-3 * jnp.eye(len(times))
    field = numpyro.sample("field", dist.MultivariateNormal(0, covariance))

    def step(before, _):
        walk = numpyro.sample("walk", dist.Normal(before, tau))
        return walk, walk

    scan(step, 0.0, None, length=len(steps))
    with numpyro.plate("groups", len(groups)):
        z = numpyro.sample("z", dist.Normal(0, tau))
    numpyro.factor("sum to zero", -50 * jnp.sum(z) ** 2)
    with numpyro.plate("places", len(places)):
        flat = numpyro.sample("flat", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.factor("of places", dist.Normal(0, 0.5).log_prob(flat))
    numpyro.sample("y", dist.Normal(field, 0.5).to_event(1), obs=y)


@pytest.fixture(scope="module")
def with_four():
    fit = lb.nested(whole, *[np.arange(4.0)] * 4, np.array([1.0, -1.0, 2.0, 0.5]), over="tau")
    assert lb.predict(fit, *[np.arange(4.0)] * 4, key=KEY, num_samples=4).mean.shape == (4,)
    return fit


@pytest.mark.parametrize(
    ("longer", "match"),
    [
        (
            0,
            r"(?s)'field' has shape \(4,\).*no independent draws of MultivariateNormal.*not those of a plate",
        ),
        (1, r"'walk' has shape \(4,\) in the fit, and \(6,\)"),
        (2, "'flat' has new entries, and ImproperUniform, its prior, has no draws"),
        (3, r"(?s)z have new entries.*'sum to zero' may depend on them"),
    ],
)
def test_new_entries_that_are_no_draws_from_their_prior_are_refused(with_four, longer, match):
    lengths = [4 + 2 * (i == longer) for i in range(4)]
    with pytest.raises(lb.UnsupportedModel, match=match.replace(" ", r"\s+")):
        lb.predict(with_four, *map(np.arange, map(float, lengths)), key=KEY, num_samples=4)
