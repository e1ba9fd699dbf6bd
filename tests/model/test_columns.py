"""Data that are no arrays: columns of a table, lists, what is read once. The errors say how to read them."""

import array
import re
from collections import deque
from decimal import Decimal

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import laplacebook as lb


def model(y):
    m = numpyro.sample("m", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(m + 0 * jnp.asarray(y), 1), obs=y)


DAYS = pd.to_datetime(["2020-01-01", "2020-01-03", "2020-01-02"])
APART, CODES = [0.0, 2.0, 1.0], [0, 1, 0]
COLUMNS = {
    "dates": (pd.Series(DAYS), APART),
    "an index of dates": (DAYS, APART),
    "dates of a place": (pd.Series(DAYS.tz_localize("UTC")), APART),
    "dates of NumPy": (DAYS.to_numpy(), APART),
    "spans": (pd.Series(DAYS - DAYS.min()), APART),
    "spans of NumPy": ((DAYS - DAYS.min()).to_numpy(), APART),
    "periods": (pd.Series(pd.PeriodIndex(["1970Q1", "1970Q3", "1970Q2"], freq="Q")), APART),
    "an index of periods": (pd.PeriodIndex(["1970Q1", "1970Q3", "1970Q2"], freq="Q"), APART),
    "bins": (pd.Series(pd.cut([1.0, 3.0, 2.0], [0, 2, 4]).astype(object)).astype("interval"), [1.0, 3.0, 1.0]),
    "an index of bins": (pd.interval_range(0, 3), [0.5, 1.5, 2.5]),
    "categories": (pd.Series(["a", "b", "a"], dtype="category"), CODES),
    "strings": (pd.Series(["a", "b", "a"]), CODES),
    "strings of their own type": (pd.Series(["a", "b", "a"], dtype="string"), CODES),
    "strings of NumPy": (np.array(["a", "b", "a"]), CODES),
    "objects": (pd.Series([0, 1, 0], dtype=object), CODES),
    "decimals": (pd.Series([Decimal(0), Decimal(1), Decimal(0)]), CODES),
    "objects of NumPy": (np.array([0, 1, 0], object), CODES),
}  # fmt: skip


@pytest.mark.parametrize(("y", "numbers"), COLUMNS.values(), ids=COLUMNS)
def test_a_column_is_read_as_the_error_says(y, numbers):
    with pytest.raises(lb.UnsupportedModel, match="argument 'y' is a") as caught:
        lb.laplace(model, y)
    told = " ".join(str(caught.value).split()).partition("pass numbers: ")[2]
    told = re.split(r"and of labels |, days|, in days|, the |, labels", told)
    way = told[-1] if "return_inverse" in told[-1] or "astype('category')" in told[-1] else told[0]
    read = eval(way.rstrip("."), {"y": y, "np": np, "pandas": pd})
    np.testing.assert_array_equal(np.asarray(read, float), numbers)


Y = [0.1, 0.2]
READ_ONCE = [iter(Y), map(float, Y), (x for x in Y), zip(Y, strict=True), filter(None, Y)]


@pytest.mark.parametrize("y", READ_ONCE, ids=lambda y: type(y).__name__)
def test_what_is_read_once(y):
    with pytest.raises(lb.UnsupportedModel, match="has nothing left\\s+once it was read"):
        lb.laplace(lambda y: model(jnp.array(list(y))), y)


COLLECTIONS = [range(2), set(Y), frozenset(Y), deque(Y), dict.fromkeys(Y).keys(), memoryview(b"ab")]
COLLECTIONS += [array.array("d", Y), list(np.array(Y)), [np.array(Y)], [], b"ab"]


@pytest.mark.parametrize(
    "y", COLLECTIONS, ids=lambda y: f"{type(y).__name__} {len(y)}{type([*y, 0][0]).__name__}"
)
def test_collections_are_named(y):
    with pytest.raises(lb.UnsupportedModel, match="argument 'y' is an? ") as caught:
        lb.laplace(
            lambda y: numpyro.sample(
                "y", dist.Normal(numpyro.sample("m", dist.Normal(0, 1)), 1), obs=y
            ),
            y,
        )
    assert "np.asarray(list(y), float)" in " ".join(str(caught.value).split())


def test_a_table_of_dates_of_which_the_model_reads_another_column():
    table = pd.DataFrame(
        {
            "y": [0.1, -0.2, 0.3],
            "day": DAYS.tz_localize("UTC"),
            "quarter": DAYS.to_period("Q"),
            "cost": [Decimal("0.1")] * 3,
        }
    )
    fit = lb.laplace(lambda table: model(jnp.array(table["y"].to_numpy())), table)
    np.testing.assert_allclose(
        fit.log_evidence, lb.laplace(model, np.array([0.1, -0.2, 0.3])).log_evidence
    )


WIDTHS = {"a": [0.1, 0.2, 0.3], "b": [True, False, True]}
LABELS = WIDTHS | {"a b": ["u", "v", "u"]}
FLOATS, DUMMIES = "x.to_numpy(float)", "pandas.get_dummies(x, dtype=float).to_numpy(float)"
CODED = "x.assign(**{'a b': x['a b'].astype('category').cat.codes})"
DATED = """((x['d'] - x['d'].min()) / np.timedelta64(1, "D")).astype(float)"""
TABLES = {
    "strings": ({"s": ["0.1", "0.2"]}, "x['s'].to_numpy(float)", [0.1, 0.2]),
    "one column": ({"s": ["v", "u"]}, "x['s'].astype('category').cat.codes.to_numpy()", [1, 0]),
    "truth values": (WIDTHS, FLOATS, [[0.1, 1], [0.2, 0], [0.3, 1]]),
    "labels": (LABELS, DUMMIES, [[0.1, 1, 1, 0], [0.2, 0, 0, 1], [0.3, 1, 1, 0]]),
    "labels by name": (LABELS, CODED, [[0.1, 1, 0], [0.2, 0, 1], [0.3, 1, 0]]),
    "categories": ({"a": [0.1, 0.2], "s": pd.Categorical(["u", "v"])}, DUMMIES, [[0.1, 1, 0], [0.2, 0, 1]]),
    "numbers as strings": ({"a": ["0.1", "0.2"], "b": ["1", "2"]}, FLOATS, [[0.1, 1], [0.2, 2]]),
    "a date": ({"a": [0.1, 0.2, 0.3], "d": DAYS}, DATED, APART),
    "nullable": ({"a": [0.1, 0.2], "n": pd.array([True, False], dtype="boolean")}, FLOATS, [[0.1, 1], [0.2, 0]]),
}  # fmt: skip


@pytest.mark.parametrize(("columns", "way", "numbers"), TABLES.values(), ids=TABLES)
def test_a_table_is_read_as_the_error_says(columns, way, numbers):
    """A table has no .cat; and one of its columns may hold labels, and others numbers."""
    x = pd.DataFrame(columns)
    with pytest.raises(lb.UnsupportedModel, match="argument 'x' is a pandas DataFrame") as caught:
        lb.laplace(lambda x: model(jnp.asarray(x)[:, 0]), x)
    assert way in " ".join(str(caught.value).split())
    read = eval(way, {"x": x, "np": np, "pandas": pd})
    np.testing.assert_array_equal(np.asarray(read, float), numbers)


def test_of_two_arguments_that_without_numbers_is_read():
    """And not the table before it, which a model reads as it is."""
    table, labels = pd.DataFrame({"a": [0.1, 0.2]}), pd.Series(["u", "v"])
    with pytest.raises(lb.UnsupportedModel, match=r"numbers: y\.to_numpy\(float\) with"):
        lb.laplace(lambda x, y: model(jnp.asarray(x)[:, 0] + jnp.asarray(y)), table, labels)
