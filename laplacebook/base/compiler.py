"""Releases of JAX's compiler that make programs which compute wrong numbers."""

import os
import re
import warnings
from collections.abc import Callable

from jaxlib.version import __version__ as _JAXLIB

_WRONG = (0, 10, 2), (0, 12, 0)  # the first and the last that were tried
_OPTION = "xla_cpu_experimental_ynn_fusion_type"


def _has_started() -> bool:
    from jax._src.xla_bridge import backends_are_initialized  # which these releases have

    return backends_are_initialized()


def mend_compiler(jaxlib: str = _JAXLIB, has_started: Callable[[], bool] = _has_started) -> None:
    """Have jaxlib 0.10.2 to 0.12.0 compute right sums on a CPU: by ``XLA_FLAGS``, of this process.

    They hand sums over products to a library, YNNPACK, and where a matrix has been applied to thousands of rows they
    sum wrong numbers and do not say so: ``jax.jit(lambda rows: jnp.sum(rows @ jnp.ones((5, 5)), 1))`` of 20,000 rows,
    and with 0.10.2 that of ``(matrix @ row) ** 2`` by ``vmap`` with any matrix (jax-ml/jax, issue 39103). Without the
    library, as up to 0.10.1, both are right. XLA reads its flags once, when the first array is made.

    Args:
        jaxlib: its version.
        has_started: whether XLA has read its flags.

    Warns:
        RuntimeWarning: it has, and computes wrong numbers.
    """
    first, last = _WRONG
    version = tuple(int(number) for number in re.findall(r"\d+", jaxlib)[:3])
    flags = os.environ.get("XLA_FLAGS", "")
    if not first <= version <= last or _OPTION in flags:
        return
    if not has_started():
        os.environ["XLA_FLAGS"] = f"{flags} --{_OPTION}=".strip()
        return
    warnings.warn(
        f"On a CPU the programs of jaxlib {jaxlib} sum wrong numbers where a matrix has been applied to thousands of "
        "rows, and do not say so. Import laplacebook, which sees to that, before JAX makes its first array; or set "
        f'XLA_FLAGS="--{_OPTION}=" before Python starts; or pip install "jax<0.10.2".',
        RuntimeWarning,
        stacklevel=3,
    )
