"""Which curvature a Laplace approximation is made of, and how much of it is kept."""

from dataclasses import dataclass
from numbers import Real
from typing import Any

from laplacebook.checks import require_number

__all__ = ["DENSE_HESSIAN", "Settings"]

CURVATURES = ("hessian", "gauss_newton", "empirical_fisher")
STRUCTURES = ("dense", "diagonal", "block", "kronecker", "low_rank", "last_layer")
_OF_THE_HESSIAN = ("dense", "diagonal", "block", "last_layer")


@dataclass(frozen=True)
class Settings:
    """The options of a fit that are part of its program.

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
