"""A marginal model of a model that closes over a number which jit, vmap or grad do not know."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density
from scipy import stats

import laplacebook as lb

Y = np.array([0.3, 1.2, -0.4, 0.9])
SCALES = jnp.array([0.5, 2.0])


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


def exact(f, scale):
    """Value and slope: y is normal with the variance 1 + scale^2, and along its mean with more, if that is unknown."""
    away = Y if f is evidence else Y - 0.3
    along = away.sum() ** 2 / 4
    variance = 1 + scale**2
    of_mean = variance + (16 if f is evidence else 0)
    squares = (away**2).sum() - along
    value = np.log(of_mean) + along / of_mean + 3 * np.log(variance) + squares / variance
    slope = 1 / of_mean - along / of_mean**2 + 3 / variance - squares / variance**2
    of_mu = 0 if f is evidence else stats.norm(0, 2).logpdf(0.3)
    return of_mu - value / 2 - 2 * np.log(2 * np.pi), -scale * slope


TRANSFORMED = {
    "jit": lambda f: jax.jit(f)(SCALES[0]),
    "vmap": lambda f: jax.vmap(f)(SCALES),
    "grad": lambda f: jax.grad(f)(SCALES[0]),
    "jit of vmap": lambda f: jax.jit(jax.vmap(f))(SCALES),
    "vmap of grad": lambda f: jax.vmap(jax.grad(f))(SCALES),
}


@pytest.mark.parametrize(
    ("f", "how"),
    [
        (evidence, "jit"),
        (evidence, "vmap of grad"),
        (log_joint, "vmap"),
        (log_joint, "grad"),
        (log_joint, "jit of vmap"),
    ],
)
def test_it_is_exact(f, how):
    value, slope = exact(f, np.asarray(SCALES if "vmap" in how else SCALES[0]))
    right = slope if "grad" in how else value
    np.testing.assert_allclose(TRANSFORMED[how](f), right, rtol=1e-9)


@pytest.mark.parametrize("how", ["jit", "vmap", "grad"])
def test_where_entries_are_looked_up_it_is_refused(how):
    with pytest.raises(lb.UnsupportedModel, match="closes over a number that is not known"):
        TRANSFORMED[how](lambda scale: evidence(scale, "sparse"))


@pytest.mark.parametrize("how", ["vmap", "grad"])
def test_so_is_its_density(how):
    with pytest.raises(lb.UnsupportedModel, match="closes over a number that is not known"):
        TRANSFORMED[how](lambda scale: log_joint(scale, "sparse"))
