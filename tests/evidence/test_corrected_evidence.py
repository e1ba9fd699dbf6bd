"""The next term of the log evidence, against evidences that are known and derivatives by hand."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import integrate
from scipy.special import betaln, gammaln

import laplacebook as lb
from laplacebook.curvature.settings import Settings
from laplacebook.evidence import corrected_evidence as module
from laplacebook.evidence.expansion import _rule
from tests.models import logistic, single_precision

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(60, 3))
LABELS = (FEATURES @ [1.0, -1.0, 0.5] + RNG.logistic(size=60) > 0).astype(float)


def beta(x, heads, tails):
    return heads * jax.nn.log_sigmoid(x) + tails * jax.nn.log_sigmoid(-x)


def gamma(x, n):
    """Of the logarithm: all derivatives are n, from the second on."""
    return n * x - jnp.exp(x)


def quartic(x, third, fourth):
    return -(x**2) / 2 - third * x**3 - fourth * x**4


def student(x, nu):
    return -(nu + x.size) / 2 * jnp.log1p(jnp.sum(x**2) / nu)


def huber(x, knee):
    return -jnp.where(jnp.abs(x) < knee, x**2 / 2, knee * jnp.abs(x) - knee**2 / 2)


def fit(density, start, *args):
    """With arrays as arguments, of which a program is compiled for all numbers."""
    return lb.laplace_of_density(density, start, *map(np.asarray, args))


def corrected(density, start, *args):
    return lb.corrected_evidence(fit(density, start, *args))


@cache
def flights():
    """Logistic regression with three weights."""
    return lb.laplace(logistic, FEATURES, LABELS)


@pytest.mark.parametrize(
    ("density", "args", "a", "b"),
    [
        (gamma, (4.0,), 1 / 2, 1 / 4),
        (beta, (10.0, 3.0), -7 / np.sqrt(390), (13**2 - 6 * 30) / 390),
        (quartic, (0.05, 0.02), 6 * 0.05, 24 * 0.02),
    ],
)
def test_one_variable(density, args, a, b):
    """a and b are f'''/A^(3/2) and f''''/A^2; of the Beta density, with s = 10/13 at the mode, by hand."""
    found = corrected(density, 0.01, *args)
    assert found.correction == pytest.approx(5 * a**2 / 24 - b / 8, abs=1e-9)


def by_indices(s, third, fourth):
    """The three contractions."""
    return (
        np.einsum("ijk,lmn,ij,kl,mn", third, third, s, s, s) / 8
        + np.einsum("ijk,lmn,il,jm,kn", third, third, s, s, s) / 12
        - np.einsum("ijkl,ij,kl", fourth, s, s) / 8
    )


def test_several_variables():
    """Of logistic regression the derivatives are sums over the rows, by hand."""
    approx, x = flights(), FEATURES
    p = 1 / (1 + np.exp(-x @ approx.mode_vector))
    v = p * (1 - p)
    third = np.einsum("n,ni,nj,nk->ijk", v * (1 - 2 * p), x, x, x)
    fourth = np.einsum("n,ni,nj,nk,nl->ijkl", v * (1 - 6 * v), x, x, x, x)
    expected = by_indices(np.linalg.inv((x.T * v) @ x + np.eye(3)), third, fourth)
    found = lb.corrected_evidence(approx)
    assert found.correction == pytest.approx(expected, rel=1e-9)
    assert found.value == pytest.approx(float(approx.log_evidence + expected), rel=1e-12)
    exact = lb.gauss_hermite(approx, 20)
    assert abs(found.value - exact) < found.truncation < 0.1 * found.correction
    assert abs(found.value - exact) < abs(approx.log_evidence - exact) / 20


def test_the_error_falls_with_the_square_of_the_number_of_data():
    """Stirling's formula for N!, which is off by 1/(12 N), and corrected by 1/(360 N^3); of a coin by 1/N^2."""

    def errors(scale):
        approx = fit(beta, 0.1, 3.0 * scale, 2.0 * scale)
        exact = betaln(3.0 * scale, 2.0 * scale)
        return abs(approx.log_evidence - exact), abs(lb.corrected_evidence(approx).value - exact)

    slopes = np.log2(np.array(errors(4.0)) / np.array(errors(8.0)))
    assert slopes[0] == pytest.approx(1, abs=0.01)
    assert slopes[1] > 1.9
    few, many = (float(corrected(gamma, 0.1, n).value - gammaln(n)) for n in (4.0, 8.0))
    assert few / many == pytest.approx(8, rel=0.05)


SCALES = {
    "Beta": (beta, 0.1, (2.0, 1.0), betaln(2, 1)),
    "half-arcsine": (beta, 0.1, (0.5, 0.5), betaln(0.5, 0.5)),
    "exponential": (gamma, 0.1, (1.0,), 0.0),
    "heavy tails": (student, 0.1, (5.0,), np.log(5 * np.pi) / 2 + gammaln(2.5) - gammaln(3)),
    "five heavy tails": (
        student,
        np.full(5, 0.1),
        (50.0,),
        5 / 2 * np.log(50 * np.pi) + gammaln(25) - gammaln(27.5),
    ),
    "terms that cancel": (quartic, 0.01, (0.2, 0.1), None),
    "a kink": (huber, 0.1, (1.0,), None),
}


@pytest.mark.parametrize("name", SCALES)
def test_the_truncation_is_the_scale_of_what_is_left_out(name):
    density, start, args, exact = SCALES[name]
    if exact is None:
        kinks = {"points": [-1, 0, 1]}
        exact = np.log(integrate.quad(lambda x: np.exp(density(x, *args)), -30, 30, **kinks)[0])
    found = corrected(density, start, *args)
    assert found.truncation >= found.correction**2
    assert abs(found.value - exact) <= 1.05 * found.truncation


def test_what_cancels_is_seen_by_the_lines():
    """The square of the correction would say that nothing is left out, where a tenth of a nat is."""
    found = corrected(quartic, 0.01, 0.2, 0.1)
    assert abs(found.correction) < 1e-6
    assert found.truncation == pytest.approx(0.1036, abs=2e-4)


@pytest.mark.parametrize(
    ("density", "start", "args"),
    [
        (quartic, 0.01, (0.5, 0.3)),  # a correction of 0.98, where the whole is -0.18
        (lambda x: jnp.logaddexp(-((x - 2) ** 2) / 2, -((x + 2) ** 2) / 2), 2.0, ()),
        (student, np.full(5, 0.1), (3.0,)),
        (huber, 0.1, (0.3,)),
    ],
)
def test_what_is_not_small_is_refused(density, start, args):
    with pytest.raises(lb.LaplaceError, match=r"more than 0\.5(.|\n)*importance_sampling"):
        corrected(density, start, *args)


def test_what_is_not_small_is_nan_within_a_program():
    found = jax.jit(lb.corrected_evidence)(fit(quartic, 0.01, 0.5, 0.3))
    assert np.isnan([found.value, found.correction, found.truncation]).all()


def test_a_refusal_begins_at_half_a_nat(monkeypatch):
    approx = fit(quartic, 0.01, 0.2, 0.1)
    for most, small in ((0.1034, False), (0.1037, True)):
        monkeypatch.setattr(module, "LARGEST", most)
        assert np.isfinite(jax.jit(lambda a: lb.corrected_evidence(a).value)(approx)) == small


def of_gamma(n):
    found = lb.corrected_evidence(lb.laplace_of_density(gamma, 0.1, n, throw=False))
    return found.correction, found


def test_within_transformations():
    """Stirling's series: 1/(12 n), of which the derivative is known."""
    both = jax.jit(jax.vmap(jax.value_and_grad(of_gamma, has_aux=True)))
    (_, found), slopes = both(jnp.array([1.0, 4.0, jnp.nan]))
    assert found.correction[:2] == pytest.approx(1 / np.array([12.0, 48.0]))
    assert slopes[:2] == pytest.approx(-1 / np.array([12.0, 192.0]))
    assert np.isnan([found.value[2], found.correction[2], found.truncation[2]]).all()


def test_single_precision_has_four_digits():
    with single_precision():
        found = corrected(beta, np.float32(0.01), 10.0, 3.0)
    assert found.value.dtype == np.float32
    assert found.correction == pytest.approx(0.0297, abs=2e-4)


def by_total(level, total, number, constant):
    """The log joint of counts with a rate of exp(level), of which the data tell the total."""
    return total * level - number * jnp.exp(level) - level**2 / 50 - constant


def test_rounding_counts_in_single_precision():
    """Of 300,000 counts the log joint is -579,000, of which single precision drops a fifth of a nat."""

    def model(y):
        level = numpyro.sample("level", dist.Normal(0, 5))
        numpyro.sample("y", dist.Poisson(jnp.exp(level)).expand([y.size]).to_event(1), obs=y)

    number, errors, told = 300_000, [], []
    for seed in (1, 2, 3):  # what is dropped of one set is chance
        y = np.random.default_rng(seed).poisson(3.0, number).astype(np.float32)
        constant = gammaln(y + 1.0).sum() + np.log(5 * np.sqrt(2 * np.pi))
        exact = corrected(by_total, 1.0, y.sum(dtype=float), float(number), constant)
        with single_precision():
            found = lb.corrected_evidence(lb.laplace(model, y))
        errors.append(abs(float(found.value) - float(exact.value)))
        told.append(float(found.truncation))
        assert errors[-1] < told[-1]
        assert exact.truncation < 1e-6
    # JAX 0.12 adds up with less rounding than is told.
    least, most = (3e-7, 2) if jax.__version_info__ < (0, 12) else (1e-7, 3)
    assert least * abs(exact.value) < max(errors)
    assert max(told) < most * max(errors)


def test_where_rounding_is_all_double_precision_is_advised():
    with single_precision():
        approx = lb.laplace_of_density(lambda x: -(x**2) / 2 - 2e6, np.float32(0.1))
        with pytest.raises(lb.LaplaceError, match=r"(?s)more than 0\.5.*enable_x64"):
            lb.corrected_evidence(approx)


def test_a_mixture_of_one_has_what_the_fit_has():
    assert lb.corrected_evidence(lb.mixture(flights())).value == pytest.approx(
        float(lb.corrected_evidence(flights()).value)
    )


def test_what_is_no_sum_of_gaussians_is_refused():
    with pytest.raises(TypeError, match=r"Approximation is neither: pass the fit that it was made"):
        lb.corrected_evidence(lb.skewed(fit(beta, 0.1, 10.0, 3.0)))


def test_the_print_has_as_many_digits_as_are_known():
    found = corrected(beta, 0.01, 10.0, 3.0)
    assert repr(found) == "-6.4921, corrected by 0.0297; leaves out about 0.0009"
    assert repr(lb.Corrected(1.23456789, 0.1, 3e-7)).startswith("1.2345679, corrected by 0.1000000")
    assert repr(jax.vmap(lambda x: lb.Corrected(x, x, x))(jnp.ones(2))).startswith(
        "Corrected(value=[1"
    )


def test_the_lines_average_polynomials_of_normal_numbers():
    for dimension in (1, 3, 50):
        units, radii, weights = _rule(dimension, "float64")
        lengths = np.linalg.norm(units, axis=1)
        assert lengths == pytest.approx(np.ones(len(units)))
        assert weights @ radii**6 == pytest.approx(dimension * (dimension + 2) * (dimension + 4))
        z = units[:, None] * radii[:, None]
        assert np.einsum("r,kri,krj->ij", weights, z, z) / len(units) == pytest.approx(
            np.eye(dimension)
        )


def many(size):
    return lb.laplace_of_density(lambda x: -jnp.sum(x**2) / 2, np.full(size, 0.1))


def test_fifty_coordinates_and_no_more():
    found = lb.corrected_evidence(many(50))
    assert found.correction == pytest.approx(0, abs=1e-12)
    assert found.truncation < 1e-9
    with pytest.raises(
        lb.UnsupportedModel, match=r"D = 51 is above 50\.(.|\n)*importance_sampling"
    ):
        lb.corrected_evidence(many(51))


def test_another_precision_than_the_whole_hessian_is_refused():
    diagonal = replace(
        flights(),
        precision=lb.DiagonalPrecision(jnp.ones(3)),
        settings=Settings("hessian", "diagonal"),
    )
    for approx in (diagonal, replace(flights(), settings=Settings("empirical_fisher"))):
        with pytest.raises(lb.UnsupportedModel, match=r"not\s+the\s+whole\s+Hessian"):
            lb.corrected_evidence(approx)


def test_a_sparse_hessian_is_whole():
    sparse = lb.laplace(logistic, FEATURES, LABELS, structure="sparse")
    found, expected = (lb.corrected_evidence(approx) for approx in (sparse, flights()))
    assert found.value == pytest.approx(float(expected.value))
    assert found.truncation == pytest.approx(float(expected.truncation))


def test_what_has_no_evidence_is_refused():
    with pytest.raises(lb.UnsupportedModel, match="left out"):
        lb.corrected_evidence(lb.maximum_likelihood(logistic, FEATURES, LABELS))
    with pytest.raises(lb.LaplaceError, match="The fit failed"):
        lb.corrected_evidence(lb.laplace_of_density(beta, 0.1, *np.full(2, np.nan), throw=False))
    with pytest.raises(lb.LaplaceError, match="chunks of data"):
        lb.corrected_evidence(lb.laplace_of_chunks(logistic, lb.Chunks(FEATURES, LABELS, size=30)))


@jax.custom_vjp
def one(x):
    """Of which JAX has no forward derivative."""
    return jnp.ones_like(x)


one.defvjp(lambda x: (one(x), None), lambda _, t: (t,))


@jax.custom_jvp
def slope(x):
    return x


slope.defjvp(lambda x, t: (x[0], one(x[0]) * t[0]))


@jax.custom_jvp
def half_a_square(x):
    return x**2 / 2


half_a_square.defjvp(lambda x, t: (half_a_square(x[0]), slope(x[0]) * t[0]))


def test_what_jax_can_differentiate_only_twice_is_refused():
    approx = lb.laplace_of_density(lambda x: -half_a_square(x), 0.1)
    with pytest.raises(lb.UnsupportedModel, match="cannot differentiate the log joint four times"):
        lb.corrected_evidence(approx)


def test_a_model_that_is_undefined_on_a_line_is_refused():
    def model(y):
        slope = numpyro.sample("slope", dist.Normal(1, 1))
        numpyro.sample("y", dist.Normal(0, slope), obs=y)

    with pytest.raises(lb.NonFinite, match="6 of 16 points on lines"):
        lb.corrected_evidence(lb.laplace(model, 1.0))
