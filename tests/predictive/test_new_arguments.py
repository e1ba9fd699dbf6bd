"""New arguments that do not fit the model: a column beside a vector, a parameter that is none, a table."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import laplacebook as lb

X = np.array([[0.1, 1.3], [-0.4, 0.2], [0.9, -1.1], [0.3, 0.4], [-1.0, 0.5]])
Y = np.array([0.3, -0.2, 1.1, 0.7, 0.1])
NEW = X[:3] + 0.2


def line(X, offset, scale, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("N", len(X)):
        numpyro.sample("y", dist.Normal(X @ w + offset, scale), obs=y)


def line_without_plate(X, offset, scale, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(X @ w + offset, scale), obs=y)


def count(X, offset, scale, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.GammaPoisson(scale, scale / jnp.exp(X @ w + offset)), obs=y)


def fit(model):
    y = np.array([2, 0, 1, 3, 1]) if model is count else Y
    return lb.laplace(model, X, np.zeros(5), np.ones(5), y)


ONES, ZEROS, KEY = np.ones(3), np.zeros(3), jax.random.key(0)


@pytest.mark.parametrize(
    ("model", "method"),
    [(line, "monte_carlo"), (line_without_plate, "plug_in"), (line, None), (count, "monte_carlo")],
)
def test_a_column_beside_a_vector(model, method):
    given, found = {"offset": ZEROS, "scale": ONES}, fit(model)
    key = {"key": KEY} if method == "monte_carlo" else {}
    right = lb.predict(found, NEW, **given, method=method, **key)
    assert right.mean.shape == right.variance.shape == (3,)
    for which in given:
        wrong = {**given, which: given[which][:, None]}
        with pytest.raises(lb.UnsupportedModel, match=r"column of shape \(3, 1\).*\s+.*\(3,\)"):
            lb.predict(found, NEW, **wrong, method=method, **key)


def grid(x, y=None):
    a = numpyro.sample("a", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(x[:, None] * a, jnp.array([1.0, 2.0])), obs=y)


def test_axes_that_are_meant():
    """Outcomes of two axes, square ones too, and inputs on a grid."""
    found = lb.laplace(grid, np.arange(3.0), np.ones((3, 2)))
    expected = np.arange(2.0)[:, None] * found.mode["a"]
    np.testing.assert_allclose(lb.predict(found, np.arange(2.0)).mean, expected)
    found = fit(line_without_plate)
    on_grid = np.stack([NEW, NEW[::-1]])
    mean = lb.predict(found, on_grid, 0.0, 1.0, method="plug_in").mean
    np.testing.assert_allclose(mean, on_grid @ np.asarray(found.mode["w"]))


@pytest.mark.parametrize(("model", "method"), [(line, "monte_carlo"), (count, "plug_in")])
def test_a_parameter_that_is_none(model, method):
    key = {"key": KEY} if method == "monte_carlo" else {}
    with pytest.raises(lb.NonFinite, match=r"(?s)a\s+parameter.*is\s+not\s+valid"):
        lb.predict(fit(model), NEW, ZEROS, -ONES, method=method, **key)


def test_under_jit_a_parameter_that_is_none_is_nan():
    found = fit(line)
    predict = jax.jit(lambda scale: lb.predict(found, NEW, ZEROS, scale).mean)
    assert np.isfinite(predict(ONES)).all() and np.isnan(predict(-ONES)).all()


def test_a_table():
    with pytest.raises(lb.UnsupportedModel, match=r"(?s)pandas\s+DataFrame.*X\.to_numpy"):
        lb.predict(fit(line), pd.DataFrame(NEW), ZEROS, ONES)


def overdispersed(X, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("N", len(X)):
        effect = numpyro.sample("effect", dist.Normal(0, 1))
        numpyro.sample("y", dist.Poisson(jnp.exp(X @ w + effect)), obs=y)


@pytest.mark.parametrize("method", ["monte_carlo", "plug_in"])
def test_an_effect_of_each_row_is_named(method):
    approx = lb.laplace(overdispersed, X, np.array([2, 0, 1, 3, 1]))
    key = {"key": KEY} if method == "monte_carlo" else {}
    with pytest.raises(ValueError, match=r"'effect' has the shape \(3,\), and \(5,\) in the fit"):
        lb.predict(approx, NEW, method=method, **key)
    with pytest.raises(ValueError, match="cannot run with the new arguments") as told:
        lb.predict(approx, X[:, :1], method=method, **key)
    assert "latent site '" not in str(told.value)
