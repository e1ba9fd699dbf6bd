"""How far a fingerprint reaches: helpers, classes, modules, slots, arrays of objects, extension types."""

import collections
import random
import sys
import types

import numpy as np
import pytest

from laplacebook import models
from laplacebook.base.errors import LaplaceError
from laplacebook.model.fingerprint import Fixed

scale = 1.0


def first():
    return one


def second():
    return two


def third():
    return three


one = two = three = 1.0


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


def with_attribute():
    return with_attribute.scale


with_attribute.scale = 1.0


def getter_of_a_dict():
    return get("scale")


stored = {"scale": 1.0}
get = stored.get


@pytest.mark.parametrize("name", ["one", "two", "three"])
def test_every_helpers_globals_show(name, monkeypatch):
    before = Fixed(of_many_helpers)
    assert before == Fixed(of_many_helpers)
    monkeypatch.setitem(globals(), name, 2.0)
    assert before != Fixed(of_many_helpers)


def test_what_classes_reach_shows(monkeypatch):
    before = Fixed(Callable()), Fixed(Base.helper), Fixed(Base)
    assert before[0] == Fixed(Callable())
    monkeypatch.setitem(globals(), "scale", 2.0)
    assert all(b != Fixed(v) for b, v in zip(before, (Callable(), Base.helper, Base), strict=True))
    before = Fixed(Callable())
    monkeypatch.setattr(Base, "sd", 2.0)
    assert before != Fixed(Callable())


def test_attributes_of_functions_and_methods_of_containers_show(monkeypatch):
    before = Fixed(with_attribute), Fixed(getter_of_a_dict)
    monkeypatch.setattr(with_attribute, "scale", 2.0)
    monkeypatch.setitem(stored, "scale", 2.0)
    assert before[0] != Fixed(with_attribute)
    assert before[1] != Fixed(getter_of_a_dict)


def test_a_module_imported_within_the_function_shows(monkeypatch):
    def imports():
        import config_of_a_reader

        return config_of_a_reader.prior

    config = types.ModuleType("config_of_a_reader")
    config.prior = 1.0
    monkeypatch.setitem(sys.modules, "config_of_a_reader", config)
    before = Fixed(imports)
    config.prior = 2.0
    assert before != Fixed(imports)


def test_long_object_arrays_show_in_full():
    ragged = np.array([np.zeros(2000), np.zeros(2)], object)
    before = Fixed(ragged)
    ragged[0][900] = 5
    assert before != Fixed(ragged)


def test_a_value_that_has_changed_is_not_handed_out():
    values = [1.0]
    fixed = Fixed(values)
    assert fixed.value is values
    values.append(2.0)
    with pytest.raises(LaplaceError, match="has changed since the"):
        _ = fixed.value


class Slotted(Base):
    """A dict, from the base, and a slot."""

    __slots__ = ("scale",)

    def __init__(self):
        self.scale = 1.0


def test_slots_and_attributes_of_arrays_show():
    slotted, array = Slotted(), np.zeros(2).view(np.ma.MaskedArray)
    before = Fixed(slotted), Fixed(array)
    assert before == (Fixed(slotted), Fixed(array))
    slotted.scale, array[0] = 2.0, np.ma.masked
    assert before[0] != Fixed(slotted) and before[1] != Fixed(array)


class Queue(collections.deque):
    """An extension's content beside a dict."""


def test_what_an_extension_type_holds_beside_its_attributes_is_not_taken_as_unchanged():
    for value in (Queue([1.0]), random.Random(0)):
        assert Fixed(value) != Fixed(value)
        assert Fixed(value).value is value


def test_a_changed_data_frame_shows():
    frame = pytest.importorskip("pandas").DataFrame({"y": [1.0]})
    before = Fixed(frame)
    frame.loc[0, "y"] = 2.0
    assert before != Fixed(frame)


def of_the_package():
    return models.bayesian_mlp


def test_the_packages_own_code_is_not_the_readers(monkeypatch):
    before = Fixed(of_the_package)
    monkeypatch.setattr(models, "_LIKELIHOODS", ())
    assert Fixed(of_the_package) == before
