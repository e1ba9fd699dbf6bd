"""Eight schools, radon and the seeds: what the chapter says of them, computed in other ways.

The truth of the schools is quadrature over two hyperparameters with the normal density of each report; the
references of the seeds are those of `tests.beyond`, with which the numbers that the chapter types are compared.
"""

import ast
import json
from functools import cache
from pathlib import Path

import nbformat
import numpy as np
import pytest
from scipy import integrate, stats

from laplacebook import datasets

ROOT = Path(__file__).parents[2]
REFERENCES = json.loads((ROOT / "tests" / "beyond" / "practice.json").read_text())
Y = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
S = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
TAU = np.exp(np.linspace(-9, 6, 601))
MU = np.linspace(-25, 35, 401)


@cache
def chapter():
    """The code of the chapter, one string."""
    cells = nbformat.read(ROOT / "book" / "hierarchical.ipynb", as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "code")


def typed(name):
    """The literal that the chapter assigns to a name, with what it adds to it."""
    found = None
    for node in ast.parse(chapter()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            found = ast.literal_eval(node.value)
        if isinstance(node, ast.AugAssign) and getattr(node.target, "id", None) == name:
            found = found + ast.literal_eval(node.value)
    return found


@cache
def posterior():
    """Weights over (mu, log tau), by the density of each report, and the log evidence."""
    sd = np.hypot(S, TAU[:, None, None])
    log_p = stats.norm(MU[:, None], sd).logpdf(Y).sum(-1)
    log_p += stats.norm(0, 5).logpdf(MU) + stats.halfcauchy(0, 5).logpdf(TAU)[:, None]
    log_p += np.log(TAU)[:, None]
    p = np.exp(log_p - log_p.max())
    cell = (MU[1] - MU[0]) * np.log(TAU[1] / TAU[0])
    return p / p.sum(), np.log(p.sum() * cell) + log_p.max()


def test_the_schools_by_quadrature_over_both_hyperparameters():
    p, log_evidence = posterior()
    of_tau = p.sum(1)
    assert log_evidence == pytest.approx(-31.3113, abs=2e-4)
    assert of_tau @ TAU == pytest.approx(3.598, abs=1e-3)
    assert np.interp([0.05, 0.95], of_tau.cumsum() - of_tau / 2, TAU) == pytest.approx(
        [0.25, 9.84], abs=0.01
    )
    assert of_tau[TAU > 20].sum() == pytest.approx(0.002, abs=2e-4)
    shrunk = (TAU[:, None, None] ** 2 * Y + S**2 * MU[:, None]) / (TAU[:, None, None] ** 2 + S**2)
    mean = np.einsum("tm,tmj->j", p, shrunk)
    assert mean == pytest.approx([6.2, 4.9, 3.9, 4.8, 3.6, 4.0, 6.3, 4.9], abs=0.06)
    assert mean == pytest.approx(
        typed("published")[:8], abs=0.2
    )  # posteriordb's, within their errors


def joint(u, mu, effects, standard, reports=Y):
    """The log joint density of (mu, log tau, effects) and the reports."""
    tau = np.exp(u)
    theta = mu + tau * effects if standard else effects
    log_p = stats.norm(theta, S).logpdf(reports).sum() + stats.norm(0, 5).logpdf(mu)
    log_p += stats.halfcauchy(0, 5).logpdf(tau) + u
    return log_p + stats.norm(*((0, 1) if standard else (mu, tau))).logpdf(effects).sum()


@pytest.mark.parametrize("reports", [Y, 10 * Y])
def test_the_joint_density_grows_like_a_power_of_seven(reports):
    ends = [joint(u, 4.0, np.full(8, 4.0), False, reports) for u in (-20.0, -30.0)]
    assert np.diff(ends) / 10 == pytest.approx(7, abs=1e-6)


def test_the_standardised_mode_is_at_29_points():
    """The profile over mu and z, a least-squares problem at each tau."""

    def profile(u):
        tau = np.exp(u)
        rows = np.block(
            [
                [(1 / S)[:, None], np.diag(tau / S)],
                [np.array([[1 / 5]]), np.zeros((1, 8))],
                [np.zeros((8, 1)), np.eye(8)],
            ]
        )
        best = np.linalg.lstsq(rows, np.r_[Y / S, np.zeros(9)], rcond=None)[0]
        return joint(u, best[0], best[1:], standard=True)

    u = np.log(np.arange(20, 40, 0.1))
    assert np.exp(u[np.argmax([profile(v) for v in u])]) == pytest.approx(29.0, abs=0.15)


def test_no_mode_of_the_likelihood_but_zero_and_a_flat_prior_is_improper():
    def likelihood(tau):
        def at(mu):
            return np.exp(stats.norm(mu, np.hypot(S, tau)).logpdf(Y).sum() + 30)

        return integrate.quad(at, -60, 80, points=[0, 8, 20], limit=200)[0]

    values = np.array([likelihood(t) for t in (0, 1, 3, 6, 12)])
    assert np.log(values / values[0]).round(2) == pytest.approx(
        [0, -0.01, -0.08, -0.32, -1.28], abs=0.011
    )
    assert likelihood(1e-12) == pytest.approx(values[0], rel=1e-9)


def test_the_typed_references_of_the_seeds_are_those_of_the_long_run():
    sites = REFERENCES["seeds"]["sites"]
    names = {"intercept": "intercept", "seed": "of_seed", "root": "of_root", "both": "of_both"}
    for name, (mean, sd) in typed("nuts").items():
        site = sites[names.get(name, name)]
        assert (mean, sd) == (site["mean"], site["sd"])
    levels = [0.01, 0.02, 0.05, 0.08, 0.5, 0.92, 0.95, 0.98, 0.99]
    assert typed("nuts_sigma") == [sites["sigma"]["quantiles"][str(level)] for level in levels]
    assert REFERENCES["seeds"]["draws"] == 40_000


def test_the_typed_references_of_radon_are_those_of_the_long_run():
    sites = REFERENCES["radon"]["sites"]
    names = ["intercept", "of_uranium", "of_floor", "county_sd", "sigma"]
    for name, (*found, _) in zip(names, typed("nuts_radon").values(), strict=True):
        assert found == [sites[name][key] for key in ("mean", "sd", "error")]
    assert REFERENCES["radon"]["draws"] == 40_000


def test_the_levels_of_two_counties_by_quadrature():
    """Given both standard deviations all else is Gaussian, a county's level with no house but a known soil too."""
    homes = datasets.radon()
    y, counties = np.log(np.maximum(homes.radon, 0.1)), np.eye(86)[homes.county]
    x = np.append(homes.log_uranium, homes.log_uranium[35])
    rows = np.c_[0 * y, 0 * y, homes.first_floor, counties]
    squares, to_y = rows.T @ rows, rows.T @ y
    lines = np.c_[-np.ones(86), -x, np.zeros(86), np.eye(86)]  # levels less their means
    wanted = np.zeros((3, 89))
    wanted[[0, 1, 2, 1], [38, 38, 88, 2]] = 1
    weights, first, second = [], [], []
    taus, noises = np.linspace(0.003, 0.5, 60), np.linspace(0.69, 0.84, 25)
    for tau in taus:
        prior = lines.T @ lines / tau**2 + np.diag(np.r_[np.full(3, 0.25), np.zeros(86)])
        for noise in noises:
            precision = prior + squares / noise**2
            mean = np.linalg.solve(precision, to_y / noise**2)
            log_p = -len(y) * np.log(noise) - y @ y / (2 * noise**2) - 86 * np.log(tau)
            log_p += mean @ to_y / (2 * noise**2) - np.linalg.slogdet(precision)[1] / 2
            weights.append(log_p - (tau**2 + noise**2) / 2)
            first.append(wanted @ mean)
            second.append(np.diag(wanted @ np.linalg.solve(precision, wanted.T)) + first[-1] ** 2)
    p = np.exp(np.array(weights) - max(weights))
    p /= p.sum()
    mean = p @ first
    level = np.sqrt(p @ second - mean**2)
    noise = np.sqrt(p @ np.tile(noises**2, len(taus)))
    assert mean == pytest.approx([1.79, 1.13, 1.69], abs=0.006)
    assert level == pytest.approx([0.175, 0.18, 0.175], abs=0.005)
    house = np.hypot(level, noise)
    assert house == pytest.approx([0.78] * 3, abs=0.01)
    above = stats.norm.sf(np.log(4), mean, house)
    assert above == pytest.approx([0.70, 0.37, 0.65], abs=0.006)
    assert p @ np.repeat(taus, len(noises)) == pytest.approx(0.159, abs=0.002)
