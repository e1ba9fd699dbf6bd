"""The example of the README prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_the_example_prints_its_output():
    example, output = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.S).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(example, {})
    assert printed.getvalue() == output


def test_the_picture_is_there():
    for picture in re.findall(r"!\[.+?\]\((.+?)\)", README):
        assert (Path(__file__).parents[2] / picture).stat().st_size > 0
