"""Is the change of a log joint the integral of its slope?"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize, root
from scipy.special import expit

import laplacebook as lb
from laplacebook.gaussian.precision import DensePrecision
from laplacebook.search.follows_gradient import (
    LOBATTO,
    LOOK_NODES,
    NODES,
    fails,
    follows_along,
    follows_finely,
    follows_gradient,
)
from tests.models import coin

#: smooth ones, with their modes at zero: the last is singular at -0.3, or bends within a tenth of
#: the way that is looked at, as separable classes do
SMOOTH = {
    "quadratic": lambda x: x @ x / 2,
    "skewed": lambda x: jnp.sum(jnp.exp(x) - x),
    "heavy tails": lambda x: jnp.sum(2 * jnp.log1p(x**2 / 3)),
    "valley": lambda x: 50 * (x[1] - x[0] ** 2) ** 2 + x @ x / 2,
    "singular": lambda x: jnp.sum(x / 0.3 - jnp.log(x + 0.3)),
    "separable": lambda x: x @ x / 2 + jnp.sum(jax.nn.softplus(-1e3 * x - 15) + 1e3 * SMALL * x),
}
SMALL = expit(-15)
FEATURES = np.array([[1.0, -1.2], [1.0, -0.5], [1.0, 0.3], [1.0, 0.9]])
TARGETS = np.array([0.0, 0.0, 1.0, 1.0])


@partial(jax.jit, static_argnums=0)
def check(f, jump, hidden):
    """Whether it does, with a jump beside the mode and a slope that JAX does not see."""

    def whole(x):
        way = x[0] + x[1] / 7
        return f(x) + jump * (way > 1e-3) + hidden * jax.lax.stop_gradient(way)

    precision = DensePrecision.of(jax.hessian(whole)(jnp.zeros(2)))
    return follows_gradient(whole, jnp.zeros(2), precision, jnp.full(2, 0.3))


@pytest.mark.parametrize("name", SMOOTH)
def test_smooth_ones_do_and_not_with_a_jump_or_a_hidden_slope(name):
    assert check(SMOOTH[name], 0.0, 0.0)
    assert not check(SMOOTH[name], 5.0, 0.0)
    assert not check(SMOOTH[name], 0.0, 50.0)


def test_how_much_of_a_slope_may_be_hidden():
    """Of one standard deviation's way, 0.12 nats, in a parabola of one coordinate."""

    @jax.vmap
    def follows(slope):
        f = lambda x: x @ x / 2 + slope * jax.lax.stop_gradient(x[0])  # noqa: E731
        precision = DensePrecision.of(jnp.eye(1))
        return follows_gradient(f, jnp.zeros(1), precision, jnp.full(1, jnp.inf))

    slopes = np.array([0.25, -0.25, 0.14, -0.14, 0.1, -0.1, 0.0])
    np.testing.assert_array_equal(jax.jit(follows)(slopes), abs(slopes) < 0.12)


@pytest.mark.parametrize(
    ("name", "fail"),
    [
        ("parabola", False),
        ("steep parabola", False),
        ("cubic", False),
        ("quartic", False),
        ("cliff", True),
        ("one side", True),
    ],
)
def test_five_evaluations_are_enough_for_a_parabola(name, fail):
    """The coarse look is what most fits are certified by: the finer one is fifteen times its cost."""
    f = {
        "parabola": lambda t: t**2 / 2,
        "steep parabola": lambda t: 50 * t**2,
        "cubic": lambda t: t**2 / 2 + t**3 / 3,
        "quartic": lambda t: t**2 / 2 + t**4,
        "cliff": lambda t: t**2 / 2 + jnp.where(t > 0.1, 2.0, 0.0),
        "one side": lambda t: t**2 / 2 + 0.9 * jax.lax.stop_gradient(jnp.abs(t)),
    }[name]
    values, slopes = jax.vmap(jax.value_and_grad(f))(jnp.asarray(LOBATTO))
    assert bool(fails(values, slopes)) == fail
    assert bool(fails(np.asarray(values), np.asarray(slopes))) == fail


def bent(x, steep, place, jump, hidden):
    """A parabola with a bend, a jump beyond it and a slope that JAX does not see."""
    smooth = x @ x / 2 + jax.nn.softplus(steep * (x[0] - place)) / 5
    return smooth + jump * (x[0] > place) + hidden * jax.lax.stop_gradient(x[0])


def test_panel_by_panel_says_what_all_nodes_at_once_say():
    """Under vmap too, where one lane is looked at finely and its neighbour is not."""
    rng = np.random.default_rng(3)
    steep, place = 10 ** rng.uniform(0, 3, 200), rng.uniform(-1, 1, 200)
    jump, hidden = rng.choice([0, 0, 0.05, 0.3, 2.0], 200), rng.choice([0, 0, 0.2, -0.4], 200)
    lanes = [jnp.asarray(x) for x in (steep, place, jump, hidden)]
    nowhere, ahead = jnp.zeros(1), jnp.ones(1)

    def in_panels(*lane):
        return follows_along(lambda x: bent(x, *lane), nowhere, ahead)

    def at_all_nodes(*lane):
        each = jax.vmap(jax.value_and_grad(lambda t: bent(t * ahead, *lane)))
        values, slopes = each(jnp.asarray(NODES))
        coarse = ~fails(values[:LOOK_NODES], slopes[:LOOK_NODES])
        return coarse, follows_finely(values[LOOK_NODES:], slopes[LOOK_NODES:])

    coarse, finely = jax.vmap(at_all_nodes)(*lanes)
    assert {(False, False), (False, True), (True, True)} <= set(
        zip(coarse.tolist(), finely.tolist(), strict=True)
    )
    np.testing.assert_array_equal(jax.vmap(in_panels)(*lanes), coarse | finely)
    one_by_one = [jax.jit(in_panels)(*lane) for lane in zip(*lanes, strict=True)]
    np.testing.assert_array_equal(one_by_one, coarse | finely)


@pytest.mark.parametrize("heads", [0, 1, 9])
def test_near_the_end_of_an_interval_it_stays_within(heads):
    tosses = np.repeat([1.0, 0.0], [heads, 9 - heads])
    approx = lb.laplace(coin, tosses, space="constrained")
    assert approx.mode["theta"] == pytest.approx((1 + heads) / 11)


def log_evidence(scale):
    """Laplace's log evidence for the separable data, with a prior N(0, scale^2 I), by SciPy."""

    def loss(w):
        a = FEATURES @ w
        return w @ w / (2 * scale**2) + np.sum(np.logaddexp(0, a) - TARGETS * a)

    def gradient(w):
        return w / scale**2 + FEATURES.T @ (expit(FEATURES @ w) - TARGETS)

    def hessian(w):
        y = expit(FEATURES @ w)
        return np.eye(2) / scale**2 + (FEATURES.T * y * (1 - y)) @ FEATURES

    near = minimize(loss, np.zeros(2), method="trust-exact", jac=gradient, hess=hessian).x
    mode = root(gradient, near, jac=hessian, tol=1e-14).x
    return -loss(mode) - 2 * np.log(scale) - np.log(np.linalg.det(hessian(mode))) / 2


def test_separable_classes_have_a_mode_under_a_wide_prior():
    """Most of the rise of the loss is within a hundredth of a standard deviation, on one side."""

    def fitted(scale):
        covariance = scale**2 * jnp.eye(2)
        return lb.laplace(
            lb.models.logistic_regression, FEATURES, TARGETS, prior_covariance=covariance
        ).log_evidence

    scales = np.array([1.0, 100.0, 1e4])
    values, slopes = jax.vmap(jax.value_and_grad(fitted))(scales)
    np.testing.assert_allclose(values, [log_evidence(s) for s in scales], rtol=1e-8)
    steps = [log_evidence(1.001 * s) - log_evidence(s / 1.001) for s in scales]
    np.testing.assert_allclose(slopes * scales, np.array(steps) / np.log(1.001**2), rtol=1e-4)
