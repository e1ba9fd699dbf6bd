"""The numbers of the chapters on the Laplace approximation and its accuracy, computed again in other ways."""

from pathlib import Path

import mpmath as mp
import nbformat
import numpy as np
import pytest
from scipy import integrate, optimize, stats
from scipy.special import expit, log_expit

import laplacebook as lb

BOOK = Path(__file__).parents[2] / "book"


def printed(chapter):
    cells = nbformat.read(BOOK / f"{chapter}.ipynb", as_version=4).cells
    outputs = [o for cell in cells if cell.cell_type == "code" for o in cell.outputs]
    return "".join(o.get("text", "") for o in outputs)


@pytest.fixture(scope="module")
def first_page():
    return printed("laplace")


@pytest.fixture(scope="module")
def page():
    return printed("accuracy")


class Flights:
    """The posterior of intercept and slope by Gauss-Legendre quadrature, with zero among the ends of its pieces."""

    def __init__(self):
        data = lb.datasets.o_rings()
        degrees, self.damage = np.asarray(data.temperature), np.asarray(data.distress)
        self.at = lambda T: np.array([1, (T - degrees.mean()) / degrees.std()])
        self.features = np.array([self.at(T) for T in degrees])
        nodes, weights = np.polynomial.legendre.leggauss(30)
        ends = np.array([-16.0, -8, -5, -3, -2, -1, 0, 1, 2, 5])
        half = np.diff(ends)[:, None] / 2
        line = (ends[:-1, None] + half * (1 + nodes)).ravel()
        width = (half * weights).ravel()
        self.points = np.stack(np.meshgrid(line, line, indexing="ij"), -1)
        joint = np.exp(-self.loss(self.points)) * np.outer(width, width)
        self.Z, self.mass = joint.sum(), joint / joint.sum()
        self.line, self.width = line, width

    def loss(self, theta):
        signs = np.where(self.damage == 1, 1, -1)
        priors = stats.norm(0, 3).logpdf(theta).sum(-1)
        logits = np.tensordot(theta, (self.features * signs[:, None]).T, 1)
        return -priors - log_expit(logits).sum(-1)

    def mode(self, start=(-1.0, -1.5)):
        return optimize.minimize(self.loss, start, tol=1e-12, method="Nelder-Mead").x

    def covariance(self, mode):
        p = expit(self.features @ mode)
        return np.linalg.inv(self.features.T @ np.diag(p * (1 - p)) @ self.features + np.eye(2) / 9)


@pytest.fixture(scope="module")
def flights():
    return Flights()


def test_flights_exactly_and_by_laplace(first_page, flights):
    mode = flights.mode()
    S = flights.covariance(mode)
    by_laplace = -flights.loss(mode) + np.log(2 * np.pi * np.linalg.det(S) ** 0.5)
    assert f"log evidence {by_laplace:.4f}" in first_page
    assert f"exact log evidence {np.log(flights.Z):.4f}" in first_page
    above = flights.mass[:, flights.line > 0].sum()
    tail = stats.norm.cdf(mode[1] / S[1, 1] ** 0.5)
    assert f"P(b > 0): Laplace {tail:.4f}\n          exact   {above:.4f}" in first_page
    at = flights.at(31)
    q = stats.norm(at @ mode, (at @ S @ at) ** 0.5)
    mean = integrate.quad(lambda logit: expit(logit) * q.pdf(logit), *q.ppf([1e-12, 1 - 1e-12]))[0]
    exact = (flights.mass * expit(flights.points @ at)).sum()
    assert f"mode alone: {expit(at @ mode):.4f}\nLaplace:    {mean:.4f}, 90 %" in first_page
    assert f"exact:      {exact:.4f}, 90 %" in first_page


def test_slope_with_the_intercept_integrated(page, flights):
    low, high = np.full_like(flights.line, -40), np.full_like(flights.line, 40)
    for _ in range(60):
        middle = (low + high) / 2
        p = expit(np.stack([middle, flights.line], -1) @ flights.features.T)
        rising = (p - flights.damage).sum(1) + middle / 9 > 0
        low, high = np.where(rising, low, middle), np.where(rising, middle, high)
    heights = np.exp(-flights.loss(np.stack([middle, flights.line], -1)))
    parts = heights * flights.width * (2 * np.pi / ((p * (1 - p)).sum(1) + 1 / 9)) ** 0.5
    above = parts[flights.line > 0].sum() / parts.sum()
    exact = flights.mass[:, flights.line > 0].sum()
    assert abs(above / exact - 1) < 0.01
    start = page.index("P(slope > 0): 0.0")
    given, given_exact = (float(text[-7:]) for text in page[start:].splitlines()[0].split(", "))
    assert abs(given / above - 1) < 0.01 and abs(given_exact / exact - 1) < 0.01
    assert f"error of the evidence: {parts.sum() / flights.Z - 1:+.1%}" in page


def test_variational_gaussian_has_a_smaller_divergence_than_its_neighbours(page, flights):
    """By SciPy's search of the bound; the page solves two equations."""
    z, w = np.polynomial.hermite_e.hermegauss(30)
    nodes = np.stack(np.meshgrid(z, z), -1).reshape(-1, 2)
    w = np.outer(w, w).ravel() / (2 * np.pi)

    def minus_bound(v):
        root = np.array([[np.exp(v[2]), 0], [v[4], np.exp(v[3])]])
        return w @ flights.loss(v[:2] + nodes @ root.T) - v[2] - v[3] - 1 - np.log(2 * np.pi)

    v = optimize.minimize(minus_bound, [-1, -1.5, -0.5, -0.5, 0], tol=1e-9).x
    sd = np.exp(v[2]), np.hypot(np.exp(v[3]), v[4])
    assert f"mean [{v[0]:.3f} {v[1]:.3f}]  sd [{sd[0]:.3f} {sd[1]:.3f}]" in page
    row = next(line for line in page.splitlines() if line.startswith("variational")).split()
    numbers = [v[1], sd[1], stats.norm.cdf(v[1] / sd[1])]
    np.testing.assert_allclose(np.array(row[1:4], float), numbers, atol=1e-4)
    np.testing.assert_allclose(float(row[5]), minus_bound(v) + np.log(flights.Z), atol=1e-4)


def test_bishops_density(first_page):
    def loss(z):
        return z**2 / 2 + mp.log1p(mp.exp(-20 * z - 4))

    Z = mp.quad(lambda z: mp.exp(-loss(z)), [-1.5, -0.2, 0.5, 3, 9])
    z_0 = mp.findroot(lambda z: mp.diff(loss, z), 0.1)
    A = mp.diff(loss, z_0, 2)
    Z_q = mp.exp(-loss(z_0)) * mp.sqrt(2 * mp.pi / A)
    assert f"Z by quadrature: {float(Z):.6f}" in first_page
    assert f"z_0 = {float(z_0):.6f}" in first_page
    assert f"A = {float(A):.4f}, standard deviation {float(A**-0.5):.4f}" in first_page
    assert f"Z_q = {float(Z_q):.4f}, relative error {float(Z_q / Z - 1):+.1%}" in first_page


@pytest.mark.parametrize("N", [1, 10, 100, 1000])
def test_stirling(page, N):
    error = mp.factorial(N) / (mp.exp(-N) * mp.mpf(N) ** N * mp.sqrt(2 * mp.pi * N)) - 1
    assert f"N = {N:>4}: Z/Z_q - 1 = {float(error):.3e}" in page


def coin_loss(k, heads=0):
    """Of the logit, if the posterior is Beta(10 k, 3 k) and so many heads more are seen."""
    alpha, beta = 10 * k + heads, 3 * k
    return lambda u: alpha * mp.log1p(mp.exp(-u)) + beta * mp.log1p(mp.exp(u))


def laplace_of(loss, start=1):
    """The mode, the standard deviation and the logarithm of the normaliser, all by mpmath."""
    mode = mp.findroot(lambda u: mp.diff(loss, u), start)
    sd = mp.diff(loss, mode, 2) ** -0.5
    return mode, sd, mp.log(sd * mp.sqrt(2 * mp.pi)) - loss(mode)


@pytest.mark.parametrize(
    "distance, starts, said", [(1.25, [0.8], "one mode"), (1.5, [0.6, 2], "two modes")]
)
def test_a_second_mode_appears(first_page, distance, starts, said):
    def loss(z):
        return -mp.log(0.3 * mp.npdf(z, 2 - distance, 0.4) + 0.7 * mp.npdf(z, 2, 1))

    slopes = [mp.diff(loss, mp.mpf(i) / 50) for i in range(-50, 200)]
    turns = [before < 0 < after for before, after in zip(slopes, slopes[1:], strict=False)]
    assert sum(turns) == len(starts)
    each = [float(mp.exp(laplace_of(loss, start)[2])) for start in starts]
    line = f"{distance}: {said}, Z_q {' and '.join(f'{Z:.2f}' for Z in each)}"
    assert f"{line}, {f'sum {sum(each):.2f}' if each[1:] else 'exactly 1'}" in first_page


@pytest.mark.parametrize("k", [1, 16, 1024])
def test_coin_and_its_leading_error(page, k):
    loss = coin_loss(k)
    mode, sd, log_Z_q = laplace_of(loss)
    a, b = (mp.diff(loss, mode, order) * sd**order for order in (3, 4))
    nodes = [mode + n * sd for n in (-14, -7, -3, 0, 3, 7, 14)]
    ratio = mp.quad(lambda u: mp.exp(-loss(u) - log_Z_q), nodes)
    leading = 5 * a**2 / 24 - b / 8
    stirling = (1 / mp.mpf(10 * k) + 1 / mp.mpf(3 * k) - 1 / mp.mpf(13 * k)) / 12
    assert float(leading) == pytest.approx(float(stirling), rel=1e-6)
    line = f"N = {13 * k:>6}: {float(ratio - 1):.2e} {float(leading):.2e}"
    assert f"{line} {float(ratio / (1 + leading) - 1):.0e}" in page


@pytest.mark.parametrize("k", [1, 16])
def test_total_variation_by_where_the_densities_cross(page, k):
    """Twice the distance is the sum of what the distribution functions gain on each other between the crossings."""
    mode, sd, log_Z_q = laplace_of(coin_loss(k))
    exact = stats.beta(10 * k, 3 * k)
    x = np.linspace(-9, 14, 4001)

    def gap(x):
        s = expit(float(mode) + float(sd) * x)
        return np.log(float(sd) * exact.pdf(s) * s * (1 - s)) - stats.norm.logpdf(x)

    signs = np.flatnonzero(np.diff(np.sign(gap(x))))
    ends = [optimize.brentq(gap, x[i], x[i + 1]) for i in signs]
    at_ends = exact.cdf(expit(float(mode) + float(sd) * np.array(ends))) - stats.norm.cdf(ends)
    distance = abs(np.diff(np.concatenate([[0], at_ends, [0]]))).sum() / 2
    assert f"{distance:.2e}" in next(
        line for line in page.splitlines() if line.startswith(f"N = {13 * k:>6}:")
    )


def test_skewed_coin_is_a_density_with_a_mean_nearer_to_the_exact_one(page):
    mode, sd, _ = laplace_of(coin_loss(1))
    a = mp.diff(coin_loss(1), mode, 3) * sd**3

    def density(x):
        return 2 * mp.npdf(x) * mp.ncdf(-mp.sqrt(2 * mp.pi) / 12 * a * x**3)

    ends = [-9, -3, 0, 3, 9]
    assert float(mp.quad(density, ends)) == pytest.approx(1, abs=1e-9)
    mean = mode + sd * mp.quad(lambda x: x * density(x), ends)
    exact = mp.digamma(10) - mp.digamma(3)
    assert f"Laplace  mean of u {float(mode - exact):+.3f}, total variation 0.054" in page
    assert f"skewed   mean of u {float(mean - exact):+.3f}, total variation 0.023" in page


@pytest.mark.parametrize("k", [1, 64])
def test_two_heads_more_by_two_normalisers(page, k):
    (mode, _, now), (_, _, more) = laplace_of(coin_loss(k)), laplace_of(coin_loss(k, 2))
    exact = mp.beta(10 * k + 2, 3 * k) / mp.beta(10 * k, 3 * k)
    plug_in = (1 + mp.exp(-mode)) ** -2
    line = next(line for line in page.splitlines() if line.startswith(f"N = {13 * k:>3}: plug-in"))
    assert f"plug-in {float(plug_in - exact):+.1e}, outside" in line
    assert line.endswith(f"ratio {float(mp.exp(more - now) - exact):+.1e}")


def test_corrected_evidence_of_coin_and_flights(page, flights):
    """Of the flights by quadrature to a finer measure than the page's grid."""
    assert f"leaves out about 0.0009; exact {-np.log(110):.4f}" in page
    assert f"leaves out about 0.0075; exact {np.log(flights.Z):.4f}" in page


@pytest.mark.parametrize("N", [9, 576])
def test_coin_of_heads_alone(page, N):
    """By Laplace in the logit, in which the density is s^(N+1) (1 - s), and at the edge."""
    mode = mp.log(N + 1)
    height, A = (1 + mp.exp(-mode)) ** (-N - 1) / (1 + mp.exp(mode)), mp.mpf(N + 1) / (N + 2)
    error = height * mp.sqrt(2 * mp.pi / A) * (N + 1) - 1
    line = f"N = {N:>3}: at the edge {1 / N:+.2%}, in the logit {float(error):+.2%}"
    assert line in page


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
    assert f"8 schools: exact p(tau > 20) = {float(above / Z):.3f}" in page

    def loss(mu, u):
        return -log_joint(mu, mp.exp(u)) - u

    slopes = [lambda *x: mp.diff(loss, x, (1, 0)), lambda *x: mp.diff(loss, x, (0, 1))]
    mu, u = mp.findroot(slopes, (4, 1))
    orders = [(2, 0), (0, 2), (1, 1)]
    a, d, b = (mp.diff(loss, (mu, u), order) for order in orders)
    error = mp.log(2 * mp.pi / mp.sqrt(a * d - b**2)) - loss(mu, u) - mp.log(Z)
    line = f"tau {float(mp.exp(u)):4.1f}, log Z off by {float(error):+.2f}"
    assert f"integrated mode certified, {line}" in page
