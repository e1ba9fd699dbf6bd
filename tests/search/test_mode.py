"""The search for the mode, against SciPy and on the problems that break searches."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import potential_energy
from scipy import optimize

import laplacebook as lb
import laplacebook.search.mode
from laplacebook.search.lbfgs import newton_step
from laplacebook.search.mode import find_mode
from tests.by_hand import agrees
from tests.models import normal


def rosenbrock(x):
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def poisson(x):
    features = jnp.array(np.random.default_rng(0).normal(size=(30, 3)))
    counts = jnp.array(np.random.default_rng(1).poisson(2.0, 30))
    return jnp.sum(jnp.exp(features @ x) - counts * (features @ x)) + x @ x / 200


def student(x):
    return jnp.sum(2.5 * jnp.log1p((x - jnp.array([0.0, 1.0, 1.5])) ** 2 / 4))


def network(p):
    """A regression with ten hidden units: saddles, and curved valleys between equal modes."""
    features = jnp.array(np.random.default_rng(2).normal(size=(40, 2)))
    a, b, v = p[:20].reshape(2, 10), p[20:30], p[30:40]
    residual = jnp.tanh(features @ a + b) @ v - jnp.sin(features @ jnp.array([1.0, 2.0]))
    return 50 * jnp.sum(residual**2) + p @ p / 2


def counts(x):
    """Poisson counts of millions: f is a difference of terms of 10^10, and known to a few digits."""
    features = jnp.array(np.random.default_rng(3).normal(size=(50, 20)))
    y = jnp.array(np.random.default_rng(4).poisson(1e7, 50))
    rate = 16 + 0.1 * features @ x
    return jnp.sum(jnp.exp(rate) - y * rate) + x @ x / 2


def robust(x):
    """A regression with Student-t noise: not convex away from the mode."""
    features = jnp.array(np.random.default_rng(5).normal(size=(100, 30)))
    y = jnp.array(np.random.default_rng(6).standard_t(2, 100))
    return jnp.sum(2 * jnp.log1p((y - features @ x) ** 2 / 3)) + x @ x / 20


def quadratic(x):
    a = jnp.diag(10.0 ** jnp.arange(-6, 6, 2)) + 1e-7
    return (x - 1) @ a @ (x - 1) / 2


#: function, start
PROBLEMS = {
    "rosenbrock": (rosenbrock, np.array([-1.2, 1.0])),
    "rosenbrock, far": (rosenbrock, np.array([30.0, -40.0])),
    "poisson, far": (poisson, np.array([8.0, -8.0, 8.0])),
    "student, far": (student, np.array([50.0])),
    "quadratic": (quadratic, np.full(6, 100.0)),
    "network": (network, 0.3 * np.random.default_rng(7).normal(size=40)),
    "network, all zero": (network, np.zeros(40)),
    "counts": (counts, np.zeros(20)),
    "robust": (robust, np.zeros(30)),
    "robust, far": (robust, np.full(30, 20.0)),
}


@cache
def compiled(f):
    """A function with its gradient, and its Hessian, for SciPy, which calls them many times."""
    return jax.jit(jax.value_and_grad(f)), jax.jit(jax.hessian(f))


@cache
def searched(f, method):
    """By one of ``METHODS``, which is to be set."""
    return jax.jit(lambda x: find_mode(lambda x: (f(x), ()), x))


search = jax.jit(find_mode, static_argnums=0)

#: from how many coordinates on the search goes without a Hessian until the end
METHODS = {"with Hessians": 3000, "without": 0}
WITHOUT = ("rosenbrock", "rosenbrock, far", "network", "network, all zero")


@pytest.mark.parametrize(
    ("problem", "method"),
    [(problem, "with Hessians") for problem in PROBLEMS]
    + [(problem, "without") for problem in WITHOUT],
)
def test_finds_what_scipys_trust_exact_finds(problem, method, monkeypatch):
    monkeypatch.setattr(laplacebook.search.mode, "MANY", METHODS[method])
    f, start = PROBLEMS[problem]
    mode = searched(f, method)(jnp.asarray(start))
    both, hessian = compiled(f)
    theirs = optimize.minimize(
        both, np.asarray(mode.point) + 1e-3, jac=True, hess=hessian, method="trust-exact", tol=1e-10
    )
    assert mode.certificate.converged
    point, curvature, exact = map(np.asarray, (mode.point, mode.curvature, hessian(mode.point)))
    deviations = np.sqrt(np.diag(np.linalg.inv(curvature)))
    assert np.abs((theirs.x - point) / deviations).max() < 1e-6
    np.testing.assert_allclose(curvature, exact, rtol=1e-12, atol=1e-12 * np.max(exact))


def test_a_saddle_does_not_hold_the_search():
    def f(x):
        return x[0] ** 4 / 4 - x[0] ** 2 / 2 + x[1] ** 2, ()

    mode = search(f, jnp.zeros(2))
    assert mode.certificate.converged
    assert abs(mode.point[0]) == pytest.approx(1, abs=1e-8)


def test_far_out_on_a_flat_tail_nothing_is_certified():
    """At -60 the slope of exp(x) is below the tolerance, the mode of exp(x) is at -infinity."""
    mode = search(lambda x: (jnp.exp(x[0]), ()), jnp.array([-60.0]))
    assert not mode.certificate.converged


@pytest.mark.parametrize(
    "rise", [lambda up: 10 * jnp.maximum(up, 0), lambda up: 5.0 * (up > 1e-6)], ids=["kink", "jump"]
)
def test_a_kink_or_a_jump_at_the_start_is_no_mode(rise):
    def f(x, sign):
        return x[0] ** 2 / 2 - rise(sign * x[0]), ()

    for sign in (-1.0, 1.0):
        mode = search(f, jnp.zeros(1), sign)
        assert not (mode.certificate.converged and abs(mode.point[0]) < 1e-3)


@pytest.mark.parametrize("unit", [1e-5, 1e-2, 1.0, 1e2, 1e5])
def test_the_answer_does_not_depend_on_units(unit):
    y = np.random.default_rng(0).normal(3, 1, size=50)
    reference, scaled = lb.laplace(normal, y, 1e8, 1e8), lb.laplace(normal, unit * y, 1e8, 1e8)
    assert scaled.mode["mean"] == pytest.approx(unit * float(reference.mode["mean"]), rel=1e-6)
    assert scaled.mode["sd"] == pytest.approx(unit * float(reference.mode["sd"]), rel=1e-6)
    scale = 1 / np.sqrt(np.diag(reference.covariance)) / np.array([unit, 1])
    correlation = scale[:, None] * scaled.covariance * scale
    np.testing.assert_allclose(correlation, np.eye(2), atol=1e-6)


def test_mixed_units_in_one_model():
    features = np.random.default_rng(0).normal(size=(40, 2)) * np.array([1e5, 1e-5])
    y = features @ np.array([2e-5, 3e5])

    def model(y):
        w = numpyro.sample("w", dist.Normal(0, np.array([1.0, 1e7])).to_event(1))
        numpyro.sample("y", dist.Normal(features @ w, 0.1).to_event(1), obs=y)

    approx = lb.laplace(model, y)
    np.testing.assert_allclose(approx.mode["w"], [2e-5, 3e5], rtol=1e-3)
    assert approx.certificate.condition_number < 10


def test_the_certificate_is_the_distance_in_standard_deviations():
    """Stopped by hand: one Newton step of a quadratic from one standard deviation away."""
    a = jnp.array([[4.0, 1.0], [1.0, 3.0]])
    mode = search(lambda x: (x @ a @ x / 2, ()), jnp.array([1.0, -2.0]))
    assert mode.certificate.newton_decrement < 1e-8
    assert mode.certificate.iterations <= 4  # the start, the step, a look on either side
    scaled = np.array([[1, 1 / np.sqrt(12)], [1 / np.sqrt(12), 1]])
    assert mode.certificate.condition_number == pytest.approx(np.linalg.cond(scaled))


def test_certificate_repr():
    def f(x, bend):
        return bend * x @ x + x[0], ()

    certified, failed = (search(f, jnp.ones(2), bend).certificate for bend in (1.0, 0.0))
    assert repr(certified).startswith("mode certified: Newton decrement ")
    assert repr(failed).startswith("NO MODE")


def test_a_newton_step_without_the_matrix():
    f, x = robust, jnp.full(30, 0.05)
    both, hessian_at = compiled(f)
    gradient, hessian = np.asarray(both(x)[1]), np.asarray(hessian_at(x))
    step, decrement = jax.jit(newton_step, static_argnums=0)(f, x)
    error = step + np.linalg.solve(hessian, gradient)
    assert np.sqrt(error @ hessian @ error) < 1e-3 * decrement
    assert decrement == pytest.approx(np.sqrt(gradient @ np.linalg.solve(hessian, gradient)), 1e-6)

    @jax.jit
    def decrement_of_parabola(bend, x):
        return newton_step(lambda x: bend * x @ x, x)[1]

    assert decrement_of_parabola(-1.0, np.ones(2)) == np.inf
    assert decrement_of_parabola(1.0, np.zeros(2)) == 0


def kinked(x):
    return jnp.sum(x**2 / 2 + 2 * jnp.abs(x - 0.3)), ()


@pytest.mark.parametrize("start", [-1.0, 0.5, 1.0])
def test_a_kink_at_the_end_of_the_search_is_no_mode(start):
    """|x - 0.3| has its minimum at a kink; SciPy would return it, with whatever Hessian."""
    assert not search(kinked, jnp.full(3, start)).certificate.converged


def test_what_the_coordinates_cannot_resolve_is_said():
    """At 2^40 float64 moves in steps of 0.0002: with a standard deviation of 1 that is the accuracy."""

    def f(x, mean):
        return jnp.sum((x - mean) ** 2) / 2, ()

    far, farther = (search(f, jnp.zeros(1), mean).certificate for mean in (2.0**40, 2.0**50))
    assert far.converged
    assert 1e-4 < far.newton_decrement < 1e-3
    assert not farther.converged


def test_nearly_singular_is_not_certified():
    """Rounding in a sum over many rows leaves a collinear direction a curvature of either sign."""

    def squares(w, X, y):
        return jnp.sum((y - X @ w) ** 2) / 2, ()

    for seed in range(8):
        rng = np.random.default_rng(seed)
        features = rng.normal(size=(20_000, 2))
        features = jnp.array(np.c_[features, features @ rng.normal(size=2)])
        y = features[:, 0] + rng.normal(size=20_000)
        mode = search(squares, jnp.zeros(3), features, y)
        assert not mode.certificate.converged
        assert mode.certificate.condition_number == np.inf


def branching(features, y):
    """A regression with a branch whose sides must have one precision."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([features.shape[1]]).to_event(1))
    bent = jnp.tanh(w[0])
    shift = jax.lax.cond(w[1] > 100, lambda: jnp.zeros(()), lambda: bent)
    numpyro.sample("y", dist.Normal(features @ w + shift, 1).to_event(1), obs=y)


def test_a_model_of_double_precision_is_run_in_no_other():
    """Beside NumPyro's own log density: in single precision this model cannot be evaluated."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 20))
    args = features, features[:, 0] + rng.normal(size=60)
    agrees(branching, args, lambda u: -potential_energy(branching, args, {}, {"w": u}), 20)
