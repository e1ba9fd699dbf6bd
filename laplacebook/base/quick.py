"""Programs that would be compiled for longer than they run."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # JAX 0.7
    from jax.core import get_opaque_trace_state

# Compiled in a third of the time; what takes long runs two or three times as long.
_OPTIONS = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
SMALL = 2**22  # numbers to compute: a few milliseconds
# Compiled in half the time; what takes long runs a tenth or two longer.
_HALF_OPTIONS = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
MEDIUM = 2**28
_EAGER = get_opaque_trace_state()


def is_eager() -> bool:
    """Whether this runs outside of all transformations of JAX, so that every number is known."""
    return get_opaque_trace_state() == _EAGER


def numbers_in(tree: Any) -> int:
    """How many numbers the arrays of a pytree have together."""
    return sum(np.size(leaf) for leaf in jax.tree.leaves(tree))


def jit_quickly(
    function: Callable,
    work: Callable[..., int] | None = None,
    half: bool = False,
    **static: Any,
) -> Callable:
    """``jax.jit`` with less optimisation where it is called eagerly and has little to compute.

    JAX takes options of the compiler for a whole program only, so within another it is plain ``jit``.

    Args:
        function: pure.
        work: from its arguments to how many numbers it computes, about; by default as many as they
            have. Up to four million it is little.
        half: whether with more than little to compute, up to 270 million numbers, half of the
            optimisation is enough.
        static: ``static_argnames`` or ``static_argnums``, as ``jax.jit`` takes them.
    """
    plain = jax.jit(function, **static)
    quick = jax.jit(function, compiler_options=_OPTIONS, **static)
    halfway = jax.jit(function, compiler_options=_HALF_OPTIONS, **static) if half else plain

    @functools.wraps(function, ("__name__", "__doc__"))
    def call(*args: Any, **kwargs: Any) -> Any:
        # The options are those of the compiler for the CPU, and others do not know them.
        if not is_eager() or jax.default_backend() != "cpu":
            return plain(*args, **kwargs)
        numbers = (work or _given)(*args, **kwargs)
        program = quick if numbers <= SMALL else halfway if numbers <= MEDIUM else plain
        return program(*args, **kwargs)

    call.lower = plain.lower  # type: ignore[attr-defined]
    return call


def _given(*args: Any, **kwargs: Any) -> int:
    return numbers_in((args, kwargs))
