"""Hierarchical models in the forms in which they are written, and which of their sites are hyperparameters."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.handlers import mask

RNG = np.random.default_rng(0)
N, GROUPS = 24, 6
X = RNG.normal(size=(N, 2))
G = np.int32(np.arange(N) % GROUPS)  # of one type in both precisions
REAL, COUNT, BINARY = RNG.normal(size=N), RNG.poisson(2, size=N), RNG.integers(0, 2, N)
REAL_ONES = np.where(np.arange(N) == 3, np.nan, REAL)
TIME = np.linspace(0, 2, N)
OF_GROUPS = np.random.default_rng(1).normal(size=(GROUPS, 9))


def site(name, fn):
    return numpyro.sample(name, fn)


def normal(name, *size, scale=1.0):
    fn = dist.Normal(0, scale)
    return site(name, fn.expand(size).to_event(1) if size else fn)


def half(name, *size, scale=1.0):
    fn = dist.HalfNormal(scale)
    return site(name, fn.expand(size).to_event(1) if size else fn)


def schools(y, s):
    mu, tau = site("mu", dist.Normal(0, 5)), site("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(y)):
        numpyro.sample("y", dist.Normal(site("theta", dist.Normal(mu, tau)), s), obs=y)


def schools_not_centred(y, s):
    mu, tau = site("mu", dist.Normal(0, 5)), site("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(y)):
        numpyro.sample("y", dist.Normal(mu + tau * site("z", dist.Normal(0, 1)), s), obs=y)


def schools_by_logarithm(y, s):
    """All sites are on the real line, so that only the product tells tau from an effect."""
    mu, log_tau = normal("mu"), normal("log_tau")
    z = normal("z", len(y))
    numpyro.sample("y", dist.Normal(mu + jnp.exp(log_tau) * z, s).to_event(1), obs=y)


def schools_with_a_normal_scale(y, s):
    tau, mu = normal("tau"), normal("mu")
    with numpyro.plate("schools", len(y)):
        numpyro.sample("y", dist.Normal(mu + tau * site("z", dist.Normal(0, 1)), s), obs=y)


def predictor():
    """Two fixed effects, and a group's own, of a scale that is unknown."""
    tau, b = half("tau"), normal("b", 2)
    return X @ b + normal("z", GROUPS)[G] * tau


def likelihood(y, of_predictor):
    fn = of_predictor(predictor())
    with numpyro.plate("rows", N):
        numpyro.sample("y", fn, obs=y)


def through(of_predictor):
    return lambda y: likelihood(y, of_predictor)


def negative_binomial_by_logarithm(y):
    likelihood(y, lambda eta: dist.NegativeBinomial2(jnp.exp(eta), jnp.exp(normal("log_size"))))


def beta_regression(y):
    size = half("size")
    mean = jax.nn.sigmoid
    likelihood(y, lambda eta: dist.Beta(size * mean(eta), size * mean(-eta)))


def linear_with_a_noise(y):
    """The logarithm of the noise is none of the effects."""
    sd = jnp.exp(normal("sd"))
    likelihood(y, lambda eta: dist.Normal(eta, sd))


def ordinal(y):
    cuts = site(
        "cuts",
        dist.TransformedDistribution(
            dist.Normal(0, 2).expand([3]).to_event(1), dist.transforms.OrderedTransform()
        ),
    )
    likelihood(y, lambda eta: dist.OrderedLogistic(eta, cuts))


def categories(y):
    tau = half("tau")
    w = site("w", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    z = site("z", dist.Normal(0, tau).expand([GROUPS, 3]).to_event(2))
    with numpyro.plate("rows", N):
        numpyro.sample("y", dist.Categorical(logits=X @ w + z[G]), obs=y)


def pumps(y, t):
    alpha, beta = site("alpha", dist.Exponential(1)), site("beta", dist.Gamma(0.1, 1))
    with numpyro.plate("pumps", len(y)):
        theta = site("theta", dist.Gamma(alpha, beta))
        numpyro.sample("y", dist.Poisson(theta * t), obs=y)


def chain(y):
    """The prior of the effects' scale has a scale itself."""
    top = half("top")
    tau = site("tau", dist.HalfNormal(top))
    with numpyro.plate("rows", N):
        numpyro.sample("y", dist.Poisson(site("rate", dist.Gamma(2, tau))), obs=y)


def series(y):
    """AR(1) by a loop, the states a site."""
    phi, sd = site("phi", dist.Uniform(-1, 1)), half("sd")

    def step(before, now):
        x = site("x", dist.Normal(phi * before, sd))
        numpyro.sample("y", dist.Poisson(jnp.exp(x)), obs=now)
        return x, None

    scan(step, 0.0, y)


def volatility(y):
    sd = half("sd")
    h = site("h", dist.GaussianRandomWalk(sd, N))
    numpyro.sample("y", dist.Normal(0, jnp.exp(h / 2)).to_event(1), obs=y)


def volatility_with_a_mean(y):
    h = site("h", dist.GaussianRandomWalk(half("sd"), N))
    numpyro.sample("y", dist.Normal(normal("mean"), jnp.exp(h / 2)).to_event(1), obs=y)


def kernel(length, amplitude):
    apart = (TIME[:, None] - TIME) / length
    return amplitude**2 * jnp.exp(-(apart**2) / 2) + 1e-5 * jnp.eye(N)


def latent_process(y):
    length, amplitude = site("length", dist.LogNormal(0, 1)), half("amplitude")
    f = site("f", dist.MultivariateNormal(normal("mean"), kernel(length, amplitude)))
    numpyro.sample("y", dist.Bernoulli(logits=f).to_event(1), obs=y)


def process_without_its_field(y):
    """The field is integrated out; what is left that is Gaussian is the mean, an effect."""
    length, amplitude = jnp.exp(normal("log_length")), jnp.exp(normal("log_amplitude"))
    numpyro.sample(
        "y", dist.MultivariateNormal(normal("mean") * jnp.ones(N), kernel(length, amplitude)), obs=y
    )


def neighbours(y):
    """ICAR: the prior of the field is a factor."""
    tau = half("tau")
    flat = dist.ImproperUniform(dist.constraints.real_vector, (), (N,))
    field = site("field", flat)
    numpyro.factor(
        "differences", -jnp.sum((field[1:] - field[:-1]) ** 2) / 2 / tau**2 - N * jnp.log(tau)
    )
    numpyro.factor("sum", dist.Normal(0, 0.01).log_prob(field.sum()))
    numpyro.sample("y", dist.Poisson(jnp.exp(normal("level") + field)).to_event(1), obs=y)


def likelihood_by_factor(y):
    """Row by row a factor is a function of the predictor; the sum over the rows is not."""
    rate = jnp.exp(predictor())
    with numpyro.plate("rows", N):
        numpyro.factor("y", dist.Poisson(rate).log_prob(y))


def sum_zero(y):
    tau = half("tau")
    mu, z = normal("mu"), site("z", dist.ZeroSumNormal(tau, (GROUPS,)))
    with numpyro.plate("rows", N):
        numpyro.sample("y", dist.Poisson(jnp.exp(mu + z[G])), obs=y)


def correlated(y):
    """Intercept and slope of each group, correlated."""
    scales, factor = half("scales", 2), site("factor", dist.LKJCholesky(2, 2.0))
    means = normal("means", 2)
    with numpyro.plate("groups", GROUPS):
        w = site("w", dist.MultivariateNormal(means, scale_tril=scales[:, None] * factor))
    with numpyro.plate("rows", N):
        numpyro.sample("y", dist.Bernoulli(logits=(w[G] * X).sum(axis=-1)), obs=y)


def decay(y):
    """One of two: affine in the amplitude, which is why it is the effect, and not in the rate, which is first."""
    rate, amplitude = normal("rate"), normal("amplitude")
    mean = amplitude * jnp.exp(-rate * TIME)
    numpyro.sample("y", dist.Normal(mean, half("noise")).to_event(1), obs=y)


def horseshoe(y):
    tau = site("tau", dist.HalfCauchy(1))
    local = site("local", dist.HalfCauchy(1).expand([2]).to_event(1))
    mean, noise = X @ (tau * local * normal("b", 2)) + normal("level"), half("noise")
    with numpyro.plate("rows", N):
        numpyro.sample("y", dist.Normal(mean, noise), obs=y)


def missing_covariates(x, y):
    """Where the mask hides a row its predictor is NaN."""
    seen = ~jnp.isnan(x)
    z, noise = normal("z", GROUPS), half("noise")
    with numpyro.plate("rows", N), mask(mask=seen):
        numpyro.sample("y", dist.Normal(z[G] * x, noise), obs=y)


def large_covariates(y, x):
    """With a vague prior exp overflows, and a probability rounds to one, almost everywhere."""
    b = normal("b", scale=1e3)
    tau = half("tau")
    z = site("z", dist.Normal(0, tau).expand([GROUPS]).to_event(1))
    rows = numpyro.plate("rows", N)
    with rows:
        numpyro.sample("y", dist.Poisson(jnp.exp(b * x + z[G])), obs=y)
    with rows:
        numpyro.sample("any", dist.Bernoulli(probs=jax.nn.sigmoid(b * x + z[G])), obs=y > 0)


def students(y):
    """Effects with long tails are not Gaussian, and the rest is."""
    tau = half("tau")
    z = site("z", dist.StudentT(4, 0, tau).expand([GROUPS]).to_event(1))
    fn = dist.Normal(X @ normal("b", 2) + z[G], half("noise"))
    with numpyro.plate("rows", N):
        numpyro.sample("y", fn, obs=y)


def pairs_beat_the_largest(y):
    """The largest site multiplies two others, which are larger together."""
    big, one, other = normal("big", 5), normal("one", 4), normal("other", 4)
    rows = numpyro.plate("rows", N)
    with rows:
        mean = big[G % 5] * one[G % 4] + other[G % 4] * (1 + big[G % 5])
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def mean_of_priors(y):
    """A vector of coefficients is larger than the effects whose mean it is, and joins after them."""
    b, tau = normal("b", 9), half("tau")
    with numpyro.plate("groups", GROUPS):
        z = site("z", dist.Normal(OF_GROUPS @ b, tau))
    with numpyro.plate("rows", N):
        numpyro.sample("y", dist.Poisson(jnp.exp(z[G])), obs=y)


EIGHT = (
    np.array([28.0, 8, -3, 7, -1, 1, 18, 12]),
    np.array([15.0, 10, 16, 11, 9, 11, 10, 18]),
)
POSITIVE, UNIT, CATEGORY = np.exp(REAL), 1 / (1 + np.exp(-REAL)), np.arange(N) % 3
MODELS = {
    "schools centred": (schools, EIGHT, ["tau"]),
    "schools not centred": (schools_not_centred, EIGHT, ["tau"]),
    "schools by logarithm": (schools_by_logarithm, EIGHT, ["log_tau"]),
    "schools, normal scale": (schools_with_a_normal_scale, EIGHT, ["tau"]),
    "poisson": (through(lambda eta: dist.Poisson(rate=jnp.exp(eta))), (COUNT,), ["tau"]),
    "inflated": (
        through(lambda eta: dist.ZeroInflatedPoisson(0.2, jnp.exp(eta))),
        (COUNT,),
        ["tau"],
    ),
    "negative binomial, log": (negative_binomial_by_logarithm, (COUNT,), ["tau", "log_size"]),
    "beta": (beta_regression, (UNIT,), ["size", "tau"]),
    "noise": (linear_with_a_noise, (REAL,), ["sd", "tau"]),
    "ordinal": (ordinal, (CATEGORY,), ["cuts", "tau"]),
    "categories": (categories, (CATEGORY,), ["tau"]),
    "pumps": (pumps, (COUNT, POSITIVE), ["alpha", "beta"]),
    "chain": (chain, (COUNT,), ["top", "tau"]),
    "series": (series, (COUNT,), ["phi", "sd"]),
    "volatility": (volatility, (REAL,), ["sd"]),
    "volatility with a mean": (volatility_with_a_mean, (REAL,), ["sd", "mean"]),
    "process": (latent_process, (BINARY,), ["length", "amplitude"]),
    "process, no field": (process_without_its_field, (REAL,), ["log_length", "log_amplitude"]),
    "icar": (neighbours, (COUNT,), ["tau"]),
    "factors": (likelihood_by_factor, (COUNT,), ["tau"]),
    "zero sum": (sum_zero, (COUNT,), ["tau"]),
    "correlated": (correlated, (BINARY,), ["scales", "factor"]),
    "decay": (decay, (REAL,), ["rate", "noise"]),
    "horseshoe": (horseshoe, (REAL,), ["tau", "local", "noise"]),
    "missing covariates": (missing_covariates, (REAL_ONES, REAL), ["noise"]),
    "large covariates": (large_covariates, (COUNT, 2000 + TIME), ["tau"]),
    "students": (students, (REAL,), ["tau", "z", "noise"]),
    "pairs": (pairs_beat_the_largest, (REAL,), ["big"]),
    "mean of priors": (mean_of_priors, (COUNT,), ["tau"]),
}
