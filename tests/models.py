"""Models that several tests share."""

import jax
import numpyro
import numpyro.distributions as dist


def coin(y, heads=2.0, tails=2.0):
    """A coin with a Beta(heads, tails) prior."""
    theta = numpyro.sample("theta", dist.Beta(heads, tails))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Bernoulli(theta), obs=y)


def line(features, y, prior_sd=2.0, noise_sd=0.5):
    """Linear regression with known noise: the posterior is Gaussian, so Laplace is exact."""
    prior = dist.Normal(0, prior_sd).expand([features.shape[1]]).to_event(1)
    w = numpyro.sample("w", prior)
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(features @ w, noise_sd), obs=y)


def normal(y, mean_sd=1e6, sd_sd=1e6):
    """A normal of unknown mean and standard deviation, vague on purpose."""
    mean = numpyro.sample("mean", dist.Normal(0, mean_sd))
    sd = numpyro.sample("sd", dist.HalfNormal(sd_sd))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(mean, sd), obs=y)


def redundant(y):
    """Two flat parameters of which the data fix only the sum."""
    flat = dist.ImproperUniform(dist.constraints.real, (), ())
    total = numpyro.sample("a", flat) + numpyro.sample("b", flat)
    numpyro.sample("y", dist.Normal(total, 1), obs=y)


def logistic(features, y=None, scale=1.0):
    """Logistic regression with a normal prior of the weights."""
    w = numpyro.sample("w", dist.Normal(0, scale).expand([features.shape[1]]).to_event(1))
    with numpyro.plate("N", len(features)):
        numpyro.sample("y", dist.Bernoulli(logits=features @ w), obs=y)


def single_precision():
    """A context in which JAX works in single precision, in any version of it."""
    recent = hasattr(jax, "enable_x64")
    return jax.enable_x64(False) if recent else jax.experimental.disable_x64()
