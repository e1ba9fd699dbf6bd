"""A bound that the package does not see: draws of the Gaussian beyond it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb

KEY = jax.random.key(0)


def walled(end):
    b = numpyro.sample("b", dist.Normal(0, 1))
    numpyro.factor("bound", jnp.where(b > end, 0.0, -jnp.inf))
    numpyro.sample("y", dist.Normal(b, 1), obs=0.0)


@pytest.mark.parametrize(("end", "level"), [(-0.01, "bad"), (-0.9, "usable"), (-3.0, "good")])
def test_the_share_of_draws_beyond_it_is_judged(end, level):
    found = lb.diagnose(lb.laplace(walled, end), KEY, starts=1)
    outside = stats.norm(0, 0.5**0.5).cdf(end)
    assert found.outside == pytest.approx(outside, abs=3 * (outside / 4000) ** 0.5)
    assert found.level == level
    assert ("lie outside of the support" in found.verdict) == (level != "good")


def test_what_is_offered_puts_it_right():
    found = lb.diagnose(lb.laplace(walled, -0.01), KEY, starts=1)
    lines = [one.line for one in found.remedies]
    assert lines[0] == "lb.resampled(approx, key)", lines
    law = stats.truncnorm(-0.01 * 2**0.5, np.inf, 0, 0.5**0.5)
    again = found.remedies[0].make(KEY)
    np.testing.assert_allclose(
        again.quantiles([0.05, 0.5, 0.95])["b"], law.ppf([0.05, 0.5, 0.95]), atol=0.03
    )
