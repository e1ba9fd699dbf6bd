"""A table in a terminal, in a notebook, and as values."""

import pytest

from laplacebook import Table

COINS = Table(
    "Two <coins>",
    {"coin": ["a", "b<script>"], "heads & tails": [8, 0.25], "sd": [-1234.5, float("nan")]},
    ("a line < below",),
)


def test_columns_line_up():
    title, *lines = repr(COINS).splitlines()
    assert title == "Two <coins>"
    assert lines == [
        "  coin       heads & tails     sd",
        "  a                      8  -1234",
        "  b<script>         0.2500    nan",
        "  a line < below",
    ]


def test_values_come_back():
    assert COINS["heads & tails"] == [8, 0.25]
    assert COINS.rows()[0] == {"coin": "a", "heads & tails": 8, "sd": -1234.5}
    assert len(COINS) == 2
    with pytest.raises(KeyError):
        _ = COINS["nothing"]


def test_html_is_escaped_and_tells_headers_from_cells():
    html = COINS._repr_html_()
    assert "<script>" not in html
    assert "<caption>Two &lt;coins&gt;</caption>" in html
    assert '<th scope="col">heads &amp; tails</th>' in html
    assert '<th scope="row">b&lt;script&gt;</th><td>0.2500</td>' in html
    assert "<p>a line &lt; below</p>" in html


def test_the_head_says_how_many_are_left_out():
    head = COINS.head(1)
    assert head["coin"] == ["a"]
    assert head.footer == ("... and 1 more", "a line < below")
    assert COINS.head(2) == COINS


@pytest.mark.parametrize("columns", [{}, {"a": [1], "b": [1, 2]}])
def test_columns_have_one_length(columns):
    with pytest.raises(ValueError, match="same length"):
        Table("ragged", columns)


def test_digits_behind_the_point_and_what_is_missing():
    columns = {"model": ["a", "b"], "log evidence": [-100000.04, -100000.1], "D": [3, None]}
    table = Table("Two models", columns, ("below",), {"log evidence": 2})
    assert repr(table.head(1)).splitlines()[-3:] == [
        "  a        -100000.04  3",
        "  ... and 1 more",
        "  below",
    ]
    assert repr(table).splitlines()[-2] == "  b        -100000.10  —"
    assert "<td>-100000.10</td><td>—</td>" in table._repr_html_()
    assert table.rows()[1] == {"model": "b", "log evidence": -100000.1, "D": None}
