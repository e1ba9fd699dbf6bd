"""Hierarchical models in the forms in which they are written, and which of their sites are hyperparameters."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.contrib.control_flow import scan
from numpyro.handlers import mask, reparam
from numpyro.infer.reparam import LocScaleReparam

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


def schools(y, s, form):
    mu, tau = site("mu", dist.Normal(0, 5)), site("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(y)):
        if form == "centred":
            effect = site("theta", dist.Normal(mu, tau))
        elif form == "sum of two":
            effect = mu + site("z", dist.Normal(0, tau))
        else:
            effect = mu + tau * site("z", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(effect, s), obs=y)


def schools_by_logarithm(y, s):
    """All sites are on the real line, so that only the product tells tau from an effect."""
    mu, log_tau = normal("mu"), normal("log_tau")
    z = normal("z", len(y))
    numpyro.sample("y", dist.Normal(mu + jnp.exp(log_tau) * z, s).to_event(1), obs=y)


def schools_with_a_normal_scale(y, s):
    tau, mu = normal("tau"), normal("mu")
    with numpyro.plate("schools", len(y)):
        numpyro.sample("y", dist.Normal(mu + tau * site("z", dist.Normal(0, 1)), s), obs=y)


def predictor(effects="z", fixed="b"):
    """Two fixed effects, and a group's own, of a scale that is unknown."""
    tau, b = half("tau"), normal(fixed, 2)
    return X @ b + normal(effects, GROUPS)[G] * tau


def seeds(r, n, x1, x2):
    a = [normal(f"alpha{i}", scale=1e3) for i in range(4)]
    sigma = site("sigma", dist.InverseGamma(0.01, 0.01))
    with numpyro.plate("plates", len(r)):
        b = site("b", dist.Normal(0, sigma))
        logits = a[0] + a[1] * x1 + a[2] * x2 + a[3] * x1 * x2 + b
        numpyro.sample("r", dist.Binomial(n, logits=logits), obs=r)


def likelihood(y, of_predictor):
    fn = of_predictor(predictor())
    with numpyro.plate("rows", N):
        numpyro.sample("y", fn, obs=y)


def through(of_predictor):
    return lambda y: likelihood(y, of_predictor)


def negative_binomial(y):
    likelihood(y, lambda eta: dist.NegativeBinomial2(jnp.exp(eta), half("size")))


def negative_binomial_by_logarithm(y):
    likelihood(y, lambda eta: dist.NegativeBinomial2(jnp.exp(eta), jnp.exp(normal("log_size"))))


def gamma_regression(y):
    shape = half("shape")
    likelihood(y, lambda eta: dist.Gamma(shape, shape / jnp.exp(eta)))


def beta_regression(y):
    size = half("size")
    mean = jax.nn.sigmoid
    likelihood(y, lambda eta: dist.Beta(size * mean(eta), size * mean(-eta)))


def linear_with_a_noise(y, noise):
    """The standard deviation of the noise is none of the effects, in whatever form it is written."""
    if noise == "exp":
        sd = jnp.exp(normal("sd"))
    else:
        sd = site("sd", dist.HalfNormal(1) if noise == "half" else dist.LogNormal(0, 1))
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


def series_of_innovations(y):
    phi, sd = site("phi", dist.Uniform(-1, 1)), half("sd")
    shocks = normal("shocks", N)
    _, x = jax.lax.scan(lambda x, e: (phi * x + sd * e,) * 2, 0.0, shocks)
    numpyro.sample("y", dist.Poisson(jnp.exp(x + normal("level"))).to_event(1), obs=y)


def random_walk(y):
    sd = half("sd")
    x = site("x", dist.GaussianRandomWalk(sd, N))
    numpyro.sample("y", dist.Normal(x, half("noise")).to_event(1), obs=y)


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


def latent_process(y, form):
    length, amplitude = site("length", dist.LogNormal(0, 1)), half("amplitude")
    mean = normal("mean")
    covariance = kernel(length, amplitude)
    if form == "centred":
        f = site("f", dist.MultivariateNormal(mean, covariance))
    else:
        f = mean + jnp.linalg.cholesky(covariance) @ normal("f", N)
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


def decay(y, rate_first):
    """One of two: affine in the amplitude, which is why it is the effect, and a link away in the rate."""
    names = ("rate", "amplitude") if rate_first else ("amplitude", "rate")
    of = {name: normal(name) for name in names}
    mean = of["amplitude"] * jnp.exp(-of["rate"] * TIME)
    numpyro.sample("y", dist.Normal(mean, half("noise")).to_event(1), obs=y)


def decay_to_a_level(y):
    rate, amplitude, level = normal("rate"), normal("amplitude"), normal("level")
    mean = level + amplitude * jnp.exp(-rate * TIME)
    numpyro.sample("y", dist.Normal(mean, half("noise")).to_event(1), obs=y)


def horseshoe(y, centred):
    tau = site("tau", dist.HalfCauchy(1))
    local = site("local", dist.HalfCauchy(1).expand([2]).to_event(1))
    own = dist.Normal(0, tau * local).to_event(1)
    b = site("b", own) if centred else tau * local * normal("b", 2)
    mean, noise = X @ b + normal("level"), half("noise")
    with numpyro.plate("rows", N):
        numpyro.sample("y", dist.Normal(mean, noise), obs=y)


def missing(y):
    seen = ~jnp.isnan(y)
    tau, noise = half("tau"), half("noise")
    z = site("z", dist.GaussianRandomWalk(tau, N))
    with numpyro.plate("rows", N), mask(mask=seen):
        numpyro.sample("y", dist.Normal(z, noise), obs=jnp.where(seen, y, 0))


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
SEEDS = (COUNT, COUNT + 5, X[:, 0] > 0, X[:, 1] > 0)
NOT_CENTRED = reparam(schools, config={"theta": LocScaleReparam(0)})
MODELS = {
    "schools centred": (schools, (*EIGHT, "centred"), ["tau"]),
    "schools sum": (schools, (*EIGHT, "sum of two"), ["tau"]),
    "schools not centred": (schools, (*EIGHT, "not centred"), ["tau"]),
    "schools by reparam": (NOT_CENTRED, (*EIGHT, "centred"), ["tau"]),
    "schools by logarithm": (schools_by_logarithm, EIGHT, ["log_tau"]),
    "schools, normal scale": (schools_with_a_normal_scale, EIGHT, ["tau"]),
    "seeds": (seeds, SEEDS, ["sigma"]),
    "poisson": (through(lambda eta: dist.Poisson(rate=jnp.exp(eta))), (COUNT,), ["tau"]),
    "poisson softplus": (
        through(lambda eta: dist.Poisson(jax.nn.softplus(eta))),
        (COUNT,),
        ["tau"],
    ),
    "bernoulli": (
        through(lambda eta: dist.Bernoulli(probs=jax.nn.sigmoid(eta))),
        (BINARY,),
        ["tau"],
    ),
    "probit": (
        through(lambda eta: dist.Bernoulli(jax.scipy.stats.norm.cdf(eta))),
        (BINARY,),
        ["tau"],
    ),
    "binomial": (through(lambda eta: dist.Binomial(9, jax.nn.sigmoid(eta))), (COUNT,), ["tau"]),
    "inflated": (
        through(lambda eta: dist.ZeroInflatedPoisson(0.2, jnp.exp(eta))),
        (COUNT,),
        ["tau"],
    ),
    "negative binomial": (negative_binomial, (COUNT,), ["tau", "size"]),
    "negative binomial, log": (negative_binomial_by_logarithm, (COUNT,), ["tau", "log_size"]),
    "gamma": (gamma_regression, (POSITIVE,), ["shape", "tau"]),
    "beta": (beta_regression, (UNIT,), ["size", "tau"]),
    "noise half": (linear_with_a_noise, (REAL, "half"), ["sd", "tau"]),
    "noise log": (linear_with_a_noise, (REAL, "log"), ["sd", "tau"]),
    "noise exp": (linear_with_a_noise, (REAL, "exp"), ["sd", "tau"]),
    "ordinal": (ordinal, (CATEGORY,), ["cuts", "tau"]),
    "categories": (categories, (CATEGORY,), ["tau"]),
    "pumps": (pumps, (COUNT, POSITIVE), ["alpha", "beta"]),
    "chain": (chain, (COUNT,), ["top", "tau"]),
    "series": (series, (COUNT,), ["phi", "sd"]),
    "series of innovations": (series_of_innovations, (COUNT,), ["phi", "sd"]),
    "random walk": (random_walk, (REAL,), ["sd", "noise"]),
    "volatility": (volatility, (REAL,), ["sd"]),
    "volatility with a mean": (volatility_with_a_mean, (REAL,), ["sd", "mean"]),
    "process": (latent_process, (BINARY, "centred"), ["length", "amplitude"]),
    "process not centred": (latent_process, (BINARY, ""), ["length", "amplitude"]),
    "process, no field": (process_without_its_field, (REAL,), ["log_length", "log_amplitude"]),
    "icar": (neighbours, (COUNT,), ["tau"]),
    "factors": (likelihood_by_factor, (COUNT,), ["tau"]),
    "zero sum": (sum_zero, (COUNT,), ["tau"]),
    "correlated": (correlated, (BINARY,), ["scales", "factor"]),
    "decay": (decay, (REAL, False), ["rate", "noise"]),
    "decay, rate first": (decay, (REAL, True), ["rate", "noise"]),
    "decay to a level": (decay_to_a_level, (REAL,), ["rate", "noise"]),
    "horseshoe": (horseshoe, (REAL, False), ["tau", "local", "noise"]),
    "horseshoe centred": (horseshoe, (REAL, True), ["tau", "local", "noise"]),
    "missing": (missing, (REAL_ONES,), ["tau", "noise"]),
    "missing covariates": (missing_covariates, (REAL_ONES, REAL), ["noise"]),
    "large covariates": (large_covariates, (COUNT, 2000 + TIME), ["tau"]),
    "students": (students, (REAL,), ["tau", "z", "noise"]),
    "pairs": (pairs_beat_the_largest, (REAL,), ["big"]),
    "mean of priors": (mean_of_priors, (COUNT,), ["tau"]),
}
