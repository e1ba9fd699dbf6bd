"""Answers to exercises: what is right, what a hint says, what is refused; on a table of its own."""

import json
import sys
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb
from laplacebook import exercises
from tools import exercises as tool

COVARIANCE = "[[2.0, 0.5], [0.5, 1.0]]"
TABLE = {
    name: tool.record(name, answer, decimals, "Think again.", mistakes)
    for name, answer, decimals, mistakes in [
        ("coin-1", "0.3", 3, [["0.35", "That is the mean."]]),
        ("coin-2", "[log(2), 0, -1.5]", 3, []),
        ("coin-3", COVARIANCE, 2, []),
        ("coin-4", "417938.4", -2, []),
        ("coin-5", "0", 4, []),
        ("urn-1a", "7", 0, []),
        ("urn-1b", "[[1, 2, 3], [4, 5, 6]]", 1, []),
    ]
}


@pytest.fixture(autouse=True)
def table(monkeypatch):
    """By the private name: the answers of the book, which it reads, are no test's."""
    monkeypatch.setattr(exercises, "_table", lambda: TABLE)


@pytest.mark.parametrize(
    "name, answer",
    [
        ("coin-1", 0.3),
        ("coin-1", Fraction(3, 10)),
        ("coin-1", np.float32(0.3)),
        ("coin-1", np.array(0.30049)),
        ("coin-1", jnp.float32(0.3)),
        ("coin-2", jnp.array([0.693, 0, -1.5])),
        ("coin-2", [0.693, 0, -1.5]),
        ("coin-2", (0.6931, -0.0, Fraction(-3, 2))),
        ("coin-2", np.array([0.6931, -0.0004, -1.5])),
        ("coin-3", [[2, 0.5], [0.5, 1]]),
        ("coin-4", 417_900),
        ("coin-4", 417_938),
        ("coin-5", 0),
        ("coin-5", -1e-300),
        ("urn-1a", 7),
        ("urn-1b", np.arange(1, 7).reshape(2, 3)),
    ],
)
def test_right(name, answer):
    result = lb.exercises.check(name, answer)
    assert result and result.right is True and repr(result) == f"{name}: right" and not result.hint


@pytest.mark.parametrize(
    "name, answer, hint",
    [
        ("coin-1", 0.31, "Think again."),
        ("coin-1", 0.35, "That is the mean."),
        ("coin-1", -0.3, "other sign"),
        ("coin-1", 0.15, "Twice that"),
        ("coin-1", 0.6, "Half of that"),
        ("coin-1", np.exp(0.3), "Its logarithm"),
        ("coin-1", np.log(0.3), "Its exponential"),
        ("coin-1", 1 / 0.3, "Its reciprocal"),
        ("coin-1", 0.09, "Its square root"),
        ("coin-1", 0.3**0.5, "Its square would"),
        ("coin-1", 0.7, "One minus that"),
        ("coin-1", 30, "A hundredth"),
        ("coin-1", 0, "Think again."),
        ("coin-1", 1e308, "Think again."),
        ("coin-1", np.nan, "NaN or infinity"),
        ("coin-1", [0.3], "The answer is one number, and yours is an array of shape (1,)."),
        ("coin-2", [0.693, 0, np.inf], "NaN or infinity"),
        ("coin-2", [-1.5, 0, np.log(2)], "opposite order"),
        ("coin-2", [0.693, 1, 1], "1 of 3 entries are right; the one at [1] is not. Think"),
        ("coin-2", 0.3, "The answer is an array of shape (3,), and yours is one number."),
        ("coin-2", [[0.693, 0, -1.5]], "an array of shape (3,), and yours is an array of shape (1"),
        ("coin-3", np.linalg.inv(eval(COVARIANCE)), "The inverse of that matrix"),
        ("coin-3", [[2, 0.5], [0.4, 1]], "3 of 4 entries are right; the one at [1, 0] is not."),
        ("coin-4", 417_700, "Think again."),
        ("coin-5", 2e-4, "Think again."),
        ("urn-1a", 6, "Think again."),
        ("urn-1b", [[4, 1, 2], [3, 5, 9]], "1 of 6"),
        ("urn-1b", [], "and yours is an array of shape (0,)."),
    ],
)
def test_wrong(name, answer, hint):
    result = lb.exercises.check(name, answer)
    assert not result and result.right is False and hint in result.hint
    assert repr(result).replace("\n", " ") == f"{name}: not right yet. {result.hint}"
    assert max(map(len, repr(result).splitlines())) <= 76


@pytest.mark.parametrize("decimals", [-2, 0, 3])
def test_half_a_unit_is_right_and_more_than_one_is_wrong(decimals, monkeypatch):
    """In each of many entries: of one that were right, the hint would say so."""
    unit, truths = 10.0**-decimals, np.random.default_rng(0).normal(0, 500 * 10.0**-decimals, 200)
    monkeypatch.setitem(TABLE, "many-1", tool.record("many-1", repr(truths), decimals, "No.", []))
    for shift in (0.49, -0.49):
        assert lb.exercises.check("many-1", truths + shift * unit)
    for shift in (1.01, -1.01):
        assert lb.exercises.check("many-1", truths + shift * unit).hint == "No."
    assert lb.exercises.check("many-1", np.round(truths, decimals))


@pytest.mark.parametrize(
    "answer, advice",
    [
        ("0.3", "not this str. Leave out the quotation marks."),
        (["0.3"], "not this list. Leave out"),
        (True, "not this bool. Give the number itself"),
        (np.array([True]), "not this ndarray. Give the number"),
        (0.3 + 0j, "Complex numbers"),
        ([1, [2, 3]], "Are its rows of one length?"),
        (None, "not this NoneType."),
        ([0.3, None], "not this list."),
        ({"mean": 0.3}, "not this dict."),
        (lb.exercises, "not this module."),
        pytest.param(10**400, "too large for a floating-point number.", id="large"),
    ],
)
def test_what_is_no_number_is_refused(answer, advice):
    with pytest.raises(TypeError, match="The answer to coin-1 is a real number") as refusal:
        lb.exercises.check("coin-1", answer)
    assert advice in str(refusal.value)


def test_a_traced_answer_is_refused():
    with pytest.raises(TypeError, match="is tracing it: call check outside of them"):
        jax.make_jaxpr(lambda x: lb.exercises.check("coin-1", x))(0.3)


@pytest.mark.parametrize(
    "name, message",
    [
        ("coin-9", "exercise 'coin-9'. In coin: coin-1, coin-2, coin-3, coin-4, coin-5."),
        ("urns-1", "exercise 'urns-1'. In urn: urn-1a, urn-1b."),
        ("urn", "In urn: urn-1a, urn-1b."),
        ("xyz-1", "Chapters: ['coin', 'urn']."),
        ("", "Chapters: ['coin', 'urn']."),
    ],
)
def test_unknown_name(name, message):
    with pytest.raises(ValueError, match="There is no answer to check") as refusal:
        lb.exercises.check(name, 1)
    assert str(refusal.value).endswith(message)


@pytest.mark.usefixtures("types_unchecked")
def test_arguments_the_wrong_way_round():
    with pytest.raises(TypeError, match="the name of an exercise first, then the answer; got 0.3"):
        lb.exercises.check(0.3, "coin-1")


def test_an_answer_at_another_place_or_of_another_exercise_has_another_digest():
    same = np.ones(3)
    assert len({*exercises.digests("a-1", same, 2), *exercises.digests("a-2", same, 2)}) == 6


def test_the_tool_writes_what_check_reads(tmp_path, monkeypatch):
    path = tmp_path / "exercises.json"
    given = ["urn-2", "(-sqrt(2))", "--decimals", "2", "--hint", "No.", "--mistake", "2", "Root."]
    monkeypatch.setattr(tool, "TABLE", path)
    for arguments in (given, ["urn-3", "1", "--hint", "No."]):
        monkeypatch.setattr(sys, "argv", ["exercises.py", *arguments])
        tool.main()
    monkeypatch.setattr(exercises, "_table", lambda: json.loads(path.read_text()))
    assert lb.exercises.names() == ("urn-2", "urn-3")
    with pytest.raises(ValueError, match=r"in a chapter 'urns'\. In urn: urn-2, urn-3\."):
        lb.exercises.names("urns")
    assert lb.exercises.check("urn-2", -1.41) and lb.exercises.check("urn-2", 2).hint == "Root."


@pytest.mark.parametrize(
    "answer, mistake", [("nan", "1"), ("1", "inf"), ("1", "1.001"), ("1", "[1, 2]")]
)
def test_the_tool_refuses(answer, mistake):
    with pytest.raises(ValueError, match="not finite|another shape"):
        tool.record("urn-2", answer, 3, "No.", [[mistake, "Hint."]])
