"""Which curvature a Laplace approximation is made of, and how much of it is kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from numbers import Real
from typing import Any

import jax.numpy as jnp

from laplacebook.base.checks import require_number
from laplacebook.base.errors import LaplaceError
from laplacebook.gaussian.memory import available_memory, gib
from laplacebook.model.sites import Site

CURVATURES = ("hessian", "gauss_newton", "empirical_fisher")
STRUCTURES = ("dense", "diagonal", "block", "kronecker", "low_rank", "last_layer", "sparse")
#: matrices at once, by XLA's own count for the compiled search and its result; see tests/gaussian
COPIES = {"hessian": 11, "gauss_newton": 6, "empirical_fisher": 6}
_OF_THE_HESSIAN = ("dense", "diagonal", "block", "last_layer", "sparse")


@dataclass(frozen=True)
class Settings:
    """The options of a fit: all but the tolerance are part of its program.

    Attributes:
        curvature: ``"hessian"``, ``"gauss_newton"`` or ``"empirical_fisher"``, of the likelihood;
            that of the prior is always its Hessian.
        structure: what is kept of it: ``"dense"``, ``"diagonal"``, ``"block"`` (one a latent site),
            ``"kronecker"``, ``"low_rank"`` or ``"last_layer"``.
        rank: of ``"low_rank"``.
        batch_size: rows of data at a time; None: so many that their gradients fit into a cache.
        tolerance: the largest Newton decrement, in posterior standard deviations, that passes for a
            mode: a number between 0 and 1; None: 1.5e-8, and 0.001 in single precision.

    Raises:
        ValueError: there is no such value, or the two do not go together.
    """

    curvature: str = "hessian"
    structure: str = "dense"
    rank: int | None = None
    batch_size: int | None = None
    tolerance: float | None = None

    def __post_init__(self) -> None:
        for name, value, known in (
            ("curvature", self.curvature, CURVATURES),
            ("structure", self.structure, STRUCTURES),
        ):
            if value not in known:
                raise ValueError(f"{name} is one of {', '.join(known)}, not {value!r}.")
        if self.curvature == "hessian" and self.structure not in _OF_THE_HESSIAN:
            raise ValueError(
                f'structure="{self.structure}" is made of derivatives of the outputs of the model, and '
                'the Hessian is not: use curvature="gauss_newton", or one of the structures '
                f"{', '.join(_OF_THE_HESSIAN)}."
            )
        if self.structure == "sparse" and self.curvature != "hessian":
            raise ValueError(
                f'structure="sparse" is of curvature="hessian", not of {self.curvature!r}.'
            )
        if (self.rank is not None) != (self.structure == "low_rank"):
            raise ValueError(
                f'structure="low_rank" and rank= go together, not {self.structure!r} and {self.rank}.'
            )
        inexact = self.batch_size is not None or self.tolerance is not None
        if inexact and self.curvature == "hessian" and self.structure != "last_layer":
            raise ValueError(
                'batch_size and tolerance are of curvature="gauss_newton" or "empirical_fisher": the '
                "Hessian takes all rows at once, and its mode is certified to rounding."
            )
        if self.curvature == "empirical_fisher" and self.structure == "low_rank":
            raise ValueError('structure="low_rank" is of curvature="gauss_newton".')
        for name in ("rank", "batch_size"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name))
        if self.tolerance is not None and not _is_between(self.tolerance):
            raise ValueError(
                "tolerance, the Newton decrement in posterior standard deviations that passes for a "
                f"mode, must be a Python number above 0 and below 1, not {self.tolerance!r}."
            )


def _is_between(tolerance: Any) -> bool:
    return isinstance(tolerance, Real) and 0 < float(tolerance) < 1


DENSE_HESSIAN = Settings()


def precision_bytes(
    sites: tuple[Site, ...],
    settings: Settings,
    dtype: Any,
    weights: Mapping[int, tuple[int, int]] | None = None,
) -> int:
    """The memory that a precision takes while it is made, in bytes.

    Args:
        sites: the latent sites.
        settings: of the fit.
        dtype: of its numbers.
        weights: for a Kronecker structure, the inputs and outputs of the sites that are the weights of
            layers; where they are not known, the least that it may take.
    """
    sizes = [site.size for site in sites]
    D = sum(sizes)
    numbers = {
        "dense": D**2,
        "last_layer": D**2,
        "diagonal": D,
        "block": sum(size**2 for size in sizes),
        "kronecker": sum(_factors(site, i, weights) for i, site in enumerate(sites)),
        "low_rank": D * (settings.rank or 0) * 3,
    }[settings.structure]
    whole = D**2 if settings.curvature == "hessian" else 0
    return COPIES[settings.curvature] * max(numbers, whole) * jnp.zeros(0, dtype).dtype.itemsize


def _factors(site: Site, number: int, weights: Mapping[int, tuple[int, int]] | None) -> int:
    """Numbers in the factors of a weight, or in the block of another site."""
    if weights is not None:
        shapes = [weights[number]] if number in weights else []
    else:
        outputs = {site.shape[0], site.shape[-1]} if len(site.shape) > 1 else set()
        shapes = [(site.size // max(k, 1), k) for k in outputs]
    factors = [m**2 + k**2 + site.size for m, k in shapes]
    may_be_block = not shapes or (weights is None and len(site.shape) > 2)
    return min([*factors, site.size**2] if may_be_block else factors)


def require_memory(
    sites: tuple[Site, ...],
    settings: Settings,
    dtype: Any,
    weights: Mapping[int, tuple[int, int]] | None = None,
) -> None:
    """Refuse a precision that does not fit into memory.

    Args:
        sites: the latent sites.
        settings: of the fit.
        dtype: of its numbers.
        weights: as of :func:`precision_bytes`.

    Raises:
        LaplaceError: it does not fit; the message says how much it needs, and what would fit.
    """
    if settings.structure == "sparse":  # of which only the program knows how much it is
        return
    free, needed = available_memory(), precision_bytes(sites, settings, dtype, weights)
    if free is not None and needed > free:
        raise out_of_memory(sites, settings, f"{gib(free)} are available", free, weights)


def out_of_memory(
    sites: tuple[Site, ...],
    settings: Settings,
    why: str,
    free: int | float = inf,
    weights: Mapping[int, tuple[int, int]] | None = None,
) -> LaplaceError:
    """The error for a fit that does not fit into memory.

    Args:
        sites: the latent sites.
        settings: of the fit.
        why: what is known of the memory there is.
        free: how many bytes that are, if it is known.
        weights: as of :func:`precision_bytes`.
    """
    dtype = jnp.result_type(float)
    needed = precision_bytes(sites, settings, dtype, weights)
    free = min(free, needed - 1)
    D = sum(site.size for site in sites)
    others = (
        Settings("gauss_newton", "block"),
        Settings("gauss_newton", "kronecker"),
        Settings("gauss_newton", "low_rank", rank=min(D, 100)),
        Settings("gauss_newton", "diagonal"),
    )
    fitting = [
        f'structure="{other.structure}"{f", rank={other.rank}" if other.rank else ""} ({gib(need)})'
        for other in others
        if (need := precision_bytes(sites, other, dtype, weights)) <= free
    ]
    what = "Hessian" if settings.curvature == "hessian" else f"{settings.structure} precision"
    return LaplaceError(
        f"A {what} of {D:,} coordinates needs {gib(needed)} of memory in {jnp.zeros(0, dtype).dtype.name} "
        f"({COPIES[settings.curvature]} copies while it is made), and {why}.",
        causes=["as many coordinates as a network has weights: memory grows with their square"],
        remedy='with curvature="gauss_newton" there would fit: ' + ", ".join(fitting) + "."
        if fitting
        else "use fewer parameters.",
    )
