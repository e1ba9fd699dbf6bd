"""The search for the mode of many coordinates: Newton's method on the exact Hessian, kept sparse.

The steps and the certificate are those of :mod:`laplacebook.search.newton_step`, in NumPy; in between the log joint
and the entries of its Hessian are two programs.
"""

from functools import partial

import jax
import numpy as np
from jaxtyping import Float

from laplacebook.base.errors import LaplaceError
from laplacebook.base.progress import progress
from laplacebook.base.quick import numbers_in, uncollected
from laplacebook.curvature.hessian import hessian_product
from laplacebook.curvature.precision_at import may_have_layers
from laplacebook.curvature.sparse_hessian import SparseHessian
from laplacebook.curvature.sparse_pattern import SMALL
from laplacebook.gaussian.memory import available_memory, gib
from laplacebook.gaussian.sparse import SparsePrecision
from laplacebook.gaussian.sparse_layout import SparseLayout
from laplacebook.model.density import ModelDensity
from laplacebook.search.certificate import Search
from laplacebook.search.driven import GivesUp, along, drive, looks_as_its_gradient
from laplacebook.search.looks import slope_look

_KEPT = 50
_PATTERNS: dict[tuple, SparseHessian] = {}
_NOT_SPARSE: dict[tuple, None] = {}
_COPIES = 6  # of the factor while it is made, with its structure
_SHARE = 1 / 8  # of a whole factor: one with more entries takes about as long


def sparse_search(
    density: ModelDensity, start: Float[np.ndarray, " D"], gives_up: GivesUp = None
) -> tuple[Search, bool]:
    """Where damped Newton steps from ``start`` end, with the precision there, and whether that is sound.

    Args:
        density: the log joint.
        start: shape (D,).
        gives_up: as in :func:`~laplacebook.search.driven.drive`.

    Raises:
        UnsupportedModel: the Hessian is not sparse.
        LaplaceError: its factor does not fit into memory, or its pattern misses an entry.
    """
    pattern = pattern_of(density, start)
    require_factor(density, pattern)
    found = _drive(density, pattern, start, gives_up)
    if _is_missed(density, pattern, found):
        reached = bool(found.certificate.converged)
        pattern = kept_pattern(density, found.point)
        require_factor(density, pattern)
        found = _drive(density, pattern, found.point if reached else start, gives_up)
        if _is_missed(density, pattern, found):
            where = "at the mode" if reached else "where the search ended without a mode"
            raise LaplaceError(
                f"A product with the Hessian of {density.name} {where} differs from that of the entries "
                "that were found: the pattern misses some.",
                causes=[
                    "a function of the model with a derivative of its own",
                    "a noisy log joint",
                ],
                remedy='use structure="dense".',
            )
    terms, valid = jax.device_get(found.beside)
    sound, found = bool(found.certificate.converged and valid), found._replace(beside=terms)
    return found, sound and looks_as_its_gradient(along(partial(slope_look, density)), found)


def search_if_sparse(
    density: ModelDensity, start: Float[np.ndarray, " D"], gives_up: GivesUp
) -> tuple[Search, bool] | None:
    """What :func:`sparse_search` returns, where the Hessian turns out to be sparse; else None.

    None too of up to 500 coordinates, where the extra ``sparse`` is not installed, in single precision, of a network,
    and where the data have so many numbers that they may hold a row for each coordinate.

    Args:
        density: the log joint.
        start: shape (D,).
        gives_up: as in :func:`~laplacebook.search.driven.drive`.
    """
    if density.program in _NOT_SPARSE or start.dtype != float or may_have_layers(density):
        return None
    if start.size <= SMALL or numbers_in(density) > start.size**2 / 2:
        return None
    try:
        if pattern_of(density, start).layout.fill <= _SHARE * start.size**2 / 2:
            return sparse_search(density, start, gives_up)
    except (ImportError, LaplaceError):  # not sparse, entries that a pattern misses, or memory
        pass
    while len(_NOT_SPARSE) >= _KEPT:
        del _NOT_SPARSE[next(iter(_NOT_SPARSE))]
    _NOT_SPARSE[density.program] = None
    return None


@uncollected
def pattern_of(density: ModelDensity, u: Float[np.ndarray, " D"]) -> SparseHessian:
    """Where the Hessian has entries: kept for a model and the shapes of its data, and looked at again at u.

    Args:
        density: the log joint.
        u: a point in its domain, shape (D,).
    """
    known = _PATTERNS.get(density.program)
    if known is not None:
        precision = known.precision(jax.device_get(known.parts_at(density, u)))
        if not known.misses(density, u, precision):
            return known
    return kept_pattern(density, u)


def known_pattern(density: ModelDensity) -> SparseHessian:
    """The pattern that a search has found."""
    return _PATTERNS[density.program]


def kept_pattern(density: ModelDensity, u: Float[np.ndarray, " D"]) -> SparseHessian:
    """The pattern found anew about u of shape (D,), and kept."""
    found = SparseHessian.of(density, u)
    while len(_PATTERNS) >= _KEPT:
        del _PATTERNS[next(iter(_PATTERNS))]
    _PATTERNS[density.program] = found
    return found


def require_factor(density: ModelDensity, pattern: SparseHessian) -> None:
    """Refuse a factor that does not fit into memory, before it is made.

    Raises:
        LaplaceError: it does not; the message says how large it would be.
    """
    layout = pattern.layout
    needed, free = _COPIES * 8 * layout.fill, available_memory()
    if free is None or needed <= free:
        return
    raise LaplaceError(
        f"The sparse Hessian of {density.name} has {layout.rows.size:,} entries, but its factor has {layout.fill:,}, "
        f"which takes {gib(needed)}, and {gib(free)} are available.",
        causes=["sites that are crossed by thousands each, or a lattice of three dimensions"],
        remedy='of crossed effects with independent priors curvature="gauss_newton" with structure="diagonal" '
        "gives the mode; of anything, NumPyro's SVI with AutoLowRankMultivariateNormal draws.",
    )


def _is_missed(density: ModelDensity, pattern: SparseHessian, found: Search) -> bool:
    """Whether the pattern misses an entry where a search ended, be it at a mode or without one."""
    if found.certificate.converged:
        return pattern.misses(density, found.point, found.curvature)
    there = pattern.precision(jax.device_get(pattern.parts_at(density, found.point)))
    product = np.asarray(hessian_product(density, found.point, np.ones_like(found.point)))
    known = np.isfinite(there.entries).all() and np.isfinite(product).all()
    return bool(known) and pattern.misses(density, found.point, there)


def _drive(
    density: ModelDensity, pattern: SparseHessian, start: np.ndarray, gives_up: GivesUp
) -> Search:
    layout = SparseLayout.of(start.size, np.arange(0), np.arange(0))
    identity = SparsePrecision.of(layout, np.ones_like(start))
    with progress(None, None, unit="step", desc=f"{pattern.layout.fill:,} numbers a factor") as bar:

        def hessian_at(u: np.ndarray) -> SparsePrecision:
            bar.update()
            return pattern.precision(jax.device_get(pattern.parts_at(density, u)))

        look_at = partial(slope_look, density)
        return drive(look_at, start, hessian_at, identity, gives_up=gives_up)
