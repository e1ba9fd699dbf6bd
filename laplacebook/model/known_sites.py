"""A model of which the values of some latent sites are known, as all before its last layer."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxtyping import Array
from numpyro import handlers

from laplacebook.model.fingerprint import name_of


@dataclass(frozen=True)
class LastLayer:
    """A model some of whose latent sites have known values, which no longer are sites.

    Attributes:
        model: the whole model.
        fixed: the known values by site.
    """

    model: Callable
    fixed: dict[str, Array]

    def __post_init__(self) -> None:
        object.__setattr__(self, "__wrapped__", self.model)  # for inspect.signature

    @property
    def __name__(self) -> str:
        return f"last layer of {name_of(self.model)}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the whole model, of which the known sites are not seen."""
        with handlers.block(hide=list(self.fixed)), handlers.substitute(data=self.fixed):
            return self.model(*args, **kwargs)
