"""A likelihood as an output eta(u) and a loss of it: what Gauss-Newton curvature is made of."""

from collections.abc import Callable
from itertools import islice
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpyro import distributions as dist
from numpyro.distributions.distribution import validation_enabled

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.jaxprs import depends_on
from laplacebook.model.density import ModelDensity
from laplacebook.model.distributions import unwrapped

_BERNOULLI = (dist.BernoulliLogits, dist.BernoulliProbs)
_CATEGORICAL = (dist.CategoricalLogits, dist.CategoricalProbs)
_BINOMIAL = (dist.BinomialLogits, dist.BinomialProbs)
_FAMILIES = (*_BERNOULLI, *_CATEGORICAL, *_BINOMIAL, dist.Normal, dist.Poisson)


def moving_parameters(density: ModelDensity, u: Float[Array, " D"]) -> list[list[bool]]:
    """Which parameters of the observed distributions depend on u, in the form that :func:`split_likelihood` takes.

    Args:
        density: a model and its arguments.
        u: a point, shape (D,).

    Raises:
        UnsupportedModel: there is no such split.
    """
    seen: list[tuple[list[str], list[bool], list[bool]]] = []

    def known_and_parameters(u: Array) -> tuple[list[Any], list[list[Array]]]:
        trace, _ = density.trace(u)
        names = density.observed(trace)
        _require_distributions(names, [trace[name] for name in names])
        leaves = _leaves(trace, names)
        parameters = [_parameters(leaf) for leaf in leaves]
        normal = [isinstance(leaf, dist.Normal) for leaf in leaves]
        seen.append((names, normal, [_is_real(x) for x in _flat(parameters)]))
        return [trace[name][part] for name in names for part in ("value", "scale")], parameters

    known, moving = depends_on(known_and_parameters, u)
    ((names, normal, real),) = seen
    discrete = any(m and not r for m, r in zip(_flat(moving), real, strict=True))
    if discrete or any(jax.tree.leaves(known)):
        raise _unknown(names)
    return [[m or (n and of[1]) for m in of] for n, of in zip(normal, moving, strict=True)]


def split_likelihood(
    density: ModelDensity, u: Float[Array, " D"], moving: list[list[bool]] | None = None
) -> tuple[Callable[[Any], Float[Array, " C"]], Callable[[Any], Float[Array, ""]]]:
    """The log likelihood as -loss(eta(u)), where eta are parameters of the observed distributions.

    Those parameters that depend on u, in the form in which the loss is convex where the family has
    one: the mean of a normal, or its natural parameters if its scale depends on u too; the logits
    of a Bernoulli, binomial or categorical; the logarithm of a Poisson rate. For any other
    distribution its parameters as NumPyro keeps them (Schraudolph 2002; Martens 2020, section 8).

    Args:
        density: a model and its arguments.
        u: a point, shape (D,), at which what does not depend on u is evaluated.
        moving: what :func:`moving_parameters` returns, if that was called before.

    Returns:
        eta, a function of u (a vector, or a dict of its parts by site) that returns shape (C,); and
        the loss, a function of that.

    Raises:
        UnsupportedModel: no site is observed, or one is a ``numpyro.factor``; or data, a scale or a
            mask depend on u, which eta and the loss would not see.
    """
    return split_likelihood_and_weight(density, u, moving)[:2]


def split_likelihood_and_weight(
    density: ModelDensity, u: Float[Array, " D"], moving: list[list[bool]] | None = None
) -> tuple[
    Callable[[Any], Float[Array, " C"]], Callable[[Any], Float[Array, ""]], Float[Array, ""]
]:
    """The same, and the largest factor by which handlers, or a mask of its distribution, scale what is observed.

    Args:
        density: as of :func:`split_likelihood`, like the rest.
        u: a point, shape (D,).
        moving: what is known of the parameters.
    """
    dtype = u.dtype
    moving = moving_parameters(density, u) if moving is None else moving
    trace, _ = density.trace(u)
    names = density.observed(trace)
    sites = [trace[name] for name in names]
    flat = [jax.tree.flatten(site["fn"], is_leaf=_is_family) for site in sites]
    leaves = [leaf for members, _ in flat for leaf in members]
    constants = [_parameters(leaf) for leaf in leaves]
    natural = [isinstance(x, dist.Normal) and m[1] for x, m in zip(leaves, moving, strict=True)]

    def parameters(u: Any) -> list[list[Array]]:
        trace, _ = density.trace(u)
        moved = _leaves(trace, names)
        return [_parameters(leaf, n) for leaf, n in zip(moved, natural, strict=True)]

    def eta(u: Any) -> Array:
        pairs = zip(parameters(u), moving, strict=True)
        kept = [jnp.ravel(x) for of, ms in pairs for x, m in zip(of, ms, strict=True) if m]
        return jnp.concatenate(kept) if kept else jnp.zeros(0, dtype)

    def loss(eta: Array) -> Array:
        pieces = iter(_cut(eta, constants, moving))
        built = []
        for leaf, own, ms, n in zip(leaves, constants, moving, natural, strict=True):
            own = [next(pieces) if m else x for x, m in zip(own, ms, strict=True)]
            built.append(_rebuild(leaf, own, n))
        total, members = jnp.zeros((), eta.dtype), iter(built)
        for site, (of, structure) in zip(sites, flat, strict=True):
            fn = jax.tree.unflatten(structure, islice(members, len(of)))
            with validation_enabled(False):
                log_prob = fn.log_prob(site["value"])
            total -= jnp.sum(log_prob if site["scale"] is None else site["scale"] * log_prob)
        return total

    weights = [jnp.asarray(_weight(site), dtype) for site in sites]
    return eta, loss, jnp.max(jnp.stack(weights))


def _weight(site: dict[str, Any]) -> Any:
    weight = 1.0 if site["scale"] is None else jnp.max(site["scale"])
    fn = site["fn"]
    while fn is not None:
        if isinstance(fn, dist.MaskedDistribution):
            weight *= jnp.any(fn._mask)
        fn = getattr(fn, "base_dist", None)
    return weight


def slope(loss: Callable[[Array], Array], eta: Float[Array, " C"]) -> Float[Array, " C"]:
    """The gradient of a loss of outputs.

    Beside 0 where one is exactly that, since there NumPyro's Bernoulli has a wrong slope.
    """
    return jax.grad(loss)(jnp.where(eta == 0, jnp.finfo(eta.dtype).eps ** 0.75, eta))


def _leaves(trace: dict[str, dict], names: list[str]) -> list[Any]:
    """The distributions of known families among the observed ones, and the leaves of all others."""
    fns = [jax.tree.leaves(trace[name]["fn"], is_leaf=_is_family) for name in names]
    return [leaf for members in fns for leaf in members]


def _unknown(names: list[str]) -> UnsupportedModel:
    return UnsupportedModel(
        f"The data, the scale or the mask of {', '.join(map(repr, names))} depends on a latent site: "
        "Gauss-Newton and Fisher curvature are of outputs, and take all else as known.",
        causes=["obs= computed with a latent site", "numpyro.handlers.scale or mask with one"],
        remedy='write the latent site into the distribution, or use curvature="hessian".',
    )


def _flat(lists: list[list[Any]]) -> list[Any]:
    return [x for members in lists for x in members]


def _is_real(x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def _require_distributions(names: list[str], sites: list[dict]) -> None:
    if not names:
        raise UnsupportedModel(
            "The model observes nothing: without an outcome there is no Gauss-Newton curvature.",
            remedy='use curvature="hessian".',
        )
    for name, site in zip(names, sites, strict=True):
        if isinstance(unwrapped(site["fn"]), dist.Unit):
            raise UnsupportedModel(
                f"Site '{name}' is a numpyro.factor, which adds to the log joint and has no "
                "distribution: there is no Gauss-Newton curvature of it.",
                remedy='use curvature="hessian", or observe a distribution.',
            )


def _is_family(leaf: Any) -> bool:
    return isinstance(leaf, _FAMILIES)


def _parameters(leaf: Any, natural: bool = False) -> list[Array]:
    """The parameters of a distribution of a known family, or a leaf of another one."""
    if isinstance(leaf, dist.Normal):
        precision = leaf.scale**-2.0
        own = [leaf.loc * precision, precision] if natural else [leaf.loc, leaf.scale]
    elif isinstance(leaf, dist.Poisson):
        own = [jnp.log(leaf.rate)]
    else:
        own = [leaf.logits if _is_family(leaf) else leaf]
    return [jnp.asarray(x) for x in own]


def _rebuild(leaf: Any, own: list[Array], natural: bool) -> Any:
    """The inverse of :func:`_parameters`."""
    if isinstance(leaf, dist.Normal):
        return dist.Normal(own[0] / own[1], own[1] ** -0.5) if natural else dist.Normal(*own)
    if isinstance(leaf, dist.Poisson):
        return dist.Poisson(jnp.exp(own[0]))
    if isinstance(leaf, _BERNOULLI):
        return dist.BernoulliLogits(own[0])
    if isinstance(leaf, _CATEGORICAL):
        return _Classes(own[0])
    if isinstance(leaf, _BINOMIAL):
        return dist.BinomialLogits(own[0], leaf.total_count)
    return own[0]


class _Classes(dist.CategoricalLogits):
    """Classes whose second derivatives keep their digits where one class is all but certain.

    Those of NumPyro's have p (1 - p) on the diagonal, which is rounded by the machine precision however
    small it is: the curvature of a network that fits most rows is then indefinite in single precision.
    Here the sum is over the other classes, of which none is likelier than the likeliest.
    """

    def log_prob(self, value: Array) -> Array:
        classes = jnp.arange(self.logits.shape[-1])
        likeliest = classes == jnp.argmax(self.logits, -1, keepdims=True)
        highest = jnp.sum(jnp.where(likeliest, self.logits, 0), -1, keepdims=True)
        others = jnp.where(likeliest, 0, jnp.exp(self.logits - highest))
        log_pmf = self.logits - highest - jnp.log1p(jnp.sum(others, -1, keepdims=True))
        shape = jnp.broadcast_shapes(jnp.shape(value), self.batch_shape)
        log_pmf = jnp.broadcast_to(log_pmf, (*shape, classes.size))
        return jnp.take_along_axis(log_pmf, jnp.broadcast_to(value, shape)[..., None], -1)[..., 0]


def _cut(eta: Array, shapes: list[list[Array]], moving: list[list[bool]]) -> list[Array]:
    """The parts of eta in the shapes of the parameters that move."""
    pairs = zip(shapes, moving, strict=True)
    parts = [x.shape for of, ms in pairs for x, m in zip(of, ms, strict=True) if m]
    pieces, offset = [], 0
    for shape in parts:
        pieces.append(eta[offset : offset + prod(shape)].reshape(shape))
        offset += prod(shape)
    return pieces
