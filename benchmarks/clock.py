"""Seconds of an action."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that an action takes until its arrays are there, and what it returns."""
    import jax

    start = time.perf_counter()
    result = jax.block_until_ready(action())
    return time.perf_counter() - start, result


def repeated(action: Callable[[], Any], times: int = 5, enough: float = 2.0) -> float:
    """The median seconds of an action, repeated until it has taken long enough."""
    seconds: list[float] = []
    while len(seconds) < times and sum(seconds) < enough:
        seconds.append(timed(action)[0])
    return median(seconds)


def import_seconds(package: str, after: str = "sys") -> dict[str, float]:
    """Seconds of an import in a fresh interpreter, compiled as an installed package is."""
    code = f"import time, {after}; t = time.perf_counter(); import {package}; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", code]
    kept = {name: x for name, x in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def printed() -> str:
        return subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, env=kept
        ).stdout

    printed()  # the first import of a checkout compiles it
    return {"seconds": float(printed())}
