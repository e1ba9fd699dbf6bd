"""The corrected evidence of a mixture: that of the part of the posterior about each mode, summed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import laplacebook as lb
from tests.beyond.test_mixture import root
from tests.models import single_precision

KEY = jax.random.key(0)


@pytest.mark.parametrize("y", [9.0, 2.5])
def test_of_a_mixture_the_evidences_about_all_modes_are_summed(y):
    exact = integrate.quad(
        lambda x: stats.norm.pdf(x, 0, 3) * stats.norm.pdf(y, x**2, 1) * np.exp(0.2 * x), -9, 9
    )
    both = lb.mixture(lb.laplace(root, *np.array([y, 0.2]), starts=8, key=KEY))
    assert len(both.components) == 2
    found = lb.corrected_evidence(both)
    assert abs(found.value - np.log(exact[0])) < 1.1 * found.truncation < 0.12
    assert abs(found.value - np.log(exact[0])) < abs(both.log_evidence - np.log(exact[0])) / 2
    assert found.value - found.correction == pytest.approx(float(both.log_evidence))


def bumps(x, apart):
    """Two Gaussians in ten dimensions, of which one is half as high."""
    away = jnp.zeros(10).at[0].set(apart)
    return jnp.logaddexp(-(x @ x) / 2, -((x - away) @ (x - away)) / 2 + jnp.log(0.5))


def two_bumps(apart):
    starts = [jnp.zeros(10), jnp.zeros(10).at[0].set(apart)]
    both = lb.mixture([lb.laplace_of_density(bumps, u, np.float64(apart)) for u in starts])
    assert len(both.components) == 2
    return lb.corrected_evidence(both)


@pytest.mark.parametrize(("apart", "left_out"), [(7.0, 1e-6), (4.0, 0.03)])
def test_what_stands_about_another_mode_is_counted_there_alone(apart, left_out):
    found, exact = two_bumps(apart), 5 * np.log(2 * np.pi) + np.log(1.5)
    assert abs(found.value - exact) < found.truncation < left_out


def test_modes_that_share_some_density_are_refused():
    with pytest.raises(lb.LaplaceError, match=r"another\s+mode\s+near\s+by"):
        two_bumps(3.0)


def leaning(x, height, of=jnp):
    """A mode at 0 and a narrow one at 5, which lean towards each other."""

    def bump(place, scale, lean):
        t = (x - place) / scale
        return -(t**2) / 2 - lean * t**3 / (1 + t**2)

    return of.logaddexp(bump(0, 1, 0.08), height + bump(5, 0.3, -0.08))


@pytest.mark.parametrize("height", [-1.5, 0.0])
def test_a_narrow_mode_beside_a_leaning_one(height):
    """Of which lines about each see the other; beside what stands about it each part is as without."""

    fits = [lb.laplace_of_density(leaning, x, np.float64(height)) for x in (0.0, 5.0)]
    found = lb.corrected_evidence(lb.mixture(fits))
    kinks = {"points": [0, 5]}
    exact = np.log(integrate.quad(lambda x: np.exp(leaning(x, height, np)), -12, 12, **kinks)[0])
    assert abs(found.value - exact) < 1.1 * found.truncation < 0.06


def test_in_single_precision_a_far_mode_overflows_nothing():
    """Ninety nats higher, on a line about the other one."""

    def density(x):
        return jnp.logaddexp(-(x**2) / 2, 90 - 50 * (x - 6) ** 2)

    with single_precision():
        fits = [lb.laplace_of_density(density, x) for x in (jnp.array(0.0), jnp.array(6.0))]
        found = lb.corrected_evidence(lb.mixture(fits))
    exact = 90 + np.log(2 * np.pi / 100) / 2
    assert abs(float(found.value) - exact) < max(1e-3, float(found.truncation)) < 0.1
