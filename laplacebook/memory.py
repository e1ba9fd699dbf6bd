"""How much memory a precision needs, before it is asked for."""

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from laplacebook.errors import LaplaceError
from laplacebook.settings import Settings
from laplacebook.sites import Site

__all__ = ["require_dense", "require_memory"]

_COPIES = 4  # of a matrix at once: curvature, its sum with the prior, its factor, one in the making
_GIB = 2**30


def precision_bytes(sites: tuple[Site, ...], settings: Settings, dtype: Any) -> int:
    """The memory that a precision takes while it is made, in bytes.

    Args:
        sites: the latent sites.
        settings: of the fit.
        dtype: of its numbers.
    """
    sizes = [site.size for site in sites]
    D = sum(sizes)
    numbers = {
        "dense": D**2,
        "last_layer": D**2,
        "diagonal": D,
        "block": sum(size**2 for size in sizes),
        "kronecker": sum(map(_factors, sites)),
        "low_rank": D * (settings.rank or 0) * 3,
    }[settings.structure]
    whole = D**2 if settings.curvature == "hessian" else 0
    return _COPIES * max(numbers, whole) * jnp.zeros(0, dtype).dtype.itemsize


def _factors(site: Site) -> int:
    """Numbers in the factors of a weight, or in the block of another site."""
    if len(site.shape) == 2:
        return site.shape[0] ** 2 + site.shape[1] ** 2 + site.size
    return site.size**2


def available_memory() -> int | None:
    """What the device, or this process on the CPU, can still have, in bytes; None if unknown."""
    device = jax.local_devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
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


def require_memory(sites: tuple[Site, ...], settings: Settings, dtype: Any) -> None:
    """Refuse a precision that does not fit into memory.

    Args:
        sites: the latent sites.
        settings: of the fit.
        dtype: of its numbers.

    Raises:
        LaplaceError: it does not fit; the message says how much it needs, and what would fit.
    """
    free, needed = available_memory(), precision_bytes(sites, settings, dtype)
    if free is None or needed <= free:
        return
    D = sum(site.size for site in sites)
    others = (
        Settings("gauss_newton", "block"),
        Settings("gauss_newton", "kronecker"),
        Settings("gauss_newton", "low_rank", rank=min(D, 100)),
        Settings("gauss_newton", "diagonal"),
    )
    fitting = [
        f'structure="{other.structure}"{f", rank={other.rank}" if other.rank else ""} '
        f"({_gib(need)})"
        for other in others
        if (need := precision_bytes(sites, other, dtype)) <= free
    ]
    what = "Hessian" if settings.curvature == "hessian" else f"{settings.structure} precision"
    raise LaplaceError(
        f"A {what} of {D:,} coordinates needs {_gib(needed)} of memory in {jnp.zeros(0, dtype).dtype.name} "
        f"({_COPIES} copies while it is made), and {_gib(free)} are available.",
        causes=["as many coordinates as a network has weights: memory grows with their square"],
        remedy='with curvature="gauss_newton" there would fit: ' + ", ".join(fitting) + "."
        if fitting
        else "use fewer parameters.",
    )


def require_dense(D: int, dtype: Any) -> None:
    """Refuse a (D, D) matrix, such as a covariance, that does not fit into memory.

    Args:
        D: how many coordinates.
        dtype: of its numbers.

    Raises:
        LaplaceError: it does not fit.
    """
    free, needed = available_memory(), 2 * D**2 * jnp.zeros(0, dtype).dtype.itemsize
    if free is not None and needed > free:
        raise LaplaceError(
            f"A dense matrix of {D:,} coordinates, made of the identity, needs {_gib(needed)} of memory "
            f"in {jnp.zeros(0, dtype).dtype.name}, and {_gib(free)} are available.",
            causes=["covariance, precision.matrix, inverse() or guide of a large approximation"],
            remedy="use precision.diagonal_of_inverse(), covariance_of(), solve() or sample(), which need no "
            "matrix.",
        )


def _gib(number: int) -> str:
    return f"{number / _GIB:,.2f} GiB" if number < 100 * _GIB else f"{number / _GIB:,.0f} GiB"
