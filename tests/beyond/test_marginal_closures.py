"""A marginal model of a model that closes over a number which jit, vmap or grad do not know."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.stats import multivariate_normal
from numpyro.infer.util import log_density

import laplacebook as lb

Y = np.array([0.3, 1.2, -0.4, 0.9])
SCALES = jnp.array([0.5, 1.0, 2.0])


def with_scale(scale, structure="dense"):
    def model(y):
        mu = numpyro.sample("mu", dist.Normal(0, 2))
        with numpyro.plate("groups", 4):
            z = numpyro.sample("z", dist.Normal(0, 1))
            numpyro.sample("y", dist.Normal(mu + z, scale), obs=y)

    return lb.marginalize(model, ["z"], structure)


def evidence(scale, structure="dense"):
    return lb.laplace(with_scale(scale, structure), Y).log_evidence


def log_joint(scale, structure="dense"):
    return log_density(with_scale(scale, structure), (Y,), {}, {"mu": jnp.array(0.3)})[0]


def exact_evidence(scale):
    return multivariate_normal.logpdf(Y, jnp.zeros(4), (1 + scale**2) * jnp.eye(4) + 4.0)


def exact_log_joint(scale):
    of_y = multivariate_normal.logpdf(Y, jnp.full(4, 0.3), (1 + scale**2) * jnp.eye(4))
    return of_y + dist.Normal(0, 2).log_prob(0.3)


TRANSFORMED = {
    "jit": lambda f: jax.jit(f)(SCALES[0]),
    "vmap": lambda f: jax.vmap(f)(SCALES),
    "grad": lambda f: jax.grad(f)(SCALES[0]),
    "jit of vmap": lambda f: jax.jit(jax.vmap(f))(SCALES),
    "vmap of grad": lambda f: jax.vmap(jax.grad(f))(SCALES),
}


@pytest.mark.parametrize("how", TRANSFORMED)
@pytest.mark.parametrize(
    ("found", "exact"), [(evidence, exact_evidence), (log_joint, exact_log_joint)]
)
def test_it_is_exact(found, exact, how):
    right = TRANSFORMED[how](exact)
    np.testing.assert_allclose(TRANSFORMED[how](found), right, rtol=1e-9)


@pytest.mark.parametrize("how", ["jit", "vmap", "grad"])
def test_where_entries_are_looked_up_it_is_refused(how):
    with pytest.raises(lb.UnsupportedModel, match="closes over a number that is not known"):
        TRANSFORMED[how](lambda scale: evidence(scale, "sparse"))


@pytest.mark.parametrize("how", ["vmap", "grad"])
def test_so_is_its_density(how):
    with pytest.raises(lb.UnsupportedModel, match="closes over a number that is not known"):
        TRANSFORMED[how](lambda scale: log_joint(scale, "sparse"))
