"""Every kind of NumPyro model, against its log joint written by hand and optimised by SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.nn import log_sigmoid, sigmoid
from jax.scipy import stats
from jax.scipy.special import betaln, logsumexp
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from numpyro.infer import reparam
from scipy import optimize, special

import laplacebook as lb

Y = np.array([1.0, 2.5, -0.5, 1.7])
FLAT = dist.ImproperUniform(dist.constraints.real, (), ())


def normal(x, mean=0.0, sd=1.0):
    return jnp.sum(stats.norm.logpdf(x, mean, sd))


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


COVARIANCE = np.array([[2.0, 0.7], [0.7, 1.0]])


def event(y):
    w = numpyro.sample("w", dist.MultivariateNormal(jnp.ones(2), COVARIANCE))
    numpyro.sample("y", dist.Poisson(jnp.exp(w)).to_event(1), obs=y)


def event_by_hand(u):
    prior = stats.multivariate_normal.logpdf(u, jnp.ones(2), COVARIANCE)
    return prior + jnp.sum(stats.poisson.logpmf(jnp.array([3, 1]), jnp.exp(u)))


def dirichlet_multinomial(counts):
    p = numpyro.sample("p", dist.Dirichlet(jnp.array([1.5, 2.0, 3.0])))
    numpyro.sample("y", dist.Multinomial(probs=p, total_count=10), obs=counts)


def dirichlet_multinomial_by_hand(u):
    first, second = log_sigmoid(u[0] - jnp.log(2.0)), log_sigmoid(-u[0] + jnp.log(2.0))
    log_p = jnp.array([first, second + log_sigmoid(u[1]), second + log_sigmoid(-u[1])])
    a, counts = np.array([1.5, 2, 3]), np.array([2, 3, 5])
    jacobian = first + second + log_sigmoid(u[1]) + log_sigmoid(-u[1]) + second
    constant = special.gammaln(a.sum()) - special.gammaln(a).sum()
    constant += special.gammaln(11) - special.gammaln(counts + 1).sum()
    return constant + jnp.sum((a - 1 + counts) * log_p) + jacobian


def correlation(y):
    cholesky = numpyro.sample("L", dist.LKJCholesky(2, 2.0))
    with numpyro.plate("N", 4):
        numpyro.sample("y", dist.MultivariateNormal(jnp.zeros(2), scale_tril=cholesky), obs=y)


PAIRS = np.stack([Y, Y[::-1] + Y], axis=1)


def correlation_by_hand(u):
    r = jnp.tanh(u[0])
    lkj = jnp.log1p(-(r**2)) - 3 * jnp.log(2.0) - betaln(2.0, 2.0)
    matrix = jnp.array([[1, r], [r, 1]])
    likelihood = stats.multivariate_normal.logpdf(PAIRS, jnp.zeros(2), matrix).sum()
    return lkj + jnp.log1p(-(r**2)) + likelihood


def interval(y):
    x = numpyro.sample("x", dist.Uniform(-1, 3))
    numpyro.sample("y", dist.Cauchy(x, 1).expand([4]).to_event(1), obs=y)


def interval_by_hand(u):
    x = 4 * sigmoid(u[0]) - 1
    return log_sigmoid(u[0]) + log_sigmoid(-u[0]) + jnp.sum(stats.cauchy.logpdf(Y, x))


def ordered(y):
    cuts = dist.ImproperUniform(dist.constraints.ordered_vector, (), (2,))
    c = numpyro.sample("c", cuts)
    numpyro.factor("prior", normal(c, 0, 2))
    with numpyro.plate("N", 6):
        numpyro.sample("y", dist.OrderedLogistic(0.3, c), obs=y)


GRADES = np.array([0, 1, 1, 2, 2, 2])


def ordered_by_hand(u):
    c = jnp.array([u[0], u[0] + jnp.exp(u[1])])
    below = sigmoid(c - 0.3)
    p = jnp.array([below[0], below[1] - below[0], 1 - below[1]])
    return normal(c, 0, 2) + u[1] + jnp.sum(jnp.log(p)[GRADES])


def flat(y):
    mean = numpyro.sample("mean", FLAT)
    positive = dist.ImproperUniform(dist.constraints.positive, (), ())
    sd = numpyro.sample("sd", positive)
    numpyro.sample("y", dist.Normal(mean, sd).expand([4]).to_event(1), obs=y)


def flat_by_hand(u):
    return normal(Y, u[0], jnp.exp(u[1])) + u[1]


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


def any_prior(prior, link, y):
    x = numpyro.sample("x", prior)
    numpyro.sample("y", dist.Normal(link(x), 1).expand([4]).to_event(1), obs=y)


def any_prior_by_hand(u):
    return stats.gamma.logpdf(jnp.exp(u[0]), 2, scale=1 / 3) + u[0] + normal(Y, jnp.exp(u[0] / 2))


def counts(y):
    rate = numpyro.sample("rate", dist.Exponential(2.0))
    with numpyro.plate("N", 4):
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def counts_by_hand(u):
    rate = jnp.exp(u[0])
    return jnp.log(2) - 2 * rate + u[0] + jnp.sum(stats.poisson.logpmf(jnp.array(COUNTS), rate))


COUNTS = np.array([1, 0, 3, 2])


def mixture(y):
    gap = numpyro.sample("gap", dist.HalfNormal(2))
    components = dist.Normal(jnp.array([0.0, 1.0]) * gap, 0.5)
    likelihood = dist.MixtureSameFamily(dist.Categorical(jnp.array([0.4, 0.6])), components)
    with numpyro.plate("N", 4):
        numpyro.sample("y", likelihood, obs=y)


def mixture_by_hand(u):
    gap = jnp.exp(u[0])
    parts = [
        jnp.log(0.4) + stats.norm.logpdf(Y, 0, 0.5),
        jnp.log(0.6) + stats.norm.logpdf(Y, gap, 0.5),
    ]
    return jnp.log(2) + normal(gap, 0, 2) + u[0] + jnp.sum(logsumexp(jnp.array(parts), axis=0))


def truncated(y):
    x = numpyro.sample("x", dist.TruncatedNormal(1.0, 2.0, low=0.5))
    numpyro.sample("y", dist.Normal(x, 1).expand([4]).to_event(1), obs=y)


def truncated_by_hand(u):
    x = 0.5 + jnp.exp(u[0])
    return normal(x, 1, 2) - stats.norm.logcdf(0.25) + u[0] + normal(Y, x)


def softmax(y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    with numpyro.plate("N", 6):
        numpyro.sample("y", dist.Categorical(logits=w), obs=y)


def softmax_by_hand(u):
    return normal(u) + jnp.sum((u - logsumexp(u))[GRADES])


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
    (deterministic, (Y,), deterministic_by_hand, 1),
    (decentred, (Y,), decentred_by_hand, 5),
    (transformed, (Y,), transformed_by_hand, 1),
    (angle, (Y,), angle_by_hand, 1),
    (unwrapped, (Y,), unwrapped_by_hand, 1),
    (event, (np.array([3, 1]),), event_by_hand, 2),
    (dirichlet_multinomial, (np.array([2, 3, 5]),), dirichlet_multinomial_by_hand, 2),
    (correlation, (PAIRS,), correlation_by_hand, 1),
    (interval, (Y,), interval_by_hand, 1),
    (ordered, (GRADES,), ordered_by_hand, 2),
    (flat, (Y,), flat_by_hand, 2),
    (autoregression, (Y,), autoregression_by_hand, 1),
    (state_space, (Y,), state_space_by_hand, 4),
    (any_prior, (dist.Gamma(2.0, 3.0), jnp.sqrt, Y), any_prior_by_hand, 1),
    (any_prior, (dist.Gamma(np.array(2.0), 3.0), jnp.sqrt, Y), any_prior_by_hand, 1),
    (counts, (COUNTS,), counts_by_hand, 1),
    (mixture, (Y,), mixture_by_hand, 1),
    (truncated, (Y,), truncated_by_hand, 1),
    (softmax, (GRADES,), softmax_by_hand, 3),
    (gaussian_process, (np.arange(4.0), Y), gaussian_process_by_hand, 1),
    (empty, (np.zeros(0, int),), empty_by_hand, 1),
]


def by_scipy(log_joint, near):
    """Mode, precision and log evidence of a log joint; of several modes, the one nearby."""
    minus = jax.jit(lambda u: -log_joint(u))
    gradient, hessian = jax.jit(jax.grad(minus)), jax.jit(jax.hessian(minus))
    found = optimize.minimize(
        minus, near, jac=gradient, hess=hessian, method="trust-exact", tol=1e-9
    )
    precision = hessian(found.x)
    occam = len(found.x) / 2 * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1] / 2
    return found.x, precision, occam - found.fun


@pytest.mark.parametrize(
    ("model", "args", "log_joint", "dimension"),
    KINDS,
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_kind_of_model(model, args, log_joint, dimension):
    approx = lb.laplace(model, *args)
    assert approx.mode_vector.shape == (dimension,)
    away = approx.mode_vector + 0.05 * np.random.default_rng(0).normal(size=dimension)
    mode, precision, log_evidence = by_scipy(log_joint, away)
    np.testing.assert_allclose(approx.mode_vector, mode, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(approx.precision.matrix, precision, rtol=1e-6, atol=1e-6)
    assert approx.log_evidence == pytest.approx(log_evidence, rel=1e-8, abs=1e-8)
