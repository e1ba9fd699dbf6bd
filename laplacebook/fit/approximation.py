"""What stands for a posterior without being one Gaussian, as far as functions that take it ask."""

from typing import Protocol, runtime_checkable

from jaxtyping import Array, Float, Key

from laplacebook.model.density import ModelDensity


@runtime_checkable
class Mixture(Protocol):
    """An approximation that has draws and a log evidence, but no mode of everything and no precision."""

    @property
    def density(self) -> ModelDensity:
        """The log joint that is approximated."""

    @property
    def log_evidence(self) -> float:
        """log p(D)."""

    @property
    def doubt(self) -> str | None:
        """Why to doubt it, or None."""

    def sample_vector(
        self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*S D"]:
        """Draws of all coordinates together."""
