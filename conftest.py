"""Set-up of tests and of doctests, which is why it is not in tests/.

A chapter's kernel is another process and sees none of it.
"""

import gc
import warnings
from pathlib import Path
from typing import Any

import jax
import numpyro
import pytest
from beartype.claw import beartype_package
from jaxtyping import install_import_hook
from xdist.scheduler import LoadScopeScheduling

# XLA's older generator of code for loops takes half the time of the default one, and the time of these
# tests is compilation. XLA reads its flags once: the kernels of the chapters, and make book, take the
# default, as a reader does.
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false", prepend=" ")
    jax.jit(lambda x: x + 1)(1.0)

numpyro.enable_x64()
# Before the first import of the package: its annotated shapes are then checked at every call. A model
# within such a check is a closure, of which every trace would read all that it reaches, a hundred
# times for a fit: the models are checked in tests/test_models.py. The reader of programs has
# no shapes, and the types alone are checked at less cost.
READER = "laplacebook.model.fingerprint"
ROOT = Path(__file__).parent
FILES = (ROOT / "laplacebook").rglob(
    "*.py"
)  # not by pkgutil, which imports the folders that it walks
MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in FILES}
CHECKED = {name for name in MODULES if not name.endswith("__init__")}
install_import_hook(sorted(CHECKED - {"laplacebook.models", READER}), "beartype.beartype")
beartype_package(READER)


def pytest_collection_finish() -> None:
    """A garbage collector that leaves alone what was imported, and comes less often: 5 % of the time."""
    gc.collect()
    gc.freeze()
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
