"""Memory of a fit, in copies of the design matrix: 3 at most is the aim."""

import sys
from functools import partial
from typing import Any

from benchmarks.fits import WAYS, answer
from benchmarks.problems import data
from benchmarks.runner import Call, Row

TITLE = "Logistic regression, memory beyond the data, in copies of the design matrix"


def peak() -> float:
    """The most memory that this process has held, in bytes."""
    import resource  # which Windows lacks

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def made_in_jax(n: int, d: int) -> tuple[Any, Any]:
    """A problem made in JAX, a piece at a time: the peak before the fit is the data's own size."""
    import jax

    jax.config.update("jax_enable_x64", True)

    def piece(key):
        return jax.random.normal(key, (1_000, d), float)

    def features(key):
        return jax.lax.map(piece, jax.random.split(key, n // 1_000)).reshape(n, d)

    key = jax.random.key(0)
    return jax.jit(features)(key), jax.random.bernoulli(key, 0.5, (n,)).astype(float)


def copies(way: str, where: str, n: int, d: int) -> dict[str, Any]:
    """How far a fit raises the peak, after a small fit has set up all that depends on no data."""
    make = made_in_jax if where == "JAX" else partial(data, "logistic")
    fit = WAYS[way]("logistic")
    fit(*make(1_000, d))
    features, y = make(n, d)
    before = peak()
    found = answer(*fit(features, y))
    return {"copies": (peak() - before) / features.nbytes, **found}


def rows(quick: bool) -> list[Row]:
    """The comparisons."""
    n, d = (200_000 if quick else 1_000_000), 50

    def row(where):
        ours, peer = (Call(copies, (way, where, n, d)) for way in ("laplacebook", "scikit_learn"))
        against = "scikit-learn newton-cholesky, mode alone"
        what = f"{where} array, n = {n:,}, d = {d}"
        return Row(what, ours, peer, against, "copies", unit="copies")

    return [row("NumPy"), row("JAX")]
