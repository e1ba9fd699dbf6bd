"""Which latent sites are Gaussian effects of a predictor that is affine in them."""

from collections.abc import Iterable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpyro.distributions import Unit

from laplacebook.base.quick import jit_quickly
from laplacebook.model.density import ModelDensity
from laplacebook.model.distributions import unwrapped
from laplacebook.model.hierarchy import real_parameters, sources_of

_RATIO = 100.0
_STEPS = _RATIO ** np.arange(-2, 3)  # along a line; at the longest an exponential overflows


def gaussian_effects(density: ModelDensity) -> tuple[str, ...]:
    """The largest set S of latent sites that are Gaussian effects of an affine predictor, given the others.

    Which is to say that

    - each site of S is an affine function of its coordinates, and the log of its prior is quadratic in S;
    - no prior of a site outside S depends on S;
    - each parameter of each observed distribution is a function, any, of one affine function of S, the
      predictor. Two parameters of a distribution that depend on S do so through the same sites, so that
      the logarithm of a noise is no effect beside a mean;
    - each factor is such a parameter, or quadratic in S.

    Derivatives along random lines tell what is affine and what is quadratic; the program tells what depends
    on what. S grows site by site, from the one with the most coordinates; of as many, from one whose prior
    depends on other sites, then from one in which the parameters themselves are affine, then from the first
    of the model. If a site does not join, S grows from that one too, and the larger S is taken.

    Args:
        density: a model and its arguments, in the unconstrained space.

    Returns:
        The sites of S in the order of the model; none if there is no such set.
    """
    sources, sizes = sources_of(density), {site.name: site.size for site in density.sites}
    lines = np.random.default_rng(0).normal(size=(3, density.dimension))
    within = {name: {other for other, of in sources.priors.items() if name in of} for name in sizes}

    @cache
    def seen(names: frozenset[str]) -> dict[str, dict[str, Any]]:
        chosen = np.concatenate([np.full(sizes[name], name in names) for name in sizes])
        return jax.device_get(_derivatives_tell(density, *lines, chosen))

    @cache
    def passes(names: frozenset[str]) -> bool:
        told = seen(names)
        gaussian = (told["affine"][name] and told["quadratic"][name] for name in names)
        through = [
            {of & names for of in each} - {frozenset()} for each in sources.likelihoods.values()
        ]
        return (
            all(gaussian)
            and all(told["predictor"].values())
            and max(map(len, through), default=0) < 2
        )

    def grown(order: Iterable[str]) -> frozenset[str]:
        effects, left = frozenset[str](), list(order)
        while free := [name for name in left if within[name] <= effects]:
            left.remove(free[0])
            if passes(effects | {free[0]}):
                effects |= {free[0]}
        return effects

    def order(name: str) -> tuple:
        direct = all(seen(frozenset({name}))["direct"].values())
        return -sizes[name], not sources.priors[name], not direct

    candidates = sorted((name for name in sizes if passes(frozenset({name}))), key=order)
    whole = grown(candidates)
    others = [grown([first, *candidates]) for first in candidates if first not in whole]
    largest = max([whole, *others], key=lambda names: sum(sizes[name] for name in names))
    return tuple(name for name in sizes if name in largest)


@jit_quickly
def _derivatives_tell(
    density: ModelDensity,
    one: Float[Array, " D"],
    other: Float[Array, " D"],
    aside: Float[Array, " D"],
    chosen: Bool[Array, " D"],
) -> dict[str, dict[str, Array]]:
    """What derivatives with respect to some coordinates say of the sites.

    They begin in the middle of the priors, the coordinates that are not chosen beside it, where they are
    nothing in particular; and are taken in two directions, at points along both.

    Returns:
        ``affine``: of each latent site; ``quadratic``: of the log of its prior; ``predictor``, ``direct``: of
        each observed one, whether its parameters are functions of a predictor, and affine themselves.
    """
    directions = jnp.where(chosen, jnp.stack([one, other]), 0)
    begin = density.start() + jnp.where(chosen, 0, 0.1 * aside)
    steps = jnp.asarray(_STEPS, begin.dtype)
    away = [steps[:, None] * direction for direction in directions]
    points = begin + jnp.concatenate([jnp.zeros((1, begin.size)), *away])
    factors: list[str] = []

    def of_sites(u: Array) -> tuple[dict, dict, dict]:
        trace, log_probs = density.trace(u)
        observed = density.observed(trace)
        factors[:] = [name for name in observed if isinstance(unwrapped(trace[name]["fn"]), Unit)]
        values = {site.name: trace[site.name]["value"] for site in density.sites}
        priors = {name: log_probs[name] for name in values}
        return values, priors, {name: real_parameters(trace[name]) for name in observed}

    def along(u: Array) -> tuple[dict, dict, dict]:
        return jax.vmap(lambda d: jax.jvp(of_sites, (u,), (d,))[1])(directions)

    values, priors, likelihoods = jax.lax.map(along, points)

    def told(question: Any, slopes: dict[str, Any]) -> dict[str, Array]:
        return {
            name: jnp.array([question(x) for x in jax.tree.leaves(of)]).all()
            for name, of in slopes.items()
        }

    quadratic = told(_are_affine, {name: likelihoods[name] for name in factors})
    predictor = told(_have_one_direction, likelihoods)
    return {
        "affine": told(_are_constant, values),
        "quadratic": told(_are_affine, priors),
        "predictor": {n: x | quadratic.get(n, False) for n, x in predictor.items()},
        "direct": told(_are_constant, likelihoods),
    }


def _tolerance(slopes: Array) -> float:
    return float(jnp.finfo(slopes.dtype).eps) ** (1 / 3)


def _are_constant(slopes: Float[Array, "points 2 ..."]) -> Bool[Array, ""]:
    """Whether the derivatives of an array are the same at all points."""
    return jnp.all(abs(slopes - slopes[0]) <= _tolerance(slopes) * jnp.max(abs(slopes), initial=0))


def _are_affine(slopes: Float[Array, "points 2 ..."]) -> Bool[Array, ""]:
    """Whether those along the first line are affine on it."""
    first = slopes[: len(_STEPS) + 1, 0]
    risen = first[1:] - first[0]
    bend = abs(risen[1:] - _RATIO * risen[:-1])
    size = abs(first[2:]) + _RATIO * (abs(first[1:-1]) + abs(first[0]))
    return jnp.all(bend <= _tolerance(slopes) * size)


def _have_one_direction(slopes: Float[Array, "points 2 ..."]) -> Bool[Array, ""]:
    """Whether the gradient of each entry has the same direction everywhere, where it is known and not zero.

    A function of one affine function has, and no other.
    """
    sizes = abs(slopes).sum(axis=1, keepdims=True)
    limits = jnp.finfo(slopes.dtype)
    known = jnp.isfinite(sizes) & (sizes > limits.tiny / limits.eps)  # with all digits
    x, y = jnp.moveaxis(slopes / jnp.where(known, sizes, 1), 1, 0)
    count = len(_STEPS)
    here, there = slice(1, count + 1), slice(count + 1, None)
    turn = abs(x[here] * y[there] - y[here] * x[there])
    turned = known[here, 0] & known[there, 0] & (turn > _tolerance(slopes))
    return ~jnp.any(turned) & jnp.any(jnp.isfinite(slopes))
