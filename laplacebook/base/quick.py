"""Programs that would be compiled for longer than they run."""

import functools
import gc
import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, cast

import jax
import numpy as np

from laplacebook.base.devices import near, platform

try:
    from jax.extend.core import get_opaque_trace_state
except ImportError:  # JAX 0.8
    from jax.core import get_opaque_trace_state

# Compiled in a third of the time; what takes long runs two or three times as long.
_OPTIONS = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 0}
# To divide a small program among threads takes longer than to compile it on one.
_UNDIVIDED = _OPTIONS | {"xla_cpu_parallel_codegen_split_count": 1}
_AS_WRITTEN = _UNDIVIDED | {"xla_disable_hlo_passes": "algsimp"}
SMALL = 2**22  # numbers to compute: a few milliseconds
_F = TypeVar("_F", bound=Callable)
# Compiled in half the time; what takes long runs a tenth or two longer.
_HALF_OPTIONS = {"xla_cpu_use_fusion_emitters": False, "xla_backend_optimization_level": 1}
MEDIUM = 2**28
# Those that this compiler does not have: they come and go with its versions.
_unknown: set[str] = set()
_FITS = threading.RLock()
_EAGER = get_opaque_trace_state()


def is_eager() -> bool:
    """Whether this runs outside of all transformations of JAX, so that every number is known."""
    return get_opaque_trace_state() == _EAGER


def at_once() -> AbstractContextManager:
    """Where what is known is computed, within a program too, and not made a part of it.

    Outside of programs there is nothing to do, and JAX would compile each operation of what is traced there by itself.
    """
    return nullcontext() if is_eager() else jax.ensure_compile_time_eval()


def numbers_in(tree: Any) -> int:
    """How many numbers the arrays of a pytree have together."""
    return sum(np.size(leaf) for leaf in jax.tree.leaves(tree))


def most_rows(tree: Any) -> int:
    """How many rows the longest array of a pytree has."""
    return max((np.shape(leaf)[0] for leaf in jax.tree.leaves(tree) if np.ndim(leaf)), default=0)


def undisturbed() -> AbstractContextManager:
    """Where no other thread fits a model: NumPyro has one stack of handlers, which one run of a model changes for all.

    Entered before JAX traces anything, whose own locks would be taken in another order. A callback that a program makes
    to Python is in a thread of XLA's, for which the thread that entered here waits: it does not wait itself.
    """
    is_callback = isinstance(threading.current_thread(), threading._DummyThread)
    return nullcontext() if is_callback else _FITS


def in_full_precision(function: _F) -> _F:
    """The function, with all products of matrices in the precision of their factors, and :func:`undisturbed`.

    Outside of programs what has few numbers is computed :func:`~laplacebook.base.devices.near`.

    In single precision JAX rounds the factors to 10 bits on recent GPUs, and to 8 on TPUs, unless
    told otherwise: so rounded a mode moves by some hundredths of a standard deviation.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        place = near((args, kwargs)) if is_eager() else nullcontext()
        with undisturbed(), place, jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return cast(_F, call)


def uncollected(function: _F) -> _F:
    """The function, in which Python's collector of cyclic garbage is off; left off if it was.

    Traces make objects by the hundred thousand that stay. After every few of them Python looks through all that
    there are, a tenth of a second each time once JAX is imported and three tenths after some programs, and finds
    next to nothing: one tenth of the time of whole sessions. What is garbage is found by the first look after the call.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not gc.isenabled():
            return function(*args, **kwargs)
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            gc.enable()

    return cast(_F, call)


def jit(function: Callable, **static: Any) -> Callable:
    """``jax.jit`` :func:`in_full_precision`.

    Args:
        function: pure.
        static: what else ``jax.jit`` takes.
    """
    program = jax.jit(uncollected(function), **static)  # while it is traced

    @functools.wraps(function, ("__name__", "__doc__"))
    @in_full_precision
    def call(*args: Any, **kwargs: Any) -> Any:
        return program(*args, **kwargs)

    call.lower, call._cache_size = program.lower, program._cache_size  # type: ignore[attr-defined]
    return call


def _jit_with(options: dict[str, Any], function: Callable, **static: Any) -> Callable:
    """:func:`jit` with those of the options that this compiler has.

    Only without those by which it is quicker: without others the numbers would not be what the caller counts on.
    """

    @functools.cache
    def program(unknown: frozenset[str]) -> Callable:
        known = {name: value for name, value in options.items() if name not in unknown}
        return jit(function, compiler_options=known, **static)

    def call(*args: Any, **kwargs: Any) -> Any:
        while True:
            unknown = frozenset(_unknown)
            try:
                return program(unknown)(*args, **kwargs)
            except jax.errors.JaxRuntimeError as error:
                name = re.search(r"No such compile option: '(\w+)'", str(error))
                if not name or name[1] in unknown or name[1] not in _UNDIVIDED:
                    raise
                _unknown.add(name[1])

    call._cache_size = lambda: program(frozenset(_unknown))._cache_size()  # type: ignore[attr-defined]
    return call


def jit_as_written(function: Callable, **static: Any) -> Callable:
    """``jax.jit`` of what is computed as it is written, one operation after the other, where it is called eagerly.

    The compiler would first simplify: ``(x - 1) + c`` to ``x + (c - 1)``, which beside x = 1 is another number.

    Args:
        function: pure, with little to compute.
        static: ``static_argnames`` or ``static_argnums``, as ``jax.jit`` takes them.
    """
    program = _jit_with(_AS_WRITTEN, function, **static)

    @functools.wraps(function, ("__name__", "__doc__"))
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_eager():
            return function(*args, **kwargs)
        with near((args, kwargs)):
            return (program if platform() == "cpu" else function)(*args, **kwargs)

    return call


def jit_quickly(
    function: Callable,
    work: Callable[..., int] | None = None,
    half: bool = False,
    divided: bool = False,
    **static: Any,
) -> Callable:
    """``jax.jit`` with less optimisation where it is called eagerly and has little to compute.

    JAX takes options of the compiler for a whole program only, so within another it is plain ``jit``.

    What is returned has an attribute ``for_work``: a function from how many numbers are computed to the program for
    so many, where that is decided by who calls.

    Args:
        function: pure.
        work: from its arguments to how many numbers it computes, about; by default as many as they
            have. Up to four million it is little.
        half: whether with more than little to compute, up to 270 million numbers, half of the
            optimisation is enough.
        divided: whether its compilation is divided among threads, as without options, also where it has little
            to compute. That changes the rounding, and so where the search of a network with many modes ends.
        static: ``static_argnames`` or ``static_argnums``, as ``jax.jit`` takes them.
    """
    plain, options = jit(function, **static), _OPTIONS if divided else _UNDIVIDED
    quick = _jit_with(options, function, **static)
    halfway = _jit_with(_HALF_OPTIONS, function, **static) if half else plain

    def for_work(numbers: int) -> Callable:
        # The options are those of the compiler for the CPU, and others do not know them.
        if not is_eager() or platform() != "cpu":
            return plain
        return quick if numbers <= SMALL else halfway if numbers <= MEDIUM else plain

    @functools.wraps(function, ("__name__", "__doc__"))
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_eager():
            return plain(*args, **kwargs)
        with near((args, kwargs)):
            return for_work((work or _given)(*args, **kwargs))(*args, **kwargs)

    call.lower, call.for_work = plain.lower, for_work  # type: ignore[attr-defined]
    return call


def _given(*args: Any, **kwargs: Any) -> int:
    return numbers_in((args, kwargs))
