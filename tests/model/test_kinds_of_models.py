"""Every way to write a NumPyro model (handlers, plates, scans), against its log joint by hand."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.nn import log_sigmoid, sigmoid
from jax.scipy import stats
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer import reparam
from scipy import special

from tests.by_hand import Y, agrees, normal


def nested(y):
    with numpyro.plate("group", 3, dim=-2):
        mean = numpyro.sample("mean", dist.Normal(1, 2))
        with numpyro.plate("member", 4, dim=-1):
            numpyro.sample("y", dist.Normal(mean, 0.5), obs=y)


GROUPS = Y + np.arange(3.0)[:, None]


def nested_by_hand(u):
    return normal(u, 1, 2) + normal(GROUPS, u[:, None], 0.5)


def scaled(y):
    mean = numpyro.sample("mean", dist.Normal(0, 2))
    with numpyro.plate("N", 4), handlers.scale(scale=3.0):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def scaled_by_hand(u):
    return normal(u, 0, 2) + 3 * normal(Y, u)


def masked(y, seen):
    mean = numpyro.sample("mean", dist.Normal(0, 2))
    with numpyro.plate("N", 4), handlers.mask(mask=seen):
        numpyro.sample("y", dist.StudentT(4, mean, 1), obs=jnp.where(seen, y, 0.0))


SEEN = np.array([True, False, True, True])


def masked_by_hand(u):
    return normal(u, 0, 2) + jnp.sum(stats.t.logpdf(Y[SEEN], 4, u))


def factor():
    numpyro.factor("bowl", -jnp.cosh(numpyro.sample("x", dist.Normal(1, 1)) - 2))


def factor_by_hand(u):
    return normal(u, 1) - jnp.cosh(u[0] - 2)


CENSORED = np.array([True, False, False, True])


def factor_under_a_mask(y, censored):
    rate = numpyro.sample("rate", dist.LogNormal(0, 1))
    with numpyro.plate("N", 4):
        with handlers.mask(mask=~censored):
            numpyro.sample("y", dist.Exponential(rate), obs=y)
        with handlers.mask(mask=censored):
            numpyro.factor("longer", -rate * y)


def factor_under_a_mask_by_hand(u):
    return normal(u, 0) + 2 * u[0] - jnp.exp(u[0]) * abs(Y).sum()


def deterministic(y):
    sd = numpyro.deterministic("sd", jnp.sqrt(numpyro.sample("variance", dist.InverseGamma(3, 2))))
    numpyro.sample("y", dist.Normal(0, sd).expand([4]).to_event(1), obs=y)


def deterministic_by_hand(u):
    prior = 3 * np.log(2.0) - special.gammaln(3) - 3 * u[0] - 2 * jnp.exp(-u[0])
    return prior + normal(Y, 0, jnp.exp(u[0] / 2))


def schools(y):
    tau = numpyro.sample("tau", dist.LogNormal(0, 0.5))
    with numpyro.plate("N", 4):
        theta = numpyro.sample("theta", dist.Normal(1.0, tau))
        numpyro.sample("y", dist.Normal(theta, 1), obs=y)


decentred = handlers.reparam(schools, config={"theta": reparam.LocScaleReparam(0)})


def decentred_by_hand(u):
    return normal(u[0], 0, 0.5) + normal(u[1:]) + normal(Y, 1 + jnp.exp(u[0]) * u[1:])


def affine(y):
    shifted = dist.TransformedDistribution(
        dist.Normal(0, 1), dist.transforms.AffineTransform(1.0, 2.0)
    )
    x = numpyro.sample("x", shifted)
    numpyro.sample("y", dist.Normal(x, 1).expand([4]).to_event(1), obs=y)


transformed = handlers.reparam(affine, config={"x": reparam.TransformReparam()})


def transformed_by_hand(u):
    return normal(u) + normal(Y, 1 + 2 * u)


def angle(y):
    a = numpyro.sample("a", dist.VonMises(0.5, 2.0))
    numpyro.sample("y", dist.Normal(jnp.cos(a), 0.5).expand([4]).to_event(1), obs=y)


def von_mises(a):
    return 2 * jnp.cos(a - 0.5) - np.log(2 * np.pi * special.i0(2.0))


def angle_by_hand(u):
    a = 2 * jnp.pi * sigmoid(u[0]) - jnp.pi
    jacobian = jnp.log(2 * jnp.pi) + log_sigmoid(u[0]) + log_sigmoid(-u[0])
    return von_mises(a) + jacobian + normal(Y, jnp.cos(a), 0.5)


unwrapped = handlers.reparam(angle, config={"a": reparam.CircularReparam()})


def unwrapped_by_hand(u):
    return von_mises(u[0]) + normal(Y, jnp.cos(u[0]), 0.5)


def autoregression(y):
    sd = numpyro.sample("sd", dist.HalfNormal(1))

    def step(previous, now):
        numpyro.sample("y", dist.Normal(0.5 * previous, sd), obs=now)
        return now, None

    scan(step, 0.0, y)


def autoregression_by_hand(u):
    previous = np.append(0.0, Y[:-1])
    sd = jnp.exp(u[0])
    return jnp.log(2.0) + normal(sd) + u[0] + normal(Y, 0.5 * previous, sd)


def state_space(y):
    def step(x, now):
        x = numpyro.sample("x", dist.LogNormal(0.5 * jnp.log(x), 0.7))
        numpyro.sample("y", dist.Normal(x, 1), obs=now)
        return x, None

    scan(step, 1.0, y)


def state_space_by_hand(u):
    return normal(u, 0.5 * jnp.append(0.0, u[:-1]), 0.7) + normal(Y, jnp.exp(u))


def gaussian_process(x, y):
    length = numpyro.sample("length", dist.LogNormal(0, 1))
    kernel = jnp.exp(-((x[:, None] - x) ** 2) / (2 * length**2)) + 0.1 * jnp.eye(4)
    numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(4), kernel), obs=y)


def gaussian_process_by_hand(u):
    x = np.arange(4.0)
    kernel = jnp.exp(-((x[:, None] - x) ** 2) / (2 * jnp.exp(2 * u[0]))) + 0.1 * jnp.eye(4)
    return normal(u) + stats.multivariate_normal.logpdf(Y, jnp.zeros(4), kernel)


def empty(y):
    x = numpyro.sample("x", dist.Gamma(3.0, 2.0))
    numpyro.sample("y", dist.Poisson(x).expand([len(y)]).to_event(1), obs=y)


def empty_by_hand(u):
    return stats.gamma.logpdf(jnp.exp(u[0]), 3, scale=0.5) + u[0]


#: model, its arguments, its log joint by hand, number of coordinates
KINDS = [
    (nested, (GROUPS,), nested_by_hand, 3),
    (scaled, (Y,), scaled_by_hand, 1),
    (masked, (np.where(SEEN, Y, np.nan), SEEN), masked_by_hand, 1),
    (factor, (), factor_by_hand, 1),
    (factor_under_a_mask, (abs(Y), CENSORED), factor_under_a_mask_by_hand, 1),
    (deterministic, (Y,), deterministic_by_hand, 1),
    (decentred, (Y,), decentred_by_hand, 5),
    (transformed, (Y,), transformed_by_hand, 1),
    (angle, (Y,), angle_by_hand, 1),
    (unwrapped, (Y,), unwrapped_by_hand, 1),
    (autoregression, (Y,), autoregression_by_hand, 1),
    (state_space, (Y,), state_space_by_hand, 4),
    (gaussian_process, (np.arange(4.0), Y), gaussian_process_by_hand, 1),
    (empty, (np.zeros(0, int),), empty_by_hand, 1),
]


@pytest.mark.parametrize(
    ("model", "args", "log_joint", "dimension"),
    KINDS,
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_kind_of_model(model, args, log_joint, dimension):
    agrees(model, args, log_joint, dimension)
