"""A start for the search of the mode of a model with many weights, by stochastic gradient descent."""

from collections.abc import Callable, Mapping
from functools import partial
from math import isfinite, prod
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from laplacebook.base.checks import require_key, require_number
from laplacebook.base.errors import NonFinite
from laplacebook.base.keys import split_into
from laplacebook.base.namespace import Numbers, namespace
from laplacebook.base.progress import progress
from laplacebook.base.pytrees import on_host
from laplacebook.base.quick import jit, jit_quickly
from laplacebook.model.density import ModelDensity
from laplacebook.model.not_finite import because, not_finite
from laplacebook.model.rows import Rows, require_batch_size, require_sum, rows_of
from laplacebook.search.looks import slope_look

_CHUNKS = 50  # of the steps: between them the progress bar moves


def train(
    model: Callable,
    *args: Any,
    key: Key[Array, ""],
    steps: int = 2000,
    batch_size: int | None = None,
    learning_rate: float = 0.01,
    progress_bar: bool | None = None,
    start: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> dict[str, Array]:
    """Latent values from which ``laplace(model, ..., start=...)`` may begin; they are no mode.

    Adam (Kingma and Ba 2015), whose learning rate falls to zero along a cosine (Loshchilov and
    Hutter 2017), on the negative log joint in the unconstrained space, or on its unbiased estimate
    from some of the rows (``minibatch_loss``). Nothing certifies where it stops: after
    any number of steps the gradient is not zero, and a precision computed there is that of no mode.

    It begins in the middle of the prior, but for sites with two axes or more, such as the weights of
    a layer: those begin at a draw from the prior that is scaled to the variance 2 / (inputs +
    outputs), so that neither the outputs of deep layers nor their gradients vanish or explode
    (Glorot and Bengio 2010). The two longest axes are taken for inputs and outputs.

    In the book: :prf:ref:`neural-network-saddle` of :doc:`/book/neural-network`.

    Args:
        model: any NumPyro model with continuous latent sites, called as ``model(*args, **kwargs)``.
        args: its positional arguments.
        key: a JAX random key, for the first point and the order of the rows.
        steps: how many steps of Adam.
        batch_size: how many rows enter a step. Each row once, in a random order, and then again;
            what is left of the rows at the end of a round is left out of it. By default all.
        learning_rate: of the first step, about how far a coordinate moves in it.
        progress_bar: whether to show one if it takes longer than two seconds; by default if the
            standard error stream is a terminal.
        start: values of all latent sites from which to begin.
        kwargs: the model's keyword arguments.

    Returns:
        A dict of site -> array. The steps are compiled once for a model, the shapes of its arguments
        and a ``batch_size``; ``train`` itself cannot be within a transformation of JAX.

    Raises:
        ValueError: a number is out of its range, or ``start`` does not fit the sites.
        TypeError: ``key`` is no random key.
        UnsupportedModel: ``batch_size`` is given and the log likelihood is not a sum over rows; or
            as ``laplace`` does.
        NonFinite: the log joint is not finite at the start, or on the way.
    """
    require_number("steps", steps)
    require_key(key)
    if not learning_rate > 0:
        raise ValueError(f"learning_rate must be positive, not {learning_rate}")
    density = ModelDensity.of(model, args, kwargs)
    rows, batch_size = _rows(density, batch_size)
    initial, order = split_into(key)
    missing = [s.name for s in density.sites if start is not None and s.name not in start]
    if missing:
        raise ValueError(f"start lacks the latent sites {missing}: weights at zero learn alike.")
    u = initial_weights(density, initial) if start is None else density.start(start)
    value = _value_of_a_look if batch_size == rows.number else _loss
    if not isfinite(value(density, u)):
        raise not_finite(density, u)
    if batch_size < rows.number:
        require_sum(density, u)
    state = _begun(u, rows.number)
    ends = [steps * (i + 1) // _CHUNKS for i in range(_CHUNKS)]
    with progress(steps, progress_bar) as bar:
        for first, last in zip([0, *ends], ends, strict=False):
            span = (first, last, steps)
            state = _advance(rows, batch_size, state, order, span, learning_rate)
            if not _is_finite(state[0]):
                raise _diverged(density, last, learning_rate)
            bar.update(last - first)
    if not isfinite(value(density, state[0])):
        raise _diverged(density, steps, learning_rate)
    return _values(density, state[0])


def minibatch_loss(rows: Rows, u: Float[Array, " D"], index: Int[Array, " B"]) -> Float[Array, ""]:
    """An unbiased estimate of f(u) = -log p(D, theta): N/B times that of B rows, plus the prior's.

    Args:
        rows: the rows of a model.
        u: the point, shape (D,).
        index: which rows, shape (B,).
    """
    terms = rows.take(index).terms(u)
    return -(terms.log_likelihood * (rows.number / index.size) + terms.log_prior)


def _rows(density: ModelDensity, batch_size: int | None) -> tuple[Rows, int]:
    """The rows of a model, and how many enter a step: without a batch size all data are one row."""
    whole = Rows(density, 1, (False,) * len(jax.tree.leaves(density))), 1
    if batch_size is None:
        return whole
    rows = rows_of(density)
    require_batch_size(batch_size, rows)
    return whole if batch_size == rows.number else (rows, batch_size)


@partial(jit_quickly, divided=True)
def initial_weights(density: ModelDensity, key: Key[Array, ""]) -> Float[Array, " D"]:
    """The middle of the prior, and a scaled draw for sites with two axes or more (Glorot and Bengio 2010)."""
    centre, draw = (density.unravel(u) for u in (density.start(), density.draw_start(key)))
    for site in density.sites:
        if len(site.shape) > 1:
            away = draw[site.name] - centre[site.name]
            *others, inputs, outputs = sorted(site.shape)
            deviation = (2 / (prod(others) * (inputs + outputs))) ** 0.5
            away *= deviation / jnp.sqrt(jnp.mean(away**2))
            centre[site.name] += away
    return density.ravel(centre)


@jit_quickly
def _loss(density: ModelDensity, u: Array) -> Array:
    return density.loss(u)[0]


def _value_of_a_look(density: ModelDensity, u: Array) -> Numbers:
    """The same by the program of a look with the gradient, which the search that follows has need of."""
    return slope_look(density, u).f


@jit_quickly
def _values(density: ModelDensity, u: Array) -> dict[str, Array]:
    return density.values(u)


def _is_finite(u: Array) -> bool:
    seen = on_host(u)
    return bool(namespace(seen).isfinite(seen).all())


def _adam() -> Any:
    import optax  # here, because few models need it and every import would pay for it

    return optax.adam(1.0)


@partial(jit_quickly, static_argnums=1)
def _begun(u: Array, rows: int) -> tuple:
    """Where the steps begin: the point, what Adam remembers, and the order of the rows."""
    return u, _adam().init(u), jnp.zeros(rows, int)


@partial(jit, static_argnums=1)
def _advance(
    rows: Rows, batch_size: int, state: tuple, key: Array, span: tuple, learning_rate: Array
) -> tuple:
    """Some of the steps: from the first of ``span`` to the second, of a number that is the third."""
    batches = rows.number // batch_size
    first, last, steps = span

    def step(i: Array, state: tuple) -> tuple:
        u, memory, order = state
        if batch_size < rows.number:  # else there is nothing to shuffle, and a sort to compile
            drawn = jax.random.fold_in(key, i // batches)
            order = jax.lax.cond(
                i % batches == 0, lambda: jax.random.permutation(drawn, rows.number), lambda: order
            )
        index = jax.lax.dynamic_slice(order, (i % batches * batch_size,), (batch_size,))
        gradient = jax.grad(minibatch_loss, argnums=1)(rows, u, index)
        update, memory = _adam().update(gradient, memory)
        rate = learning_rate * (1 + jnp.cos(jnp.pi * i / steps)) / 2
        return u + jnp.asarray(rate, u.dtype) * update, memory, order

    return jax.lax.fori_loop(first, last, step, state)


def _diverged(density: ModelDensity, step: int, learning_rate: float) -> NonFinite:
    return NonFinite(
        f"The descent ran into NaN or infinity by step {step}{because(density.call.not_finite())}.",
        causes=[
            f"a learning rate of {learning_rate:.4g}, too large for this model",
            "a derivative that is not finite: sqrt, abs, log or a norm at zero",
            f"a {density.function} without bound: a scale that goes to zero",
        ],
        remedy="lower learning_rate, scale the features, or begin elsewhere with start=.",
    )
