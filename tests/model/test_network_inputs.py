"""Features and targets that a network does not take: the error names the shape, and what fits."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import laplacebook as lb
from laplacebook.models import bayesian_mlp, logistic_regression

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 3))
WIDER = RNG.normal(size=(6, 4))
Y = X[:, 0]
CLASSES = np.arange(6) % 3
OWN = {"curvature": "gauss_newton", "tolerance": 0.01}


def apply(p, x):
    return jnp.tanh(x @ p["a"]) @ p["b"]


def params(outputs=1, width=2):
    rng = np.random.default_rng(1)
    return {"a": rng.normal(size=(3, width)), "b": rng.normal(size=(width, outputs))}


def module(of):
    if of == "function":
        return apply, params()
    if of == "Equinox":
        return (eqx.nn.MLP(3, "scalar", 2, 1, jnp.tanh, key=jax.random.key(0)),)
    from flax import nnx

    return (nnx.Sequential(*(nnx.Linear(n, m, rngs=nnx.Rngs(0)) for n, m in ((3, 2), (2, 1)))),)


def said(caught):
    """Without what JAX adds of its own."""
    return str(caught.value).splitlines()[0]


@pytest.fixture(scope="module")
def fit():
    model = lb.network(apply, params(), likelihood="normal")
    return lb.laplace(model, X, Y, start=model.start, **OWN)


@pytest.mark.parametrize("of", ["function", "Equinox", "Flax"])
def test_features_of_another_width(of):
    model = lb.network(*module(of), likelihood="normal")
    words = r"(?m)^features must have shape \(N, 3\), as the network takes them, not \(6, 4\)$"
    with pytest.raises(ValueError, match=words):
        lb.laplace(model, WIDER, Y, start=model.start)
    with pytest.raises(ValueError, match=words):
        lb.train(model, WIDER, Y, start=model.start, key=jax.random.key(0))


def test_a_library_may_have_an_error_of_its_own():
    """As those of Flax for the shape of a parameter have."""

    class ShapeError(Exception):
        pass

    def checked(p, x):
        if x.shape[1] != 3:
            raise ShapeError("")
        return apply(p, x)

    model = lb.network(checked, params(), likelihood="normal")
    with pytest.raises(
        ValueError, match=r"shape \(N, 3\), as the network takes them, not \(6, 4\)"
    ):
        lb.laplace(model, WIDER, Y)
    with pytest.raises(ShapeError):
        lb.laplace(model, np.ones((6, 4, 4)), Y)


def test_images_with_other_channels():
    def convolved(p, x):
        layout = ("NHWC", "HWIO", "NHWC")
        seen = jax.lax.conv_general_dilated(x, p["k"], (1, 1), "VALID", dimension_numbers=layout)
        return jnp.tanh(seen).sum(axis=(1, 2))

    model = lb.network(convolved, {"k": np.ones((2, 2, 3, 1))}, likelihood="normal")
    with pytest.raises(ValueError, match=r"shape \(N, 5, 4, 3\), .* not \(6, 5, 4, 1\)"):
        lb.laplace(model, np.ones((6, 5, 4, 1)), Y)


def test_where_it_is_not_known_what_fits_the_shape_is_named():
    def sides(p, x):
        return (x * p["a"]) @ p["b"]

    model = lb.network(sides, {"a": np.ones((2, 7)), "b": np.ones(7)}, likelihood="normal")
    with pytest.raises(ValueError, match=r"no features of shape \(6, 4\). It says: .*broadcast"):
        lb.laplace(model, WIDER, Y)


def test_what_asks_for_numbers_is_told_so():
    model = lb.network(
        lambda p, x: apply(p, x) if x.sum() > 0 else 0 * x, params(), likelihood="normal"
    )
    with pytest.raises(lb.UnsupportedModel, match="asks for the numbers in an array"):
        lb.laplace(model, X[:, 0], Y)
    with pytest.raises(lb.UnsupportedModel, match="asks for the numbers in an array"):
        lb.laplace(model, X, Y)


def test_predictions_of_another_width(fit):
    with pytest.raises(
        ValueError, match=r"shape \(N, 3\), as the network takes them, not \(6, 4\)"
    ):
        lb.predict(fit, WIDER)


@pytest.mark.parametrize("of", ["function", "Equinox", "Flax"])
def test_a_row_without_its_axis(of):
    model = lb.network(*module(of), likelihood="normal")
    fit = lb.laplace(model, X, Y, start=model.start, **OWN)
    with pytest.raises(ValueError, match=r"single row is X\[:1\], of shape \(1, 3\)") as caught:
        lb.predict(fit, X[0])
    assert str(caught.value).count("[:1]") == 1
    assert lb.predict(fit, X[:1]).mean.shape == (1,)


def test_a_row_of_as_many_features_as_outputs():
    """The outputs of the one row look like those of three rows."""
    model = lb.network(apply, params(3), likelihood="normal")
    fit = lb.laplace(model, X, X**2, start=model.start, **OWN)
    assert lb.predict(fit, X[:1]).mean.shape == (1, 3)
    with pytest.raises(ValueError, match=r"single row is X\[:1\]"):
        lb.predict(fit, X[0])


def test_features_of_one_axis_that_are_rows():
    model = lb.network(lambda p, x: jnp.tanh(x * p["a"]), {"a": 0.5}, likelihood="normal")
    column = lb.network(lambda p, x: jnp.tanh(x[:, 0] * p["a"]), {"a": 0.5}, likelihood="normal")
    one, other = (
        lb.laplace(m, x, Y).log_evidence for m, x in ((model, X[:, 0]), (column, X[:, :1]))
    )
    assert float(one) == pytest.approx(float(other), rel=1e-12)


def test_a_row_without_its_axis_of_other_models():
    mlp = lb.laplace(bayesian_mlp, X, Y, widths=())
    with pytest.raises(ValueError, match=r"features\[:, None\], and a single row X\[:1\]"):
        lb.predict(mlp, X[0])
    logistic = lb.laplace(logistic_regression, X, Y > 0)
    with pytest.raises(ValueError, match=r"and a single row X\[:1\]"):
        lb.predict(logistic, X[0])

    def line(x, t=None):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("t", dist.Normal(w * x[:, 0], 1), obs=t)

    with pytest.raises(ValueError, match=r"A single row is x\[:1\], with its axis of rows"):
        lb.predict(lb.laplace(line, X, Y), X[0])


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize("activation", ["relu", "nothing", None])
def test_an_activation_that_is_no_function(activation):
    named = "jax.nn.relu, not 'relu'" if activation == "relu" else f"not {activation!r}"
    with pytest.raises(ValueError, match=f"function, {named}; smooth .* jax.nn.softplus"):
        lb.laplace(bayesian_mlp, X, Y, activation=activation)


ONE_HOT = np.eye(3)[CLASSES]
MISSING = np.where(CLASSES == 2, np.nan, CLASSES)


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist, pd.DataFrame])
def test_one_hot_classes(kind):
    table = kind(ONE_HOT)
    model = lb.network(apply, params(3), likelihood="categorical")
    with pytest.raises(ValueError, match=r"shape \(6,\), not \(6, 3\); of one-hot") as caught:
        lb.laplace(model, X, table)
    way = said(caught).rpartition("they are ")[2]
    np.testing.assert_array_equal(eval(way, {"np": np, "targets": table}), CLASSES)


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize("table", [Y[:, None], pd.DataFrame({"y": Y})], ids=["array", "table"])
def test_a_column_of_targets(table):
    model = lb.network(apply, params(), likelihood="normal")
    with pytest.raises(ValueError, match=r"not \(6, 1\); a column becomes one by ") as caught:
        lb.laplace(model, X, table)
    way = said(caught).rpartition("one by ")[2]
    np.testing.assert_array_equal(eval(way, {"np": np, "targets": table}), Y)


def test_shapes_that_are_none_of_these_have_no_such_end():
    model = lb.network(apply, params(), likelihood="normal")
    with pytest.raises(ValueError, match=r"must have shape \(6,\), not \(6, 2\)(\n|$)"):
        lb.laplace(model, X, X[:, :2])
    model = lb.network(apply, params(), likelihood="bernoulli")
    with pytest.raises(ValueError, match=r"not \(6, 3\)(\n|$)"):
        lb.laplace(model, X, ONE_HOT)
    with pytest.raises(ValueError, match=r"of one-hot classes"):
        lb.laplace(model, X, ONE_HOT[:, :2])


@pytest.mark.parametrize(
    "t",
    [MISSING, pd.Series(CLASSES, dtype="Int64").mask(CLASSES == 2)],
    ids=["floats", "of pandas"],
)
@pytest.mark.usefixtures("types_unchecked")
def test_classes_as_real_numbers(t):
    """And what the message says to do with them."""
    model = lb.network(apply, params(3), likelihood="categorical")
    with pytest.raises(ValueError, match="as integers, not float64 numbers") as caught:
        lb.laplace(model, X, t)
    told = said(caught)
    assert "t.astype(int)" in told and "left out, x[np.isfinite(t)], t[np.isfinite(t)]" in told
    assert told.endswith("with weights= there may be any class where one is 0")
    seen = np.isfinite(np.asarray(t, float))
    left = lb.laplace(model, X[seen], t[seen].astype(int), start=model.start, **OWN)
    assert np.isfinite(left.log_evidence)


@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson"])
def test_outcomes_that_are_missing(likelihood):
    model = lb.network(apply, params(), likelihood=likelihood)
    t = np.where(CLASSES == 2, np.nan, CLASSES)
    with pytest.raises(ValueError, match=r"not \[nan\]; leave rows without a target out") as caught:
        lb.laplace(model, X, t)
    told = said(caught).rpartition("out, ")[2]
    x, t = eval(told, {"np": np, "x": X, "t": t})
    assert np.isfinite(lb.laplace(model, x, t, start=model.start, **OWN).log_evidence)


@pytest.mark.usefixtures("types_unchecked")
def test_tables_with_other_columns_than_in_the_fit():
    model = lb.network(apply, params(), likelihood="normal")
    table = pd.DataFrame(X, columns=list("abc"))
    fit = lb.laplace(model, table, Y, start=model.start, **OWN)
    expected = lb.predict(fit, X[:2]).mean
    crossed = table[["c", "a", "b"]][:2]
    with pytest.raises(ValueError, match="columns c, a, b, and in the fit\\s+a, b, c") as caught:
        lb.predict(fit, crossed)
    way = str(caught.value).partition("Pass ")[2].partition(";")[0]
    ordered = eval(way, {"features": crossed})
    np.testing.assert_array_equal(lb.predict(fit, ordered).mean, expected)
    with pytest.raises(ValueError, match=r"or, if they are the same by other names, features.to_n"):
        lb.predict(fit, table.rename(columns={"a": "d"}))
    np.testing.assert_array_equal(lb.predict(fit, table[:2]).mean, expected)
    with pytest.raises(ValueError, match=r"must have shape \(N, 3\)"):
        lb.predict(fit, table.assign(d=1.0))


@pytest.fixture(scope="module")
def mlp():
    model = partial(bayesian_mlp, widths=(2,))
    return lb.laplace(model, X, np.sin(X[:, 0]), curvature="gauss_newton")


def test_new_features_of_another_width_are_no_matter_of_the_widths(mlp):
    """The tuple of widths was blamed, and np.asarray(list(y), float) the remedy."""
    with pytest.raises(ValueError, match=r"'w1' has the shape \(2, 2\), and \(3, 2\) in the fit"):
        lb.predict(mlp, X[:, :2])


@pytest.mark.usefixtures("types_unchecked")
def test_the_rows_of_a_table_are_read_from_its_numbers(mlp):
    options = {"curvature": "gauss_newton", "structure": "kronecker", "start": mlp.mode}
    with pytest.raises(lb.UnsupportedModel) as caught:
        lb.laplace(mlp.density.model, pd.DataFrame(X), np.sin(X[:, 0]), **options)
    told = " ".join(str(caught.value).split())
    assert "(a) a table, of which the model reads the columns itself (b)" in told
    assert "What to do: pass table.to_numpy()" in told


@pytest.mark.usefixtures("types_unchecked")
def test_a_table_is_read_by_place_within_a_partial_and_by_models_of_the_package():
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    network = partial(lb.network(apply, params(), likelihood="normal"), prior_precision=2.0)
    options = {"curvature": "gauss_newton", "tolerance": 0.5}
    fits = [lb.laplace(network, table, Y, start=network.func.start, **options)]
    fits.append(lb.laplace(logistic_regression, table, CLASSES % 2))
    for fit in fits:
        with pytest.raises(ValueError, match="has the columns b, a, c, and in the fit a, b, c"):
            lb.predict(fit, table[["b", "a", "c"]])


def test_a_row_that_does_not_count_has_derivatives():
    model = lb.network(apply, params(), likelihood="normal")
    features, weights = X.copy(), np.ones(len(X))
    features[0, 0], weights[0] = np.nan, 0
    with pytest.raises(lb.NonFinite) as caught:
        lb.laplace(model, features, Y, weights=weights, curvature="gauss_newton")
    told = " ".join(str(caught.value).split())
    assert "(a) argument 'features' has 1 NaN, first at [0, 0]" in told
    assert "What to do: put a number there, such as 0" in told
