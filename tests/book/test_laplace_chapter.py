"""The numbers of the chapter on the Laplace approximation, computed again with mpmath."""

from pathlib import Path

import mpmath as mp
import nbformat
import pytest

CHAPTER = Path(__file__).parents[2] / "book" / "laplace.ipynb"


@pytest.fixture(scope="module")
def page():
    cells = nbformat.read(CHAPTER, as_version=4).cells
    outputs = [o for cell in cells if cell.cell_type == "code" for o in cell.outputs]
    return "".join(o.get("text", "") for o in outputs)


def test_bishops_density(page):
    def loss(z):
        return z**2 / 2 + mp.log1p(mp.exp(-20 * z - 4))

    Z = mp.quad(lambda z: mp.exp(-loss(z)), [-1.5, -0.2, 0.5, 3, 9])
    z_0 = mp.findroot(lambda z: mp.diff(loss, z), 0.1)
    A = mp.diff(loss, z_0, 2)
    Z_q = mp.exp(-loss(z_0)) * mp.sqrt(2 * mp.pi / A)
    assert f"Z by quadrature: {float(Z):.6f}" in page
    assert f"z_0 = {float(z_0):.6f}" in page
    assert f"A = {float(A):.4f}, standard deviation {float(A**-0.5):.4f}" in page
    assert f"Z_q = {float(Z_q):.4f}, relative error {float(Z_q / Z - 1):+.1%}" in page


@pytest.mark.parametrize("N", [1, 10, 100, 1000])
def test_stirling(page, N):
    error = mp.factorial(N) / (mp.exp(-N) * mp.mpf(N) ** N * mp.sqrt(2 * mp.pi * N)) - 1
    assert f"N = {N:>4}: Z/Z_q - 1 = {float(error):.3e}" in page


@pytest.mark.parametrize("N", [9, 144, 36864])
def test_coin_and_its_leading_error(page, N):
    def loss(theta):
        heads = 7 * mp.log1p(mp.exp(-theta)) + 2 * mp.log1p(mp.exp(theta))
        return (theta + 2) ** 2 / 2 + mp.mpf(N) / 9 * heads

    mode = mp.findroot(lambda theta: mp.diff(loss, theta), 1)
    A, third, fourth = (mp.diff(loss, mode, order) for order in (2, 3, 4))
    sd, lowest = A**-0.5, loss(mode)
    nodes = [mode + k * sd for k in (-14, -7, -3, 0, 3, 7, 14)]
    ratio = mp.quad(lambda t: mp.exp(lowest - loss(t)), nodes) / mp.sqrt(2 * mp.pi / A)
    leading = 5 * third**2 / A**3 / 24 - fourth / A**2 / 8
    assert f"N = {N:>6}: {float(ratio - 1):.2e} {float(leading):.2e}" in page


@pytest.mark.parametrize("N", [3, 100])
def test_expectation_as_a_ratio(page, N):
    def stirling(n):
        return mp.exp(-n) * mp.mpf(n) ** n * mp.sqrt(2 * mp.pi * n)

    error = stirling(N + 1) / stirling(N) / (N + 1) - 1
    assert f"N = {N:>3}: ratio {float(error):+.1e}, mode {-1 / (N + 1):+.1e}" in page


def test_eight_schools(page):
    """mu is integrated by the sum of precisions, and the mode of the rest is found in log tau."""
    effect, se = [28, 8, -3, 7, -1, 1, 18, 12], [15, 10, 16, 11, 9, 11, 10, 18]

    def log_joint(mu, tau):
        variances = [s**2 + tau**2 for s in se]
        terms = [
            (y - mu) ** 2 / v + mp.log(2 * mp.pi * v)
            for y, v in zip(effect, variances, strict=True)
        ]
        prior = mp.log(2 / (5 * mp.pi * (1 + (tau / 5) ** 2)))
        return prior - mu**2 / 50 - mp.log(50 * mp.pi) / 2 - sum(terms) / 2

    def over_mu(tau):
        weights = [1 / mp.mpf(s**2 + tau**2) for s in se]
        precision = sum(weights) + mp.mpf(1) / 25
        mean = sum(w * y for w, y in zip(weights, effect, strict=True)) / precision
        return mp.exp(log_joint(mean, tau)) * mp.sqrt(2 * mp.pi / precision)

    ends = [0, 5, 20, 100, mp.inf]
    Z, above = mp.quad(over_mu, ends), mp.quad(over_mu, ends[2:])
    assert f"exact: log Z = {float(mp.log(Z)):.2f}, p(tau > 20) = {float(above / Z):.3f}" in page

    def loss(mu, u):
        return -log_joint(mu, mp.exp(u)) - u

    slopes = [lambda *x: mp.diff(loss, x, (1, 0)), lambda *x: mp.diff(loss, x, (0, 1))]
    mu, u = mp.findroot(slopes, (4, 1))
    orders = [(2, 0), (0, 2), (1, 1)]
    a, d, b = (mp.diff(loss, (mu, u), order) for order in orders)
    error = mp.log(2 * mp.pi / mp.sqrt(a * d - b**2)) - loss(mu, u) - mp.log(Z)
    line = f"tau {float(mp.exp(u)):4.1f}, error {float(error):+.2f}"
    assert f"integrated mode certified, {line}, a factor of {float(mp.exp(-error)):.2f}" in page
