"""Set-up of tests and of doctests, which is why it is not in tests/.

A chapter's kernel is another process and sees none of it.
"""

import functools
import gc
import inspect
import os
import warnings
from collections.abc import Callable, Generator
from dataclasses import is_dataclass
from itertools import count
from pathlib import Path
from typing import Any, get_args

import jax
import jaxtyping
import numpyro
import pytest
from beartype.claw import beartype_package
from beartype.roar import BeartypeCallHintViolation
from jaxtyping._decorator import _destring_annotation
from xdist.scheduler import LoadScopeScheduling

# To keep on a disk what is compiled as quickly as here takes longer than to compile it again. Chapters, which are
# other processes, do.
jax.config.update("jax_enable_compilation_cache", False)

# XLA's older generator of code for loops, which jaxlib has up to 0.10, takes half the time of the other, and a program
# that is not divided into parts for several threads is compiled in up to half of it; the time of these tests is
# compilation. XLA reads its flags once: the kernels of the chapters, and make book, take the default, as a
# reader does.
FLAGS = "--xla_cpu_parallel_codegen_split_count=1"
if jax.__version_info__ < (0, 11):
    FLAGS += " --xla_cpu_use_fusion_emitters=false"
if (0, 10, 2) <= jax.__version_info__ < (0, 12, 1):  # as the package does, whose import comes later
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_experimental_ynn_fusion_type="
    )
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("XLA_FLAGS", FLAGS, prepend=" ")
    jax.jit(lambda x: x + 1)(1.0)


def share_compiler_contexts() -> None:
    """One for a hundred programs: for each, as JAX makes them, takes a seventh of the time of these tests.

    Within another program it is made as ever: what is added to a context may go into the program that is open in it.
    """
    from jax._src.interpreters import mlir

    make, number = mlir.make_ir_context, count()
    of_hundred = functools.lru_cache(maxsize=1)(lambda _: make())
    mlir.make_ir_context = lambda: (
        make() if mlir.ir.Context.current else of_hundred(next(number) // 100)
    )


if jax.__version_info__ >= (0, 10):
    share_compiler_contexts()
numpyro.enable_x64()
jaxtyped = jaxtyping.jaxtyped
gc.disable()  # till all is imported: see pytest_collection_finish


def has_shape(kind: Any) -> bool:
    """Whether sizes are a part of a type, or of one that it is made of."""
    of_jaxtyping = (getattr(kind, "__module__", None) or "").startswith("jaxtyping")
    return of_jaxtyping or any(has_shape(part) for part in get_args(kind))


def checked(function: Any = None, *, typechecker: Callable) -> Any:
    """``jaxtyping.jaxtyped`` in a third of its time, or less: its own matches arguments with names at every call.

    The sizes of a shape are those of one call, of its arguments and of what it returns, as there.
    """
    if function is None:
        return functools.partial(checked, typechecker=typechecker)
    if inspect.isclass(function):
        if is_dataclass(function):
            function.__init__ = checked(function.__init__, typechecker=typechecker)
        return function
    written = function.__annotations__
    function.__annotations__ = {  # names that are imported for mypy alone are Any
        name: _destring_annotation(kind, function.__globals__) for name, kind in written.items()
    }
    typed = typechecker(function)
    shaped = any(has_shape(kind) for kind in function.__annotations__.values())
    function.__annotations__ = written
    if typed is function:
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        try:
            if not shaped:
                return typed(*args, **kwargs)
            with jaxtyped("context"):
                return typed(*args, **kwargs)
        except BeartypeCallHintViolation as error:
            raise jaxtyping.TypeCheckError(str(error)) from error

    return call


# Before the first import of the package: its annotated shapes are then checked at every call. A model
# within such a check is a closure, of which every trace would read all that it reaches, a hundred
# times for a fit: the models are checked in tests/test_models.py. The reader of programs has
# no shapes, and the types alone are checked at less cost.
READER = "laplacebook.model.fingerprint"
ROOT = Path(__file__).parent
LONGEST = ("tests/beyond", "tests/trust", "book")
FILES = (ROOT / "laplacebook").rglob(
    "*.py"
)  # not by pkgutil, which imports the folders that it walks
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in FILES}
CHECKED = {name for name in MODULES if not name.endswith("__init__")}
jaxtyping.jaxtyped = checked  # what the hook writes before each function
jaxtyping.install_import_hook(sorted(CHECKED - {"laplacebook.models", READER}), "beartype.beartype")
beartype_package(READER)


def needs_no_sparse_precision() -> Generator[None, Any, Any]:
    """A test of it is skipped with a JAX, older or newer, for which its packages are not made."""
    try:
        return (yield)
    except ImportError as error:
        if "laplacebook[sparse]" not in str(error):
            raise
        pytest.skip(str(error))


if not (0, 9) <= jax.__version_info__ < (0, 12):
    pytest_runtest_setup = pytest_runtest_call = pytest.hookimpl(wrapper=True)(
        needs_no_sparse_precision
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The folders whose files take longest come first, so that no worker is left with one of them at the end.

    For that pyproject.toml tells xdist not to put the files with most tests first.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_collection_finish() -> None:
    """A garbage collector that leaves alone what was imported, and comes less often: 5 % of the time."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000, 50, 100)


class ByPage(LoadScopeScheduling):
    """All tests of one page to one worker, which then opens it once for each view.

    The marks of ``--dist loadgroup`` are ignored with pytest 9.2, silently.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("[")[2] or nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    """What ``make browser-test`` asks for by ``--dist loadgroup``; else what pytest has."""
    return ByPage(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Have ArviZ write the date of its daily warning before the workers do, each over the other's file."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        import arviz  # noqa: F401
