"""Numbers that a model takes as arguments, such as the precision of a prior, by their logarithms."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from laplacebook.base.checks import require_numbers
from laplacebook.model.arguments import positional_names, within_handlers
from laplacebook.model.density import ModelDensity


@dataclass(frozen=True)
class Hyperparameters:
    """Positive arguments of a model as one vector, that of their logarithms.

    Attributes:
        names: of the arguments.
        shapes: of their values.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(
        cls, density: ModelDensity, values: Mapping[str, ArrayLike | Sequence[float]]
    ) -> tuple["Hyperparameters", Float[Array, " H"]]:
        """Arguments of a model, and the logarithms of their values, shape (H,).

        Raises:
            TypeError: a value is a dict, or no number.
            ValueError: there is none, the model takes no such argument, a value is not positive, or not known yet.
        """
        taken = _parameters(density.model)
        unknown = [name for name in values if taken is not None and name not in taken]
        if unknown:
            listed = ", ".join(taken or ()) or "none"
            raise ValueError(
                f"{density.name} has no keyword argument {unknown[0]!r}; it has: {listed}."
            )
        for name, value in values.items():
            if isinstance(value, Mapping):
                raise TypeError(
                    f"{name} must be a positive number, or an array of them in the order in which the model "
                    f"takes them, such as {[1.0] * len(value)}, not a {type(value).__name__}."
                )
        require_numbers("maximize_evidence", list(values.values()))
        arrays = {name: _numbers(name, value) for name, value in values.items()}
        for name, array in arrays.items():
            if not (array.size and np.all((array > 0) & np.isfinite(array))):
                raise ValueError(
                    f"{name} must be a positive number, or an array of them, not {values[name]}: the "
                    "evidence is maximised over its logarithm."
                )
        if not arrays:
            raise ValueError(
                "hyperparameters is a dict of name -> where the maximisation begins, such as "
                '{"prior_precision": 1.0}; it is empty.'
            )
        start = np.log(np.concatenate([array.ravel() for array in arrays.values()]))
        shapes = tuple(array.shape for array in arrays.values())
        return cls(tuple(arrays), shapes), jnp.asarray(start, float)

    @property
    def elements(self) -> list[str]:
        """One name a number, such as ``"prior_precision[1]"``."""
        return [
            name + (str(list(index)) if shape else "")
            for name, shape in zip(self.names, self.shapes, strict=True)
            for index in np.ndindex(shape)
        ]

    def unravel(self, x: Float[Array, " H"]) -> dict[str, Array]:
        """A vector as a dict of name -> array, in the shapes of the values."""
        ends = np.cumsum([prod(shape) for shape in self.shapes])
        pieces = jnp.split(x, ends[:-1])
        named = zip(self.names, pieces, self.shapes, strict=True)
        return {name: piece.reshape(shape) for name, piece, shape in named}

    def put(self, density: ModelDensity, x: Float[Array, " H"]) -> ModelDensity:
        """The same model and data where the arguments are the exponentials of x."""
        args, kwargs = density.arguments
        values = self.unravel(jnp.exp(x))
        positions = positional_names(density.model, len(args))
        args = tuple(values.pop(n, x) for n, x in zip(positions, args, strict=True))
        call = density.call.with_arguments(args, {**kwargs, **values})
        return ModelDensity(call, density.space)


def _numbers(name: str, value: ArrayLike | Sequence[float]) -> np.ndarray:
    with suppress(TypeError, ValueError):
        if np.asarray(value).dtype.kind not in "SUMm":  # of text NumPy reads numbers, of dates days
            return np.asarray(value, float)
    raise TypeError(
        f"{name} must be a positive number, or an array of them, such as 1.0 or [1.0, 2.0], not {value!r}."
    )


def _parameters(model: Callable[..., Any]) -> list[str] | None:
    """The names of a model's keyword arguments, None if it takes any."""
    parameters = inspect.signature(within_handlers(model)).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [p.name for p in parameters if p.kind in named]
