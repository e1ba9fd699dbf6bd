"""When a compiled model may be used again: the fingerprint of all that a Python value can reach."""

import collections
import copy
import functools
import importlib
import random
import sys
import types
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from laplacebook import models
from laplacebook.base.errors import LaplaceError
from laplacebook.model.fingerprint import Fixed, is_data

EAST = timezone(timedelta(hours=1))
scale = one = two = three = 1.0


def reads_a_global():
    return scale


def nested():
    def inner():
        return scale

    return inner()


def first():
    return one


def second():
    return two


def third():
    return three


def of_many_helpers():
    return first() + second() + third()


class Base:
    sd = 1.0

    @staticmethod
    def helper():
        return scale


class Callable(Base):
    def __call__(self):
        return scale * self.sd


class Slotted(Base):
    """A dict, from the base, and a slot."""

    __slots__ = ("scale",)

    def __init__(self):
        self.scale = 1.0


class Options:
    scale = 1.0

    def __init__(self):
        self.shift = [1.0]

    def method(self):
        return self.shift


class Tagged(np.ndarray):
    """An array with an attribute."""


options, slotted, tagged = Options(), Slotted(), np.zeros(2).view(Tagged)
tagged.tag = 1.0


def through_an_object():
    return options.shift


def through_a_class():
    return Options.scale


def with_attribute():
    return with_attribute.scale


with_attribute.scale = 1.0
stored = {"scale": 1.0}
get = stored.get


def getter_of_a_dict():
    return get("scale")


config = types.ModuleType("config_of_a_reader")
config.prior, config.amount, config.shift = 1.0, 0.0, lambda: config.amount


def reads_config():
    return config.prior


def reads_shift():
    return config.shift()


def reads_config_twice():
    return reads_config() + reads_shift()


def imports():
    import config_of_a_reader

    return config_of_a_reader.prior


#: a value, and what it reads: of which namespace or object, under which name
READ = {
    "a global": (reads_a_global, globals(), "scale"),
    "a global in a nested function": (nested, globals(), "scale"),
    "a global of the first helper": (of_many_helpers, globals(), "one"),
    "a global of the second helper": (of_many_helpers, globals(), "two"),
    "a global of the third helper": (of_many_helpers, globals(), "three"),
    "a global in a static method": (Base.helper, globals(), "scale"),
    "a global in a class": (Base, globals(), "scale"),
    "a global in a call of an instance": (Callable(), globals(), "scale"),
    "an attribute of a base class": (Callable(), Base, "sd"),
    "an attribute of a class in a function": (through_a_class, Options, "scale"),
    "an attribute in a function": (through_an_object, options, "shift"),
    "an attribute of an instance": (options, options, "shift"),
    "an attribute in a method": (options.method, options, "shift"),
    "an attribute in a partial": (functools.partial(options.method), options, "shift"),
    "an attribute of a function": (with_attribute, with_attribute, "scale"),
    "an attribute of an array": (tagged, tagged, "tag"),
    "a slot": (slotted, slotted, "scale"),
    "a dict by its method": (getter_of_a_dict, stored, "scale"),
    "a module": (reads_config, config, "prior"),
    "a module imported in the function": (imports, config, "prior"),
    "a module seen before, in a helper alone": (reads_config_twice, config, "amount"),
}


def require_same(value):
    assert Fixed(value) == Fixed(value)
    assert hash(Fixed(value)) == hash(Fixed(value))
    assert Fixed(value).value is value


def require_changed(before, value):
    assert before != Fixed(value)
    with pytest.raises(LaplaceError, match="has changed since the fit"):
        _ = before.value


@pytest.mark.parametrize(("value", "holder", "name"), READ.values(), ids=READ)
def test_a_change_of_what_code_reads_shows(monkeypatch, value, holder, name):
    monkeypatch.setitem(sys.modules, config.__name__, config)
    require_same(value)
    before = Fixed(value)
    change = monkeypatch.setitem if isinstance(holder, dict) else monkeypatch.setattr
    change(holder, name, 2.0)
    require_changed(before, value)


def reads_attributes(options=options):
    return options.shift + [value.real for value in (1.0, 2.0)][0]


@pytest.mark.parametrize("name", ["shift", "real"])
def test_a_global_named_like_an_attribute_is_not_read(monkeypatch, name):
    before = Fixed(reads_attributes)
    monkeypatch.setitem(globals(), name, "another")
    assert before == Fixed(reads_attributes)
    assert before.value is reads_attributes


def imports_a_library():
    import colorsys

    return colorsys.ONE_THIRD


def test_a_library_that_is_imported_by_the_call_is_no_change(monkeypatch):
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    before = Fixed(imports_a_library)
    imports_a_library()
    assert "colorsys" in sys.modules
    assert before.value is imports_a_library
    assert before == Fixed(imports_a_library)


def itself(value):
    return value


def put(array):
    array[0] = 1


class Queue(collections.deque):
    """An extension's content beside a dict."""


def set_names(structured):
    structured.dtype.names = structured.dtype.names[::-1]


Unit = type("Unit", (float,), {"scale": 1.0})
Level = IntEnum("Level", ["LOW", "HIGH"])


#: what changes, the value that holds it, how it changes
HELD = {
    "a queue with attributes": (Queue([1.0]), itself, put),
    "bytes": (bytearray(b"a"), itself, put),
    "the names of a structured array": (
        *(np.zeros(2, [("a", "f8"), ("b", "f8")]), itself),
        set_names,
    ),
    "the attribute of a number": (Unit(1.0), itself, lambda x: setattr(x, "scale", 2.0)),
    "a list": ([1.0], itself, lambda x: x.append(2.0)),
    "a list of an instance": ([1.0], lambda x: types.SimpleNamespace(x=x), lambda x: x.append(2.0)),
    "an array in a list in a dict": (np.zeros(3), lambda x: {"x": [x]}, put),
    "an array in a closure": (np.zeros(3), lambda x: lambda: x, put),
    "an array as a default": (np.zeros(3), lambda x: lambda y=x: y, put),
    "the end of a long array among objects": (
        *(np.zeros(2000), lambda x: np.array([x, np.zeros(2)], object)),
        lambda x: np.put(x, -1, 5),
    ),
    "the mask of an array": (
        *(np.zeros(2).view(np.ma.MaskedArray), itself),
        lambda x: x.__setitem__(0, np.ma.masked),
    ),
}


@pytest.mark.parametrize(("held", "holding", "change"), HELD.values(), ids=HELD)
def test_a_change_of_what_a_value_holds_shows(held, holding, change):
    held = copy.deepcopy(held)
    value = holding(held)
    require_same(value)
    before = Fixed(value)
    change(held)
    require_changed(before, value)


@pytest.mark.parametrize(
    ("value", "other"),
    [
        *[(1.0, 2.0), (0.0, -0.0), (1, 1.0), (1, True)],
        (np.zeros(3), np.zeros(3, np.float32)),
        (np.array(["a"], object), np.array(["b"], object)),
        (datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 1, 13, tzinfo=EAST)),
        (Decimal("1.0"), Decimal("1.00")),
        (Level.LOW, Level.HIGH),
    ],
    ids=str,
)
def test_functions_made_alike_differ_by_what_they_close_over(value, other):
    def make(value):
        return lambda: value

    assert Fixed(make(value)) == Fixed(make(value))
    assert Fixed(make(value)) != Fixed(make(other))


def test_jax_arrays_are_the_same_only_if_identical():
    x = jnp.zeros(2)
    assert Fixed(x) == Fixed(x)
    assert Fixed(x) != Fixed(jnp.zeros(2))


@pytest.mark.parametrize(
    "value",
    [np.random.default_rng(0), random.Random(0)],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_seen_into_is_never_the_same(value):
    assert Fixed(value) != Fixed(value)
    assert Fixed(value).value is value


FRAME = {
    "a number": lambda frame: frame.__setitem__("y", [2.0, 1.0]),
    "columns": lambda frame: setattr(frame, "columns", ["y", "g", "x"]),
    "index": lambda frame: setattr(frame, "index", [1, 0]),
    "categories": lambda frame: frame.__setitem__(
        "g", frame["g"].cat.reorder_categories(["b", "a"])
    ),
}


@pytest.mark.parametrize("change", FRAME.values(), ids=FRAME)
def test_a_changed_data_frame_shows(change):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": [1.0, 1.0], "y": [1.0, 1.0]})
    frame.insert(1, "g", pandas.Categorical(["a", "b"]))
    before = Fixed(frame)
    assert before.value is frame
    change(frame)
    require_changed(before, frame)


def test_changed_coordinates_show():
    xarray = pytest.importorskip("xarray")
    array = xarray.DataArray([1.0, 2.0], dims="g", coords={"g": ["a", "b"]})
    whole = array.to_dataset(name="y")
    before = [Fixed(array), Fixed(whole)]
    assert [one.value for one in before] == [array, whole]
    array["g"], whole["g"] = ["b", "a"], ["b", "a"]
    for one, value in zip(before, (array, whole), strict=True):
        require_changed(one, value)


@pytest.mark.parametrize(
    "value", [np.linalg.solve, dist.Normal, sys], ids=lambda value: value.__name__
)
def test_libraries_are_taken_as_they_are(value):
    assert Fixed(value) == Fixed(value)


@pytest.mark.parametrize(
    "folder", ["home/.local/lib/python3.11/site-packages", "usr/lib/python3/dist-packages", "opt"]
)
def test_libraries_elsewhere_are_taken_as_they_are(tmp_path, monkeypatch, folder):
    """Of a user, of the system, of the environment that this one was made from, or by pip with --target."""
    installed = tmp_path / folder
    (installed / "elsewhere-1.0.dist-info").mkdir(parents=True)
    (installed / "elsewhere.py").write_text("rate = 1.0\ndef read():\n    return rate\n")
    monkeypatch.syspath_prepend(installed)
    monkeypatch.delitem(sys.modules, "elsewhere", raising=False)
    library = importlib.import_module("elsewhere")
    before = Fixed([library.read])
    monkeypatch.setattr(library, "rate", 2.0)
    monkeypatch.delitem(sys.modules, "elsewhere")
    assert Fixed([library.read]) == before


@pytest.mark.parametrize(
    "value", [np.ma.masked, np.ma.array([1.0, 2.0], mask=[0, 1])], ids=["one", "array"]
)
def test_masked_values(value):
    assert Fixed([value]) == Fixed([value])
    assert Fixed([value]) != Fixed([np.ma.array([1.0, 2.0])])


def of_the_package():
    return models.bayesian_mlp


def test_the_packages_own_code_is_not_the_readers(monkeypatch):
    before = Fixed(of_the_package)
    monkeypatch.setattr(models, "numpyro", None)
    assert Fixed(of_the_package) == before


def test_a_value_that_contains_itself():
    loop = []
    loop.append(loop)
    assert Fixed(loop) == Fixed(loop)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (np.zeros(2), True),
        (jnp.zeros(2), True),
        (np.float64(1), True),
        (np.array(["a"]), False),
        (1.0, False),
        (True, False),
        ("a", False),
        (None, False),
    ],
    ids=repr,
)
def test_arrays_are_data_and_the_rest_is_program(value, data):
    assert is_data(value) is data
