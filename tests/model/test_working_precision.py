"""The same numbers give the same answer, whatever type they come in."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers

import laplacebook as lb
from laplacebook.model.density import ModelDensity
from tests.models import single_precision

WHOLE = ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "float16", "float32"]
REAL = ["float16", "float32"]
COUNTS, TOTALS = np.array([3, 1, 0, 5, 120]), np.array([9, 4, 7, 5, 127])
TABLE = np.array([[3, 1, 0], [100, 20, 7]])
ROWS = np.array([[0.5, -2.0], [1.0, 0.25]])


def observed(distribution):
    """A model of a site z, and one outcome."""

    def model(y, *other):
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("y", distribution(z, *other), obs=y)

    return model


CASES = {
    "geometric": (lambda z: dist.Geometric(logits=z), (COUNTS,)),
    "binomial": (lambda z, n: dist.Binomial(n, logits=z), (COUNTS, TOTALS)),
    "beta-binomial": (lambda z, n: dist.BetaBinomial(jnp.exp(z), 2, n), (COUNTS, TOTALS)),
    "negative binomial": (lambda z: dist.NegativeBinomial2(jnp.exp(z), 2.0), (COUNTS,)),
    "Poisson": (lambda z: dist.Poisson(jnp.exp(z)), (COUNTS,)),
    "Poisson of differences": (
        lambda z, n: dist.Poisson(jnp.exp(z * (n - 100) / 100)),
        (COUNTS, TOTALS),
    ),
    "zero-inflated": (lambda z: dist.ZeroInflatedPoisson(0.2, jnp.exp(z)), (COUNTS,)),
    "multinomial": (
        lambda z, n: dist.Multinomial(n, logits=jnp.stack([z, 0, 1])),
        (TABLE, TABLE.sum(1)),
    ),
    "categorical": (
        lambda z: dist.Categorical(logits=jnp.stack([z, 0, 1])),
        (np.array([0, 2, 1]),),
    ),
    "gamma": (lambda z, n: dist.Gamma(n, jnp.exp(z)), (COUNTS + 1, TOTALS)),
    "chi-squared": (lambda z, n: dist.Chi2(n).mask(z < np.inf), (COUNTS + 1, TOTALS)),
    "groups": (lambda z, g: dist.Normal(jnp.stack([z, -z])[g], 1), (COUNTS, COUNTS % 2)),
}


def height(model, data):
    """The log joint beside the centre of the prior, without a compilation of it."""
    return float(ModelDensity.of(model, data).log_joint(jnp.array([0.3])))


@pytest.mark.parametrize("name", CASES)
def test_counts_of_any_type_are_the_same_counts(name):
    """Of all types where whole numbers are subtracted; of the narrowest everywhere."""
    distribution, data = CASES[name]
    expected = height(observed(distribution), data)
    dtypes = WHOLE if name == "binomial" else ["uint8", "float16"]
    for dtype in dtypes[:1] if name == "groups" else dtypes:
        narrow = tuple(x.astype(dtype) for x in data)
        assert height(observed(distribution), narrow) == pytest.approx(expected, rel=1e-14), dtype
    on_device = tuple(jnp.asarray(x, "uint8") for x in data)
    assert height(observed(distribution), on_device) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("dtype", REAL)
def test_measurements_of_any_type_are_the_same_measurements(dtype):
    def regression(x, y):
        b = numpyro.sample("b", dist.Normal(0, 1))
        numpyro.sample("y", dist.StudentT(3, b * x, jnp.exp(b)), obs=y)

    narrow, wide = ROWS.astype(dtype), ROWS.astype(dtype).astype(float)
    assert height(regression, tuple(narrow)) == height(regression, tuple(wide))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float16"])
def test_numbers_that_are_no_arguments_are_the_same_numbers(dtype):
    def model(_, totals, counts):
        z = numpyro.sample("z", dist.Normal(0, 1))
        with handlers.scale(scale=2):
            numpyro.sample("y", dist.Binomial(totals, logits=z).to_event(1), obs=counts)

    expected = height(lambda x: model(x, TOTALS, COUNTS), (np.ones(1),))
    totals, counts = (jnp.asarray(x.astype(dtype)) for x in (TOTALS, COUNTS))
    within = height(lambda x: model(x, totals, counts), (np.ones(1),))
    assert within == pytest.approx(expected, rel=1e-14)


def test_a_fit_its_comparison_and_its_prediction():
    def model(x, y=None):
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("y", dist.Geometric(logits=z - x), obs=y)

    x, y = np.array([1, 0, 2, 1]), np.array([3, 1, 0, 5])
    wide = lb.laplace(model, x, y)
    narrow = lb.laplace(model, x.astype("uint8"), y.astype("uint8"))
    assert narrow.log_evidence == wide.log_evidence
    assert lb.compare({"a": wide, "b": narrow})["probability"] == [0.5, 0.5]
    ours, theirs = (lb.predict(wide, v, method="plug_in") for v in (x, x.astype("uint8")))
    np.testing.assert_array_equal(ours.mean, theirs.mean)


@pytest.mark.parametrize("labels", [np.array([0.0, 2.0, 1.0]), np.array([False, True, True])])
def test_labels_may_be_floats_or_truth_values(labels):
    distribution = CASES["categorical"][0]
    expected = height(observed(distribution), (labels.astype(int),))
    assert height(observed(distribution), (labels,)) == expected


def test_a_label_with_a_fraction_is_no_label():
    with pytest.raises(lb.NonFinite, match="outside the support"):
        lb.laplace(observed(CASES["categorical"][0]), np.array([0.0, 1.5]))


def test_truth_values_are_counts():
    for name in ("geometric", "Poisson", "negative binomial"):
        values, model = np.array([True, False, True]), observed(CASES[name][0])
        assert height(model, (values,)) == height(model, (values.astype(int),))


@pytest.mark.parametrize("name", ["Poisson", "negative binomial", "zero-inflated", "categorical"])
def test_complex_counts_are_refused(name):
    distribution, (values, *_) = CASES[name]
    with pytest.raises(lb.UnsupportedModel, match="'y' are complex"):
        lb.laplace(observed(distribution), values + 0j)


@pytest.mark.parametrize("make", [np.asarray, jnp.asarray], ids=["NumPy", "JAX"])
def test_whole_numbers_that_no_signed_integer_holds_are_refused(make):
    model = observed(CASES["Poisson"][0])
    with pytest.raises(lb.UnsupportedModel, match="'y' is uint64(?s:.*)do: centre"):
        lb.laplace(model, make(np.array([1, 2**63 + 5], np.uint64)))
    with single_precision(), pytest.raises(lb.UnsupportedModel, match="'y' is uint32"):
        lb.laplace(model, make(np.array([1, 2**31 + 5], np.uint32)))


def test_random_keys_and_truth_values_stay_what_they_are():
    def model(key, mask, y):
        b = numpyro.sample("b", dist.Normal(0, 1))
        design = jax.random.normal(key, (3,))
        with handlers.mask(mask=mask):
            numpyro.sample("y", dist.Normal(b * design, 1), obs=y)

    data = (jax.random.key(0), np.array([True, False, True]), np.array([1, 2, 3], "uint8"))
    assert np.isfinite(height(model, data))


def slope(x, y=None):
    b = numpyro.sample("b", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(b * x, 1), obs=y)


def test_columns_of_pandas_are_data():
    x, y = pd.Series([1.0, 2.0, 3.0]), pd.Series([1, 2, 4], dtype="Int64")
    expected = lb.laplace(slope, x.to_numpy(), np.array([1, 2, 4]))
    approx = lb.laplace(slope, x, y)
    assert approx.log_evidence == expected.log_evidence
    np.testing.assert_array_equal(
        lb.predict(approx, x).mean, lb.predict(expected, x.to_numpy()).mean
    )

    def groups(g, y):
        a = numpyro.sample("a", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(jnp.stack([a, -a])[g], 1), obs=y)

    assert height(groups, (pd.Series([0, 1, 1]), y)) == height(
        groups, (np.array([0, 1, 1]), np.array([1, 2, 4]))
    )


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pd.Series(["a", "b", "b"], dtype="category"), "'x' is a pandas Series"),
        (pd.Series(["1", "2", "3"]), "x.to_numpy(float)"),
        (pd.DataFrame({"a": [1.0, 2.0, 3.0]}), "'x' is a pandas DataFrame"),
        (["a", "b", "b"], "'x' is a list of strings"),
    ],
)
def test_what_is_no_column_of_numbers_is_named(column, said):
    with pytest.raises(lb.UnsupportedModel) as caught:
        lb.laplace(slope, column, np.array([1.0, 2.0, 3.0]))
    assert said in " ".join(str(caught.value).split())


def test_what_is_missing_in_a_column_is_counted():
    with pytest.raises(lb.NonFinite, match="'x' has 1 NaN"):
        lb.laplace(slope, pd.Series([1, 2, None], dtype="Int64"), np.array([1.0, 2.0, 3.0]))


def test_a_table_is_read_by_the_model_itself():
    table = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 4.0]})

    def model(table):
        slope(table["x"].to_numpy(), table["y"].to_numpy())

    assert height(model, (table,)) == height(slope, (table["x"], table["y"]))
