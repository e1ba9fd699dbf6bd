"""Is the change of a log joint the integral of its slope?"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb
from laplacebook.consistency import follows_gradient
from laplacebook.precision import DensePrecision
from tests.models import coin

#: smooth ones, with their modes at zero: skewed, heavy-tailed, curved valley, singular at -0.3
SMOOTH = {
    "quadratic": lambda x: x @ x / 2,
    "skewed": lambda x: jnp.sum(jnp.exp(x) - x),
    "heavy tails": lambda x: jnp.sum(2 * jnp.log1p(x**2 / 3)),
    "valley": lambda x: 50 * (x[1] - x[0] ** 2) ** 2 + x @ x / 2,
    "singular": lambda x: jnp.sum(x / 0.3 - jnp.log(x + 0.3)),
}


def check(f):
    precision = DensePrecision.of(jax.hessian(f)(jnp.zeros(2)))
    return bool(follows_gradient(f, jnp.zeros(2), precision, jnp.full(2, 0.3)))


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_ones_do(name):
    assert check(SMOOTH[name])


@pytest.mark.parametrize("name", SMOOTH)
def test_with_a_jump_or_a_hidden_slope_they_do_not(name):
    assert not check(lambda x: SMOOTH[name](x) + 5 * (x[0] + x[1] / 7 > 1e-3))
    assert not check(lambda x: SMOOTH[name](x) + 50 * jax.lax.stop_gradient(x[0] + x[1] / 7))


@pytest.mark.parametrize("heads", range(10))
def test_near_the_end_of_an_interval_it_stays_within(heads):
    tosses = np.repeat([1.0, 0.0], [heads, 9 - heads])
    approx = lb.laplace(coin, tosses, space="constrained")
    assert approx.mode["theta"] == pytest.approx((1 + heads) / 11)
