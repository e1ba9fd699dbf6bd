"""Every kind of prior and likelihood, against its log joint by hand."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.nn import log_sigmoid, sigmoid
from jax.scipy import stats
from jax.scipy.special import betaln, logsumexp
from scipy import special

import laplacebook as lb
from tests.by_hand import Y, agrees, normal

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


FLAT = dist.ImproperUniform(dist.constraints.real, (), ())


def flat(y):
    mean = numpyro.sample("mean", FLAT)
    positive = dist.ImproperUniform(dist.constraints.positive, (), ())
    sd = numpyro.sample("sd", positive)
    numpyro.sample("y", dist.Normal(mean, sd).expand([4]).to_event(1), obs=y)


def flat_by_hand(u):
    return normal(Y, u[0], jnp.exp(u[1])) + u[1]


def any_prior(prior, link, y):
    x = numpyro.sample("x", prior)
    numpyro.sample("y", dist.Normal(link(x), 1).expand([4]).to_event(1), obs=y)


def any_prior_by_hand(u):
    return stats.gamma.logpdf(jnp.exp(u[0]), 2, scale=1 / 3) + u[0] + normal(Y, jnp.exp(u[0] / 2))


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


#: model, its arguments, its log joint by hand, number of coordinates
KINDS = [
    (event, (np.array([3, 1]),), event_by_hand, 2),
    (dirichlet_multinomial, (np.array([2, 3, 5]),), dirichlet_multinomial_by_hand, 2),
    (correlation, (PAIRS,), correlation_by_hand, 1),
    (interval, (Y,), interval_by_hand, 1),
    (ordered, (GRADES,), ordered_by_hand, 2),
    (flat, (Y,), flat_by_hand, 2),
    (any_prior, (dist.Gamma(2.0, 3.0), jnp.sqrt, Y), any_prior_by_hand, 1),
    (mixture, (Y,), mixture_by_hand, 1),
    (truncated, (Y,), truncated_by_hand, 1),
    (softmax, (GRADES,), softmax_by_hand, 3),
]


@pytest.mark.parametrize(
    ("model", "args", "log_joint", "dimension"),
    KINDS,
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_kind_of_distribution(model, args, log_joint, dimension):
    agrees(model, args, log_joint, dimension)


POINTS = {
    "number": lambda: dist.Delta(2.0),
    "vector": lambda: dist.Delta(np.ones(3), event_dim=1),
    "expanded": lambda: dist.Delta(2.0).expand([3]).to_event(1),
    "weighted": lambda: dist.Delta(2.0, log_density=0.5),
    "masked": lambda: dist.Delta(2.0).mask(True),
}


@pytest.mark.parametrize("make", POINTS.values(), ids=POINTS)
def test_a_latent_site_whose_value_is_known(make):
    def model(y):
        d = numpyro.sample("d", make())
        numpyro.sample(
            "y", dist.Normal(numpyro.sample("a", dist.Normal(0, 1)) + jnp.sum(d), 1), obs=y
        )

    with pytest.raises(
        lb.UnsupportedModel, match=r"(?s)'d' is a Delta.*numpyro.deterministic\('d', value\)"
    ):
        lb.laplace(model, 0.3)
