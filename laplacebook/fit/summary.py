"""The Gaussian q, seen on the scale on which the user wrote the model: moments and quantiles.

Where each number of a site is a function of one coordinate of u, its distribution is that of one
normal number pushed through a bijection, and nothing has to be drawn. A simplex, a correlation
matrix, an ordered vector, or a support that depends on another latent site mixes coordinates:
there, draws stand for the distribution.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key
from numpyro.distributions import biject_to
from numpyro.distributions.transforms import IndependentTransform, Transform
from scipy.special import ndtri

from laplacebook.base.jaxprs import depends_on
from laplacebook.base.namespace import Numbers, logsumexp
from laplacebook.base.quick import jit_quickly
from laplacebook.base.table import Table
from laplacebook.curvature.settings import DENSE_HESSIAN, Settings
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity
from laplacebook.model.sites import Site

_DRAWS = 65_536  # for a site that mixes coordinates
_BATCH = 1024  # of the draws that are in memory at once
_TAIL = 0.01  # of a standard deviation, from the last node: below it the rest is a millionth
# Between nodes, in standard deviations: exact to 1e-8 where a logit has sd <= 21, of very many <= 5.
_SPACING, _WIDE_SPACING = 0.05, 0.2
_MANY = 10_000  # coordinates, whose values at all nodes would not fit into memory
_SAME = 0.002  # of a standard deviation, with half of the nodes: with all of them it is far closer
_LEFT_OUT = 0.01  # of the evidence
_SPACINGS = 8  # of float32, by which sums of millions of terms were seen to be off
_ROUNDED = 0.1  # nats


@jit_quickly
def values_at(density: ModelDensity, u: Float[Array, "S D"]) -> dict[str, Array]:
    """The latent sites at each of S vectors: site -> array of shape (S, *value shape)."""
    return jax.vmap(density.values)(u)


def marginals(
    density: ModelDensity,
    mode_vector: Float[Array, " D"],
    precision: Precision,
    probabilities: Float[np.ndarray, " P"],
    key: Key[Array, ""] | None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Standard deviations and quantiles under q = N(mode_vector, A^-1), by site.

    Args:
        density: the log joint, whose sites they are.
        mode_vector: shape (D,).
        precision: A.
        probabilities: of the quantiles, between 0 and 1, in float64, shape (P,).
        key: for the sites that need draws; None: a fixed one.

    Returns:
        Two dicts of site -> array: standard deviations, of the shape of the site's value, and
        quantiles, of shape (P, *value shape).
    """
    # Taken to scores before they are rounded: in float32 1 - 1e-9 is 1.
    scores = ndtri(probabilities).astype(mode_vector.dtype)
    levels = probabilities.astype(mode_vector.dtype)
    return _marginals(density, mode_vector, precision, scores, levels, key)


@jit_quickly
def own_numbers(density: ModelDensity, u: Float[Array, "S D"]) -> Float[Array, "S D"]:
    """For each coordinate the number of a site that it alone decides, at S vectors; NaN where there is none."""
    direct, seen = elementwise(density), values_at(density, u)
    parts = [
        seen[site.name].reshape(len(u), -1)
        if site.name in direct
        else jnp.full((len(u), site.size), jnp.nan)
        for site in density.sites
    ]
    return jnp.concatenate(parts, axis=1)


@jit_quickly
def _marginals(
    density: ModelDensity,
    mode_vector: Array,
    precision: Precision,
    scores: Array,
    levels: Array,
    key: Array | None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    direct = elementwise(density)
    spacing = _SPACING if mode_vector.size <= _MANY else _WIDE_SPACING
    nodes, roots = map(jnp.asarray, _trapezoid(mode_vector.dtype.name, spacing))
    ends = jnp.array([-1, 1], mode_vector.dtype)
    every = jnp.concatenate([nodes, ends, scores, -scores])
    step = jnp.sqrt(precision.diagonal_of_inverse())
    seen = values_at(density, mode_vector + every[:, None] * step)
    drawn = _drawn(density, mode_vector, precision, key, direct)
    deviations, quantiles = {}, {}
    for name, values in seen.items():
        if name in direct:
            parts = np.cumsum([nodes.size, ends.size, scores.size])
            at_nodes, (low, high), rising, falling = jnp.split(values, parts)
            deviation = _deviation(at_nodes, roots)
            half = _deviation(at_nodes[::2], roots[::2] * 2**0.5)
            same = jnp.abs(half - deviation) <= _SAME * deviation
            deviations[name] = jnp.where(same, deviation, jnp.nan)
            quantiles[name] = jnp.where(high >= low, rising, falling)
        else:
            deviations[name] = jnp.std(drawn[name], axis=0)
            quantiles[name] = jnp.quantile(drawn[name], levels, axis=0)
    return deviations, quantiles


def _drawn(
    density: ModelDensity,
    mode_vector: Array,
    precision: Precision,
    key: Array | None,
    direct: frozenset[str],
) -> dict[str, Array]:
    """Draws of the sites that mix coordinates, _DRAWS of each."""
    mixing = [site.name for site in density.sites if site.name not in direct]
    key = jax.random.key(0) if key is None else key

    def batch(key: Array) -> dict[str, Array]:
        values = values_at(density, mode_vector + precision.sample(key, (_BATCH,)))
        return {name: values[name] for name in mixing}

    draws = jax.lax.map(batch, jax.random.split(key, _DRAWS // _BATCH)) if mixing else {}
    return {name: values.reshape(_DRAWS, *values.shape[2:]) for name, values in draws.items()}


def elementwise(density: ModelDensity) -> frozenset[str]:
    """The sites of which each number is a function of one coordinate of u, and of no other."""
    if density.space == "constrained":
        return frozenset(site.name for site in density.sites)
    candidates = [site for site in density.sites if site.shape == site.value_shape]
    mixing: set[str] = set()

    def images_of_zero(u: Array) -> list[Array]:
        trace = density.run(u)
        bijections = [biject_to(trace[site.name]["fn"].support) for site in candidates]
        mixing.update(s.name for s, b in zip(candidates, bijections, strict=True) if _mixes(b))
        return [b(jnp.zeros(s.shape)) for s, b in zip(candidates, bijections, strict=True)]

    # At a fixed argument a bijection is a function of u only if the support depends on it.
    moved = depends_on(images_of_zero, jnp.zeros(density.dimension))
    mixing.update(site.name for site, moves in zip(candidates, moved, strict=True) if moves)
    return frozenset(site.name for site in candidates) - mixing


def _mixes(bijection: Transform) -> bool:
    while isinstance(bijection, IndependentTransform):
        bijection = bijection.base_transform
    return bijection.domain.event_dim > 0


def _deviation(values: Float[Array, "K *shape"], roots: Float[Array, " K"]) -> Array:
    """The standard deviation from values at the nodes, of square roots of weights.

    The roots, because the square of a value far out may overflow where its weighted square is small.
    NaN where the outermost nodes still count: the tail goes on beyond them.
    """
    weighted = partial(jnp.tensordot, roots, axes=1)
    scale = jnp.expand_dims(roots, range(1, values.ndim))
    mean = weighted(scale * values)
    parts = jnp.abs(scale * (values - mean))
    total = jnp.linalg.norm(parts, axis=0)
    return jnp.where(jnp.maximum(parts[0], parts[-1]) <= _TAIL * total, total, jnp.nan)


@lru_cache
def _trapezoid(dtype: str, spacing: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes for the standard normal, an even number of steps, and square roots of their weights.

    The error falls exponentially in the distance of a pole from the real line over the spacing
    (Trefethen and Weideman 2014, SIAM Review 56, 385-458): pi over its sd for a logit.
    """
    reach = 2 * np.sqrt(-3 * np.log(np.finfo(dtype).eps))  # the root of a weight is eps^3 there
    number = 2 * int(reach / spacing / 2)
    nodes = spacing * np.arange(-number, number + 1)
    roots = np.exp(-(nodes**2) / 4)
    return nodes.astype(dtype), (roots / np.linalg.norm(roots)).astype(dtype)


def summary_table(
    density: ModelDensity,
    columns: Mapping[str, Mapping[str, Numbers]],
    sites: Sequence[Site] | None = None,
) -> Table:
    """One row for each number of each latent site.

    Args:
        density: the log joint, whose sites they are.
        columns: name -> a dict of site -> array of the shape of the site's value.
        sites: those that have rows; by default all.

    Returns:
        A table with a column ``site`` before the others.
    """
    sites = density.sites if sites is None else sites
    title = f"{density.method} of {density.name}, {density.space} space, D = {density.dimension}"
    names = {"site": [name for site in sites for name in element_names(site)]}
    return Table(title, names | {name: _flat(sites, values) for name, values in columns.items()})


def improper_evidence(density: ModelDensity) -> list[str]:
    """A line that says so if the evidence is defined only up to a constant."""
    names = density.improper
    if not names:
        return []
    whose = "prior of {} is" if len(names) == 1 else "priors of {} are"
    listed = " and ".join(f"'{name}'" for name in names)
    return [f"defined only up to a constant: the {whose.format(listed)} {density.without_prior}"]


def rounding_told(log_likelihoods: Sequence[Any]) -> list[str]:
    """A line about log evidences that are sums of so many terms that rounding moves them by a tenth, or more.

    Args:
        log_likelihoods: as they were computed, each of shape ().
    """
    rounding = max((_SPACINGS * np.spacing(abs(np.asarray(x))) for x in log_likelihoods), default=0)
    if not rounding > _ROUNDED:
        return []
    return [
        f"known to about {rounding:.1g} in single precision; numpyro.enable_x64() tells it better"
    ]


def modes_found(log_evidence: Array, others: Sequence[Array]) -> list[str]:
    """A line that names the log evidence of each mode if there are several."""
    if not others:
        return []
    listed = ", ".join(f"{value:.4f}" for value in others)
    return [f"{1 + len(others)} modes found, log evidence {log_evidence:.4f} (this one), {listed}"]


def left_out(held: Sequence[Any], others: Sequence[Any], joined: str) -> str | None:
    """That modes which are known hold some of the evidence, and are left out; or None where it is up to 1 %.

    Args:
        held: the log evidence of each mode that is not.
        others: and of those that are.
        joined: the line of code that joins them.
    """
    logs = np.array([float(x) for x in (*held, *others)])
    share = 1 - np.exp(logsumexp(logs[: len(held)]) - logsumexp(logs))
    if share <= _LEFT_OUT:
        return None
    return f"it leaves out other modes that were found, with {share:.0%} of the evidence; {joined} joins them"


def made_of(settings: Settings) -> str:
    """The curvature and what was kept of it, in words."""
    rank = f" {settings.rank}" if settings.rank else ""
    structure = settings.structure.replace("_", " ")
    return f"{settings.curvature.replace('_', ' ')} curvature, {structure}{rank}"


def left_of_curvature(settings: Settings) -> str:
    """What an evidence has of the curvature, in words: a sparse Hessian is as whole as a dense one."""
    return made_of(settings).replace(", sparse", ", dense")


def settings_lines(settings: Settings) -> list[str]:
    """Lines that name a curvature that is not the whole Hessian, and the tolerance if it was given."""
    lines = [] if made_of(settings) == made_of(DENSE_HESSIAN) else [made_of(settings)]
    if settings.tolerance is not None:
        lines.append(f"a Newton decrement of {settings.tolerance:g} was accepted for a mode")
    return lines


def element_names(site: Site) -> list[str]:
    """What the numbers of a site are called, such as ``"w[0]"``."""
    return replace(site, shape=site.value_shape).coordinate_names()


def _flat(sites: Sequence[Site], values: Mapping[str, Numbers]) -> list[float]:
    return [x for site in sites for x in np.ravel(values[site.name]).tolist()]
