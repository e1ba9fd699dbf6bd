"""Normal distributions by the Cholesky factors of their covariances: compiled, and with no check.

Means have the shape (*batch, D) and lower triangular factors (*batch, D, D), with batch shapes that
broadcast. What :mod:`laplacebook.gaussian.normal` computes, it computes here.
"""

import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int
from numpyro.distributions import MultivariateNormal

from laplacebook.base.quick import jit_quickly


@jit_quickly
def marginal(mean: Array, factor: Array, chosen: Int[Array, " K"]) -> MultivariateNormal:
    """Of the coordinates chosen."""
    return _normal(mean[..., chosen], _triangular(factor[..., chosen, :]))


@jit_quickly
def conditional(
    mean: Array, factor: Array, known: Int[Array, " K"], others: Int[Array, " L"], values: Array
) -> MultivariateNormal:
    """Of the other coordinates, where those known have the values."""
    ordered = _triangular(factor[..., jnp.concatenate([known, others]), :])
    K = known.size
    away = _solve(ordered[..., :K, :K], (values - mean[..., known])[..., None])
    moved = mean[..., others] + (ordered[..., K:, :K] @ away)[..., 0]
    return _normal(moved, ordered[..., K:, K:])


@jit_quickly
def theorem(
    mean: Array, factor: Array, A: Array, b: Array, noise_factor: Array, noise: Array | None
) -> tuple[MultivariateNormal, MultivariateNormal, Array, Array]:
    """For x ~ N(mean, S), y | x ~ N(A x + b, R): p(x, y), p(y), L root and W root.

    S = L L', W = R^-1/2 A L and (I + W'W)^-1 = root root'; ``noise`` is R, if it is known.
    """
    N, M, spread = factor.shape[-1], noise_factor.shape[-1], A @ factor
    outputs = (A @ mean[..., None])[..., 0] + b
    root, gain = _root(_solve(noise_factor, spread))
    means = _block([[mean[..., None]], [outputs[..., None]]])[..., 0]
    factors = _block([[factor, jnp.zeros((N, M), factor.dtype)], [spread, noise_factor]])
    of_outputs = _normal(means[..., N:], _sum(spread, noise_factor, noise))
    return _normal(means, factors), of_outputs, factor @ root, gain


@jit_quickly
def posterior(
    mean: Array, factor: Array, y: Array, posterior_factor: Array, gain: Array
) -> MultivariateNormal:
    """p(x | y), from the joint distribution and the last two parts of the theorem."""
    N = posterior_factor.shape[-1]
    surprise = _solve(factor[..., N:, N:], (y - mean[..., N:])[..., None])
    step = posterior_factor @ (_t(gain) @ surprise)
    return _normal(mean[..., :N] + step[..., 0], posterior_factor)


@jit_quickly
def divergence(
    mean: Array, factor: Array, other_mean: Array, other_factor: Array
) -> Float[Array, "*batch"]:
    """KL of N(mean, factor factor') to the other, as a sum of terms none of which is negative."""
    ratio = _solve(other_factor, factor)
    away = _solve(other_factor, (mean - other_mean)[..., None])
    diagonal = _diagonal(ratio)
    spreads = jnp.sum((diagonal - 1) ** 2 + 2 * (diagonal - 1 - jnp.log(diagonal)), axis=-1)
    below = jnp.sum(jnp.tril(ratio, -1) ** 2, axis=(-2, -1))
    return (spreads + below + jnp.sum(away**2, axis=(-2, -1))) / 2


@jit_quickly
def quadratic_form(mean: Array, factor: Array, A: Array) -> Float[Array, "*batch"]:
    """E[x' A x]."""
    of_mean = (mean[..., None, :] @ A @ mean[..., None])[..., 0, 0]
    return of_mean + jnp.sum(factor * (A @ factor), axis=(-2, -1))


def _normal(mean: Array, factor: Array) -> MultivariateNormal:
    """N(mean, factor factor'); whoever asked for it checks it."""
    return MultivariateNormal(mean, scale_tril=factor, validate_args=False)


def _root(whitened: Float[Array, "*batch M N"]) -> tuple[Array, Array]:
    """The lower triangular root for which root root' = (I + W'W)^-1, and W root."""
    one = jnp.eye(whitened.shape[-1], dtype=whitened.dtype)
    backwards = (one + _t(whitened) @ whitened)[..., ::-1, ::-1]
    pivots = _diagonal(_cholesky(lax.stop_gradient(backwards))) ** 2
    exact = _well_above_rounding(pivots, _diagonal(backwards))

    def inverse(lower: Array) -> Array:
        return _t(_solve(lower, one))[..., ::-1, ::-1]

    def by_cholesky() -> tuple[Array, Array]:
        root = inverse(_cholesky(backwards))
        return root, whitened @ root

    def by_qr() -> tuple[Array, Array]:
        ones = jnp.broadcast_to(one, backwards.shape)
        basis, upper = jnp.linalg.qr(jnp.concatenate([whitened, ones], axis=-2)[..., ::-1])
        signs = jnp.sign(_diagonal(upper))[..., None, :]
        return inverse(_t(upper) * signs), (basis * signs)[..., : whitened.shape[-2], ::-1]

    return lax.cond(exact, by_cholesky, by_qr)


def _sum(spread: Array, noise_factor: Array, noise: Array | None) -> Array:
    """The Cholesky factor of spread spread' + R, no pivot of which is below that of R."""
    total = spread @ _t(spread)
    total += noise_factor @ _t(noise_factor) if noise is None else noise
    exact = _well_above_rounding(_diagonal(noise_factor) ** 2, _diagonal(total))
    sides = _block([[spread, noise_factor]])
    return lax.cond(exact, lambda: _cholesky(total), lambda: _triangular(sides))


def _well_above_rounding(pivots: Array, diagonal: Array) -> Array:
    """Whether a Cholesky factor of the product costs three eighths of the digits at most.

    If not, the QR of the factors, which takes ten times as long, costs half of what the product does.
    """
    return jnp.all(pivots > jnp.finfo(pivots.dtype).eps ** 0.375 * diagonal)


def _triangular(root: Float[Array, "*batch K D"]) -> Float[Array, "*batch K K"]:
    """The Cholesky factor of root root', for K <= D.

    The product is not formed: the error grows as the condition number of root, not as its square.
    """
    upper = jnp.linalg.qr(_t(root), mode="r")
    return _t(upper) * jnp.sign(_diagonal(upper))[..., None, :]


def _cholesky(product: Float[Array, "*batch D D"]) -> Float[Array, "*batch D D"]:
    """Of a matrix that is symmetric by construction."""
    return jnp.linalg.cholesky(product, symmetrize_input=False)


def _block(rows: list[list[Array]]) -> Array:
    """A matrix from its blocks, whatever their batch shapes."""
    batch = jnp.broadcast_shapes(*(block.shape[:-2] for row in rows for block in row))
    return jnp.block(
        [[jnp.broadcast_to(block, (*batch, *block.shape[-2:])) for block in row] for row in rows]
    )


def _solve(factor: Float[Array, "*batch D D"], right: Array) -> Array:
    """L^-1 times a matrix, whatever the batch shapes."""
    batch = jnp.broadcast_shapes(factor.shape[:-2], right.shape[:-2])
    factor, right = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (factor, right))
    return solve_triangular(factor, right, lower=True)


def _diagonal(matrix: Array) -> Array:
    return jnp.diagonal(matrix, axis1=-2, axis2=-1)


def _t(matrix: Array) -> Array:
    return jnp.swapaxes(matrix, -1, -2)
