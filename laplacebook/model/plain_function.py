"""A plain function as a NumPyro model."""

from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.quick import jit
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.model.repeatable import require_repeats

FACTOR = "log_density"  # the site that holds the function's value


def is_plain(density: ModelDensity) -> bool:
    """Whether it is a plain function, of which neither likelihood nor data are known."""
    return isinstance(density.model, PlainModel)


class _Lebesgue(dist.ImproperUniform):
    """Not a prior that somebody left flat, but the measure of the integral."""


@dataclass(frozen=True)
class PlainModel:
    """A function as a NumPyro model, with one latent site for each leaf of a point.

    Attributes:
        name: of the function.
        sites: a point with the names of sites for leaves.
        shapes: of the leaves, by site.
    """

    name: str
    sites: Any
    shapes: dict[str, tuple[int, ...]]
    points_before: ClassVar[int] = 1  # the arguments that the function is called with

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, function: Call) -> None:
        """Run the model of a function and its arguments.

        Raises:
            UnsupportedModel: the function returns no real scalar.
        """
        value = _value(function, jax.tree.map(self._sample, self.sites))
        if jnp.iscomplexobj(value):
            raise UnsupportedModel(
                f"{self.name} returns a complex number.",
                causes=["a complex constant or argument", "a Fourier transform or an eigenvalue"],
                remedy="return a real number, such as value.real where the other part is zero.",
            )
        if value.shape != ():
            raise UnsupportedModel(
                f"{self.name} returns an array of shape {value.shape}, not a scalar.",
                causes=["the log density of each of many points: sum it", "an axis left over"],
                remedy="return one number: the logarithm of the function to be integrated.",
            )
        numpyro.factor(FACTOR, value)

    def _sample(self, name: str) -> Array:
        return numpyro.sample(name, _Lebesgue(dist.constraints.real, (), self.shapes[name]))


@jit
def _value(function: Call, point: Any) -> Array:
    """A function and its arguments, at a point: compiled only once.

    So that another run of the model does not tell whether the function repeats itself: it is asked here.
    """
    args, kwargs = function.arguments

    def value() -> Array:
        found = function.function(point, *args, **kwargs)
        if not hasattr(found, "dtype") and not isinstance(found, int | float | complex):
            raise UnsupportedModel(
                f"{function.name} returns a {type(found).__name__}, not a number.",
                causes=["a function without return", "several numbers in a tuple or a list"],
                remedy="return one number: the logarithm of the function to be integrated.",
            )
        return jnp.asarray(found)

    require_repeats(value)
    return value()
