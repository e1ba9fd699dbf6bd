"""The arguments of a model: held exactly, named in errors, copied only where they could change."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro import handlers

import laplacebook as lb
from laplacebook.model.arguments import Call
from laplacebook.model.not_arrays import not_arrays
from tests.models import single_precision


def model(features, y=None, *more, columns=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(w, 1).expand([2]).to_event(1), obs=features)


NOW = 1.7e9 + np.array([0.1, 0.4, 0.2])
LOST = [
    (NOW, "rounding error would be"),
    (np.stack([NOW, [0.0, 1.0, 2.0]], axis=1), "standard deviation"),
    (np.array([1.0, 1e200]), "1e+200 would become inf"),
    (np.array([1e-60, 2e-60]), "standard deviation"),
    (np.array([*NOW, np.nan]), "standard deviation"),
    (np.array([3, 5_000_000_000]), "5000000000 would become 705032704"),
    (np.array([2**33], np.uint64), "8589934592 would become 0"),
]


@pytest.mark.parametrize(("data", "message"), LOST)
def test_data_that_single_precision_cannot_hold_are_refused(data, message):
    with single_precision(), pytest.raises(lb.UnsupportedModel) as caught:
        lb.laplace(model, {"t": data})
    text = " ".join(str(caught.value).split())
    assert (
        message in text and "Argument 'features['t']' is" in text and "numpyro.enable_x64()" in text
    )
    assert jax.tree.leaves(Call.of(model, ({"t": data},)))[0].dtype == (
        np.int64 if data.dtype.kind == "u" else data.dtype
    )


HELD = [
    np.array([0.1, 0.2, 0.7]),
    np.full(7, 0.1) * np.array([1, 1 + 2e-16, 1, 1, 1, 1, 1]),
    np.float64(0.1),
    np.float64(1.7e9 + 0.1),
    np.array(0.3),
    np.random.default_rng(0).normal(size=(50, 3)) * [1e-5, 1, 1e5] + [1e-4, 3, 1e6],
    np.array([1.0, np.nan, np.inf]),
    np.array([np.nan, np.nan]),
    np.zeros((0, 3)),
    np.zeros((3, 0)),
    np.arange(5),
    np.array([], int),
    np.array([-(2**31), 2**31 - 1]),
    np.ones((4, 2)),
    np.array([1e10]),
    np.linspace(0, 1, 10_001),
]


@pytest.mark.parametrize("data", HELD, ids=range(len(HELD)))
def test_ordinary_data_are_not(data):
    with single_precision():
        (held,) = jax.tree.leaves(Call.of(model, (data,)))
        assert held.dtype.itemsize == 4


def test_the_rounding_that_is_refused_would_have_mattered():
    def trend(t, y):
        slope = numpyro.sample("slope", dist.Normal(0, 10))
        centred = t - t.mean()
        numpyro.sample("y", dist.Normal(slope * centred, 0.1).to_event(1), obs=y)

    t = 1.7e9 + np.arange(20.0)
    approx = lb.laplace(trend, t, 2 * (t - t.mean()))
    assert approx.mode["slope"] == pytest.approx(2, rel=1e-4)
    with single_precision(), pytest.raises(lb.UnsupportedModel, match="'t'"):
        lb.laplace(trend, t, 2 * (t - t.mean()))


def test_only_what_can_change_is_copied():
    mine, fixed = np.ones(2), jnp.ones(2)
    call = Call.of(model, (mine, fixed))
    mine[0] = 5
    (first, second), named = call.arguments
    assert first[0] == 1 and second is fixed and named == {}


BAD = np.zeros((6, 2))
BAD[4, 0] = BAD[5, 0] = BAD[5, 1] = np.nan


def test_the_argument_that_is_not_finite_is_named():
    expected = "argument 'features' has 3 NaN, first at [4, 0]"
    for wrapped in (model, functools.partial(model), handlers.scale(model, scale=1.0)):
        assert Call.of(wrapped, (BAD, np.ones(3))).not_finite() == [expected]
    several = Call.of(model, (1.0, 2.0, 3.0, [np.inf]), {"columns": {"age": BAD - np.inf}})
    assert several.not_finite() == [
        "argument 'more[1][0]' has 1 infinite",
        "argument 'columns['age']' has 3 NaN and 9 infinite, first at [0, 0]",
    ]
    assert Call.of(model, (np.arange(3), "text", np.array(["a"]), True)).not_finite() == []
    assert Call.of(max, (np.nan,)).not_finite()[0].endswith("has 1 NaN")


def test_an_argument_of_a_plain_function_is_named_as_the_function_does():
    def log_density(z, rate):
        return -(z**2) * rate[1]

    with pytest.raises(lb.NonFinite, match=r"argument 'rate' has 1 NaN, first at\s+\[1\]"):
        lb.laplace_of_density(log_density, 0.0, rate=np.array([1, np.nan]))


def regression(features, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(features @ w, 1).to_event(1), obs=y)


def test_both_site_and_argument_are_in_the_message():
    for arguments, named in (((BAD, np.ones(6)), "features"), ((BAD * 0 + 1, BAD[:, 0]), "y")):
        with pytest.raises(lb.NonFinite) as caught:
            lb.laplace(regression, *(np.where(np.isnan(a), np.nan, a) for a in arguments))
        text = " ".join(str(caught.value).split())
        assert f"argument '{named}'" in text or named == "features"
        assert "site 'y'" in text and "NaN, first at [4" in text


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of jax, before its error
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([1.0, 2.0], "argument 'features' is a list of numbers"),
        ([[1.0, 2.0], [3.0]], "argument 'features' is a list of numbers"),
        ([1.0, None], "argument 'features' is a list of numbers, some of them None"),
        ([Fraction(1, 2)], "argument 'features' is a list of numbers that no array holds"),
        (Fraction(1, 2), "argument 'features' is a Fraction"),
        (tuple(np.arange(300)), "... Likely causes: (a) argument 'features' is a tuple of numbers"),
        (np.array([1.0, 2.0], object), "an array of object values"),
        (np.array(["a", "b"]), "argument 'features' is an array of str"),
        ("ab", "argument 'features' is a string"),
        (
            10**20,
            "(a) argument 'features' is a whole number beyond 64 bits What to do: pass it as a",
        ),
        ({"a": 1.0}, "(a) argument 'features' is a dict What to do: pass the array that is in the"),
        ({"a": np.ones(2)}, "(a) argument 'features' is a dict"),
        (np.array([1.0, 2.0j]), "'y' is a complex number"),
    ],
)
def test_what_is_no_array_of_real_numbers_is_refused(data, message):
    with pytest.raises(lb.UnsupportedModel) as caught:
        lb.laplace(model, data)
    assert message in " ".join(str(caught.value).split())


@pytest.mark.parametrize(
    ("data", "message"),
    [(2**40, "is a whole number beyond 32 bits"), ([2**40, 1], "is a list of numbers")],
)
def test_a_whole_number_that_single_precision_has_no_place_for(data, message):
    def sum_of(y):
        numpyro.sample("a", dist.Normal(jnp.sum(jnp.asarray(y)), 1))

    with single_precision(), pytest.raises(lb.UnsupportedModel) as caught:
        lb.laplace(sum_of, data)
    assert message in " ".join(str(caught.value).split())


def test_strings_of_numpy_are_no_numbers():
    told = not_arrays([("g", list(np.array(["a", "b"]))), ("h", [0, "a"])])
    assert told == [
        "argument 'g' is a list of strings",
        "argument 'h' is a list of numbers and strings",
    ]
    with pytest.raises(lb.UnsupportedModel, match="return_inverse=True") as caught:
        lb.laplace(model, ["low", "high"])
    assert "np.unique(list(g)" in str(caught.value)
    assert not_arrays([("y", [1, 2])]) == ["argument 'y' is a list of numbers"]


def test_masked_arrays_are_refused():
    hidden = np.ma.masked_array([1.0, 400.0], mask=[False, True])
    with pytest.raises(lb.UnsupportedModel, match="'features' is a masked array"):
        lb.laplace(model, hidden)
    assert lb.laplace(model, np.ma.masked_array([1.0, 2.0])).mode["w"] == pytest.approx(1)


@pytest.mark.parametrize("kind", [">f8", ">i2", np.longdouble])
def test_numbers_in_types_that_jax_has_not_are_read_all_the_same(kind):
    numbers = np.array([1.0, 2.0])
    approx = lb.laplace(model, numbers.astype(kind))
    assert approx.log_evidence == lb.laplace(model, numbers).log_evidence
    series = pytest.importorskip("pandas").Series(numbers.astype(kind))
    assert lb.laplace(model, series).log_evidence == approx.log_evidence


def test_a_column_of_a_data_frame_is_named():
    column = pytest.importorskip("pandas").Series(["a", "b"])
    with pytest.raises(lb.UnsupportedModel, match="'features' is a pandas Series"):
        lb.laplace(model, column)


def test_rows_of_pandas_that_are_crossed_are_refused():
    w = np.array([0.5, -1.0])
    table = pd.DataFrame(np.arange(8.0).reshape(4, 2), index=list("abcd"))
    y = pd.Series(table.to_numpy() @ w, index=table.index, name="y")
    read = functools.partial(lb.laplace, lambda x, y: regression(jnp.asarray(x), y))
    np.testing.assert_array_equal(read(table, y).log_evidence, read(table, y.copy()).log_evidence)
    with pytest.raises(lb.UnsupportedModel, match=r"'x' and 'y' have the same row labels in") as e:
        read(table, y.sort_values())
    assert "pass y.loc[x.index] if they are" in " ".join(str(e.value).split())
    two = table.set_index(pd.MultiIndex.from_product([[0, 1], ["p", "q"]]))
    assert (
        read(two, y).log_evidence == read(table, y).log_evidence == read(two, y.values).log_evidence
    )
    assert read(table, y.set_axis(two.index)).log_evidence == read(table, y).log_evidence
    # By position, as the model reads them: of other labels, of none, or without a name of their own.
    for other in (y[::-1].to_numpy(), y[::-1].reset_index(drop=True), y[::-1].rename(str.upper)):
        assert read(table, other).log_evidence != read(table, y).log_evidence


def test_an_error_of_the_model_itself_is_passed_on():
    def wrong(y):
        numpyro.sample("w", dist.Normal(0, 1))
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        lb.laplace(wrong, np.ones(2))


def test_labels_that_are_real_numbers_are_named():
    def model(g, x, y):
        a = numpyro.sample("a", dist.Normal(0, 1).expand([3]).to_event(1))
        numpyro.sample("y", dist.Normal(a[g] + x, 1).to_event(1), obs=y)

    g, y = np.array([0.0, 1, 2]), np.ones(3)
    with pytest.raises(lb.UnsupportedModel, match="argument 'g' is of type float64") as caught:
        lb.laplace(model, g, y.astype(int), y)
    assert "argument 'x'" not in str(caught.value)
    assert lb.laplace(model, g.astype(int), y, y).certificate.converged


def test_labels_that_are_strings_are_named_and_not_the_other_arguments():
    def groups(x, g, y):
        a = numpyro.sample("a", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(a[g] + x, 1).to_event(1), obs=y)

    with pytest.raises(lb.UnsupportedModel) as told:
        lb.laplace(groups, np.ones(3), np.array(["a", "b", "a"]), np.zeros(3))
    assert "argument 'g' is an array of str" in str(told.value)
    assert "argument 'x'" not in str(told.value)
    assert "np.unique(g, return_inverse=True)[1]" in str(told.value)


def test_two_sites_of_one_name_are_named():
    def model(y):
        a = numpyro.sample("a", dist.Normal(0, 1))
        numpyro.sample("a", dist.Normal(a, 1))
        numpyro.sample("y", dist.Normal(a, 1), obs=y)

    with pytest.raises(lb.UnsupportedModel, match=r"two sites of one name: .*\n?.*`a` duplicated"):
        lb.laplace(model, np.array(1.0))


def test_an_option_that_there_is_none_of_is_no_argument_of_the_wrong_kind():
    with pytest.raises(TypeError, match="unexpected keyword argument 'kind'"):
        lb.laplace(model, np.ones(2), kind="dense")


@pytest.mark.usefixtures("types_unchecked")
def test_what_is_no_function():
    with pytest.raises(TypeError, match="A model is a function of its data, not 3"):
        lb.laplace(3)


@pytest.mark.parametrize("name", [3, None, ("a", 1)])
def test_a_name_that_is_no_string(name):
    def named(y):
        numpyro.sample("y", dist.Normal(numpyro.sample(name, dist.Normal(0, 1)), 1), obs=y)

    with pytest.raises(lb.UnsupportedModel, match="has a name that is no\\s+string"):
        lb.laplace(named, np.ones(2))


def shaped(y):
    numpyro.sample("z", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(0, 1).expand(y.shape), obs=y)


def test_a_list_of_which_the_model_reads_the_shape():
    with pytest.raises(lb.UnsupportedModel, match="argument 'y' is a list of numbers"):
        lb.laplace(shaped, [1.0, 2.0])


def test_a_column_that_the_model_reads_itself():
    def reads(y):
        shaped(y.values)

    with pytest.raises(lb.UnsupportedModel, match=r"reads 'values'(?s:.)*leave\s+\.values"):
        lb.laplace(reads, pd.Series([1.0, 2.0]))


def test_a_mistake_in_the_model_is_its_own():
    def mistaken(y):
        shaped(y)
        return object().shape

    with pytest.raises(AttributeError, match="'object' object has no attribute 'shape'"):
        lb.laplace(mistaken, np.ones(2))


def test_plates_of_other_sizes():
    def in_a_plate(y, size):
        numpyro.sample("z", dist.Normal(0, 1))
        with numpyro.plate("N", size):
            numpyro.sample("y", dist.Normal(0, 1), obs=y)

    with pytest.raises(
        lb.UnsupportedModel, match=r"of shape \(6,\), and its\s+plates, of shape \(60,\)"
    ):
        lb.laplace(in_a_plate, np.ones(6), 60)
    with pytest.raises(lb.UnsupportedModel, match="A plate of the model has no element"):
        lb.laplace(in_a_plate, np.ones(0), 0)


def test_a_large_whole_number_is_not_blamed_for_another_error():
    def wrong(y, n):
        numpyro.sample("a", dist.Normal(jnp.sum(y, wrong=n), 1))

    with single_precision(), pytest.raises(TypeError, match="wrong"):
        lb.laplace(wrong, np.ones(3), 2**40)
