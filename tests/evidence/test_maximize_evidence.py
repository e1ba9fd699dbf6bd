"""Hyperparameters by the evidence: against the exact evidence, finite differences and each other."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.optimize import brentq, minimize, minimize_scalar
from scipy.stats import multivariate_normal

import laplacebook as lb
from laplacebook.curvature.precision_at import low_rank_at, precision_at
from laplacebook.curvature.settings import Settings
from laplacebook.evidence.ascent import Peak, explain_no_maximum
from laplacebook.evidence.evidence_at_fixed_mode import (
    Decomposed,
    Recomputed,
    Stored,
    at_fixed_mode,
)
from laplacebook.evidence.hyperparameters import Hyperparameters
from laplacebook.model.density import ModelDensity
from laplacebook.models import bayesian_mlp
from laplacebook.search.certificate import Certificate

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3))
PHI = np.column_stack([X, np.ones(30)])
T = PHI @ [1.0, -0.3, 0.2, 0.5] + 0.3 * RNG.normal(size=30)
START = {"prior_precision": 1.0, "noise_precision": 1.0}


@pytest.fixture(scope="module")
def line():
    """Linear in the features, so that the Laplace evidence is exact."""
    return lb.laplace(bayesian_mlp, X, T, widths=(), **START)


def exact(x):
    """Of t ~ N(0, I/beta + Phi Phi'/alpha), with the sign turned."""
    covariance = np.eye(30) / np.exp(x[1]) + PHI @ PHI.T / np.exp(x[0])
    return -multivariate_normal.logpdf(T, np.zeros(30), covariance)


def test_refitted_it_is_the_maximum_of_the_exact_evidence(line):
    maximum = lb.maximize_evidence(line, START, refit=True)
    best = minimize(exact, [0.0, 0.0], method="BFGS", jac="3-point", options={"gtol": 1e-7})
    alpha, beta = (float(maximum.hyperparameters[name]) for name in START)
    np.testing.assert_allclose([alpha, beta], np.exp(best.x), rtol=1e-6)
    assert maximum.log_evidence == pytest.approx(-best.fun, abs=1e-9)
    assert maximum.approx.log_evidence == pytest.approx(-best.fun, abs=1e-9)
    assert maximum.history[0] == pytest.approx(-exact([0.0, 0.0]), abs=1e-9)
    assert maximum.history[-1] == pytest.approx(-best.fun, abs=1e-6)
    assert np.abs([*maximum.gradient.values()]).max() < 1e-6
    # Bishop (2006), equations 3.92 and 3.95.
    m, gram = np.asarray(maximum.approx.mode_vector), beta * np.linalg.eigvalsh(PHI.T @ PHI)
    gamma = np.sum(gram / (gram + alpha))
    assert alpha == pytest.approx(gamma / float(m @ m), rel=1e-5)
    assert 1 / beta == pytest.approx(np.sum((T - PHI @ m) ** 2) / (30 - gamma), rel=1e-5)
    assert "log evidence -15.2305, -35.9818 at the start" in repr(maximum)
    assert "maximum certified" in maximum._repr_html_()


def test_with_the_mode_held_fixed_it_is_another_maximum_until_it_is_repeated(line):
    approx, found = line, START
    best = np.exp(minimize(exact, [0.0, 0.0], jac="3-point", options={"gtol": 1e-7}).x)
    distances = []
    for _ in range(5):
        maximum = lb.maximize_evidence(approx, found)
        approx, found = maximum.approx, maximum.hyperparameters
        distances.append(np.max(np.abs(np.array([*found.values()]) / best - 1)))
    assert distances[0] > 0.01
    assert distances[-1] < 1e-6


def network(curvature, structure):
    """Seven weights at no mode, which the evidence at a fixed point does not need."""
    density = ModelDensity.of(bayesian_mlp, (X[:, :1], T), {"widths": (2,), "noise_precision": 4.0})
    u = jnp.asarray(np.random.default_rng(1).normal(size=density.dimension))
    settings = Settings(curvature, structure, rank=3 if structure == "low_rank" else None)
    if structure == "low_rank":
        precision = low_rank_at(density, u, 3)
    else:
        precision = jax.jit(lambda d, u: precision_at(d, u, settings))(density, u)
    terms = jax.jit(ModelDensity.terms)(density, u)
    sound = Certificate(jnp.array(True), jnp.array(0.0), jnp.array(1), jnp.array(1.0))
    parts = terms.log_likelihood, terms.log_prior
    return lb.LaplaceApproximation(
        terms.values, u, precision, *parts, sound, density, settings=settings
    )


SITES = np.repeat(range(4), [2, 2, 2, 1])


def curvature_of_network(u, curvature, structure):
    """Of the likelihood, for a noise precision of 1: what a structure keeps of a sum over rows."""
    w, b, v, c = (np.asarray(u)[site == SITES] for site in range(4))
    hidden = np.tanh(X[:, :1] * w + b)
    inner = (1 - hidden**2) * v
    slopes = np.hstack([X[:, :1] * inner, inner, hidden, np.ones((30, 1))])
    residuals = T - hidden @ v - c
    if curvature == "empirical_fisher":
        slopes *= residuals[:, None]
    whole = slopes.T @ slopes
    if structure == "kronecker":
        whole[:2, :2] = (X[:, 0] @ X[:, 0] / 30) * inner.T @ inner
    kept = {"dense": 1, "diagonal": np.eye(7)}.get(structure, SITES[:, None] == SITES)
    return whole * kept, residuals


def by_hand(u, curvature, structure, prior, noise):
    """The log evidence, and its slope by the logarithms of the prior precision of each weight and of the noise."""
    whole, residuals = curvature_of_network(u, curvature, structure)
    power = 2 if curvature == "empirical_fisher" else 1
    scaled, misfit = noise**power * whole, noise * residuals @ residuals
    inverse = np.linalg.inv(scaled + np.diag(prior))
    value = 15 * np.log(noise / (2 * np.pi)) - misfit / 2 + (np.log(prior) - prior * u**2).sum() / 2
    by_prior = (1 - prior * u**2 - prior * np.diag(inverse)) / 2
    by_noise = 15 - misfit / 2 - power * np.sum(inverse * scaled) / 2
    return value + np.linalg.slogdet(inverse)[1] / 2, by_prior, by_noise


def objective(approx, start):
    names, x = Hyperparameters.of(approx.density, start)
    return at_fixed_mode(approx, names, x), names, x


@jax.jit
def value_and_slope(objective, x, u):
    """Compiled, and of both at once: op by op, every operation is one to compile."""
    (value, _), slope = jax.value_and_grad(objective, has_aux=True)(x, u)
    return value, slope


TWO = {"prior_precision": 0.3, "noise_precision": 2.0}
FOR_EACH_LAYER = {"prior_precision": [0.5, 2.0]}
#: hyperparameters, curvature, structure, and how the evidence is had at each step
FAST = {
    "dense": (TWO, "gauss_newton", "dense", Decomposed),
    "diagonal": (TWO, "gauss_newton", "diagonal", Decomposed),
    "kronecker": (TWO, "gauss_newton", "kronecker", Decomposed),
    "fisher": (TWO, "empirical_fisher", "block", Decomposed),
    # The matrix of all weights has no one prior precision: it is stored, and factorised anew.
    "dense, for each layer": (FOR_EACH_LAYER, "gauss_newton", "dense", Stored),
}


@pytest.mark.parametrize(("values", "curvature", "structure", "kind"), FAST.values(), ids=FAST)
def test_one_decomposition_gives_what_a_precision_at_each_step_gives(
    values, curvature, structure, kind
):
    approx = network(curvature, structure)
    fast, _, x = objective(approx, values)
    assert isinstance(fast, kind)
    value, slope = value_and_slope(fast, x, approx.mode_vector)
    prior = np.broadcast_to(values["prior_precision"], 2)[SITES // 2]
    given = np.asarray(approx.mode_vector), curvature, structure
    expected, by_prior, by_noise = by_hand(*given, prior, values.get("noise_precision", 4.0))
    assert value == pytest.approx(expected, rel=1e-9)
    by_layer = np.bincount(SITES // 2, by_prior)
    expected_slope = [by_prior.sum(), by_noise] if values is TWO else by_layer
    np.testing.assert_allclose(slope, expected_slope, rtol=1e-9, atol=1e-9)


def test_low_rank_keeps_its_eigenvectors_and_refuses_what_would_change_them():
    approx = network("gauss_newton", "low_rank")
    fast, _, x = objective(approx, {"prior_precision": 0.3})
    u = np.asarray(approx.mode_vector)
    whole, residuals = curvature_of_network(u, "gauss_newton", "dense")
    largest = 4 * np.linalg.eigvalsh(whole)[-3:]
    log_joint = (
        15 * np.log(2 / np.pi) - 2 * residuals @ residuals + 3.5 * np.log(0.3) - 0.15 * u @ u
    )
    expected = log_joint - np.log(largest + 0.3).sum() / 2 - 2 * np.log(0.3)
    value, _ = value_and_slope(fast, x, approx.mode_vector)
    assert value == pytest.approx(expected, rel=1e-9)
    with pytest.raises(lb.UnsupportedModel, match="low_rank"):
        objective(approx, {"prior_precision": [1.0, 2.0]})
    with pytest.raises(ValueError, match="low_rank"):
        lb.maximize_evidence(approx, START, refit=True)


def counts(y, prior_precision=1.0, power=1.0):
    """A rate of which the curvature depends on the mode; one argument scales no curvature."""
    theta = numpyro.sample("theta", dist.Normal(0.0, prior_precision**-0.5))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Poisson(jnp.exp(power * theta)), obs=y)


COUNTS = np.array([3.0, 1.0, 4.0, 2.0])


@pytest.fixture(scope="module")
def rate():
    return lb.laplace(counts, COUNTS)


def test_where_the_curvature_depends_on_the_mode_refitting_ends_elsewhere(rate):
    """With A = p + N e^theta: the maximum of the Laplace evidence, and MacKay's fixed point."""

    def mode(p):
        return brentq(lambda t: p * t + 4 * np.exp(t) - COUNTS.sum(), -5, 5, xtol=1e-14)

    def loss(x):
        p, t = np.exp(x), mode(np.exp(x))
        log_joint = COUNTS.sum() * t - 4 * np.exp(t) - p * t**2 / 2 + np.log(p) / 2
        return -log_joint + np.log(p + 4 * np.exp(t)) / 2

    def slope(x):
        p, t = np.exp(x), mode(np.exp(x))
        return 1 - p * t**2 - p / (p + 4 * np.exp(t))

    best = np.exp(minimize_scalar(loss, bracket=(-1, 0.5), tol=1e-12).x)
    fixed = np.exp(brentq(slope, -2, 2, xtol=1e-14))
    assert abs(best / fixed - 1) > 0.01
    refitted = lb.maximize_evidence(rate, {"prior_precision": 1.0}, refit=True)
    assert refitted.hyperparameters["prior_precision"] == pytest.approx(best, rel=1e-6)
    approx, found = rate, {"prior_precision": 1.0}
    for _ in range(10):
        maximum = lb.maximize_evidence(approx, found)
        approx, found = maximum.approx, maximum.hyperparameters
    assert found["prior_precision"] == pytest.approx(fixed, rel=1e-6)


def test_where_nothing_scales_the_curvature_is_recomputed(rate):
    gauss_newton = replace(rate, settings=Settings("gauss_newton"))
    still, names, x = objective(gauss_newton, {"power": 1.0})
    assert isinstance(still, Recomputed)
    assert isinstance(objective(gauss_newton, {"prior_precision": 1.0})[0], Decomposed)
    exact = Recomputed(rate.density, names, rate.settings)
    for at in (still, exact):
        (value, slope), (ahead, _), (behind, _) = (
            value_and_slope(at, x + h, rate.mode_vector) for h in (0.0, 1e-5, -1e-5)
        )
        assert value == pytest.approx(float(rate.log_evidence), rel=1e-12)
        assert slope[0] == pytest.approx(float(ahead - behind) / 2e-5, rel=1e-6)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"precision": 1.0}, "no keyword argument 'precision'; it has: y, prior_precision, power"),
        ({"prior_precision": 0.0}, "must be a positive number"),
        ({"prior_precision": [1.0, np.nan]}, "must be a positive number"),
        ({}, "is empty"),
    ],
)
def test_what_cannot_be_maximised_over(rate, values, message):
    with pytest.raises(ValueError, match=message):
        lb.maximize_evidence(rate, values)


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(
    "wrong", ["1.0", ["a", "b"], 1j, object(), [[1.0], [1.0, 2.0]], np.datetime64("2020-01-01")]
)
def test_what_is_no_number_is_refused(rate, wrong):
    with pytest.raises(TypeError, match=r"prior_precision must be a positive number, or an array"):
        lb.maximize_evidence(rate, {"prior_precision": wrong})


def test_a_fit_or_values_within_a_compiled_program_are_refused(rate):
    with pytest.raises(ValueError, match="looks at numbers"):
        jax.jit(lambda x: lb.maximize_evidence(rate, {"prior_precision": x}))(1.0)
    with pytest.raises(ValueError, match="cannot be compiled"):
        jax.jit(lambda y: lb.maximize_evidence(lb.laplace(counts, y), {"power": 1.0}))(COUNTS)


def test_evidence_that_rises_without_end_is_no_maximum():
    """With a sum of 4 of 4 Poisson counts the mode is zero, and the narrower the prior the better."""
    approx = lb.laplace(counts, np.ones(4), 0.5)
    with pytest.raises(lb.NotConverged, match="prior_precision goes to infinity"):
        lb.maximize_evidence(approx, {"prior_precision": 0.5})
    lost = lb.maximize_evidence(approx, {"prior_precision": 0.5}, throw=False)
    assert not lost.converged and "NO MAXIMUM" in repr(lost)
    numbers = [lost.log_evidence, lost.approx.log_evidence, lost.hyperparameters["prior_precision"]]
    assert np.all(np.isnan(numbers))
    with pytest.raises(lb.NotConverged, match="The fit failed"):
        lb.maximize_evidence(lost.approx, {"prior_precision": 0.5})


def two_variances(y, tau=1.0, sigma=1.0):
    """One observation of each effect, which tells the sum of the variances alone."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    with numpyro.plate("groups", y.shape[0]):
        effects = numpyro.sample("effects", dist.Normal(mu, tau))
        with numpyro.plate("repeats", y.shape[1], dim=-2):
            numpyro.sample("y", dist.Normal(effects, sigma), obs=y.T)


def test_hyperparameters_that_the_data_do_not_tell_apart():
    """The evidence is level along a circle, and its Hessian there is rounding, of either sign."""
    y = np.random.default_rng(3).normal(1, 2, (12, 1))
    for start in np.array([[1.0, 1.0], [1.0, 3.0], [2.0, 0.5]]):
        begin = dict(zip(("tau", "sigma"), start, strict=True))
        with pytest.raises(lb.NotConverged, match="does not tell tau and sigma apart"):
            lb.maximize_evidence(lb.laplace(two_variances, y, **begin), begin, refit=True)


def test_a_product_is_told_in_no_precision(rate):
    """Along a straight ridge, of which the error of the differences shows nothing."""
    both = {"prior_precision": 1.0, "copy": 1.0}

    def copied(y, prior_precision=1.0, copy=1.0):
        counts(y, prior_precision * copy)

    for refit in (False, True):
        with pytest.raises(lb.NotConverged, match="does not tell prior_precision and copy apart"):
            lb.maximize_evidence(lb.laplace(copied, COUNTS), both, refit=refit)


def test_a_maximum_of_the_likelihood_is_no_fit():
    with pytest.raises(lb.UnsupportedModel, match="maximum likelihood fit"):
        lb.maximize_evidence(lb.maximum_likelihood(counts, COUNTS), {"power": 1.0})


def test_too_few_steps_and_what_the_model_does_not_use(rate):
    with pytest.raises(
        lb.NotConverged, match=r"(?s)No maximum after 1 of at most 1 steps.*raise steps="
    ):
        lb.maximize_evidence(rate, {"prior_precision": 1.0}, steps=1)
    names = Hyperparameters(("a", "b"), ((), (2,)))
    x, hessian = jnp.zeros(3), np.diag([-1.0, 0.0, -1.0])
    peak = Peak(x, 1.0, np.array([0.0, 0.0, 1e-9]), hessian, np.ones(4), True, np.inf, x, False)
    error = explain_no_maximum(names, x, peak, 100, False, "hessian")
    assert "does not depend on b[0]" in str(error)
    broken = explain_no_maximum(names, x, peak._replace(value=np.nan), 100, False, "hessian")
    assert isinstance(broken, lb.NonFinite)


@pytest.mark.usefixtures("types_unchecked")
def test_arguments_of_another_type(rate):
    with pytest.raises(
        TypeError, match=r"takes what laplace\(...\) returns, not an object of type int"
    ):
        lb.maximize_evidence(3, {"power": 1.0})
    with pytest.raises(TypeError, match="a dict of name -> .* not a list"):
        lb.maximize_evidence(rate, ["power"])
    with pytest.raises(TypeError, match=r"prior_precision must be .* such as \[1\.0, 1\.0\]"):
        lb.maximize_evidence(rate, {"prior_precision": {"a": 1.0, "b": 2.0}})


def test_a_start_where_nothing_depends_on_it_is_told():
    far = {"prior_precision": 1e12, "noise_precision": 1.0}
    fit = lb.laplace(bayesian_mlp, X, T, widths=(), **far)
    with pytest.raises(lb.NotConverged, match="The evidence is level, as far as can be told"):
        lb.maximize_evidence(fit, far, refit=True)


def of_two_modes(y, s):
    x = numpyro.sample("x", dist.Normal(0.5, 3))
    numpyro.sample("y", dist.Normal(x**2, s), obs=y)


def test_a_verdict_on_the_fit_goes_with_its_maximum():
    fit = lb.laplace(of_two_modes, 9.0, 1.0, start={"x": 3.0})
    assert lb.maximize_evidence(fit, {"s": 1.0}, refit=True).doubt is None
    fit.remember("bad: another mode holds more")
    maximum = lb.maximize_evidence(fit, {"s": 1.0}, refit=True)
    told = "the fit that it began at: diagnosed bad: another mode holds more"
    assert maximum.doubt.startswith(told)
    assert f"doubtful: {told}" in repr(maximum)
    maximum.approx.remember("bad: of its own")
    assert maximum.doubt == "diagnosed bad: of its own"
