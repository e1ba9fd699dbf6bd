"""The claims of the chapter on model comparison, and evidences of the O-rings, in other ways than there."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate, stats
from scipy.special import betaln, expit, gammaln

import laplacebook as lb
from tests.models import line

A_0, B_0 = 3.0, 2 * 300.0**2
M_0, Q_0 = np.array([3000.0, 185.0]), np.diag([0.06, 6.0])

#: log evidences quoted for the pines, which belong to one of the two copies of the data
QUOTED = {"friel_wyse": (-310.1283, -301.7046), "bugs": (-310.5073, -301.6502)}


def strength(y, x):
    tau = numpyro.sample("tau", dist.Gamma(A_0, B_0))
    a = numpyro.sample("a", dist.Normal(M_0[0], (Q_0[0, 0] * tau) ** -0.5))
    b = numpyro.sample("b", dist.Normal(M_0[1], (Q_0[1, 1] * tau) ** -0.5))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(a + b * x, tau**-0.5), obs=y)


def counted(heads, tails):
    theta = numpyro.sample("theta", dist.Beta(2, 2))
    numpyro.factor("tosses", heads * jnp.log(theta) + tails * jnp.log1p(-theta))


def logistic(features, y, scales):
    w = numpyro.sample("w", dist.Normal(0, scales).to_event(1))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Bernoulli(jax.nn.sigmoid(features @ w)), obs=y)


@pytest.fixture(scope="module")
def flights():
    data = lb.datasets.o_rings()
    x = (data.temperature - data.temperature.mean()) / data.temperature.std()
    return np.column_stack([np.ones_like(x), x]), data.distress


def pine(copy, which):
    data = lb.datasets.radiata_pine(copy)
    x = (data.density, data.adjusted_density)[which]
    return data.strength, x - x.mean()


def multivariate_t(y, x):
    """The evidence of normal-gamma regression without its theorem: y has a Student-t distribution."""
    X = np.column_stack([np.ones(len(y)), x])
    shape = B_0 / A_0 * (np.eye(len(y)) + X @ np.linalg.inv(Q_0) @ X.T)
    return stats.multivariate_t(X @ M_0, shape, df=2 * A_0).logpdf(y)


@pytest.mark.parametrize("copy", QUOTED)
@pytest.mark.parametrize("which", [0, 1])
def test_quoted_evidence_of_the_pines(copy, which):
    assert multivariate_t(*pine(copy, which)) == pytest.approx(QUOTED[copy][which], abs=6e-5)


def test_bayes_factors_of_the_pines():
    factors = [
        np.exp(multivariate_t(*pine(c, 1)) - multivariate_t(*pine(c, 0)))
        for c in ("friel_wyse", "bugs")
    ]
    assert factors[0] == pytest.approx(4553.65, abs=0.1)
    assert factors[1] == pytest.approx(7024.14, abs=0.1)


def log_evidence(X, m_0, Q_0):
    """As multivariate_t, of the pines' strength with any columns and any normal-gamma prior."""
    y = lb.datasets.radiata_pine("friel_wyse").strength
    shape = B_0 / A_0 * (np.eye(len(y)) + X @ np.linalg.inv(Q_0) @ X.T)
    return stats.multivariate_t(X @ m_0, shape, df=2 * A_0).logpdf(y)


def test_a_second_slope_of_the_pines():
    """It never has more than a tenth of a nat, and each tenfold width of its prior costs a factor of ten."""
    x, z = (pine("friel_wyse", which)[1] for which in (0, 1))
    X, m_0 = np.column_stack([np.ones(42), z, x]), np.append(M_0, 0)
    one_slope = log_evidence(X[:, :2], M_0, Q_0)

    def log_bayes_factor(r):
        return log_evidence(X, m_0, np.diag([0.06, 6, r**-2])) - one_slope

    at = [round(log_bayes_factor(r), 2) for r in (0.1, 0.41, 4.1, 41)]
    assert at == [0.10, -0.49, -2.69, -4.99]
    assert max(log_bayes_factor(r) for r in np.geomspace(0.003, 300, 41)) < 0.12
    tenfold = log_bayes_factor(300) - log_bayes_factor(30)
    assert tenfold == pytest.approx(-np.log(10), abs=1e-3)

    no_slope = log_evidence(X[:, :1], M_0[:1], Q_0[:1, :1])
    any_slope = log_evidence(X[:, :2], np.array([3000.0, 0.0]), Q_0)
    assert round(any_slope - no_slope, 1) == 50.9


def test_leaving_one_pine_out():
    """The sum over 42 refits, by the ratio of two evidences each, is the one that draws give."""
    data = lb.datasets.radiata_pine("friel_wyse")
    totals = []
    for density in data[1:]:
        X = np.column_stack([np.ones(42), density - density.mean()])
        shape = B_0 / A_0 * (np.eye(42) + X @ np.linalg.inv(Q_0) @ X.T)
        mean = X @ M_0

        def log_p(rows, mean=mean, shape=shape):
            part = stats.multivariate_t(mean[rows], shape[np.ix_(rows, rows)], df=2 * A_0)
            return part.logpdf(data.strength[rows])

        everything = np.arange(42)
        whole = log_p(everything)
        totals.append(sum(whole - log_p(np.delete(everything, n)) for n in everything))
    np.testing.assert_allclose(totals, [-306.6, -298.0], atol=0.06)


@pytest.mark.parametrize("which", [0, 1])
def test_laplace_errs_on_every_pine_by_the_same_stirling_formula(which):
    y, x = pine("friel_wyse", which)
    a, p = A_0 + len(y) / 2, 2
    c = a + p / 2
    predicted = (a - 0.5) * np.log(c) - c + np.log(2 * np.pi) / 2 - gammaln(a)
    error = lb.laplace(strength, y, x).log_evidence - multivariate_t(y, x)
    assert error == pytest.approx(predicted, abs=1e-6)
    assert error == pytest.approx(-0.0442, abs=1e-4)


def test_error_of_bic_tends_to_the_constant_and_that_of_laplace_to_zero():
    p, k = 8 / 9, 2.0 ** np.arange(4, 16)
    log_Z = betaln(2 + 8 * k, 2 + k) - betaln(2, 2)
    log_L_hat = 8 * k * np.log(p) + k * np.log(1 - p)
    error_bic = log_L_hat - np.log(9 * k) / 2 - log_Z
    log_prior = np.log(6 * p * (1 - p))
    constant = log_prior + np.log(2 * np.pi) / 2 + np.log(p * (1 - p)) / 2
    np.testing.assert_allclose(error_bic[-1], -constant, atol=1e-4)
    assert abs(constant) > 0.7
    # 1/N, as Stirling's series has it
    error = jax.vmap(lambda k: lb.laplace(counted, 8 * k, k))(k[:8]).log_evidence - log_Z[:8]
    a, b = 2 + 8 * k[:8], 2 + k[:8]
    np.testing.assert_allclose(error, -(1 / a + 1 / b - 1 / (a + b)) / 12, rtol=1e-3)


@pytest.mark.parametrize("s", [0.3, 1.5, 40.0])
def test_occam_factor_is_a_ratio_of_widths(s):
    rng = np.random.default_rng(0)
    features, y = rng.normal(size=(12, 3)), rng.normal(size=12)
    approx = lb.laplace(line, features, y, np.float64(s), 0.5)
    covariance, mode = np.asarray(approx.covariance), np.asarray(approx.mode_vector)
    widths = np.linalg.slogdet(covariance)[1] / 2 - 3 * np.log(s)
    assert approx.log_occam_factor == pytest.approx(widths - mode @ mode / (2 * s**2), rel=1e-9)


def test_coin_and_its_bayes_factor():
    evidence, _ = integrate.quad(lambda p: p**8 * (1 - p) * stats.beta(2, 2).pdf(p), 0, 1)
    assert 2**9 * evidence == pytest.approx(512 / 110)


def exact_o_rings(features, y, scales):
    """By Gauss-Legendre quadrature on a box beyond which nothing is left."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    boxes = [(-2 + 7 * nodes, 7 * weights), (-4 + 8 * nodes, 8 * weights)][: len(scales)]
    w = np.stack([m.ravel() for m in np.meshgrid(*[x for x, _ in boxes])], -1)
    weight = np.prod(np.stack([m.ravel() for m in np.meshgrid(*[v for _, v in boxes])], -1), -1)
    p = expit(w @ features.T)
    likelihood = np.prod(np.where(y == 1, p, 1 - p), -1)
    return np.log(weight @ (likelihood * np.prod(stats.norm(0, scales).pdf(w), -1)))


def test_o_rings(flights):
    features, y = flights
    scales = np.array([2.5, 2.5])
    models = [(features[:, :1], y, scales[:1]), (features, y, scales)]
    exact = [exact_o_rings(*arguments) for arguments in models]
    assert exact[1] - exact[0] == pytest.approx(2.6570, abs=1e-4)
    fits = [lb.laplace(logistic, *arguments) for arguments in models]
    assert fits[1].log_evidence - fits[0].log_evidence == pytest.approx(2.5991, abs=1e-4)
    estimate = lb.importance_sampling(fits[1], jax.random.key(0))
    assert abs(estimate.value - exact[1]) < 4 * estimate.standard_error
    assert lb.gauss_hermite(fits[1]) == pytest.approx(exact[1], abs=1e-3)
    table = lb.compare({"constant": fits[0], "temperature": fits[1]})
    assert table["model"] == ["temperature", "constant"]
    assert table["probability"][0] == pytest.approx(expit(2.5991), abs=1e-4)


def test_flat_slope_has_no_bayes_factor(flights):
    features, y = flights

    def flat_slope(features, y):
        flat = dist.ImproperUniform(dist.constraints.real, (), (2,))
        w = numpyro.sample("w", flat)
        with numpyro.plate("N", len(y)):
            numpyro.sample("y", dist.Bernoulli(jax.nn.sigmoid(features @ w)), obs=y)

    improper = lb.laplace(flat_slope, features, y)
    with pytest.raises(lb.UnsupportedModel, match="only up to a constant"):
        lb.compare({"flat": improper, "other": -15.9})


def test_slope_of_the_evidence_in_the_prior_width(flights):
    """d log Z / d log s = E[theta^2] / s^2 - 1, exactly; by Laplace nearly, and -1 in the limit."""
    features, y = flights

    def log_evidence(log_s):
        scales = jnp.stack([2.5, jnp.exp(log_s)])
        return lb.laplace(logistic, features, y, scales).log_evidence

    slope = jax.jit(jax.grad(log_evidence))
    by_difference = (log_evidence(np.log(2.51)) - log_evidence(np.log(2.49))) / np.log(2.51 / 2.49)
    assert slope(np.log(2.5)) == pytest.approx(float(by_difference), abs=1e-4)
    assert slope(np.log(500.0)) == pytest.approx(-1, abs=1e-3)
    approx = lb.laplace(logistic, features, y, jnp.array([2.5, 2.5]))
    mean_square = approx.mode_vector[1] ** 2 + approx.covariance[1, 1]
    assert slope(np.log(2.5)) == pytest.approx(float(mean_square / 2.5**2 - 1), abs=0.15)


def test_published_jzs_bayes_factor():
    """R's BayesFactor prints 417938.6, to 0.01 %, for rating ~ complaints of `attitude`."""
    N, p, R2, r = 30, 1, 0.681314164108863, 2**0.5 / 4

    def integrand(v):
        g = np.exp(v)
        ratio = (N - 1 - p) / 2 * np.log1p(N * g) - (N - 1) / 2 * np.log1p(N * g * (1 - R2))
        return np.exp(ratio + stats.invgamma(0.5, scale=r**2 / 2).logpdf(g) + v)

    assert integrate.quad(integrand, -15, 15)[0] == pytest.approx(417938.6, rel=1e-4)


def test_price_at_an_edge_is_twice_that_of_bic():
    """Uniform on (0, theta), Pareto prior: the evidence by quadrature, and its growth."""
    largest, alpha = 2.9, 1.0

    def price(N):
        end = largest * (1 + 60 / N)  # where the integrand has fallen to nothing
        tail, _ = integrate.quad(
            lambda t: alpha * (largest / t) ** N / t ** (alpha + 1), largest, end
        )
        return -np.log(tail)

    closed = [np.log((N + alpha) / alpha) + alpha * np.log(largest) for N in (20, 2000)]
    np.testing.assert_allclose([price(20), price(2000)], closed, rtol=1e-6)
    assert (closed[1] - closed[0]) / np.log(100) == pytest.approx(1, abs=0.02)
