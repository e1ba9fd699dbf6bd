"""A release of JAX's compiler that makes programs which compute wrong numbers."""

import warnings

from jaxlib.version import __version__ as _JAXLIB

_WRONG = "0.10.2"


def warn_of_compiler(jaxlib: str = _JAXLIB) -> None:
    """Warn where jaxlib is 0.10.2, which pip does not install beside this package.

    On a CPU its programs sum wrong numbers where a matrix has been applied to some thousands of rows:
    ``jax.vmap(lambda row: jnp.sum((matrix @ row) ** 2))(rows)`` of 20,000 rows, or
    ``jnp.sum((rows @ matrix) * rows, 1)`` with a matrix of equal entries (jax-ml/jax, issue 39103). With 0.10.1 both
    are right.

    Args:
        jaxlib: its version.

    Warns:
        RuntimeWarning: it is that one.
    """
    if jaxlib == _WRONG:
        warnings.warn(
            f"On a CPU the programs of jaxlib {_WRONG} sum wrong numbers where a matrix has been applied to thousands "
            'of rows, and do not say so. Install another one: pip install "jaxlib!=0.10.2".',
            RuntimeWarning,
            stacklevel=3,
        )
