"""Set-up of tests and of doctests, which is why it is not in tests/.

A chapter's kernel is another process and sees none of it.
"""

import warnings

import numpyro
import pytest
from jaxtyping import install_import_hook

numpyro.enable_x64()
# Before the first import of the package: its annotated shapes are then checked at every call.
install_import_hook("laplacebook", "beartype.beartype")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Have ArviZ write the date of its daily warning before the workers do, each over the other's file."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        import arviz  # noqa: F401
