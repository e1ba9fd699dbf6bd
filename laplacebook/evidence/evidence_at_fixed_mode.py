"""The Laplace evidence as a function of hyperparameters, with the mode held where it is.

log Z(h) = log p(D | u*, h) + log p(u* | h) + (D/2) log 2 pi - (1/2) log |A(h)|, with A(h) the curvature
at u*. Where h scales the prior's Hessian P and the likelihood's curvature G, both are computed once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import log, pi
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.namespace import Numbers
from laplacebook.base.pytrees import STATIC, Leaf, on_host, register_dataclass
from laplacebook.base.quick import jit_quickly, numbers_in
from laplacebook.curvature.hessian import ROUNDING, WORK, prior_curvature, value_gradient_hessian
from laplacebook.curvature.outputs_and_loss import slope, split_likelihood
from laplacebook.curvature.precision_at import kept, precision_at
from laplacebook.curvature.settings import Settings
from laplacebook.evidence.ascent import Objective
from laplacebook.evidence.hyperparameters import Hyperparameters
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.gaussian.kronecker import Eigenbasis
from laplacebook.gaussian.low_rank import LowRankPrecision
from laplacebook.gaussian.precision import (
    BlockPrecision,
    DiagonalPrecision,
    Precision,
    blocks_of,
    parts_of,
)
from laplacebook.model.density import ModelDensity


class _Scales(NamedTuple):
    """What the curvature of the likelihood and of the prior are told by, at one h.

    ``outputs`` eta(u), ``bend`` a vector to which the Hessian of the loss is proportional (its
    product with a fixed vector, or for the Fisher matrix the slope, whose square it is), and
    ``prior`` the diagonal of the Hessian of minus the log prior, NaN if it is not diagonal.
    """

    outputs: Array
    bend: Array
    prior: Array


@register_dataclass
@dataclass(frozen=True)
class _Scaled:
    """What the two ways have in common that compute G once.

    Attributes:
        density: the model.
        u: the mode, shape (D,).
        base: the scales where the precision was computed.
        hyperparameters: which arguments vary.
        kind: of curvature.
    """

    density: Leaf
    u: Leaf
    base: _Scales
    hyperparameters: Hyperparameters = field(metadata=STATIC)
    kind: str = field(metadata=STATIC)

    def log_joint(self, x: Float[Array, " H"]) -> tuple[Array, Array, Array]:
        """At the mode, by the stored outputs; the factor of G beside it, and the diagonal of P."""
        density = self.hyperparameters.put(self.density, x)
        _, loss = split_likelihood(density, self.u)
        bend = _bend(loss, self.base.outputs, self.kind)
        factor = (bend @ self.base.bend) / (self.base.bend @ self.base.bend)
        factor = factor**2 if self.kind == "empirical_fisher" else factor
        prior, _ = prior_curvature(density, self.u)
        return density.terms(self.u).log_prior - loss(self.base.outputs), factor, prior


@register_dataclass
@dataclass(frozen=True)
class Decomposed(Objective):
    """By eigenvalues e of P0^-1/2 G0 P0^-1/2: log |A| = log |P0| + sum log(s e + lambda).

    Attributes:
        scaled: the scales.
        gains: e, in the order of the groups of coordinates, shape (D,).
    """

    scaled: _Scaled
    gains: Leaf

    def __call__(
        self, x: Float[Array, " H"], u: Float[Array, " D"]
    ) -> tuple[Float[Array, ""], Float[Array, " D"]]:
        """The log evidence at the logarithms x, and u."""
        log_joint, factor, prior = self.scaled.log_joint(x)
        base = self.scaled.base.prior
        log_determinant = jnp.sum(jnp.log(base) + jnp.log(factor * self.gains + prior / base))
        return log_joint + (u.size * log(2 * pi) - log_determinant) / 2, u


@register_dataclass
@dataclass(frozen=True)
class Stored(Objective):
    """By G0 itself: A = s G0 + diag(p), factorised anew at each x.

    Attributes:
        scaled: the scales.
        curvature: G0, a matrix for each group of coordinates.
    """

    scaled: _Scaled
    curvature: tuple[Leaf, ...]

    def __call__(
        self, x: Float[Array, " H"], u: Float[Array, " D"]
    ) -> tuple[Float[Array, ""], Float[Array, " D"]]:
        """The log evidence at the logarithms x, and u."""
        log_joint, factor, prior = self.scaled.log_joint(x)
        parts = parts_of(prior, [matrix.shape[0] for matrix in self.curvature])
        pairs = zip(self.curvature, parts, strict=True)
        precision = BlockPrecision.of(tuple(factor * g + jnp.diag(p) for g, p in pairs))
        return log_joint + precision.log_volume(), u


@register_dataclass
@dataclass(frozen=True)
class Recomputed(Objective):
    """By the curvature at the mode, computed anew at each x.

    Attributes:
        density: the model.
        hyperparameters: which arguments vary.
        settings: of the fit.
    """

    density: ModelDensity
    hyperparameters: Hyperparameters = field(metadata=STATIC)
    settings: Settings = field(metadata=STATIC)

    def __call__(
        self, x: Float[Array, " H"], u: Float[Array, " D"]
    ) -> tuple[Float[Array, ""], Float[Array, " D"]]:
        """The log evidence at the logarithms x with the curvature at u, and u."""
        density = self.hyperparameters.put(self.density, x)
        if self.settings.curvature == "hessian":
            loss, _, _, hessian = value_gradient_hessian(density.loss, u)
            sizes = [site.size for site in density.sites]
            precision = kept(hessian, sizes, self.settings.structure)
        else:
            loss, precision = density.loss(u)[0], precision_at(density, u, self.settings)
        return precision.log_volume() - loss, u


def at_fixed_mode(
    approx: LaplaceApproximation, hyperparameters: Hyperparameters, start: Float[Array, " H"]
) -> Decomposed | Stored | Recomputed:
    """The log evidence as a function of the logarithms of hyperparameters, at the mode of ``approx``.

    Whether h scales P and G is found by trying: at the start, at twice each hyperparameter, and
    with all of them moved.

    Args:
        approx: a fit.
        hyperparameters: which arguments vary.
        start: their logarithms, shape (H,).

    Returns:
        A differentiable function of the logarithms and of the mode; a pytree.

    Raises:
        UnsupportedModel: the precision is of low rank, and its eigenvectors depend on h.
    """
    settings, density, u = approx.settings, approx.density, approx.mode_vector
    recomputed = Recomputed(density, hyperparameters, settings)
    if settings.curvature == "hessian":
        return recomputed
    kind = settings.curvature
    base = _scales(density, u, kind)
    seen = on_host(base)
    tried = [on_host(_scales_at(density, hyperparameters, x, u, kind)) for x in _around(start)]
    scaled = _Scaled(density, u, base, hyperparameters, settings.curvature)
    proportional = all(_proportional(seen, other) for other in tried)
    groups = [block.size for block in blocks_of(approx.precision)]
    alone = isinstance(approx.precision, DiagonalPrecision)
    if proportional and (alone or all(_even(seen, other, groups) for other in tried)):
        return Decomposed(scaled, _gains(approx.precision, base.prior))
    if settings.structure == "low_rank":
        raise UnsupportedModel(
            'structure="low_rank" keeps the eigenvectors of one prior and of one curvature, and those '
            "depend on these hyperparameters.",
            causes=["a prior precision for each layer", "a hyperparameter within the network"],
            remedy="vary one prior precision and one noise precision, or use another structure.",
        )
    if proportional and settings.structure in ("dense", "last_layer", "block"):
        parts = parts_of(base.prior, groups)
        return Stored(
            scaled,
            tuple(
                b.matrix - jnp.diag(p)
                for b, p in zip(blocks_of(approx.precision), parts, strict=True)
            ),
        )
    return recomputed


def _bend(loss: Callable[[Array], Array], outputs: Array, kind: str) -> Array:
    if kind == "empirical_fisher":
        return slope(loss, outputs)
    along = jax.random.uniform(jax.random.key(0), outputs.shape, outputs.dtype, 0.5, 1.5)
    return jax.jvp(jax.grad(loss), (outputs,), (along,))[1]


def _work(density: ModelDensity, *_: Any) -> int:
    return WORK * numbers_in(density)


@partial(jit_quickly, work=_work, half=True, static_argnames="kind")
def _scales(density: ModelDensity, u: Array, kind: str) -> _Scales:
    eta, loss = split_likelihood(density, u)
    outputs = eta(u)
    return _Scales(outputs, _bend(loss, outputs, kind), prior_curvature(density, u)[0])


@partial(jit_quickly, work=_work, half=True, static_argnames=("hyperparameters", "kind"))
def _scales_at(
    density: ModelDensity, hyperparameters: Hyperparameters, x: Array, u: Array, kind: str
) -> _Scales:
    return _scales(hyperparameters.put(density, x), u, kind)


def _around(start: Array) -> Iterator[np.ndarray]:
    x = np.asarray(start)
    yield x
    yield from x + log(2) * np.eye(x.size, dtype=x.dtype)
    yield x + np.random.default_rng(1).uniform(-2, 2, x.shape).astype(x.dtype)


def _equal(one: Numbers, other: Numbers) -> bool:
    unit = ROUNDING * jnp.finfo(one.dtype).eps
    return bool((abs(one - other) <= unit * (abs(one) + abs(one).max())).all())


@np.errstate(all="ignore")
def _proportional(base: _Scales, other: _Scales) -> bool:
    """Whether the outputs are equal, the curvatures in proportion, and the prior's is diagonal."""
    if base.outputs.shape != other.outputs.shape or not np.isfinite(other.prior).all():
        return False
    factor = (other.bend @ base.bend) / (base.bend @ base.bend)
    return _equal(base.outputs, other.outputs) and _equal(factor * base.bend, other.bend)


@np.errstate(all="ignore")
def _even(base: _Scales, other: _Scales, groups: list[int]) -> bool:
    """Whether within each group of coordinates one factor scales the Hessian of the prior."""
    parts = parts_of(other.prior / base.prior, groups)
    return all(_equal(part, part[:1]) for part in parts)


def _gains(precision: Precision, prior: Array) -> Float[Array, " D"]:
    """The eigenvalues of P^-1/2 G P^-1/2 for A = P + G, group by group."""
    blocks = blocks_of(precision)
    parts = parts_of(prior, [block.size for block in blocks])
    return jnp.concatenate([_gains_of(b, p) for b, p in zip(blocks, parts, strict=True)])


def _gains_of(block: Precision, prior: Array) -> Array:
    if isinstance(block, LowRankPrecision):
        return jnp.pad(block.gains, (0, block.size - block.gains.size))
    if isinstance(block, DiagonalPrecision):
        return block.diagonal / prior - 1
    if isinstance(block, Eigenbasis):
        return jnp.ravel(block.eigenvalues) / prior - 1
    # NumPy, in double precision and without the eigenvectors.
    matrix, root = np.asarray(block.matrix, float), np.sqrt(np.asarray(prior, float))
    return jnp.asarray(np.linalg.eigvalsh(matrix / np.outer(root, root)) - 1, prior.dtype)
