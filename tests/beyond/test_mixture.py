"""Several modes, each a Gaussian weighted by its evidence."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from laplacebook.curvature.settings import Settings
from tests.models import single_precision

KEY = jax.random.key(0)
GRID = np.linspace(-9, 9, 90_001)


def root(y, tilt):
    x = numpyro.sample("x", dist.Normal(0, 3))
    numpyro.factor("tilt", tilt * x)
    numpyro.sample("y", dist.Normal(x**2, 1), obs=y)


def place(sites):
    return sites["x"]


def exact(y, tilt):
    """Log evidence, mean, and share of what is above zero, by quadrature."""
    logs = stats.norm(0, 3).logpdf(GRID) + stats.norm(GRID**2, 1).logpdf(y) + tilt * GRID
    p = np.exp(logs)
    total = p.sum() * (GRID[1] - GRID[0])
    p /= p.sum()
    return np.log(total), p @ GRID, p[GRID > 0].sum()


@pytest.fixture(scope="module")
def both():
    return lb.laplace(root, 9.0, 0.2, starts=8, key=KEY)


def test_its_parts_have_their_shares(both):
    approx = lb.mixture(both)
    evidence, mean, share = exact(9.0, 0.2)
    assert approx.log_evidence == pytest.approx(evidence, abs=0.01)
    assert float(approx.mean["x"]) == pytest.approx(mean, abs=0.02)
    assert np.sort(approx.shares) == pytest.approx([1 - share, share], abs=0.005)
    draws = np.asarray(approx.sample(KEY, (20_000,))["x"])
    assert np.mean(draws > 0) == pytest.approx(share, abs=0.01)
    assert "shares 0.767, 0.233" in repr(approx)


def test_a_density_within_a_program_that_is_the_first_to_ask_for_the_shares(both):
    u = jnp.array([2.5])
    found = jax.jit(lb.mixture(both).log_density)(u)
    assert float(found) == pytest.approx(float(lb.mixture(both).log_density(u)), rel=1e-12)


def test_copies_by_symmetry_count_each():
    approx = lb.mixture(lb.laplace(root, 9.0, 0.0, starts=8, key=KEY))
    assert approx.shares == pytest.approx([0.5, 0.5])
    assert approx.log_evidence == pytest.approx(exact(9.0, 0.0)[0], abs=0.01)
    assert "copies by symmetry among them, count each" in repr(approx)


def test_a_mode_that_is_found_twice_counts_once(both):
    again = lb.laplace(root, 9.0, 0.2, start={"x": 2.5})
    assert len(lb.mixture([both, again, again]).components) == 2
    assert lb.mixture([again]).log_evidence == pytest.approx(float(again.log_evidence))
    assert "one mode: laplace(..., starts=8, key=...) looks for others" in repr(lb.mixture(again))


@pytest.mark.usefixtures("types_unchecked")
def test_fits_of_another_posterior_are_refused(both):
    with pytest.raises(ValueError, match="other models or other data"):
        lb.mixture([both, lb.laplace(root, 8.9, 0.2)])
    with pytest.raises(ValueError, match="other curvatures"):
        lb.mixture([both, lb.laplace(root, 9.0, 0.2, structure="diagonal")])
    with pytest.raises(ValueError, match="other spaces"):
        lb.mixture([both, lb.laplace(root, 9.0, 0.2, space="constrained")])
    with pytest.raises(ValueError, match="here is none"):
        lb.mixture([])
    with pytest.raises(TypeError, match="not an object of type float"):
        lb.mixture([1.0])


def near(x):
    """Two modes 2 a apart, of standard deviations of about one."""
    return jnp.logaddexp(-((x - 1.3) ** 2) / 2, -((x + 1.3) ** 2) / 2)


def test_parts_that_overlap_are_doubted():
    """At a distance of 2.6 standard deviations the sum of both is 12 % too high."""
    left, right = (lb.laplace_of_density(near, jnp.array(x)) for x in (-1.3, 1.3))
    approx = lb.mixture([left, right])
    assert len(approx.components) == 2
    assert approx.log_evidence - np.log(2 * np.sqrt(2 * np.pi)) > 0.1
    assert "the components overlap" in approx.doubt
    assert "overlap" not in (lb.mixture(lb.laplace(root, 9.0, 0.2)).doubt or "")


def test_a_diagnosis_finds_the_mode_that_is_missing(both):
    one = lb.mixture(lb.laplace(root, 9.0, 0.2, start={"x": 3.0}))
    found = lb.diagnose(one, KEY)
    assert found.level == "bad"
    assert "1 other mode holds 23% of the evidence" in found.verdict
    assert lb.diagnose(lb.mixture(both), KEY).level == "good"


def pairs(y, scale=1.0):
    x = numpyro.sample("x", dist.Normal(0.5, 3).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x**2, scale).to_event(1), obs=y)


def test_fits_by_the_same_curvature_are_joined(tmp_path):
    """However they keep it, and however near to their modes they are."""
    y, left, right = np.array([9.0, 4.0]), {"x": [-3.0, 2.0]}, {"x": [3.0, 2.0]}
    dense, sparse = (
        lb.laplace(pairs, y, start=start, structure=structure)
        for start, structure in ((left, "dense"), (right, "sparse"))
    )
    joined = lb.mixture([dense, sparse])
    expected = np.logaddexp(float(dense.log_evidence), float(sparse.log_evidence))
    assert joined.log_evidence == pytest.approx(expected)
    whole = lb.laplace(pairs, y, start=right)
    means = [lb.expectation(fit, place, method="delta") for fit in (sparse, whole)]
    np.testing.assert_allclose(means[0].value, means[1].value)
    np.testing.assert_allclose(means[0].truncation, means[1].truncation, rtol=1e-6)
    settings = Settings("gauss_newton", tolerance=0.3), Settings("gauss_newton", batch_size=1)
    near, exact = (
        replace(fit, settings=one) for fit, one in zip((dense, whole), settings, strict=True)
    )
    for one in (joined, lb.mixture([near, exact])):
        one.save(tmp_path / "mixture.npz")
        loaded = lb.load(tmp_path / "mixture.npz", pairs, y)
        assert [c.settings for c in loaded.components] == [c.settings for c in one.components]
        assert len({c.settings for c in one.components}) == 2


def a_line(x, y):
    a, b = (numpyro.sample(name, dist.Normal(0, 10)) for name in "ab")
    numpyro.sample("y", dist.Normal(a + b * x, 1), obs=y)


def test_other_data_are_refused_in_single_precision():
    """Of a log joint of -28,500 single precision tells ten nats."""
    rng = np.random.default_rng(0)
    x, noise = rng.normal(size=(2, 20_000))
    y = 1 + 2 * x + noise
    with single_precision():
        fit = lb.laplace(a_line, x, y)
        for other in ((x, y + 0.01), (x + 1e-3, y), (x[:-1], y[:-1])):
            with pytest.raises(ValueError, match="is called with"):
                lb.mixture([fit, lb.laplace(a_line, *other)])
        with pytest.raises(ValueError, match="or\\s+observes"):
            lb.mixture([fit, lb.laplace(partial(a_line, x), y + 0.01)])
        for model, *data in ((a_line, x, y), (partial(a_line, x), y)):
            assert len(lb.mixture([fit, lb.laplace(model, *data)]).components) == 1


def test_data_that_a_mask_hides_may_be_nan():
    def masked(y):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.handlers.mask(mask=~jnp.isnan(y)):
            numpyro.sample("y", dist.Normal(mean, 1), obs=jnp.where(jnp.isnan(y), 0, y))

    y = np.array([1.0, np.nan])
    assert len(lb.mixture([lb.laplace(masked, y), lb.laplace(masked, y.copy())]).components) == 1


def test_other_numbers_that_are_no_arrays_are_refused():
    with pytest.raises(ValueError, match="is called with"):
        lb.mixture([lb.laplace(pairs, np.ones(2), s) for s in (1.1, 1.1 + 1e-9)])


@pytest.fixture(scope="module")
def modes():
    """A mixture of both roots, and its density on a grid."""
    logs = stats.norm(0, 3).logpdf(GRID) + stats.norm(GRID**2, 1).logpdf(4.0) + 0.2 * GRID
    mixture = lb.mixture(lb.laplace(root, 4.0, 0.2, starts=8, key=KEY))
    assert len(mixture.components) == 2
    return mixture, np.exp(logs) / np.exp(logs).sum()


@pytest.mark.parametrize("method", ["delta", "tierney_kadane"])
def test_means_are_weighted_by_the_evidences_of_the_modes(modes, method):
    def several(x, xp=np):
        return xp.stack([x, x**2, 1 / (1 + x**2)])

    mixture, density = modes
    found = lb.expectation(mixture, lambda s: several(s["x"], jnp), method=method)
    exact = several(GRID) @ density
    assert np.all(abs(found.value - exact) <= 1.1 * found.truncation)
    spread = np.sqrt((several(GRID) - exact[:, None]) ** 2 @ density)
    assert np.all(found.truncation < 0.1 * spread)


def test_what_is_left_out_of_the_shares_counts(modes):
    """Of a function that is flat near each mode, but for what keeps it from being one, nothing else is left out."""
    mixture, density = modes
    found = lb.expectation(mixture, lambda s: jnp.tanh(50 * s["x"]) + 1e-3 * s["x"], method="delta")
    evidences = [lb.corrected_evidence(one) for one in mixture.components]
    error = abs(found.value - density @ (np.tanh(50 * GRID) + 1e-3 * GRID))
    least = sum(
        share * abs(np.sign(float(one.mode["x"])) - float(found.value)) * evidence.truncation
        for share, one, evidence in zip(mixture.shares, mixture.components, evidences, strict=True)
    )
    assert max(error, 0.9 * least) < found.truncation


def test_values_that_modes_bound_have_no_long_tail(modes):
    """Of x itself: Pareto k-hat of what lies beyond the lower of two bounds is 3.4."""
    mixture, density = modes
    found = lb.expectation(mixture, place, method="draws")
    assert abs(found.value - density @ GRID) < 3 * found.standard_error < 0.06


def test_a_mixture_whose_shares_have_no_expansion_is_left_to_draws():
    mixture = lb.mixture(lb.laplace(root, 0.7, 0.2, starts=8, key=KEY))
    with pytest.raises(lb.LaplaceError, match="says nothing here"):
        lb.corrected_evidence(mixture)
    found = lb.expectation(mixture, place)
    assert (found.method, found.why) == (
        "draws",
        "the evidences about the modes, by which they are weighted, have none",
    )


def two_bumps(x, far, xp=jnp):
    return xp.logaddexp(-(x**2) / 2, -1.5 - (x - far) ** 2 / 2)


@pytest.mark.parametrize("far", [np.float64(4), np.float64(6)])
def test_each_mode_has_the_part_of_the_posterior_about_it(far):
    """A line about one sees nothing of the other, at which g is elsewhere."""

    mixture = lb.mixture([lb.laplace_of_density(two_bumps, x, far) for x in (0.0, far)])
    grid = np.linspace(-9, far + 9, 10_001)
    weights = np.exp(two_bumps(grid, far, np))
    found = lb.expectation(mixture, lambda sites: jnp.exp(sites["x"] / 8), method="delta")
    exact = weights @ np.exp(grid / 8) / weights.sum()
    assert abs(found.value - exact) < 1.1 * found.truncation < 0.05
