"""The examples of the README print what the README says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

import laplacebook as lb

README = (Path(__file__).parents[2] / "README.md").read_text()


EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.S)


@pytest.mark.parametrize(("example", "output"), EXAMPLES, ids=["coin", "schools"])
def test_the_examples_print_their_output(example, output):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example, {})
    assert printed.getvalue() == output


def test_every_function_that_it_names_is_there():
    assert all(hasattr(lb, name) for name in re.findall(r"`lb\.(\w+)`", README))


def test_the_picture_is_there():
    for picture in re.findall(r"!\[.+?\]\((.+?)\)", README):
        assert (Path(__file__).parents[2] / picture).stat().st_size > 0
