"""Set-up of tests and of doctests, which is why it is not in tests/.

A chapter's kernel is another process and sees none of it.
"""

import numpyro
from jaxtyping import install_import_hook

numpyro.enable_x64()
# Before the first import of the package: its annotated shapes are then checked at every call.
install_import_hook("laplacebook", "beartype.beartype")
