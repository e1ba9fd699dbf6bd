"""A progress bar for what takes longer than a person waits without one."""

import sys
from typing import Any

from tqdm import tqdm

PATIENCE = 2  # seconds before there is one


def progress(total: int | None, shown: bool | None, **named: Any) -> tqdm:
    """The progress bar, to be entered by ``with``.

    Args:
        total: how many steps there are; None if that is not known.
        shown: whether to show it; by default if the standard error stream is a terminal.
        named: further arguments of tqdm.
    """
    hidden = None if shown is None else not shown
    return tqdm(total=total, delay=PATIENCE, disable=hidden, leave=False, **named)


def is_shown(shown: bool | None) -> bool:
    """Whether a bar that is not ours is shown: by default if the standard error stream is a terminal."""
    return sys.stderr.isatty() if shown is None else shown
