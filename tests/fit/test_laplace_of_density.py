"""The Laplace approximation of a plain function of an array or a pytree."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln

import laplacebook as lb

A = np.array([[2.0, 0.5], [0.5, 1.0]])


def gaussian(z, precision=A):
    return -0.5 * z @ precision @ z


def stirling(z, n):
    return n * jnp.log(z) - z


def test_exact_for_a_gaussian():
    approx = lb.laplace_of_density(gaussian, np.ones(2))
    assert approx.log_evidence == pytest.approx(0.5 * np.log((2 * np.pi) ** 2 / np.linalg.det(A)))
    np.testing.assert_allclose(approx.mode["z"], 0, atol=1e-7)
    np.testing.assert_allclose(approx.covariance, np.linalg.inv(A), rtol=1e-9)
    assert approx.log_prior == 0
    assert approx.log_likelihood == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("start", "n"), [(8.0, 10.0), (8, 10)], ids=["real", "whole"])
def test_stirling(start, n):
    approx = lb.laplace_of_density(stirling, start, np.array(n))
    assert approx.mode["z"] == pytest.approx(10)
    assert approx.log_evidence == pytest.approx(10 * np.log(10) - 10 + np.log(20 * np.pi) / 2)
    assert approx.log_evidence == pytest.approx(gammaln(11), abs=1 / 100)


def test_it_is_told_as_a_density_not_as_a_flat_prior():
    approx = lb.laplace_of_density(gaussian, np.ones(2))
    assert "gaussian" in repr(approx)
    assert "z[1]" in repr(approx)
    assert "constant" not in repr(approx)
    assert "<lambda>" in repr(lb.laplace_of_density(lambda x: -(x**2), 1.0))


def network(params, *, scale):
    layer = params["layer"]
    total = (
        jnp.sum((params["w"] - 1) ** 2)
        + jnp.sum(layer["bias"] ** 2)
        + jnp.sum((layer["deep"][0] - 2) ** 2)
    )
    return -total / (2 * scale**2)


def test_a_pytree():
    start = {"w": np.zeros((2, 2)), "layer": {"bias": 1, "deep": [np.zeros(3)]}}
    approx = lb.laplace_of_density(network, start, scale=np.float64(2.0))
    assert set(approx.mode) == {"w", "layer.bias", "layer.deep.0"}
    np.testing.assert_allclose(approx.mode["w"], np.ones((2, 2)))
    assert approx.mode["layer.bias"].shape == ()
    assert approx.log_evidence == pytest.approx(8 / 2 * np.log(2 * np.pi * 4))
    assert approx.sample(jax.random.key(0), (5,))["layer.deep.0"].shape == (5, 3)


def test_names():
    def pair(point):
        return -(point[0] ** 2) - jnp.sum((point[1] - 1) ** 2)

    assert set(lb.laplace_of_density(pair, (1.0, np.ones(2))).mode) == {"point.0", "point.1"}
    partial = functools.partial(gaussian, precision=np.eye(2))
    assert set(lb.laplace_of_density(jax.jit(partial), np.ones(2)).mode) == {"z"}
    assert set(lb.laplace_of_density(lambda *x: -(x[0] ** 2), 1.0).mode) == {"x"}


def saddle(z):
    return -(z[0] ** 2) + z[1] ** 2 * (1 - z[1] ** 2 / 4)


def test_a_saddle_is_left_and_a_ridge_is_named():
    assert abs(lb.laplace_of_density(saddle, np.zeros(2)).mode["z"][1]) == pytest.approx(2**0.5)
    with pytest.raises(lb.NotPositiveDefinite, match=r"flat along .* z\[1\]"):
        lb.laplace_of_density(lambda z: -((z[0] - z[1]) ** 2), np.zeros(2))
    failed = lb.laplace_of_density(lambda z: z[0], np.zeros(1), throw=False)
    assert np.isnan(failed.log_evidence)


SQUARE = lambda z: -jnp.sum(jnp.asarray(z) ** 2)  # noqa: E731


@pytest.mark.parametrize(
    ("function", "start", "error", "message"),
    [
        (SQUARE, np.ones(0), lb.UnsupportedModel, "no number"),
        (SQUARE, {}, lb.UnsupportedModel, "no number"),
        (SQUARE, np.array([1.0, np.nan]), ValueError, "z is not finite"),
        (SQUARE, np.ones(2) * 1j, ValueError, "complex"),
        (lambda z: None, np.ones(3), lb.UnsupportedModel, "returns a NoneType, not a number"),
        (
            lambda z: (SQUARE(z), 0),
            np.ones(3),
            lb.UnsupportedModel,
            "returns a tuple, not a number",
        ),
        (lambda z: -(z**2), np.ones(3), lb.UnsupportedModel, r"shape \(3,\), not a scalar"),
        (
            lambda z: -(z["log_density"] ** 2),
            {"log_density": 1.0},
            ValueError,
            "names of their own",
        ),
        (lambda z: -(z**2) * (1 + 1j), 0.5, lb.UnsupportedModel, "returns a complex number"),
        (lambda z: z, {"a": {"b": 1.0}, "a.b": 1.0}, ValueError, "names of their own"),
        (lambda z: jnp.log(z) - z, -1.0, lb.NonFinite, "log_density"),
    ],
)
def test_what_cannot_be_is_refused(function, start, error, message):
    with pytest.raises(error, match=message):
        lb.laplace_of_density(function, start)


def test_under_jit_vmap_and_grad():
    def log_evidence(n, start):
        return lb.laplace_of_density(stirling, start, n).log_evidence

    n = np.array([5.0, 10.0, 20.0])
    exact = n * np.log(n) - n + np.log(2 * np.pi * n) / 2
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(log_evidence)))(n, n - 1)
    np.testing.assert_allclose(values, exact, rtol=1e-9)
    np.testing.assert_allclose(slopes, np.log(n) + 1 / (2 * n), rtol=1e-6)


def test_new_data_of_the_same_shape_cost_no_trace(capsys):
    def announced(z, n):
        print("called")
        return stirling(z, n)

    lb.laplace_of_density(announced, 8.0, np.array(10.0))
    assert "called" in capsys.readouterr().out
    approx = lb.laplace_of_density(announced, 9.0, np.array(20.0))
    assert "called" not in capsys.readouterr().out
    assert approx.mode["z"] == pytest.approx(20)


center = 1.0


def around_center(z):
    return -((z - center) ** 2)


def test_a_changed_global_is_not_answered_with_the_old_program(monkeypatch):
    assert lb.laplace_of_density(around_center, 0.0).mode["z"] == pytest.approx(1)
    monkeypatch.setitem(globals(), "center", 3.0)
    assert lb.laplace_of_density(around_center, 0.0).mode["z"] == pytest.approx(3)


def test_arguments_that_are_not_arrays():
    def power(z, exponent, *, name):
        return -(z**exponent) if name == "even" else -jnp.exp(z) + z

    assert lb.laplace_of_density(power, 1.0, 2, name="even").mode["z"] == pytest.approx(0, abs=1e-7)
    assert lb.laplace_of_density(power, 1.0, 2, name="odd").mode["z"] == pytest.approx(0, abs=1e-7)


def test_a_start_in_another_order_of_bytes_is_read():
    approx = lb.laplace_of_density(lambda z: -((z - 3) ** 2) / 2, np.array(1, ">f8"))
    assert approx.mode["z"] == pytest.approx(3)
