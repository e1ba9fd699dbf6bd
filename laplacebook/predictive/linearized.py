"""The predictor of new rows as a linear function of the parameters: its moments under q."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
from tqdm import tqdm

from laplacebook.base.errors import LaplaceError, UnsupportedModel
from laplacebook.base.progress import progress
from laplacebook.base.pytrees import is_traced, on_host
from laplacebook.base.quick import is_eager, jit_quickly, most_rows
from laplacebook.gaussian.precision import Precision
from laplacebook.gaussian.sparse import SparsePrecision
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.model.rows import Rows
from laplacebook.predictive.by_layers import ByLayers
from laplacebook.predictive.outcomes import latent_values, outcome_at, outcome_given

# Coordinates: up to here so many passes through all rows cost less than one row at a time.
MOST_BY_COLUMNS = 256
# Numbers of R'^-1, J R'^-1 or J in memory, unless a row or _COLUMNS columns are more.
_AT_ONCE = 2**22
_COLUMNS = 16
# In the choice of how well a program is compiled: outputs of a row, about, and what is made of each derivative of one.
_OUTPUTS, _MADE = 8, 4
_STEPS = (1, -1, 3, -3)  # from the mode, at which a predictor is looked at
_STEADY = 1e-6  # of the size of a predictor's change: how far from linear it may be


class Linearized(NamedTuple):
    """f(u) = f(u_MAP) + g'(u - u_MAP) for u ~ q.

    Attributes:
        mean: f(u_MAP), of the shape of the predictor, (N,) or (N, C).
        variance: g' A^-1 g, of the same shape.
        covariance: between the outputs along the last axis, shape (N, C, C); None if not asked for.
        noise: the variance of the outcome at the mode.
        linear: whether f, seen along an irregular step from the mode to both sides, is linear in u.
    """

    mean: Float[Array, "*N"]
    variance: Float[Array, "*N"]
    covariance: Float[Array, "*N C C"] | None
    noise: Float[Array, "*N"]
    linear: Bool[Array, "*N"]


def linearize(
    density: ModelDensity,
    new: Call,
    mode: Float[Array, " D"],
    precision: Precision,
    site: str | None = None,
    joint: bool = False,
) -> Linearized:
    """The moments of the linearised predictor of new arguments (Bishop 2006, section 5.7.1).

    With many coordinates the Jacobian of one row at a time, by reverse mode, a batch of rows in
    memory; of the layers of a network whose weights are independent, or in Kronecker structure, their
    inputs and slopes instead; where a row alone has another predictor than among the others, and with few coordinates,
    the columns of A^-1/2 through all rows, by forward mode, which is right for any model.

    Args:
        density: the model and the arguments that it was fitted to.
        new: a call of the same model with the new arguments.
        mode: u_MAP, shape (D,).
        precision: A.
        site: the observed site; needed if there are several.
        joint: whether to compute the covariances of a predictor with two axes or more.

    Raises:
        ValueError: as :func:`~laplacebook.predictive.outcomes.outcome_at`.
        UnsupportedModel: as :func:`~laplacebook.predictive.outcomes.outcome_at`.
    """
    fit = (density, new, mode, precision)
    by_rows = _told_by_rows(*fit, site, joint) if mode.size > MOST_BY_COLUMNS else None
    if by_rows is None:
        return _by_columns(*fit, site, joint)
    found, same = by_rows
    if is_traced(same):
        return jax.lax.cond(same, lambda: found, lambda: _by_columns(*fit, site, joint))
    return found if same else _by_columns(*fit, site, joint)


@partial(jit_quickly, static_argnames=["site", "joint"])
def _by_columns(
    density: ModelDensity,
    new: Call,
    mode: Float[Array, " D"],
    precision: Precision,
    site: str | None,
    joint: bool,
) -> Linearized:
    """From J R'^-1 with A = R R', some columns at a time."""
    predictor = _predictor(density, new, site)
    mean, along, noise = jax.linearize(predictor, mode, has_aux=True)
    D = mode.size
    blocks = -(-D // max(_AT_ONCE // max(mean.size, D), _COLUMNS))
    columns = -(-D // blocks)
    contract = partial(_squares, joint=joint and mean.ndim > 1)

    def add(total: Array, some: Array) -> tuple[Array, None]:
        unit = jax.nn.one_hot(some, D, axis=0, dtype=mode.dtype)  # zero beyond the last coordinate
        return total + contract(jax.vmap(along, 1, 0)(precision.whitened(unit))), None

    numbers = jnp.arange(blocks * columns).reshape(blocks, columns)
    start = jnp.zeros_like(contract(mean[None]))
    squares, _ = jax.lax.scan(add, start, numbers)
    variance, covariance = _parts(squares, mean)
    step = _step(precision)
    line = mean, along(step), _slack(mean, variance, mode.size)
    linear = _is_linear(predictor, mode, step, *line)
    return Linearized(mean, variance, covariance, noise, linear)


_BARS: list[
    tqdm
] = []  # of the programs that run: their loops over rows of a sparse fit move the last


def _move_bar(total: int, rows: Any) -> None:
    for bar in _BARS[-1:]:
        bar.total = total
        bar.update(min(int(rows), total - bar.n))


def _told_by_rows(*args: Any) -> tuple[Linearized, Bool[Array, ""]] | None:
    """:func:`_by_rows` with a progress bar, unless within a compiled program."""
    if not is_eager():
        return _by_rows(*args)
    with progress(None, None, unit="row") as bar:
        _BARS.append(bar)
        try:
            return jax.block_until_ready(_by_rows(*args))
        finally:
            _BARS.remove(bar)


def _work_by_rows(_: ModelDensity, new: Call, mode: Float[Array, " D"], *__: Any) -> int:
    """Numbers of the Jacobian and what is made of each, as if a row had as many outputs as are common."""
    return most_rows(new) * mode.size * _OUTPUTS * _MADE


@partial(jit_quickly, work=_work_by_rows, half=True, static_argnames=["site", "joint"])
def _by_rows(
    density: ModelDensity,
    new: Call,
    mode: Float[Array, " D"],
    precision: Precision,
    site: str | None,
    joint: bool,
) -> tuple[Linearized, Bool[Array, ""]] | None:
    """From J, some rows at a time, and whether these are the same alone as among the others.

    None if by its shapes the predictor has no rows.
    """
    observed: dict[str, int] = {}

    def latent(parts: dict[str, Array]) -> dict[str, Array]:
        values, axes = latent_values(density, parts)
        observed.update(axes)
        return values

    # Once, and outside of the loop: this runs the model on the data of the fit.
    values, pull = jax.vjp(latent, density.unravel(mode))
    rows = _rows_of_predictor(new, lambda some: outcome_given(some, values, observed, site))
    if rows is None:
        return None
    step = _step(precision)

    def each(
        rows: Rows, values: Any, pull: Callable, precision: Precision, step: Array
    ) -> tuple[Array, Array, Array]:
        def one(index: Int[Array, ""]) -> tuple[Array, Array]:
            def output(values: dict[str, Array]) -> Array:
                return outcome_given(rows.take(index[None]), values, observed, site).predictor[0]

            mean, back = jax.vjp(output, values)
            units = jnp.eye(mean.size, dtype=mean.dtype).reshape(-1, *mean.shape)
            return mean, jax.vmap(lambda unit: density.ravel(*pull(*back(unit))))(units)

        def of_batch(index: Int[Array, " B"]) -> tuple[Array, Array, Array]:
            if isinstance(precision, SparsePrecision):  # whose solves are seconds on the host
                jax.debug.callback(partial(_move_bar, rows.number), index.size)
            mean, jacobians = jax.vmap(one)(index)
            jacobian = jacobians.reshape(-1, step.size)
            if joint and mean.ndim > 1:
                some = jacobian.reshape(-1, mean.shape[-1], step.size)
                squares = jax.vmap(precision.covariance_of)(some).reshape(*mean.shape, -1)
            else:
                half = precision.half_solve(jacobian.T)
                squares = jnp.sum(half**2, axis=0).reshape(mean.shape)
            return mean, (jacobian @ step).reshape(mean.shape), squares

        return _in_batches(of_batch, rows.number, outputs * step.size)

    def of_row(u: Array, index: Int[Array, ""]) -> Array:
        values, observed = latent_values(density, u)
        return outcome_given(rows.take(index[None]), values, observed, site).predictor[0]

    predictor = _predictor(density, new, site)
    mean, slope, noise = jax.jvp(predictor, (mode,), (step,), has_aux=True)
    outputs = prod(mean.shape[1:])
    on_one_device = density.placement is None and new.placement is None
    layers = ByLayers.of(of_row, mode, precision, density.sites) if on_one_device else None
    if layers is None:
        operands = (values, pull, precision, step)
        alone, slope_alone, squares = rows.over_shards(each, *operands, summed=False)
    else:
        of_batch = partial(layers.moments, mode, precision, step, joint=joint and mean.ndim > 1)
        found = _in_batches(of_batch, rows.number, layers.numbers(outputs))
        shape = (mean.shape, mean.shape, (*mean.shape, *found[2].shape[2:]))
        alone, slope_alone, squares = map(jnp.reshape, found, shape)
    variance, covariance = _parts(squares, mean)
    slack = _slack(mean, variance, mode.size)
    near = jnp.abs(alone - mean) <= _allowed(mean.dtype) * (1 + jnp.abs(mean))
    near &= jnp.abs(slope_alone - slope) <= slack
    linear = _is_linear(predictor, mode, step, mean, slope, slack)
    same = jnp.all(near | ~jnp.isfinite(mean + slope))
    return Linearized(mean, variance, covariance, noise, linear), same


def _is_linear(
    predictor: Callable[[Array], tuple[Array, Array]],
    mode: Array,
    step: Array,
    mean: Array,
    slope: Array,
    slack: Array,
) -> Bool[Array, "*N"]:
    """Whether the predictor follows its tangent along a step, back, and three times as far.

    Where it does not, it may be that a logit is cut off where its probability is 0 or 1 to rounding: not in one step.
    """

    def follows(times: Array) -> Array:
        there, line = predictor(mode + times * step)[0], mean + times * slope
        apart = jax.nn.sigmoid(there) - jax.nn.sigmoid(line)
        cut_off = (times != 1) & (jnp.abs(apart) <= _STEADY)
        return (jnp.abs(there - line) <= times**2 * slack) | cut_off

    return jnp.all(jax.lax.map(follows, jnp.array(_STEPS, mode.dtype)), axis=0)


def _predictor(
    density: ModelDensity, new: Call, site: str | None
) -> Callable[[Array], tuple[Array, Array]]:
    """The predictor of all rows and the variance of the outcome, as a function of u."""

    def predictor(u: Array) -> tuple[Array, Array]:
        outcome = outcome_at(density, new, u, site)
        return outcome.predictor, outcome.variance

    return predictor


def _rows_of_predictor(new: Call, outcome: Callable[[Call], Any]) -> Rows | None:
    """The arrays whose first axis is that of the predictor, if one row of them gives one of it."""
    shape = jax.eval_shape(lambda: outcome(new).predictor).shape
    if not shape:
        return None
    rows = Rows.of(new, shape[0])
    try:
        one = jax.eval_shape(lambda: outcome(rows.take(jnp.zeros(1, int))).predictor)
    except (LaplaceError, TypeError, ValueError, AssertionError):
        return None  # the columns do without rows
    return rows if one.shape == (1, *shape[1:]) else None


def _in_batches(of_batch: Callable[[Array], Any], number: int, each: int) -> Any:
    """A function of indices for each of 0, ..., number - 1, of which one needs so many numbers."""
    batches = -(-number // max(_AT_ONCE // each, 1))
    if batches == 1:
        return of_batch(jnp.arange(number))
    index = jnp.arange(batches * -(-number // batches)).reshape(batches, -1)
    # What is missing in the last batch is made up by rows taken again.
    found = jax.lax.map(of_batch, index % number)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:number], found)


def _squares(half: Float[Array, "K *N"], joint: bool) -> Float[Array, "*M"]:
    """Sums over the first axis of squares, or of products along the last axis."""
    return jnp.einsum("k...c,k...d->...cd", half, half) if joint else jnp.sum(half**2, axis=0)


def _parts(squares: Array, mean: Array) -> tuple[Array, Array | None]:
    """Variance and covariance, NaN where squares overflow."""
    squares = jnp.where(jnp.isinf(squares), jnp.nan, squares)
    if squares.ndim == mean.ndim:
        return squares, None
    return jnp.diagonal(squares, axis1=-2, axis2=-1), squares


def _step(precision: Precision) -> Float[Array, " D"]:
    """Irregular, for along a regular step the curvature of w1^2 - w2^2 can cancel."""
    dtype = jnp.result_type(*jax.tree.leaves(precision))
    return precision.whitened(jnp.cos(jnp.arange(1, precision.size + 1, dtype=dtype) ** 2))


def _slack(mean: Array, variance: Array, D: int) -> Array:
    """How much of the change along the step may be wrong."""
    size = jnp.sqrt(variance * D) + jnp.finfo(mean.dtype).eps ** 0.5 * (1 + jnp.abs(mean))
    return _allowed(mean.dtype) * size


def _allowed(dtype: Any) -> float:
    return max(_STEADY, float(jnp.finfo(dtype).eps) ** 0.5)


def require_linear(linear: Bool[Array, "*N"], mean: Array, method: str) -> Array:
    """The predictor; NaN where it is not linear and nothing can be raised.

    Args:
        linear: what :func:`linearize` says of it, shape (N,).
        mean: the predictor at the mode.
        method: that needs it to be.

    Raises:
        UnsupportedModel: it is not.
    """
    if is_traced(linear):
        return jnp.where(linear, mean, jnp.nan)
    if not on_host(linear).all():
        raise UnsupportedModel(
            f'method="{method}" needs a predictor that is linear in the parameters u, and that of '
            "this model is not.",
            causes=[
                "the scale of a coefficient is itself a parameter (a hierarchical model)",
                "the predictor is a network, or a product of parameters",
                "it is cut off or bent (clip, maximum, abs), or a function of linear logits, as log_softmax is",
                "squares of the predictor overflow",
            ],
            remedy='use method="monte_carlo" with key=jax.random.key(0), which needs no linearity; or fit with '
            'curvature="gauss_newton", which is the curvature of the linearised predictor; or use '
            "smaller units.",
        )
    return mean
