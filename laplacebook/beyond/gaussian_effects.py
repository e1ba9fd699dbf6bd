"""Which latent sites are Gaussian effects of a predictor that is affine in them."""

from collections.abc import Iterable
from functools import cache, partial
from typing import Any, NamedTuple

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

    The program tells what is affine in its coordinates and what depends on what; derivatives along random
    lines tell the rest. If not all sites that are affine join, S grows site by site, from the one with the
    most coordinates; of as many, from one whose prior depends on other sites, then from one in which the
    parameters themselves are affine, then from the first of the model. If a site does not join, S grows from
    that one too, and the larger S is taken.

    Args:
        density: a model and its arguments, in the unconstrained space.

    Returns:
        The sites of S in the order of the model; none if there is no such set.
    """
    sources, sizes = sources_of(density), {site.name: site.size for site in density.sites}
    lines = np.random.default_rng(0).normal(size=(3, density.dimension))
    within = {name: {other for other, of in sources.priors.items() if name in of} for name in sizes}

    @cache
    def slopes(names: frozenset[str]) -> _Sites:
        chosen = np.concatenate([np.full(sizes[name], name in names) for name in sizes])
        return jax.device_get(_slopes(density, *lines, chosen))

    def moved(names: frozenset[str]) -> dict[str, list[int]]:
        """The parameters of the observed sites that depend on some latent ones."""
        each = sources.likelihoods.items()
        return {name: [i for i, of in enumerate(by) if of & names] for name, by in each}

    @cache
    def passes(names: frozenset[str]) -> bool:
        found = slopes(names)
        if not all(_affine(found.priors[name]) for name in names):
            return False
        for site, which in moved(names).items():
            through = {sources.likelihoods[site][i] & names for i in which}
            parameters = [found.parameters[site][i] for i in which]
            predictor = len(through) < 2 and all(map(_of_one_direction, parameters))
            if not (predictor or (site in found.factors and all(map(_affine, parameters)))):
                return False
        return True

    def grown(order: Iterable[str]) -> frozenset[str]:
        effects, left = frozenset[str](), list(order)
        while free := [name for name in left if within[name] <= effects]:
            left.remove(free[0])
            if passes(effects | {free[0]}):
                effects |= {free[0]}
        return effects

    def order(name: str) -> tuple:
        alone = frozenset({name})
        parameters = slopes(alone).parameters
        direct = all(_constant(parameters[n][i]) for n, by in moved(alone).items() for i in by)
        return -sizes[name], not sources.priors[name], not direct

    possible = sources.affine
    if not possible:
        return ()
    if all(within[name] <= set(possible) for name in possible) and passes(frozenset(possible)):
        return possible
    candidates = sorted((name for name in possible if passes(frozenset({name}))), key=order)
    whole = grown(candidates)
    others = [grown([first, *candidates]) for first in candidates if first not in whole]
    largest = max([whole, *others], key=lambda names: sum(sizes[name] for name in names))
    return tuple(name for name in sizes if name in largest)


def gaussian_priors(density: ModelDensity, names: Iterable[str]) -> set[str]:
    """The sites that are normal in their own coordinates given the others, as a LogNormal one is.

    Args:
        density: a model and its arguments, in the unconstrained space.
        names: of latent sites.
    """
    aside = 0.1 * np.random.default_rng(0).normal(size=density.dimension)

    def is_normal(name: str) -> bool:
        bends = np.asarray(_bends(density, aside, name))
        return bool(np.ptp(bends) <= _tolerance(bends) * np.max(abs(bends)))

    return {name for name in names if is_normal(name)}


@partial(jit_quickly, static_argnames=["name"])
def _bends(density: ModelDensity, aside: Float[Array, " D"], name: str) -> Float[Array, " points"]:
    """Second derivatives of the log prior of a site, at points on a line in its coordinates."""
    parts = density.unravel(density.start() + aside)
    along = jnp.cos(jnp.arange(1, parts[name].size + 1) ** 2).reshape(parts[name].shape)

    def log_prior(t: Array) -> Array:
        return jnp.sum(density.trace({**parts, name: parts[name] + t * along})[1][name])

    return jax.vmap(jax.grad(jax.grad(log_prior)))(jnp.array([-1.0, 0.0, 0.5, 1.0]))


class _Sites(NamedTuple):
    """An array, or arrays, for each site: what is said of a model, or derivatives of that.

    Attributes:
        priors: the logarithms of the densities of the latent ones.
        parameters: of the distributions of the observed ones.
        factors: those of these that are factors.
    """

    priors: dict[str, Any]
    parameters: dict[str, list[Any]]
    factors: dict[str, None]


@jit_quickly
def _slopes(
    density: ModelDensity,
    one: Float[Array, " D"],
    other: Float[Array, " D"],
    aside: Float[Array, " D"],
    chosen: Bool[Array, " D"],
) -> _Sites:
    """Derivatives along two lines in some coordinates, at points on both, of shape (points, 2, ...).

    The lines begin in the middle of the priors, the coordinates that are not chosen beside it, where they
    are nothing in particular.
    """
    moving = sources_of(density).affine
    begin = density.start() + jnp.where(chosen, 0, 0.1 * aside)
    # So far that the shortest step is none of rounding: in single precision it is of a mean beyond one.
    far = 1e5 * float(jnp.finfo(begin.dtype).eps) ** (2 / 3) * jnp.max(jnp.abs(begin))
    directions = jnp.where(chosen, jnp.stack([one, other]), 0) * jnp.maximum(1, far)
    steps = jnp.asarray(_STEPS, begin.dtype)
    away = [steps[:, None] * direction for direction in directions]
    points = begin + jnp.concatenate([jnp.zeros((1, begin.size)), *away])

    def parts(rows: Array) -> dict[str, Array]:
        each = jax.vmap(density.unravel)(rows)
        return {name: each[name] for name in moving}

    def of_sites(at: dict[str, Array]) -> _Sites:
        # What does not move is computed once, such as the factor of a covariance.
        trace, log_probs = density.trace({**density.unravel(begin), **at})
        observed = density.observed(trace)
        return _Sites(
            {name: log_probs[name] for name in moving},
            {name: real_parameters(trace[name]) for name in observed},
            {name: None for name in observed if isinstance(unwrapped(trace[name]["fn"]), Unit)},
        )

    def along(at: dict[str, Array]) -> _Sites:
        return jax.vmap(lambda way: jax.jvp(of_sites, (at,), (way,))[1])(parts(directions))

    return jax.vmap(along)(parts(points))


def _tolerance(slopes: np.ndarray) -> float:
    return float(np.finfo(slopes.dtype).eps) ** (1 / 3)


@np.errstate(all="ignore")
def _constant(slopes: np.ndarray) -> bool:
    """Whether the derivatives of an array are the same at all points."""
    size = np.max(abs(slopes), initial=0)
    return bool(np.all(abs(slopes - slopes[0]) <= _tolerance(slopes) * size))


@np.errstate(all="ignore")
def _affine(slopes: np.ndarray) -> bool:
    """Whether those along the first line are affine on it."""
    first = slopes[: len(_STEPS) + 1, 0]
    risen = first[1:] - first[0]
    bend = abs(risen[1:] - _RATIO * risen[:-1])
    size = abs(first[2:]) + _RATIO * (abs(first[1:-1]) + abs(first[0]))
    return bool(np.all(bend <= _tolerance(slopes) * size))


@np.errstate(all="ignore")
def _of_one_direction(slopes: np.ndarray) -> bool:
    """Whether the gradient of each entry has one direction everywhere, where it is known and not zero.

    A function of one affine function has, and no other.
    """
    limits, sizes = np.finfo(slopes.dtype), abs(slopes).sum(axis=1, keepdims=True)
    known = np.isfinite(sizes) & (sizes > limits.tiny / limits.eps)  # with all digits
    on_one, on_other = np.split((slopes / np.where(known, sizes, 1))[1:], 2)
    turn = abs(on_one[:, 0] * on_other[:, 1] - on_one[:, 1] * on_other[:, 0])
    both = np.logical_and(*np.split(known[1:, 0], 2))
    turned = np.any(both & (turn > _tolerance(slopes)))
    return bool(~turned & (np.any(both) | np.all(slopes == 0)))
