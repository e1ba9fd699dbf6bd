"""A prediction from one mode warns where others are known, once, and that of a mixture of them does not."""

import warnings

import jax
import numpy as np
import pytest

import laplacebook as lb
from tests.beyond.test_mixture import root

KEY = jax.random.key(0)
METHODS = [None, "linearized", "monte_carlo"]


@pytest.fixture(scope="module")
def both():
    return lb.laplace(root, *np.array([9.0, 0.2]), starts=8, key=KEY)


@pytest.fixture(scope="module")
def found(both):
    """As a diagnosis that found the other mode leaves it."""
    fit = lb.laplace(root, *np.array([9.0, 0.2]), start={"x": 3.0})
    fit.remember("bad: 1 other mode holds 23%", "", both.other_modes)
    return fit


def told(fit, method):
    """The warnings of a prediction, in words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lb.predict(fit, None, 0.2, method=method, key=KEY)
    assert all(one.category is lb.DoubtfulFit for one in caught)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("method", METHODS)
def test_one_mode_of_several(both, method):
    (words,) = told(both, method)
    assert "leaves out other modes that were found, with 23% of the evidence; lb.mixture" in words
    assert told(lb.mixture(both), method) == []


@pytest.mark.parametrize("method", METHODS)
def test_modes_that_a_diagnosis_found(found, method):
    (words,) = told(found, method)
    assert "diagnosed bad: 1 other mode holds 23%" in words
    (words,) = told(lb.mixture(found), method)
    assert "it leaves out other modes that were found, with 23%" in words
    assert told(lb.mixture([found, *found.found]), method) == []


def test_what_is_known_against_a_component(both):
    joined = lb.mixture(both)
    joined.components[1].remember("bad: a tail.", "bad: a tail.")
    for method in ("linearized", "monte_carlo"):
        (words,) = told(joined, method)
        assert "of the component with a share of 0.23, diagnosed bad: a tail" in words


def test_what_takes_the_mode_as_known_averages_over_nothing(both, found):
    for fit in (both, found, lb.mixture(found)):
        assert told(fit, "plug_in") == []


def test_within_a_compiled_program_there_is_no_warning(both):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jax.jit(lambda tilt: lb.predict(both, None, tilt).mean)(0.2)
