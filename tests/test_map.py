"""The map of the package, laplacebook/README.md: its picture and its tables are those of the code."""

import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import laplacebook as lb
from laplacebook.base.irregular import irregular_signs
from tests.models import coin
from tests.test_imports import FOLDERS, PACKAGE, arrows, folder_of

MAP = (PACKAGE / "README.md").read_text()


def section(title):
    return MAP.split(f"## {title}\n")[1].split("\n## ")[0]


def files_named(text):
    return set(re.findall(r"`([\w/]+\.py)`", text))


def without_shortcuts(edges):
    """The arrows that no longer way replaces."""

    def below(room, seen=()):
        direct = {b for a, b in edges if a == room}
        return direct.union(*(below(b) for b in direct))

    return {(a, b) for a, b in edges if not any(b in below(c) for x, c in edges if x == a != b)}


def test_the_picture_is_that_of_the_imports():
    between = {(folder_of(a) or "root", folder_of(b) or "root") for a, b in arrows()}
    drawn = set(re.findall(r"(\w+) --> (\w+)", section("The rooms")))
    assert drawn == without_shortcuts({(a, b) for a, b in between if a != b})


def test_every_room_is_in_the_table():
    assert set(re.findall(r"^\| `(\w+)/`", section("The rooms"), re.M)) == FOLDERS


@pytest.mark.parametrize("title", ["The way of one call", "Where to add what"])
def test_every_file_that_is_named_is_there(title):
    named = files_named(section(title))
    assert named
    assert not [
        name
        for name in named
        if not ((PACKAGE / name).exists() or (PACKAGE.parent / name).exists())
    ]


def entered(call):
    """The files of the package of which a function runs during a call; and what it returns."""
    functions = set()

    def note(frame, event, _):
        if event == "call":
            functions.add(frame.f_code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = call()
    finally:
        sys.setprofile(before)
    # Not the body of a module or a class.
    of_functions = (code for code in functions if code.co_flags & inspect.CO_OPTIMIZED)
    files = {Path(code.co_filename) for code in of_functions}
    return {f.relative_to(PACKAGE).as_posix() for f in files if f.is_relative_to(PACKAGE)}, result


def test_one_call_goes_the_way_that_is_told():
    call, _, printing = section("The way of one call").partition("Printing the result")

    def seen_for_the_first_time(y):
        coin(y)

    irregular_signs.cache_clear()  # of what another test took
    found, approx = entered(lambda: lb.laplace(seen_for_the_first_time, np.array([1, 1, 0])))
    assert found == files_named(call)
    assert entered(lambda: repr(approx))[0] - found == files_named(printing)
