"""Effects integrated out by Laplace's method, against closed forms, quadrature and lme4."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from numpyro.infer import NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoDelta
from scipy import integrate, stats
from scipy.special import expit

import laplacebook as lb
from laplacebook.beyond import marginalize, reference
from laplacebook.model import density
from laplacebook.model.density import ModelDensity

KEY = jax.random.key(0)
# Yield of dyestuff of six batches, five of each (Davies 1947, Statistical Methods in Research and
# Production), as in lme4's Dyestuff.
YIELD = np.array(
    [
        [1545, 1440, 1440, 1520, 1580],
        [1540, 1555, 1490, 1560, 1495],
        [1595, 1550, 1605, 1510, 1560],
        [1445, 1440, 1595, 1465, 1545],
        [1595, 1630, 1515, 1635, 1625],
        [1520, 1455, 1450, 1480, 1445],
    ],
    dtype=float,
)
FLAT = dist.ImproperUniform(dist.constraints.real, (), ())


def groups(y, scale=1.0):
    """A normal hierarchy, in which the integral over the effects is exact."""
    mu = numpyro.sample("mu", dist.Normal(0, 2))
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", y.shape[0], dim=-2):
        z = numpyro.sample("z", dist.Normal(mu, tau))
        with numpyro.plate("rows", y.shape[1]):
            numpyro.sample("y", dist.Normal(z, scale), obs=y)


Y = np.random.default_rng(0).normal(size=(4, 1)) * 2 + np.random.default_rng(1).normal(size=(4, 3))


def log_marginal(u, y=Y):
    """log p(y, mu, tau), with the log Jacobian, in (mu, log tau)."""
    mu, tau = u[0], jnp.exp(u[1])
    covariance = jnp.eye(y.shape[1]) + tau**2
    value = dist.MultivariateNormal(mu, covariance).log_prob(y).sum()
    return value + dist.Normal(0, 2).log_prob(mu) + dist.HalfNormal(2).log_prob(tau) + u[1]


def log_joint(model, sites, data, u):
    density = ModelDensity.of(lb.marginalize(model, sites), data)
    return float(jax.jit(density.log_joint)(jnp.asarray(u)))


@pytest.fixture(scope="module")
def marginal():
    return lb.marginalize(groups, "z")


@pytest.fixture(scope="module")
def approx(marginal):
    return lb.laplace(marginal, Y)


@pytest.fixture(scope="module")
def exact():
    return lb.laplace_of_density(log_marginal, jnp.zeros(2))


def test_the_fit_is_that_of_the_exact_marginal(approx, exact):
    np.testing.assert_allclose(approx.mode_vector, exact.mode_vector, atol=1e-8)
    np.testing.assert_allclose(approx.covariance, exact.covariance, rtol=1e-7)
    assert float(approx.log_evidence) == pytest.approx(float(exact.log_evidence), abs=1e-8)
    assert [site.name for site in approx.density.sites] == ["mu", "tau"]


def test_draws_of_the_effects(marginal, approx):
    """Given the others they are normal: mean and variance by the formula of shrinkage."""
    hyper = approx.sample(jax.random.key(1), (4000,))
    draws = marginal.sample(KEY, hyper, Y)
    assert {name: x.shape for name, x in draws.items()} == {"z": (4000, 4, 1)}
    mu, tau = np.asarray(hyper["mu"]), np.asarray(hyper["tau"])
    precision = 1 / tau**2 + Y.shape[1]
    mean = (mu[:, None] / tau[:, None] ** 2 + Y.sum(axis=1)) / precision[:, None]
    scores = (np.asarray(draws["z"])[..., 0] - mean) * np.sqrt(precision)[:, None]
    assert stats.kstest(scores.ravel(), "norm").pvalue > 1e-3
    seen = Predictive(groups, {**hyper, **draws})(jax.random.key(2), Y)
    np.testing.assert_array_equal(seen["y"][0], Y)
    given = marginal.given({name: x[0] for name, x in hyper.items()}, Y)
    np.testing.assert_allclose(given.mode["z"][:, 0], mean[0], atol=1e-8)


def test_nuts_and_svi_take_it(marginal):
    """A sampler begins where its energy and its slope are those of the exact marginal; so does SVI, in mu and tau."""
    known = jax.jit(jax.value_and_grad(log_marginal))
    state = NUTS(marginal).init(KEY, 1, None, (Y,), {})
    height, slope = known(jnp.array([state.z["mu"], state.z["tau"]]))
    assert float(state.potential_energy) == pytest.approx(-float(height), abs=1e-8)
    np.testing.assert_allclose([state.z_grad["mu"], state.z_grad["tau"]], -slope, rtol=1e-7)
    svi = SVI(marginal, AutoDelta(marginal), numpyro.optim.SGD(1e-3), Trace_ELBO())
    start = svi.init(KEY, Y)
    before = svi.get_params(start)
    after, loss = jax.jit(svi.update)(start, Y)
    log_tau = jnp.log(before["tau_auto_loc"])
    height, slope = known(jnp.array([before["mu_auto_loc"], log_tau]))
    assert float(loss) == pytest.approx(float(log_tau - height), abs=1e-8)
    step = jnp.log(svi.get_params(after)["tau_auto_loc"]) - log_tau
    assert float(step) == pytest.approx(1e-3 * float(slope[1] - 1), rel=1e-6)


def dyes(y):
    mean = numpyro.sample("mean", FLAT)
    of_batch = numpyro.sample("of_batch", dist.HalfNormal(1000))
    sd = numpyro.sample("sd", dist.HalfNormal(1000))
    with numpyro.plate("batches", 6, dim=-2):
        z = numpyro.sample("z", dist.Normal(0, 1))
        with numpyro.plate("rows", 5):
            numpyro.sample("y", dist.Normal(1500 + mean + of_batch * z, sd), obs=y)


@pytest.mark.parametrize(
    ("sites", "of_batch", "sd", "deviance"),
    # lme4 1.1: lmer(Yield ~ 1 + (1 | Batch), Dyestuff, REML = FALSE), and with REML
    [("z", 37.26, 49.51, 327.3271), (["mean", "z"], 42.00, 49.51, 319.6543)],
)
def test_maximum_likelihood_is_that_of_lme4(sites, of_batch, sd, deviance):
    fit = lb.maximum_likelihood(lb.marginalize(dyes, sites), YIELD)
    assert float(fit.mode["of_batch"]) == pytest.approx(of_batch, abs=0.01)
    assert float(fit.mode["sd"]) == pytest.approx(sd, abs=0.01)
    assert -2 * float(fit.log_likelihood) == pytest.approx(deviance, abs=1e-3)


def test_a_binomial_integral_is_laplaces():
    """Of one effect a group: the sum of one-dimensional Laplace approximations, near quadrature."""

    def seeds(r, n):
        a = numpyro.sample("a", dist.Normal(0, 2))
        sigma = numpyro.sample("sigma", dist.HalfNormal(1))
        with numpyro.plate("plates", len(r)):
            b = numpyro.sample("b", dist.Normal(0, sigma))
            numpyro.sample("r", dist.Binomial(n, logits=a + b), obs=r)

    r, n = np.array([10, 23, 5, 17]), np.array([39, 62, 41, 51])
    found = log_joint(seeds, "b", (r, n), [-0.6, np.log(0.4)])
    prior = stats.norm(0, 2).logpdf(-0.6) + stats.halfnorm(0, 1).logpdf(0.4) + np.log(0.4)

    def one(r, n):
        f = lambda b: stats.binom(n, expit(-0.6 + b)).pmf(r) * stats.norm(0, 0.4).pdf(b)  # noqa: E731
        return np.log(integrate.quad(f, -3, 3)[0])

    exact = sum(map(one, r, n)) + prior
    assert found == pytest.approx(exact, abs=0.01)


def separable(x, y):
    s = numpyro.sample("s", dist.HalfNormal(1))
    w = numpyro.sample("w", FLAT)
    numpyro.sample("y", dist.Bernoulli(logits=w * x / s), obs=y)


def test_an_integral_that_has_no_mode_is_named():
    x, y = np.array([-2.0, -1, 1, 2]), np.array([0, 0, 1, 1])
    marginal = lb.marginalize(separable, "w")
    with pytest.raises(lb.NotConverged, match=r"w cannot be integrated out where s = [\d.]+:\nThe"):
        lb.laplace(marginal, x, y)
    with pytest.raises(lb.NotConverged, match="levels off"):
        marginal.sample(KEY, {"s": np.ones(3)}, x, y)


WRONG = {
    "no such site": ("a", "'a'.*is none of them"),
    "all sites": (["mu", "tau", "z"], "none would be left"),
    "no name": ([], "names, of latent sites"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refused(case):
    sites, words = WRONG[case]
    with pytest.raises(ValueError, match=words):
        lb.laplace(lb.marginalize(groups, sites), Y)


@pytest.mark.usefixtures("types_unchecked")
def test_what_is_no_name_and_no_model():
    with pytest.raises(TypeError, match="sites is the name, or names, of latent sites, not 3"):
        lb.marginalize(groups, 3)
    with pytest.raises(TypeError, match="A model is a function of its data, not 3"):
        lb.marginalize(3, "z")


def test_given_other_values_the_model_is_not_looked_through_again(monkeypatch):
    looked, find_sites = [], density.find_sites
    monkeypatch.setattr(density, "find_sites", lambda *args: looked.append(1) or find_sites(*args))
    marginal = lb.marginalize(partial(groups, scale=1.5), "z")
    whole = ModelDensity.of(marginal.model, (Y,))
    assert whole.dimension == 6 and looked == [1]  # eagerly, outside of all programs
    for tau in (0.5, 1.0):
        marginal.given({"mu": 0.0, "tau": tau}, Y)
    assert len(looked) == 2  # and once for the effects given the others


def test_refused_structure_dependence_and_missing_values(marginal, approx):
    with pytest.raises(ValueError, match='structure is "dense"'):
        lb.marginalize(groups, "z", structure="banded")
    with pytest.raises(lb.UnsupportedModel, match="prior of 'z' depends on 'tau'"):
        lb.laplace(lb.marginalize(groups, "tau"), Y)
    with pytest.raises(ValueError, match=r"lacks the latent sites \['tau'\]"):
        marginal.given({"mu": 0.0}, Y)
    with pytest.raises(ValueError, match=r"lacks the latent sites \['tau'\]"):
        marginal.sample(KEY, {"mu": np.zeros(3)}, Y)
    assert repr(approx).startswith("Laplace approximation of groups without z, ")


def counts(g, y=None):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", 3):
        z = numpyro.sample("z", dist.Normal(0, tau))
    with numpyro.plate("rows", len(g)):
        numpyro.sample("y", dist.Poisson(jnp.exp(z[g])), obs=y)


G, TALLY = np.array([0, 1, 2, 0]), np.array([0, 2, 1, 1])


@pytest.fixture(scope="module")
def tallied():
    marginal = lb.marginalize(counts, "z")
    return marginal, lb.laplace(marginal, G, y=TALLY.astype(float))


def test_a_poisson_integral_is_laplaces(tallied):
    """Of one effect a group: the sum of one-dimensional Laplace approximations, near quadrature."""
    sd = 0.8
    exact = stats.halfnorm.logpdf(sd) + np.log(sd)
    for group in range(3):
        y = TALLY[group == G]

        def density(z, y=y):
            return stats.norm(0, sd).pdf(z) * stats.poisson(np.exp(z)).pmf(y).prod()

        exact += np.log(integrate.quad(density, -5, 5)[0])
    found = tallied[1].density.log_joint(jnp.log(jnp.array([sd])))  # eagerly
    assert float(found) == pytest.approx(exact, abs=0.02)


def test_data_are_told_by_the_name_of_their_argument(tallied):
    marginal, _ = tallied
    with pytest.raises(lb.NonFinite, match="Argument 'g' has the label 3"):
        marginal.given({"tau": 1.0}, G + 1, y=TALLY.astype(float))
    with pytest.raises(lb.NonFinite, match=r"argument 'y' has 1\sNaN"):
        lb.laplace(marginal, G, y=np.array([0, np.nan, 1, 1]))


def test_outcomes_are_predicted_by_the_whole_model(tallied):
    marginal, approx = tallied
    with pytest.raises(lb.UnsupportedModel, match="marginal.sample") as refused:
        lb.predict(approx, G, method="monte_carlo", key=KEY)
    assert "integrated out" in str(refused.value)
    samples = approx.sample(KEY, (50,))
    everything = {**samples, **marginal.sample(KEY, samples, G, y=TALLY.astype(float))}
    assert Predictive(counts, everything)(KEY, np.array([2, 2]))["y"].shape == (50, 2)


def states(y):
    """Three steps of a random walk by a scan, whose inner sites other handlers see as well."""
    tau = numpyro.sample("tau", dist.HalfNormal(1))

    def step(before, _):
        x = numpyro.sample("x", dist.Normal(before, tau))
        return x, x

    _, x = scan(step, 0.0, None, length=3)
    numpyro.sample("y", dist.Normal(x, 1).to_event(1), obs=y)


def test_the_sites_of_a_scan_are_integrated_out():
    y = np.array([0.5, -1.0, 2.0])
    found = log_joint(states, "x", (y,), [0.3])
    walk = np.minimum.outer([1, 2, 3], [1, 2, 3]) * np.exp(0.6)
    exact = stats.multivariate_normal(np.zeros(3), np.eye(3) + walk).logpdf(y)
    exact += stats.halfnorm.logpdf(np.exp(0.3)) + 0.3
    assert found == pytest.approx(exact, abs=1e-9)


def many_counts(y):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    b = numpyro.sample("b", dist.Normal(0, 5))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Normal(0, tau))
        numpyro.sample("y", dist.Poisson(jnp.exp(b + z)), obs=y)


MANY = np.random.default_rng(2).poisson(np.exp(4 + np.random.default_rng(3).normal(size=100)))


@pytest.fixture
def steps(monkeypatch):
    """How many steps each inner search of a program takes."""
    seen = []

    def search(*args):
        found = reference.search(*args)
        jax.debug.callback(lambda n: seen.append(int(n)), found.certificate.iterations)
        return found

    monkeypatch.setattr(marginalize, "search", search)
    return seen


def test_of_many_effects_a_program_that_knows_the_data_begins_at_a_reference(steps):
    """As that of NUTS does: in fewer steps at the same mode, whatever was asked before."""
    marginal = lb.marginalize(many_counts, ["b", "z"])
    points = jnp.array([0.8, 1.1, 0.6, 0.8, 0.8 + 1e-4, 0.8 - 1e-4])

    def height(tau):
        seeded = numpyro.handlers.seed(marginal, 0)
        return numpyro.infer.util.log_density(seeded, (MANY,), {}, {"tau": tau})[0]

    values, slopes = jax.jit(lambda: jax.lax.map(jax.value_and_grad(height), points))()
    jax.effects_barrier()
    assert len(steps) == 6
    middle = [marginal.given({"tau": tau}, MANY) for tau in points[:3]]
    exact = [
        one.log_evidence + stats.halfnorm.logpdf(t)
        for one, t in zip(middle, points[:3], strict=True)
    ]
    np.testing.assert_allclose(values[:3], exact, rtol=1e-10)
    assert float(slopes[0]) == pytest.approx(float(values[4] - values[5]) / 2e-4, rel=1e-5)
    assert float(values[0]) == float(values[3])
    assert max(steps) + 5 < min(one.certificate.iterations for one in middle), steps


def test_of_a_reference_that_is_far_the_middle_is_taken():
    density = ModelDensity.of(many_counts, (MANY,))
    near = np.asarray(density.start({"b": 4.0}))
    np.testing.assert_array_equal(reference.begin_at(density, near), near)
    for far in (near + 30, np.nan * near):
        np.testing.assert_array_equal(reference.begin_at(density, far), density.start())


def test_values_of_other_sites_of_another_shape_are_refused():
    """Draws by chain were taken for one value a group."""

    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 5))
        tau = numpyro.sample("tau", dist.HalfNormal(2))
        z = numpyro.sample("z", dist.Normal(mu, tau).expand([len(y)]).to_event(1))
        numpyro.sample("y", dist.Normal(z, 1.0).to_event(1), obs=y)

    y, key, marginal = np.array([1.0, 2.0, 0.0]), jax.random.key(0), lb.marginalize(model, "z")
    for mu, tau, words in (
        (
            np.zeros((2, 3)),
            np.ones((2, 3)),
            r"samples\['mu'\] has to be of shape \(2,\), not \(2, 3\)",
        ),
        (np.zeros(3), np.ones(2), r"samples\['tau'\] has to be of shape \(3,\)"),
        (0.0, 1.0, r"samples\['mu'\] has to be of shape \('S',\), not \(\)"),
    ):
        with pytest.raises(ValueError, match=words):
            marginal.sample(key, {"mu": mu, "tau": tau}, y)
    with pytest.raises(ValueError, match=r"hyper\['mu'\] has to be of shape \(\), not \(3,\)"):
        marginal.given({"mu": np.zeros(3), "tau": 1.0}, y)
