"""No product of the package is computed with rounded factors, as JAX would on GPUs and TPUs.

A processor has no such products: JAX refuses them there when it is asked for them, which these tests do.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.models import bayesian_mlp
from tests.models import logistic, single_precision

KEY = jax.random.key(0)
NETWORK = partial(bayesian_mlp, widths=(2,), likelihood="bernoulli")


@pytest.fixture(autouse=True)
def _in_single_precision():
    with single_precision():
        yield


@pytest.fixture
def rounded():
    """A context in which every product that does not ask for more is one of TF32."""
    with jax.default_matmul_precision("TF32_TF32_F32"):
        yield


def classes():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(20, 2)).astype("float32")
    return features, (features[:, 0] + rng.normal(size=20) > 0).astype("float32")


@cache
def fit():
    return lb.laplace(logistic, *classes())


@cache
def start():
    return lb.train(NETWORK, *classes(), key=KEY, steps=300)


def network(structure):
    options = {"low_rank": {"rank": 2}}.get(structure, {})
    return lb.laplace(
        NETWORK,
        *classes(),
        curvature="gauss_newton",
        structure=structure,
        start=start(),
        tolerance=0.9,
        throw=False,
        **options,
    )


def everything_of(approx):
    print(approx, approx.covariance, approx.log_evidence)
    u = approx.sample_vector(KEY, (3,))
    return approx.sample(KEY, (3,)), approx.log_density(u[0]), approx.summary()


def normals():
    p = dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3) + 0.5)
    noise = dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2))
    theorem = lb.linear_gaussian(p, jnp.ones((2, 3)), jnp.zeros(2), noise)
    expected = lb.expected_quadratic_form(p, jnp.eye(3))
    divergence = lb.kl_divergence(p, theorem.posterior(jnp.ones(2)))
    return expected, divergence, lb.condition(p, [0], [1.0]), lb.marginal(p, [0, 1])


def ridge(features, targets, sd=1.0):
    w = numpyro.sample("w", dist.Normal(0, sd).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(features @ w, 0.5), obs=targets)


def halves():
    features, targets = classes()
    return [(features[:10], targets[:10]), (features[10:], targets[10:])]


CALLS = {
    "laplace": lambda: everything_of(lb.laplace(logistic, *classes())),
    "gradient": lambda: jax.grad(lambda y: lb.laplace(logistic, classes()[0], y).log_evidence)(
        classes()[1]
    ),
    "chunks": lambda: everything_of(lb.laplace_of_chunks(logistic, halves())),
    "density": lambda: lb.laplace_of_density(lambda u: -0.5 * u @ u, jnp.ones(3)),
    "maximum likelihood": lambda: lb.maximum_likelihood(logistic, *classes()),
    "diagnose": lambda: lb.diagnose(lb.laplace(logistic, *classes()), KEY, 200, starts=2),
    "predict": lambda: lb.predict(fit(), classes()[0]),
    "draws": lambda: lb.predict(fit(), classes()[0], method="monte_carlo", key=KEY),
    "quadrature": lambda: lb.gauss_hermite(fit()),
    "bridge": lambda: lb.bridge_sampling(fit(), fit().sample(KEY, (100,)), KEY),
    "maximize evidence": lambda: lb.maximize_evidence(
        lb.laplace(ridge, *classes(), sd=1.0), {"sd": 1.0}
    ),
    "Taylor": lambda: lb.taylor_polynomial(lambda x: jnp.sin(x @ x), jnp.ones(2), 3),
    "normals": jax.jit(normals),
    **{
        f"{structure} network": lambda structure=structure: everything_of(network(structure))
        for structure in ("kronecker", "last_layer", "low_rank")
    },
    "network, rows": lambda: lb.predict(network("kronecker"), classes()[0], key=KEY),
}


@pytest.mark.parametrize("name", CALLS)
def test_products_ask_for_the_precision_of_their_factors(name, rounded):
    CALLS[name]()


def test_a_product_that_does_not_ask_is_noticed(rounded):
    with pytest.raises(ValueError, match="TF32"):
        jax.jit(jnp.matmul)(jnp.ones((2, 2)), jnp.ones((2, 2)))
