"""What the chapter on latent fields says, computed in other ways: NumPy and SciPy alone, and long runs of NUTS."""

import ast
import json
import re
from functools import cache
from pathlib import Path

import nbformat
import numpy as np
import pytest
from scipy import linalg, optimize, special, stats

from laplacebook import datasets

ROOT = Path(__file__).parents[2]
REFERENCES = json.loads((ROOT / "tests" / "beyond" / "practice.json").read_text())
DAYS = datasets.coal_mining()


@cache
def chapter():
    """The code of the chapter, one string."""
    cells = nbformat.read(ROOT / "book" / "latent-fields.ipynb", as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "code")


@cache
def printed():
    """What the chapter prints, one string."""
    cells = nbformat.read(ROOT / "book" / "latent-fields.ipynb", as_version=4).cells
    outputs = [o for cell in cells if cell.cell_type == "code" for o in cell.outputs]
    return "".join(o.text for o in outputs if o.output_type == "stream")


def typed(name):
    """The literal that the chapter assigns to a name."""
    for node in ast.parse(chapter()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    raise KeyError(name)


def counts(T):
    return np.histogram(DAYS - 0.5, bins=T, range=(0, 40_907))[0]


def banded(z, precision, weight):
    """The diagonals of a tridiagonal precision of steps and of a start, with what the counts add."""
    beside = np.full(len(z) - 1, -precision)
    diagonal = weight.copy()
    diagonal[1:] += precision
    diagonal[:-1] += precision
    return diagonal, beside


def walk(y, s, years=112):
    """The mode of the log rates, the factor there, and the log of the integral."""
    T, delta = len(y), years / len(y)
    precision = 1 / (s**2 * delta)
    z = np.full(T, np.log(y.sum() / years))
    for _ in range(30):
        rate = delta * np.exp(z)
        slope = rate - y + np.r_[z[0] / 4, np.zeros(T - 1)]
        slope[1:] += precision * np.diff(z)
        slope[:-1] -= precision * np.diff(z)
        diagonal, beside = banded(z, precision, rate + np.r_[1 / 4, np.zeros(T - 1)])
        step = linalg.solveh_banded(np.stack([diagonal, np.r_[beside, 0]]), slope, lower=True)
        z = z - step
    assert abs(step).max() < 1e-9
    log_joint = stats.poisson(rate).logpmf(y).sum() + stats.norm(0, 2).logpdf(z[0])
    log_joint += stats.norm(0, s * delta**0.5).logpdf(np.diff(z)).sum()
    factor = linalg.cholesky_banded(np.stack([diagonal, np.r_[beside, 0]]), lower=True)
    return z, factor, log_joint + T / 2 * np.log(2 * np.pi) - np.log(factor[0]).sum()


def test_the_field_and_its_step_size_by_banded_matrices():
    y = counts(10_227)

    def loss(u):
        return -walk(y, np.exp(u))[2] - stats.halfnorm.logpdf(np.exp(u)) - u

    best = optimize.minimize_scalar(loss, bounds=(-3, -1), options={"xatol": 1e-6})
    assert np.exp(best.x) == pytest.approx(0.160, abs=5e-4)
    h = 0.01
    width = h / (np.sum([w * loss(best.x + k * h) for k, w in ((-1, 1), (0, -2), (1, 1))])) ** 0.5
    ends = np.exp(best.x + 1.645 * width * np.array([-1, 1]))
    assert f"s = {np.exp(best.x):.3f}, 90 % interval {ends.round(3)}" in printed()
    z, factor, _ = walk(y, np.exp(best.x))
    assert np.exp(z[[0, -1]]) == pytest.approx([3.3, 0.5], abs=0.05)
    ends = []
    for t in (0, -1):
        e = np.zeros(len(y))
        e[t] = 1
        sd = linalg.cho_solve_banded((factor, True), e)[t] ** 0.5
        ends.append([round(float(np.exp(z[t] + k * 1.645 * sd)), 1) for k in (-1, 1)])
    assert str(ends) in printed()


def test_a_rate_above_three_fell_to_one_between_1880_and_1900():
    z, _, _ = walk(counts(10_227), 0.16)
    rate = np.exp(z)
    year = 1851 + (np.arange(10_227) + 0.5) * 112 / 10_227
    fall = rate[np.searchsorted(year, 1880)] - rate[np.searchsorted(year, 1900)]
    assert fall > (rate.max() - rate.min()) / 2


def test_where_the_band_of_yearly_counts_lies_by_weights_of_the_whole_joint_density():
    y, s = counts(112), 0.160
    z, factor, _ = walk(y, s)
    normal = np.random.default_rng(1).normal(size=(112, 20_000))
    upper = np.stack([np.r_[0, factor[1, :-1]], factor[0]])
    field = z[:, None] + linalg.solve_banded((0, 1), upper, normal)
    log_joint = stats.poisson(np.exp(field)).logpmf(y[:, None]).sum(0)
    log_joint += stats.norm(0, 2).logpdf(field[0])
    log_joint += stats.norm(0, s).logpdf(np.diff(field, axis=0)).sum(0)
    weight = special.softmax(log_joint + (normal**2).sum(0) / 2)
    sd = linalg.cho_solve_banded((factor, True), np.eye(112)).diagonal() ** 0.5
    off = (z - field @ weight) / sd
    ends = re.search(r"means lie (\S+) to (\S+) sd below the line", printed()).groups()
    assert [off.min(), off.max()] == pytest.approx([float(x) for x in ends], abs=0.02)
    beyond = [((k * (field.T - z) > 1.645 * sd).T @ weight).mean() for k in (-1, 1)]
    told = re.search(r"below, above the band: (\S+)%, (\S+)%", printed()).groups()
    assert beyond == pytest.approx([float(x) / 100 for x in told], abs=0.004)


def test_tmb_by_banded_matrices():
    """Minus the log marginal likelihood at the published estimates."""
    y = datasets.ar1_counts()
    b, log_s, p = typed("tmb").values()
    phi, s, T = np.tanh(p / 2), np.exp(log_s), len(y)
    diagonal = np.r_[1, np.full(T - 2, 1 + phi**2), 1] / s**2
    beside = np.r_[np.full(T - 1, -phi), 0] / s**2
    z = np.zeros(T)
    for _ in range(30):
        rate = np.exp(b + z)
        slope = rate - y + diagonal * z
        slope[1:] += beside[:-1] * z[:-1]
        slope[:-1] += beside[:-1] * z[1:]
        z = z - linalg.solveh_banded(np.stack([diagonal + rate, beside]), slope, lower=True)
    log_joint = (
        stats.poisson(rate).logpmf(y).sum() + stats.norm(phi * z[:-1], s).logpdf(z[1:]).sum()
    )
    log_joint += stats.norm(0, s / np.sqrt(1 - phi**2)).logpdf(z[0])
    factor = linalg.cholesky_banded(np.stack([diagonal + rate, beside]), lower=True)
    value = log_joint + T / 2 * np.log(2 * np.pi) - np.log(factor[0]).sum()
    assert -value == pytest.approx(4158.187, abs=6e-4)


def test_the_typed_references_of_the_map_are_those_of_the_long_run():
    sites = REFERENCES["icar"]["sites"]
    names = {"a": "intercept", "b": "slope", "sigma": "sigma"}
    for name, (mean, sd) in typed("nuts").items():
        assert (mean, sd) == (sites[names[name]]["mean"], sites[names[name]]["sd"])
    assert REFERENCES["icar"]["draws"] == 40_000
    old = ROOT / "tests" / "beyond" / "data" / "scotland.csv"
    new = ROOT / "laplacebook" / "data" / "lip_cancer.csv"
    assert old.read_text() == new.read_text()


def test_the_risks_of_the_districts_are_those_of_nuts():
    """The districts of the highest and the lowest risk by the long run's means of phi."""
    cases = datasets.lip_cancer()
    phi = np.array(REFERENCES["icar"]["sites"]["phi"]["mean"])
    a, b, sigma = (typed("nuts")[k][0] for k in ("a", "b", "sigma"))
    risk = np.exp(a + b * cases.outdoors / 10 + sigma * phi)
    line = next(text for text in printed().splitlines() if "largest median" in text)
    low, high = (float(x) for x in line.split("median ")[1].split(", "))
    assert risk.min() == pytest.approx(low, abs=0.08) and risk.max() == pytest.approx(high, abs=0.3)


def test_one_change_or_a_walk():
    """Both evidences by closed forms or quadrature in other ways than the chapter's sums."""
    y = counts(112)

    def constant(y):
        def height(v):
            return stats.poisson(np.exp(v)).logpmf(y[:, None]).sum(0) + stats.norm(0, 2).logpdf(v)

        v = np.linspace(-8, 4, 4001)
        return special.logsumexp(height(v)) + np.log(v[1] - v[0])

    change = [constant(y[:k]) + constant(y[k:]) for k in range(1, 112)]
    step = special.logsumexp(change) - np.log(111)
    s = np.exp(np.linspace(-4.5, 0.5, 61))
    mass = [walk(y, v)[2] + stats.halfnorm.logpdf(v) + np.log(v) for v in s]
    smooth = special.logsumexp(mass) + np.log(np.log(s[1] / s[0]))
    line = next(text for text in printed().splitlines() if "step -" in text)
    found = [float(x) for x in line.replace(",", "").split() if x[0] == "-"]
    assert found == pytest.approx([smooth, step], abs=0.02)
    assert f"{1851 + 1 + np.argmax(change)}" in printed()


def test_the_model_on_the_page_is_the_one_of_the_first_figure():
    definitions = [
        ast.unparse(node)
        for node in ast.parse(chapter()).body
        if isinstance(node, ast.FunctionDef) and node.name == "explosions"
    ]
    assert len(definitions) == 2 and definitions[0] == definitions[1]
