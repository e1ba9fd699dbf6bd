"""The slopes of skewed marginals are told by pairs of draws, with the error that is stated."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.special import ndtr, ndtri

import laplacebook as lb
from laplacebook.beyond import skewed_effects
from laplacebook.beyond.along_lines import FINE
from laplacebook.beyond.dense_conditional import Conditional
from laplacebook.beyond.grid_moments import mixture_moments
from laplacebook.beyond.grid_quantiles import mixture_quantiles
from laplacebook.beyond.tilts import NormalVectors, tilts
from laplacebook.fit import functions

LEVELS = np.array([0.001, 0.05, 0.5, 0.95, 0.999])


def test_what_lines_and_a_linear_function_tell_is_not_left_to_chance():
    """Two effects correlated by 0.8; where the pairs are not all that were drawn, the mean over them is told."""
    root = np.diag([2.0, 5.0]) @ np.array([[0.6, 0.0], [0.8, 1.0]]).T
    nodes = Conditional(np.zeros((2, 1)), np.zeros(2), np.zeros((2, 2)), np.array([root.T] * 2))
    deviations, index = np.array([[2.0, 5.0]] * 2), np.repeat([0, 1], 500)
    normal = NormalVectors.of(1000, 2, 0)
    assert normal is NormalVectors.of(1000, 2, 0)
    np.testing.assert_allclose(normal.rows.mean(axis=0), 0, atol=0.1)
    offset = nodes.offsets(index, normal.rows)
    cubes, linear = np.array([0.3, -0.2]), np.array([0.5, 0.7])
    odd = (offset / deviations[0]) ** 3 @ cubes + normal.rows @ linear
    residuals = np.broadcast_to(cubes[:, None] * FINE**3, (1, 2, FINE.size))
    given = nodes, deviations, index, offset, odd, residuals, np.zeros(1000, int)
    slopes = 0.8 * 3 * cubes[::-1] + linear @ root.T / deviations[0]  # E x^4 = 3
    found, error = tilts(*given, normal)
    np.testing.assert_allclose(found, slopes, atol=2e-3)  # lines are interpolated
    assert error < 2e-4
    by_chance, larger = tilts(*given, None)
    assert larger > 0.02
    np.testing.assert_allclose(by_chance, slopes, atol=4 * larger)
    none = [x[:0] for x in given[2:5]]
    found, error = tilts(nodes, deviations, *none, residuals, given[-1][:0], None)
    assert not found.any() and error == 0


def test_a_point_without_weight_has_no_part_in_the_moments():
    """Far out, under a vague prior of a scale, the variance of a new group overflows."""
    roots = np.array([[[2.0]], [[1e200]]])
    nodes = Conditional(np.zeros((2, 1)), np.array([0.0, -2e3]), np.array([[3.0], [0.0]]), roots)
    mean, deviation, squares = mixture_moments(nodes, nodes.deviations, None, None)
    assert (mean, deviation) == (3, 2) and np.isfinite(squares).all()


@pytest.mark.parametrize("kind", ["normal", "shifted", "skew"])
def test_quantiles_are_those_of_the_mixture(kind):
    """Beside the distribution function of a law of which the quantiles are written down: a + s image(x)."""
    images = {
        "normal": None,
        "shifted": FINE[[0, -1]] + np.array([[[0.3]], [[-0.2]]]),
        "skew": np.stack([np.expm1(0.3 * FINE) / 0.3, FINE + 0.02 * FINE**3])[:, None],
    }
    image = images[kind]
    mode, sd = np.array([[0.0], [4.0], [4.1]]), np.array([[1.0], [2.0], [1.5]])
    logs, near = np.log([0.2, 0.5, 0.3]), np.array([0, 1, 1])
    nodes = Conditional(np.zeros((3, 1)), logs, mode, sd[..., None])
    near_each = None if image is None else near
    found = mixture_quantiles(nodes, nodes.deviations, image, near_each, LEVELS)[:, 0]
    x = np.linspace(-8, 8, 400_001)
    value = np.linspace(-30, 60, 400_001)
    below = np.zeros_like(value)
    for k, weight in enumerate(np.exp(logs)):
        if kind == "skew":
            moved = np.expm1(0.3 * x) / 0.3 if k == 0 else x + 0.02 * x**3
        else:
            moved = x + (0 if image is None else (0.3, -0.2)[near[k]])
        below += weight * ndtr(np.interp(value, mode[k, 0] + sd[k, 0] * moved, x))
    np.testing.assert_allclose(found, np.interp(LEVELS, below, value), atol=2e-3)


def test_quantiles_where_one_point_is_wider_than_all_others():
    """As under a vague prior of a scale: 0.6 Phi(x) + 0.2 is what the probability of less is about zero."""
    roots = np.array([[[1.0]], [[1e200]]])
    nodes = Conditional(np.zeros((2, 1)), np.log([0.6, 0.4]), np.zeros((2, 1)), roots)
    levels = np.array([0.3, 0.5, 0.7])
    found = mixture_quantiles(nodes, nodes.deviations, None, None, levels)[:, 0]
    np.testing.assert_allclose(found, ndtri((levels - 0.2) / 0.6), atol=1e-8)


def test_the_errors_that_are_told_are_those_of_other_draws(monkeypatch):
    """Of effects as skewed as logarithms of times."""
    rng, pairs = np.random.default_rng(3), skewed_effects.pairs_at
    group = np.repeat(np.arange(8), 3)
    y = np.exp(rng.normal(0, 0.5, 8))[group] * rng.weibull(1.5, 24)

    def times(y):
        s = numpyro.sample("s", dist.HalfNormal(1))
        level = numpyro.sample("level", dist.Normal(0, 5))
        u = numpyro.sample("u", dist.Normal(level, s).expand([8]))
        numpyro.sample("y", dist.Weibull(jnp.exp(u[group]), 0.7), obs=y)

    fits = []
    for k in range(8):
        with monkeypatch.context() as other:
            other.setattr(skewed_effects, "pairs_at", lambda *a: pairs(*a[:-1], a[-1] + 2 * k))  # noqa: B023
            fits.append(lb.nested(times, y))
    drawn = [
        function(*fits[0]._weighted["u"]) for function in (functions.average, functions.spread)
    ]
    assert abs(fits[0].mean["u"] - drawn[0]).max() < 1e-3 * drawn[1].min()
    np.testing.assert_allclose(fits[0].standard_deviation["u"], drawn[1], rtol=3e-3)
    means = [np.asarray(fit.mean["u"]) / np.asarray(fit.standard_deviation["u"]) for fit in fits]
    spread = np.std(means, axis=0, ddof=1).mean()
    assert (
        spread / 2
        < np.mean([np.hypot(fit.moment_error, fit.skewness_error) for fit in fits])
        < 3 * spread
    )
    spread = np.std([float(fit.log_evidence) for fit in fits], ddof=1)
    told = [fit.skewed.evidence_error(fit.grid.place) for fit in fits]
    assert spread / 3 < np.mean(told) < 3 * spread
    assert f", of the draws that correct it {told[-1]:.0e})" in str(fits[-1])
