"""Where Chromium is on this machine."""

import os
import shutil

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """The path that the variable CHROMIUM names, or the first that is installed; None if there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
