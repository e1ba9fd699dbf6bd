"""How much memory there is, and whether a dense matrix fits into it."""

import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from laplacebook.base.devices import device
from laplacebook.base.errors import LaplaceError

_GIB = 2**30
SMALL = 2**20  # bytes: whether there are so many is not asked, which takes longer than to fill them


def available_memory() -> int | None:
    """What the device, or this process on the CPU, can still have, in bytes; None if unknown."""
    place = device()
    if place.platform != "cpu":
        stats = place.memory_stats() or {}
        limit = stats.get("bytes_limit")
        return None if limit is None else limit - stats.get("bytes_in_use", 0)
    if not hasattr(os, "sysconf") or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    free = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    meminfo, limit = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
    if meminfo.exists():
        lines = (line.split() for line in meminfo.read_text().splitlines())
        free += [int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"]
    if limit.exists() and (text := limit.read_text().strip()).isdigit():
        used = Path("/sys/fs/cgroup/memory.current")
        free.append(int(text) - (int(used.read_text()) if used.exists() else 0))
    return min(free)


def require_dense(D: int, dtype: Any) -> None:
    """Refuse a (D, D) matrix, such as a covariance, that does not fit into memory.

    Args:
        D: how many coordinates.
        dtype: of its numbers.

    Raises:
        LaplaceError: it does not fit.
    """
    dtype = jnp.result_type(dtype)
    needed = 2 * D**2 * dtype.itemsize
    free = available_memory() if needed > SMALL else None
    if free is not None and needed > free:
        raise LaplaceError(
            f"A dense matrix of {D:,} coordinates, made of the identity, needs {gib(needed)} of memory "
            f"in {dtype.name}, and {gib(free)} are available.",
            causes=["covariance, precision.matrix, inverse() or guide of a large approximation"],
            remedy="use precision.diagonal_of_inverse(), covariance_of(), solve() or sample(), which need no "
            "matrix.",
        )


def gib(number: int) -> str:
    """A number of bytes, in words."""
    return f"{number / _GIB:,.2f} GiB" if number < 100 * _GIB else f"{number / _GIB:,.0f} GiB"
