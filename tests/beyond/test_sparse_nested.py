"""Hyperparameters on a grid, and many effects by a sparse precision at every point: against the dense one."""

import re
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpy.polynomial.hermite_e import hermegauss
from scipy import stats

import laplacebook as lb
from laplacebook.base import progress
from laplacebook.beyond import nested_approximation, skewed_by_shifts, sparse_effects
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.expansion_at_mode import expansion
from laplacebook.beyond.sparse_effects import SparseEffects
from laplacebook.fit import functions

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
SIZE = 36
REALS = dist.ImproperUniform(dist.constraints.real_vector, (), (SIZE,))
COUNTS = RNG.poisson(np.exp(1 + np.sin(np.arange(SIZE) / 4)))


def series(y):
    """A walk whose sum is nearly known: that is a term of low rank."""
    log_s, z = numpyro.sample("log_s", dist.Normal(-1, 0.5)), numpyro.sample("z", REALS)
    numpyro.factor("steps", dist.Normal(z[:-1], jnp.exp(log_s)).log_prob(z[1:]).sum())
    numpyro.factor("sum", dist.Normal(0, 1).log_prob(z.sum()))
    numpyro.sample("y", dist.Poisson(jnp.exp(1 + z)).to_event(1), obs=y)


@pytest.fixture(scope="module")
def dense():
    return lb.nested(series, COUNTS, over="log_s", structure="dense")


@pytest.fixture(scope="module")
def counts():
    return lb.nested(series, COUNTS, over="log_s", structure="sparse")


def within(one, other, spreads, tolerance):
    for name, spread in spreads.items():
        off = np.abs(np.asarray(one[name]) - np.asarray(other[name])) / np.asarray(spread)
        assert off.max() < tolerance, name


def moments_are_those_of_draws(fit):
    """They are not made of draws, whose means are balanced but for the skewness."""
    assert "_weighted" not in vars(fit)
    mean, sd = fit.mean, fit.standard_deviation
    quantiles = fit.quantiles([0.05, 0.95])
    assert "_weighted" not in vars(fit)
    drawn = {name: (x.reshape(len(x), -1), w) for name, (x, w) in fit._weighted.items()}
    for name, one in drawn.items():
        spread = np.ravel(sd[name])
        assert abs((functions.average(*one) - np.ravel(mean[name])) / spread).max() < 5e-3, name
        np.testing.assert_allclose(functions.spread(*one), spread, rtol=0.02)
        found = functions.weighted_quantiles(*one, np.array([0.05, 0.95]))
        off = found - np.reshape(quantiles[name], found.shape)
        assert abs(off / spread).max() < 0.1, name


def test_at_the_same_points_it_is_the_dense_one(dense, counts):
    """But for the dense one's own tolerance, a hundred-thousandth of a standard deviation."""
    nodes = dense.grid.conditional
    found = counts.effects.given(nodes.hyper, nodes.mode)
    uncorrected = nodes.log_marginal - dense.skewed.correction(dense.grid.place)
    np.testing.assert_allclose(found.log_marginal, uncorrected, rtol=1e-6)
    assert abs((found.mode - nodes.mode) / nodes.deviations).max() < 2e-5
    np.testing.assert_allclose(found.deviations, nodes.deviations, rtol=2e-5)
    np.testing.assert_allclose(found.log_roots, nodes.log_roots, atol=5e-5)
    assert type(dense.effects) is Effects and counts.effects.held < dense.effects.held
    assert found.left.size  # terms of low rank, indeed
    some, places = np.array([0, 3, 5]), np.array([-2.0, 0, 1.0])
    lines = (
        f.along(at.at(some), places)
        for f, at in zip((counts.effects, dense.effects), (found, nodes), strict=True)
    )
    np.testing.assert_allclose(*lines, rtol=1e-4)


def test_normal_numbers_become_draws_with_the_covariance_and_are_found_again(dense, counts):
    nodes = dense.grid.conditional.at([2])
    found = counts.effects.given(nodes.hyper, nodes.mode)
    index, size = np.zeros(nodes.mode.shape[1], int), nodes.mode.shape[1]
    unit = found.offsets(index, np.eye(size))
    np.testing.assert_allclose(unit.T @ unit, nodes.root[0].T @ nodes.root[0], rtol=2e-5, atol=1e-7)
    normal = RNG.standard_normal((size, size))
    squares = found.squares(index, found.offsets(index, normal))
    np.testing.assert_allclose(squares, np.sum(normal**2, axis=1), rtol=1e-9)


def test_marginals_and_evidence_are_those_of_the_dense_one(dense, counts):
    spread = dense.standard_deviation
    within(counts.mean, dense.mean, spread, 0.1)
    within(counts.standard_deviation, spread, spread, 0.1)
    levels = [0.05, 0.5, 0.95]
    for i in range(3):
        one, other = ({k: v[i] for k, v in f.quantiles(levels).items()} for f in (counts, dense))
        within(one, other, spread, 0.15)
    assert counts.log_evidence == pytest.approx(dense.log_evidence, abs=0.02)
    assert counts.pareto_k == pytest.approx(dense.pareto_k, abs=0.2)
    assert (counts.doubt is None) == (dense.doubt is None)
    assert len(counts.summary().columns["site"]) == 1 + SIZE
    assert [m.name for m in counts.marginals] == ["log_s"]


def at_the_highest(fit):
    """The negative log joint of the effects there, the node, and what the expansion says of it."""
    node = fit.grid.conditional.at([int(np.argmax(fit.grid.conditional.log_marginal))])
    density = fit.effects.density_given(node.hyper[0])
    normal = np.random.default_rng(0).standard_normal((node.mode.shape[1], 4000, 2))
    found = expansion(fit.effects.integral, density, node.mode[0], normal)
    return (lambda z: density.loss(z)[0]), node, *found


def test_means_and_cubic_terms_are_those_of_dense_derivatives(counts):
    loss, node, shift, cubic = at_the_highest(counts)
    z, bend = jnp.asarray(node.mode[0]), jax.hessian(loss)

    @jax.jit
    def derivatives(z):
        slope = jax.grad(lambda z: jnp.linalg.slogdet(bend(z))[1] / 2)(z)
        return -jnp.linalg.solve(bend(z), slope), jax.jacfwd(bend)(z)

    expected, third = derivatives(z)
    np.testing.assert_allclose(shift, expected, atol=1e-7)
    assert abs(shift).max() > 1e-3
    root = node.precision(0).whitened(np.eye(SIZE))
    whitened = np.einsum("ijk,ia,jb,kc->abc", third, *[root] * 3, optimize=True)
    known = np.sum(whitened**2) / 12 + np.sum(np.trace(whitened) ** 2) / 8
    assert cubic == pytest.approx(known, rel=0.05)


def of_groups(y):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", len(y)):
        z = numpyro.sample("z", dist.Normal(0, tau))
        numpyro.sample("y", dist.Poisson(jnp.exp(z)), obs=y)


def exact_marginal(y, tau):
    """log p(D, tau) of independent effects, by quadrature of each."""
    x, weights = hermegauss(80)
    logs = stats.poisson.logpmf(y[:, None], np.exp(tau * x)) + np.log(weights / weights.sum())
    return np.logaddexp.reduce(logs, axis=1).sum() + stats.halfnorm.logpdf(tau)


def test_where_ratios_have_no_mean_the_second_order_is_told():
    y = np.random.default_rng(3).poisson(np.exp(0.8 * np.random.default_rng(4).normal(size=600)))
    fit = lb.nested(of_groups, y, structure="sparse")
    assert fit.pareto_k > 0.7 and "not corrected" in repr(fit)
    grid = np.linspace(0.5, 1.2, 71)
    exact = np.array([exact_marginal(y, tau) for tau in grid])
    weights = np.exp(exact - exact.max())
    evidence = np.log(weights.sum() * (grid[1] - grid[0])) + exact.max()
    mean = weights @ grid / weights.sum()
    spread = np.sqrt(weights @ (grid - mean) ** 2 / weights.sum())
    moved, raised = fit._second_order
    off = (float(fit.mean["tau"]) - mean) / spread
    assert abs(off) < abs(moved[0]) < 0.25 and fit.doubt is None
    assert abs(fit.log_evidence + raised - evidence) < abs(fit.log_evidence - evidence) / 3
    assert f"move the mean of tau by {abs(moved[0]):.2f}" in repr(fit) and f"{raised:+.2f}" in repr(
        fit
    )
    far = replace(fit, skewed=replace(fit.skewed, expansion=3 * fit.skewed.expansion))
    assert "standard deviations to second order" in far.doubt
    without = replace(fit, skewed=replace(fit.skewed, expansion=None))
    assert "Pareto k-hat" in without.doubt and "second order" not in repr(without)


def test_of_very_many_effects_the_means_are_moved_and_the_print_says_so(
    counts, monkeypatch, tmp_path
):
    weights = counts.grid.log_weights
    with monkeypatch.context() as few:
        few.setattr(skewed_by_shifts, "LINES", 20)
        skewed = skewed_by_shifts.skewed_by_shifts(
            counts.effects,
            counts.grid.conditional,
            weights - counts.skewed.correction(counts.grid.place),
        )
    many = replace(counts, skewed=skewed.corrected(weights))
    assert many.skewed.image.shape[1:] == (SIZE, 2)
    moments_are_those_of_draws(many)
    moments_are_those_of_draws(replace(counts))
    assert "no skewness" in repr(many)
    assert "no skewness" not in repr(counts)
    within(many.mean, counts.mean, counts.standard_deviation, 0.05)
    np.testing.assert_allclose(many.skewed.shifts, counts.skewed.shifts, atol=0.02)
    assert lb.diagnose(many, KEY, 600, starts=1).level == "good"
    many.save(tmp_path / "fit.npz")
    assert repr(lb.load(tmp_path / "fit.npz", series, COUNTS)) == repr(many)


def test_lines_are_looked_at_in_parts(counts, monkeypatch):
    node, places = counts.grid.conditional.at([4, 5]), np.array([-1.0, 2.0])
    whole = counts.effects.along(node, places)
    monkeypatch.setattr(sparse_effects, "_NUMBERS", 2 * SIZE * 5)
    np.testing.assert_allclose(counts.effects.along(node, places), whole, rtol=1e-12)
    which = np.array([3, 17])
    np.testing.assert_allclose(counts.effects.along(node, places, which), whole[:, :, which])


def test_an_effect_that_levels_off_is_seen(counts):
    """A log joint that does not fall along one effect, here because the line is followed to where it rises."""
    node = counts.grid.conditional.at([0])
    assert counts.effects.falls(node)
    flat = node._replace(deviations=node.deviations * np.where(np.arange(SIZE) == 7, 1e3, 1))
    assert not counts.effects.falls(flat)
    lost = node._replace(log_marginal=np.array([np.nan]))
    assert counts.effects.follows_gradient(node) and not counts.effects.follows_gradient(lost)


def test_draws_are_the_same_in_parts_that_move_a_bar(counts, monkeypatch, capsys):
    whole = counts.sample(KEY, (30,))
    monkeypatch.setattr(nested_approximation, "_SEARCHED", 4)
    monkeypatch.setattr(progress, "PATIENCE", 0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    parts = counts.sample(KEY, (30,))
    assert re.search(r" (4|8|12|16|20|24|28)/30 ", capsys.readouterr().err)
    for name, values in whole.items():
        np.testing.assert_allclose(parts[name], values, atol=1e-8)
    scores = (np.asarray(whole["z"]) - counts.mean["z"]) / counts.standard_deviation["z"]
    assert abs(scores.mean()) < 0.5 and 0.7 < scores.std() < 1.3


def test_gaussian_effects_are_integrated_exactly():
    y = RNG.normal(size=12)

    def normal(y):
        tau = numpyro.sample("tau", dist.HalfNormal(2))
        with numpyro.plate("groups", len(y)):
            z = numpyro.sample("z", dist.Normal(0, tau))
            numpyro.sample("y", dist.Normal(z, 0.5), obs=y)

    fit = lb.nested(normal, y, structure="sparse")
    assert fit.pareto_k == -np.inf and "exactly Gaussian" in repr(fit)
    tau = np.exp(u := np.linspace(-15, 3, 2001))
    logs = stats.norm(0, np.hypot(tau, 0.5)).logpdf(y[:, None]).sum(axis=0) + u
    logs += stats.halfnorm(scale=2).logpdf(tau)
    weights = np.exp(logs - logs.max())
    evidence = np.log(weights.sum() * (u[1] - u[0])) + logs.max()
    assert fit.log_evidence == pytest.approx(evidence, abs=2e-3)
    weights /= weights.sum()
    means = y * (weights @ (tau**2 / (tau**2 + 0.25)))
    within(fit.mean, {"tau": weights @ tau, "z": means}, fit.standard_deviation, 0.04)


def test_saved_and_loaded(counts, tmp_path):
    counts.save(tmp_path / "fit.npz")
    loaded = lb.load(tmp_path / "fit.npz", series, COUNTS)
    assert repr(loaded) == repr(counts) and isinstance(loaded.effects, SparseEffects)
    draws = counts.sample(KEY, (5,))
    for name, values in loaded.sample(KEY, (5,)).items():
        np.testing.assert_array_equal(values, draws[name])
    loaded.save(tmp_path / "again.npz")
    with np.load(tmp_path / "fit.npz") as one, np.load(tmp_path / "again.npz") as other:
        assert set(one.files) == set(other.files)
        for name in one.files:
            np.testing.assert_array_equal(one[name], other[name])


DAMAGE = {
    "entries": ("conditional/entries", lambda x: x[:, 1:]),
    "points": ("conditional/left", lambda x: x[1:]),
    "places": ("conditional/layout/rows", lambda x: x[:-1]),
    "no places": ("conditional/layout/cols", lambda x: None),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_file_is_refused(counts, tmp_path, name):
    counts.save(tmp_path / "fit.npz")
    field, damage = DAMAGE[name]
    with np.load(tmp_path / "fit.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    changed = damage(arrays.pop(f"grid/{field}"))
    if changed is not None:
        arrays[f"grid/{field}"] = changed
    np.savez(tmp_path / "fit.npz", **arrays)
    with pytest.raises(lb.LaplaceError, match=r"(?s)not\s+a\s+whole\s+file"):
        lb.load(tmp_path / "fit.npz", series, COUNTS)


def test_a_file_of_another_curvature_is_refused(counts, tmp_path):
    """Its draws would be the same: they are stretched to the deviations."""
    counts.save(tmp_path / "fit.npz")
    with np.load(tmp_path / "fit.npz") as archive:
        arrays = {key: archive[key] for key in archive.files}
    arrays["grid/conditional/entries"] = 1.1 * arrays["grid/conditional/entries"]
    np.savez(tmp_path / "fit.npz", **arrays)
    with pytest.raises(lb.LaplaceError, match="deviations are not"):
        lb.load(tmp_path / "fit.npz", series, COUNTS)


def full(y):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.Normal(0, tau).expand([600]).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(jnp.cumsum(z))).to_event(1), obs=y)


REFUSED = {
    "structure": (of_groups, COUNTS, "banded", ValueError, "structure is .* not 'banded'"),
    "full": (full, np.ones(600), "sparse", lb.UnsupportedModel, "not sparse"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name):
    model, y, structure, error, words = REFUSED[name]
    with pytest.raises(error, match=f"(?s){words}"):
        lb.nested(model, y, structure=structure)
