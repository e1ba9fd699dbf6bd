"""A Gaussian made skew by third derivatives, beside posteriors that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats
from scipy.special import expit

import laplacebook as lb
from laplacebook.beyond.skewed import _third

KEY = jax.random.key(0)


def coin(y, n):
    theta = numpyro.sample("theta", dist.Beta(1, 1))
    numpyro.sample("y", dist.Binomial(n, theta), obs=y)


def of_beta(a, b):
    """The fit of which the posterior is Beta(a, b)."""
    return lb.laplace(coin, a - 1, a + b - 2)


def in_the_logit(a, b, approx):
    """Points, and the exact density and that of the approximation there."""
    u = np.linspace(-12, 14, 20_001)
    exact = stats.beta(a, b).pdf(expit(u)) * expit(u) * expit(-u)
    log_density = jax.jit(jax.vmap(approx.log_density))
    density = np.exp(np.asarray(log_density(u[:, None])))
    return u, exact, density


def test_the_coin_is_nearer_by_half():
    """Beta(10, 3) in the logit, whose mean Laplace puts 0.125 too low."""
    gaussian = of_beta(10.0, 3.0)
    errors = []
    for approx in (gaussian, lb.skewed(gaussian)):
        u, exact, density = in_the_logit(10, 3, approx)
        step = u[1] - u[0]
        assert density.sum() * step == pytest.approx(1, abs=1e-6)
        distance = abs(density - exact).sum() * step / 2
        errors.append((distance, (density - exact) @ u * step))
    assert errors[0] == pytest.approx((0.054, -0.125), abs=0.001)
    assert errors[1] == pytest.approx((0.023, -0.025), abs=0.001)


def test_the_error_falls_as_one_over_n():
    """In total variation, where the Gaussian's falls as its root (Durante, Pozza and Szabo 2024)."""
    sizes = np.array([20.0, 80.0, 320.0])
    found = {"gaussian": [], "skewed": []}
    for n in sizes:
        gaussian = of_beta(0.7 * n, 0.3 * n)
        for name, approx in (("gaussian", gaussian), ("skewed", lb.skewed(gaussian))):
            u, exact, density = in_the_logit(0.7 * n, 0.3 * n, approx)
            found[name].append(abs(density - exact).sum() * (u[1] - u[0]) / 2)
    slopes = {name: np.polyfit(np.log(sizes), np.log(x), 1)[0] for name, x in found.items()}
    assert slopes["gaussian"] == pytest.approx(-0.5, abs=0.05)
    assert slopes["skewed"] == pytest.approx(-1, abs=0.1)


def test_the_third_derivative_is_the_closed_form():
    """Of a t(x) = sum x^3 f''' of independent log-gamma numbers, f''' = e^u."""
    fit = lb.laplace_of_density(lambda u: jnp.sum(3 * u - jnp.exp(u)), jnp.zeros(2))
    way = jnp.array([0.3, -2.0])
    assert float(_third(fit.density, fit.mode_vector, way)) == pytest.approx(
        -3 * float((way**3).sum()), rel=1e-6
    )


def rows(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def test_a_draw_costs_at_most_twenty_log_densities():
    """By the arithmetic that XLA counts."""
    x = np.random.default_rng(0).standard_normal((200, 5))
    fit = lb.laplace(rows, x, x[:, 0] > 0)

    def flops(function, *args):
        found = jax.jit(function).lower(*args).compile().cost_analysis()
        cost = found[0] if isinstance(found, list) else found
        return cost["flops"] + cost.get("transcendentals", 0)

    one = flops(lambda u: fit.density.loss(u)[0], fit.mode_vector)
    third = flops(lambda v: _third(fit.density, fit.mode_vector, v), fit.mode_vector)
    assert third < 20 * one


def test_draws_are_the_same_by_one_key_and_others_by_another():
    approx = lb.skewed(of_beta(10.0, 3.0))
    one, same, other = (approx.sample(jax.random.key(k), (5,))["theta"] for k in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    assert approx.sample(KEY)["theta"].shape == ()
    assert approx.sample(KEY, (0,))["theta"].shape == (0,)


@pytest.mark.parametrize(("a", "b", "refused"), [(1.6, 0.36, True), (1.6, 0.4, False)])
def test_a_cubic_term_that_is_not_small_is_refused(a, b, refused):
    """On both sides of 0.7 nats: 0.75 and 0.68, sqrt(15)/6 (2 theta - 1) (n theta (1 - theta))^(-1/2)."""
    approx = lb.laplace_of_density(lambda u: a * u - (a + b) * jnp.logaddexp(0, u), jnp.zeros(()))
    if refused:
        with pytest.raises(lb.LaplaceError, match=r"(?s)cubic term .* 0\.75 nats.*lb\.resampled"):
            lb.skewed(approx)
    else:
        assert "not small" in lb.skewed(approx).doubt


@pytest.mark.usefixtures("types_unchecked")
def test_what_it_is_no_term_of_is_refused():
    x = np.random.default_rng(0).standard_normal((20, 2))
    y = x[:, 0] > 0
    with pytest.raises(lb.UnsupportedModel, match="structure='diagonal'"):
        lb.skewed(lb.laplace(rows, x, y, structure="diagonal"))
    with pytest.raises(lb.UnsupportedModel, match="curvature='gauss_newton'"):
        lb.skewed(lb.laplace(rows, x, y, curvature="gauss_newton"))
    with pytest.raises(TypeError, match="SkewedApproximation"):
        lb.skewed(lb.skewed(of_beta(10.0, 3.0)))
    batch = jax.vmap(lambda y: lb.laplace(coin, y, 20.0))(jnp.array([5.0, 9.0]))
    with pytest.raises(ValueError, match="batch"):
        lb.skewed(batch)
    with pytest.raises(ValueError, match="cannot be compiled"):
        jax.jit(lambda y: lb.skewed(lb.laplace(coin, y, 20.0)).log_evidence)(5.0)


@pytest.mark.usefixtures("types_unchecked")
def test_another_shape_than_one_vector_has_no_density():
    with pytest.raises(ValueError, match=r"has shape \(3, 1\)"):
        lb.skewed(of_beta(10.0, 3.0)).log_density(jnp.zeros((3, 1)))


def test_a_plain_density_has_no_file(tmp_path):
    fit = lb.laplace_of_density(lambda u: 10 * u - 13 * jnp.logaddexp(0, u), jnp.zeros(()))
    with pytest.raises(lb.UnsupportedModel, match="no model could be brought"):
        lb.skewed(fit).save(tmp_path / "fit.npz")
