"""Data larger than memory, and data on eight devices that share the cores of one."""

import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.clock import repeated
from benchmarks.memory import peak
from benchmarks.problems import data
from benchmarks.runner import Call, Row

TITLE = "Logistic regression in chunks, and on eight simulated devices"
D = 20
PIECE = 1_000_000  # rows of a chunk, and of what is written at a time


def in_chunks(n: int, size: int) -> dict[str, Any]:
    """Seconds a row of the next fit from memory maps, and GiB beyond a chunk that it held."""
    import numpy as np
    import numpyro

    import laplacebook as lb

    numpyro.enable_x64()
    model = lb.models.logistic_regression
    with tempfile.TemporaryDirectory() as folder:
        features, classes = (
            np.lib.format.open_memmap(Path(folder) / name, "w+", float, shape)
            for name, shape in (("features.npy", (n, D)), ("classes.npy", (n,)))
        )
        for start in range(0, n, size):
            some = slice(start, start + size)
            features[some], classes[some] = data("logistic", min(size, n - start), D)
        few = lb.Chunks(features[: 2 * size], classes[: 2 * size], size=size)
        lb.laplace_of_chunks(model, few)
        features.flush()

        def fit():
            all_rows = lb.Chunks(features, classes, size=size)
            return lb.laplace_of_chunks(model, all_rows, progress_bar=False).mode_vector

        seconds = repeated(fit, 2)
        held = _anonymous() - size * (D + 1) * 8
    return {"seconds": seconds / n, "GiB": held / 2**30, "peak GiB": peak() / 2**30}


def _anonymous() -> float:
    """Bytes in memory that are of no file, where the system tells; else all."""
    status = Path("/proc/self/status")
    if not status.exists():
        return peak()
    line = next(x for x in status.read_text().splitlines() if x.startswith("RssAnon"))
    return 1024 * float(line.split()[1])


def in_memory(n: int) -> dict[str, Any]:
    """Seconds a row of the next fit of arrays of JAX."""
    return {"seconds": on_devices(n, 1)["seconds"] / n}


def on_devices(n: int, devices: int) -> dict[str, Any]:
    """Seconds of the next fit of rows spread over simulated devices."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    import jax
    import numpyro

    import laplacebook as lb

    numpyro.enable_x64()
    arrays = [jax.block_until_ready(lb.shard(x)) for x in data("logistic", n, D)]

    def fit():
        return lb.laplace(lb.models.logistic_regression, *arrays).mode_vector

    fit()
    return {"seconds": repeated(fit), "devices": jax.device_count()}


def rows(quick: bool) -> list[Row]:
    """The comparisons."""
    few, many = (10_000, 100_000) if quick else (PIECE, 10 * PIECE)
    return [
        Row(
            f"a row of n = {many:,} in chunks of {few:,}, d = {D}",
            Call(in_chunks, (many, few)),
            Call(in_memory, (few,)),
            f"a row of n = {few:,} in memory",
        ),
        Row(
            f"n = {few:,}, d = {D} on eight devices",
            Call(on_devices, (few, 8)),
            Call(on_devices, (few, 1)),
            "on one device, the same cores",
        ),
    ]
