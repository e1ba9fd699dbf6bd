"""The integrals over sparse effects that are kept, by the program of the density."""

import numpy as np

from laplacebook.beyond.sparse_integral import SparseIntegral
from laplacebook.model.density import ModelDensity
from laplacebook.model.start import off_centre
from laplacebook.search.looks import middle
from laplacebook.search.sparse_search import pattern_of, require_factor

_INTEGRALS: dict[tuple, SparseIntegral] = {}
_KEPT = 50


def keep_integral(density: ModelDensity) -> int:
    """Look at the pattern of a density, where its numbers are known, for all programs of such densities.

    Returns:
        The number of the pattern, another one for each.

    Raises:
        UnsupportedModel, LaplaceError: as :func:`~laplacebook.search.sparse_search.sparse_search` says.
    """
    start = np.asarray(middle(density), float)
    start = off_centre(start, np.full_like(start, np.inf))
    pattern = pattern_of(density, start)
    known = _INTEGRALS.get(density.program)
    if known is None or known.pattern is not pattern:
        require_factor(density, pattern)
        number = 0 if known is None else known.number + 1
        while len(_INTEGRALS) >= _KEPT:
            del _INTEGRALS[next(iter(_INTEGRALS))]
        known = _INTEGRALS[density.program] = SparseIntegral(pattern, start, number)
    return known.number


def kept_integral(density: ModelDensity) -> SparseIntegral | None:
    """The integral of a density that was looked at; else None."""
    return _INTEGRALS.get(density.program)
