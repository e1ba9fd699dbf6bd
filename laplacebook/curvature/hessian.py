"""The curvature of a log joint: exact, and that of its prior alone."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxpr_as_fun
from jaxtyping import Array, Bool, Float

from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.irregular import irregular_numbers, irregular_signs
from laplacebook.base.jaxprs import linear_algebra, without_idle
from laplacebook.base.namespace import Numbers
from laplacebook.base.quick import jit, jit_quickly, most_rows, numbers_in
from laplacebook.model.density import ModelDensity

SMALL, MANY = 8, 100  # coordinates of a site that is one of few, and of all others
_FACTORISES: dict[tuple, bool] = {}
_KEPT = 200  # of them
COLUMNS = 32  # of a matrix at a time: wide enough for matrix products, narrow enough for memory
ROUNDING = 1e3  # units in the last place: what counts as zero beside a larger number, or as equal
WORK = 8  # numbers that a product of the Hessian with a vector computes for each of the data, about
_NO_DERIVATIVE = (
    "custom_vjp",
    "Reverse-mode differentiation",
    "callbacks do not support JVP",
    "for +: 'NoneType' and 'tuple'",  # of a while_loop, in JAX 0.8
    "Differentiation rule for",
    "Betainc gradient",
)


@contextmanager
def twice_differentiable(times: str = "twice") -> Iterator[None]:
    """JAX's own errors about what it cannot differentiate twice, or more often, as ours."""
    try:
        yield
    except (TypeError, ValueError, NotImplementedError) as error:
        if not any(phrase in str(error) for phrase in _NO_DERIVATIVE):
            raise
        raise UnsupportedModel(
            f"JAX cannot differentiate the log joint {times}. {error}",
            causes=[
                "a solver with a derivative of its own (jax.experimental.ode.odeint, jax.custom_vjp)",
                "jax.lax.while_loop, or fori_loop with bounds that are arrays",
                "a function that JAX cannot see into (jax.pure_callback)",
                "a distribution function of Gamma, Beta or StudentT with an unknown shape, as of a "
                "censored datum",
            ],
            remedy="write that part with jax.lax.scan, such as a fixed number of steps of the solver "
            "or nodes of a quadrature; or give the shape a value.",
        ) from error


def value_gradient_hessian(
    f: Callable[[Array], tuple[Array, Any]], x: Float[Array, " D"]
) -> tuple[Float[Array, ""], Any, Float[Array, " D"], Float[Array, "D D"]]:
    """A scalar function, its gradient and its Hessian at x, forward over reverse.

    Args:
        f: a twice differentiable function of a vector of shape (D,) that returns a scalar and,
            beside it, anything else worth keeping.
        x: the point, shape (D,).

    Returns:
        f(x), shape (); what f returned beside it; the gradient, shape (D,); the symmetric Hessian,
        shape (D, D).
    """

    def gradient(x: Array) -> tuple[Array, tuple[Array, Any, Array]]:
        (value, beside), slope = jax.value_and_grad(f, has_aux=True)(x)
        return slope, (value, beside, slope)

    if x.size <= COLUMNS:
        hessian, (value, beside, slope) = jax.jacfwd(gradient, has_aux=True)(x)
        return value, beside, slope, (hessian + hessian.T) / 2
    slope, column, (value, beside, _) = jax.linearize(gradient, x, has_aux=True)
    return value, beside, slope, matrix_of(column, x)


def factorises(density: ModelDensity) -> bool:
    """Whether its program has factorisations, or solves with what it factorises; found once for it."""
    key = density.program
    if key not in _FACTORISES:
        while len(_FACTORISES) >= _KEPT:
            del _FACTORISES[next(iter(_FACTORISES))]
        program = jax.make_jaxpr(density.log_joint)(
            np.zeros(density.dimension, jnp.result_type(float))
        )
        _FACTORISES[key] = any(linear_algebra(program.jaxpr))
    return _FACTORISES[key]


def few_of(density: ModelDensity) -> tuple[str, ...]:
    """The small sites, if they have few coordinates beside a hundred of the others; else none.

    Of fewer it would take as long to compile a second kind of columns as it saves.
    """
    small = [site for site in density.sites if site.size <= SMALL]
    together = sum(site.size for site in small)
    has_both = 0 < together <= COLUMNS and density.dimension - together > MANY
    return tuple(site.name for site in small) if has_both else ()


def has_factors_of_few(density: ModelDensity) -> bool:
    """Whether :func:`hessian_at` leaves out derivatives of factors in most columns, and takes far less time by it."""
    return bool(few_of(density)) and factorises(density)


def hessian_at(
    density: ModelDensity, u: Float[Array, " D"]
) -> tuple[Float[Array, ""], Any, Float[Array, " D"], Float[Array, "D D"]]:
    """What :func:`value_gradient_hessian` returns of the negative log joint.

    Beside it are its terms, and whether u is valid. By columns of :func:`few_of` and of the others: what depends on the
    few alone, as a covariance on its hyperparameters, has no derivative in the columns of the others. A Cholesky factor
    has it two or three times, and not in each of hundreds of columns.

    Args:
        density: the log joint.
        u: shape (D,).
    """
    over = few_of(density)
    if not over:
        return value_gradient_hessian(density.loss_and_validity, u)
    few = np.concatenate([np.full(site.size, site.name in over) for site in density.sites])
    h, z = u[few], u[~few]

    def gradients(h: Array, z: Array) -> tuple[tuple[Array, Array], tuple[Array, Any]]:
        def loss(h: Array, z: Array) -> tuple[Array, Any]:
            return density.loss_and_validity(joint(density, over, h, z))

        (value, beside), slopes = jax.value_and_grad(loss, (0, 1), has_aux=True)(h, z)
        return slopes, (value, beside)

    slopes, of_few, (value, beside) = jax.linearize(lambda h: gradients(h, z), h, has_aux=True)
    corner, across = jax.vmap(of_few)(jnp.eye(h.size, dtype=h.dtype))
    _, of_others = jax.linearize(lambda z: gradients(h, z)[0][1], z)
    order = np.argsort(np.concatenate([np.flatnonzero(few), np.flatnonzero(~few)]))
    hessian = jnp.block([[(corner + corner.T) / 2, across], [across.T, matrix_of(of_others, z)]])
    return value, beside, jnp.concatenate(slopes)[order], hessian[order][:, order]


def joint(
    density: ModelDensity, over: tuple[str, ...], h: Float[Array, " H"], z: Float[Array, " d"]
) -> dict[str, Array]:
    """The coordinates of all sites, within a program, in which no derivative in z is one in h, too.

    Args:
        density: the log joint.
        over: the names of some sites.
        h: their coordinates, shape (H,).
        z: those of the others, shape (d,).
    """
    parts: dict[str, Array] = {}
    rest = {True: h, False: z}
    for site in density.sites:
        vector = rest[site.name in over]
        parts[site.name] = vector[: site.size].reshape(site.shape)
        rest[site.name in over] = vector[site.size :]
    return parts


def hessian_of(
    f: Callable[[Array], tuple[Array, Any]], x: Float[Array, " D"]
) -> Float[Array, "D D"]:
    """The Hessian alone: where f has a large linear predictor, through that.

    Args:
        f: a twice differentiable function of a vector of shape (D,) that returns a scalar and,
            beside it, anything.
        x: the point, shape (D,).
    """
    from laplacebook.curvature.linear_predictor import hessian_by_rows, split_at_predictor

    split = split_at_predictor(lambda x: f(x)[0], x)
    if split is None:
        return value_gradient_hessian(f, x)[3]
    return hessian_by_rows(split, x, lambda g, x: hessian_of(lambda x: (g(x), None), x))


def _work(density: ModelDensity, u: Float[Numbers, " D"], v: Float[Numbers, " D"]) -> int:
    """How many numbers a product computes, about: of a network at least one for each row and weight."""
    return max(WORK * numbers_in(density), most_rows(density) * u.size)


@partial(jit_quickly, work=_work, half=True, divided=True)
def hessian_product(
    density: ModelDensity, u: Float[Array, " D"], v: Float[Array, " D"]
) -> Float[Array, " D"]:
    """The Hessian of the negative log joint at u times a vector."""
    return jax.jvp(jax.grad(lambda u: density.loss(u)[0]), (u,), (v,))[1]


@jit
def hessian_product_again(
    density: ModelDensity, u: Float[Array, " D"], v: Float[Array, " D"]
) -> Float[Array, " D"]:
    """The same but for rounding, compiled for longer."""
    return jax.jvp(jax.grad(lambda u: density.loss(u)[0]), (u,), (v,))[1]


def matrix_of(
    product: Callable[[Float[Array, " D"]], Float[Array, " D"]], like: Float[Array, " D"]
) -> Float[Array, "D D"]:
    """A symmetric matrix from its products with the columns of the identity.

    Args:
        product: v -> A v, a linear function of a vector of shape (D,).
        like: a vector of that shape and precision.

    Returns:
        A, shape (D, D).
    """
    chunks = ceil(like.size / COLUMNS)
    width = ceil(like.size / chunks)
    directions = jnp.eye(chunks * width, like.size, dtype=like.dtype)
    directions = directions.reshape(chunks, width, like.size)
    matrix = jax.lax.map(jax.vmap(product), directions).reshape(-1, like.size)[: like.size]
    return (matrix + matrix.T) / 2


def prior_curvature(
    density: ModelDensity, u: Float[Array, " D"]
) -> tuple[Float[Array, " D"], Bool[Array, ""]]:
    """The Hessian of minus the log prior, if it is diagonal, by two products with vectors.

    Args:
        density: a model and its arguments; its log prior includes the log Jacobian.
        u: the point, shape (D,).

    Returns:
        The diagonal, shape (D,), NaN if the Hessian has anything beside it; and whether it has
        nothing, shape ().
    """
    # What only the likelihood needs is not differentiated.
    loss = jaxpr_as_fun(without_idle(jax.make_jaxpr(partial(_prior_loss, density))(u)))
    _, product = jax.linearize(jax.grad(lambda u: loss(u)[0]), u)
    # For an irregular vector nothing beside the diagonal is as if it were on it.
    numbers = irregular_signs(2, u.size) * irregular_numbers(2, u.size)
    irregular = jnp.asarray(numbers, u.dtype)
    diagonal = product(jnp.ones_like(u))
    expected = diagonal * irregular
    rounding = ROUNDING * jnp.finfo(u.dtype).eps * jnp.abs(expected)
    alone = jnp.all(jnp.abs(product(irregular) - expected) <= rounding)
    return jnp.where(alone, diagonal, jnp.nan), alone


def prior_hessian(density: ModelDensity, u: Float[Array, " D"]) -> Float[Array, "D D"]:
    """The Hessian of minus the log prior, shape (D, D); arguments as of :func:`prior_curvature`."""
    return value_gradient_hessian(lambda u: (_prior_loss(density, u), None), u)[3]


def _prior_loss(density: ModelDensity, u: Array) -> Float[Array, ""]:
    return -density.terms(u).log_prior
