"""A marginal model of a model that closes over a number which jit, vmap or grad do not know, or of such data."""

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


def evidence(scale, shift=0.0, structure="dense"):
    return lb.laplace(with_scale(scale, structure), Y + shift).log_evidence


def log_joint(scale, mu, structure="dense"):
    return log_density(with_scale(scale, structure), (Y,), {}, {"mu": mu})[0]


def exact(scale, known=None):
    """Value and slopes, in the scale and in a shift of the data or the mean that is known.

    The data are normal with the variance 1 + scale^2, and along their mean with more, if that is unknown.
    """
    away = Y if known is None else Y - known
    along = away.sum() ** 2 / 4
    variance = 1 + scale**2
    of_mean = variance + (16 if known is None else 0)
    squares = (away**2).sum() - along
    value = np.log(of_mean) + along / of_mean + 3 * np.log(variance) + squares / variance
    slope = 1 / of_mean - along / of_mean**2 + 3 / variance - squares / variance**2
    of_mu = 0 if known is None else stats.norm(0, 2).logpdf(known)
    value = of_mu - value / 2 - 2 * np.log(2 * np.pi)
    of_shift = -away.sum() / of_mean
    return value, -scale * slope, of_shift if known is None else -of_shift - known / 4


def test_the_evidence_and_its_slopes_in_the_number_and_in_the_data_are_exact():
    of_each = jax.jit(jax.vmap(jax.value_and_grad(evidence, argnums=(0, 1))))
    values, slopes = of_each(SCALES, jnp.zeros(2))
    found = values, *slopes
    np.testing.assert_allclose(found, exact(np.asarray(SCALES)), rtol=1e-9)


def test_so_is_the_density_without_a_fit():
    value, slopes = jax.jit(jax.value_and_grad(log_joint, argnums=(0, 1)))(0.5, 0.3)
    np.testing.assert_allclose([value, *slopes], exact(0.5, 0.3), rtol=1e-9)


@pytest.mark.parametrize("how", [jax.jit, jax.grad])
def test_where_entries_are_looked_up_it_is_refused(how):
    with pytest.raises(lb.UnsupportedModel, match="closes over a number that is not known"):
        how(lambda scale: evidence(scale, structure="sparse"))(0.5)


def test_so_is_its_density():
    with pytest.raises(lb.UnsupportedModel, match="closes over a number that is not known"):
        jax.vmap(lambda scale: log_joint(scale, 0.3, "sparse"))(SCALES)
