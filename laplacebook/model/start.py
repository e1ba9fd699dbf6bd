"""Where a search begins if nobody says where: in the middle of the prior, or at a draw from it."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpyro.distributions import (
    Distribution,
    TransformedDistribution,
    biject_to,
)
from numpyro.infer.initialization import init_to_uniform

from laplacebook.base.namespace import Numbers, namespace
from laplacebook.model.distributions import satisfies, unwrapped
from laplacebook.model.sites import Site


def prior_centre(message: dict) -> Array | None:
    """The value of a latent site from which to begin; for ``handlers.substitute``.

    Site by site the prior mean, where its image u under the inverse bijection is finite, and the
    image of u = 0 where it is not or no mean is known.

    Args:
        message: NumPyro's message about a site.

    Returns:
        The value, or None if the site is not latent.
    """
    if message["type"] != "sample" or message["is_observed"]:
        return None
    fn = message["fn"]
    shape = (*message["kwargs"].get("sample_shape", ()), *fn.shape())
    bijection, mean = biject_to(fn.support), _mean(fn)
    if mean is None:
        return bijection(jnp.zeros(bijection.inverse_shape(shape)))
    u = bijection.inv(jnp.broadcast_to(mean, shape).astype(float))
    return bijection(jnp.where(jnp.isfinite(u), u, 0))


def off_centre(u: Float[Numbers, " D"], room: Float[Numbers, " D"]) -> Float[Numbers, " D"]:
    """The point beside u at which a search begins, away by less than any tolerance.

    At u itself a derivative may be wrong: NumPyro's log density of a Bernoulli variable with logit
    exactly 0, where every regression begins, has the slope 1 for y = 1, not 1/2. The steps are in
    no proportion to one another, so that they do not cancel in a difference of coordinates.

    Args:
        u: shape (D,).
        room: how far each coordinate is from the end of its interval; a step takes a quarter of it
            at most.
    """
    sizes = (1 + np.arange(u.size) * 0.6180339887 % 1) * np.finfo(u.dtype).eps ** 0.75
    return u + namespace(u).minimum(sizes.astype(u.dtype) * (1 + abs(u)), room / 4)


def prior_draw(message: dict, given: Mapping[str, Array]) -> Array | None:
    """A value for a latent site that cannot be drawn, or is given; for ``handlers.substitute``.

    Args:
        message: NumPyro's message about a site, with a random key.
        given: site -> its coordinates in the unconstrained space, NaN where they are to be drawn.

    Returns:
        Where the prior is flat a number uniform between -2 and 2 through the bijection; None if the prior can be drawn,
        or a handler has given the site a value.
    """
    if message["type"] != "sample" or message["is_observed"] or message["value"] is not None:
        return None
    try:
        drawn = message["fn"].sample(message["kwargs"]["rng_key"])
    except NotImplementedError:
        drawn = flat = init_to_uniform(message)
    else:
        flat = None
    if message["name"] not in given:
        return flat
    known = biject_to(message["fn"].support)(given[message["name"]])
    return jnp.where(jnp.isnan(known), drawn, known)


def start_arrays(values: Mapping[str, Any]) -> dict[str, Array]:
    """Values at which a search is to begin, as arrays.

    Args:
        values: site -> value.

    Raises:
        TypeError: they are no mapping from names.
        ValueError: one of them is complex.
    """
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise TypeError(f"start is a dict of latent site -> value, not {values!r}")
    return {name: _start_array(name, value) for name, value in values.items()}


def _start_array(name: str, value: Any) -> Array:
    try:
        if jnp.iscomplexobj(value):
            raise ValueError("it is complex, and the values of a latent site are real.")
        return jnp.asarray(value, float)
    except (TypeError, ValueError) as error:
        raise ValueError(f"start['{name}'] is no array of numbers: {error}") from error


def require_start(values: Mapping[str, Array], sites: Sequence[Site]) -> None:
    """Refuse values at which no search can begin, by their names and shapes alone.

    Args:
        values: site -> value.
        sites: the latent sites.

    Raises:
        ValueError: one is of no latent site, or not of its shape; or there is none.
    """
    shapes = {site.name: site.value_shape for site in sites}
    if not values or not set(values) <= set(shapes):
        raise ValueError(f"start must name latent sites, of {list(shapes)}, not {list(values)}")
    for name, value in values.items():
        if value.shape != shapes[name]:
            raise ValueError(f"start['{name}'] has shape {value.shape}, not {shapes[name]}")


def is_inside(site: dict, coordinates: Array) -> Bool[Array, ""]:
    """Whether a start is in the support of its site: outside it has no coordinates, or the wrong ones."""
    inside = jnp.all(satisfies(site["fn"].support, site["value"]))
    return inside & jnp.isfinite(coordinates).all()


def refuse_outside(trace: dict, points: Mapping[str, Array]) -> None:
    """Raise for the first site of which the start is not in the support."""
    for name, coordinates in points.items():
        if not is_inside(trace[name], coordinates):
            raise ValueError(
                f"start['{name}'] = {trace[name]['value']} is outside, or on the edge of, "
                f"the support of '{name}', {trace[name]['fn'].support}."
            )


def _mean(fn: Distribution) -> Any:
    """The mean; of a transformed distribution the image of the mean, which no long tail carries off.

    A wrapper (Independent, Expanded, Masked) has the mean of what it wraps, of a smaller shape.
    """
    fn = unwrapped(fn)
    if isinstance(fn, TransformedDistribution):
        mean = _mean(fn.base_dist)
        if mean is None:
            return None
        mean = jnp.broadcast_to(jnp.asarray(mean, float), fn.base_dist.shape())
        return functools.reduce(lambda x, transform: transform(x), fn.transforms, mean)
    try:
        return fn.mean
    except (NotImplementedError, ValueError):
        return None
