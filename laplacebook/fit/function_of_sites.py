"""A function of the latent sites as a function of u: checked once, before anything is computed with it."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.jaxprs import depends_on
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity


def numbers_at(density: ModelDensity, g: Call, u: Float[Array, " D"]) -> Float[Array, " C"]:
    """The numbers that the function returns at u, in a row."""
    value = jnp.asarray(g.function(density.values(u)))
    return jnp.ravel(value).astype(u.dtype)


def shape_of(density: ModelDensity, g: Call, u: Float[Array, " D"]) -> jax.ShapeDtypeStruct:
    """What the function returns: the shape of it, and the type.

    Args:
        density: the log joint, whose sites the function takes.
        g: the function.
        u: any point.

    Raises:
        UnsupportedModel: it is no function of the sites that JAX can see into, or does not return an array
            of real numbers.
    """

    def value(u: Array) -> Any:
        return g.function(density.values(u))

    return traced_shape(g.name, value, density, [site.name for site in density.sites], u)


def traced_shape(
    name: str,
    value: Callable[[Array], Any],
    density: ModelDensity,
    sites: Sequence[str],
    u: Float[Array, " D"],
) -> jax.ShapeDtypeStruct:
    """What a function returns at any point: the shape of it, and the type.

    Args:
        name: of the function.
        value: it, as one of u.
        density: the log joint, of which it takes sites.
        sites: their names.
        u: any point.

    Raises:
        UnsupportedModel: as :func:`shape_of` says.
    """
    try:
        found = jax.eval_shape(value, u)
    except KeyError as error:
        raise UnsupportedModel(
            f"{name} takes a site {error} that {density.name} does not have; it has "
            f"{', '.join(map(repr, sites))}.",
            remedy="take the sites from the dict by these names, such as lambda s: s[name] ** 2.",
        ) from error
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise UnsupportedModel(
            f"{name} asks for numbers that are not known when JAX traces it.",
            causes=[
                "a function of NumPy or of math",
                "if, and, or, float() of what depends on a site",
            ],
            remedy="write it with jax.numpy, and jnp.where in the place of if.",
        ) from error
    except TypeError as error:
        if "is not a valid JAX type" not in str(error):
            raise
        raise UnsupportedModel(
            f"{name} returns what is no number.",
            remedy="return a number, or jnp.stack([...]) of several.",
        ) from error
    if not hasattr(found, "dtype") or jnp.issubdtype(found.dtype, complex):
        raise UnsupportedModel(
            f"{name} returns {_kind(found)}, not an array of real numbers.",
            remedy="return a number, or jnp.stack([...]) of several.",
        )
    return found


def _kind(found: Any) -> str:
    return "complex numbers" if hasattr(found, "dtype") else f"a {type(found).__name__}"


def varies(density: ModelDensity, g: Call, u: Float[Array, " D"]) -> bool:
    """Whether what the function computes depends on the sites, by its program."""

    def value(u: Array) -> Array:
        return numbers_at(density, g, u)

    return bool(depends_on(value, u))


def call_of(g: Callable, density: ModelDensity) -> Call:
    """The function as an argument of compiled programs, which are used again for one that is the same.

    Args:
        g: the function; it may read the fit whose density this is.
        density: its sites are found first, since a fit that learns them anew would have changed.

    Raises:
        TypeError: it is no function.
    """
    name = density.sites[0].name
    if not callable(g):
        raise TypeError(
            f"g is a function of the dict of latent sites, such as lambda s: s[{name!r}] ** 2, not an "
            f"object of type {type(g).__name__}."
        )
    return Call.of(g)
