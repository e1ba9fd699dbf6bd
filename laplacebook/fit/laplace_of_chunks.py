"""The Laplace approximation from data that do not fit into memory: the same search, in passes."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.checks import require_numbers
from laplacebook.base.errors import NotPositiveDefinite, UnsupportedModel
from laplacebook.base.namespace import Numbers
from laplacebook.base.one_thread import by_one_thread
from laplacebook.base.pytrees import loud, on_host
from laplacebook.base.quick import in_full_precision, jit, jit_quickly, numbers_in
from laplacebook.curvature.hessian import hessian_of, twice_differentiable, value_gradient_hessian
from laplacebook.curvature.precision_at import kept, precision_at
from laplacebook.curvature.settings import Settings
from laplacebook.fit.chunk_checks import changed, require_same_prior, same_to
from laplacebook.fit.chunked_density import ChunkedDensity, Part, Passes, SearchedChunks
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.gaussian.precision import (
    BlockPrecision,
    DensePrecision,
    DiagonalPrecision,
    Precision,
    blocks_of,
)
from laplacebook.model.start import off_centre
from laplacebook.model.trace import Terms
from laplacebook.search.certificate import Search
from laplacebook.search.driven import drive
from laplacebook.search.follows_gradient import (
    LOOK_NODES,
    NODES,
    direction_of_look,
    fails,
    follows_finely,
)
from laplacebook.search.looks import LOOKS
from laplacebook.search.metric import FEW, inside
from laplacebook.search.mode import MANY
from laplacebook.search.newton_step import Look
from laplacebook.search.no_mode import explain

ADDING_UP = ("dense", "diagonal", "block")
MIDDLE = LOOK_NODES // 2  # the node at the mode


@in_full_precision
@by_one_thread
def laplace_of_chunks(
    model: Callable,
    chunks: Iterable[Any],
    *,
    space: str = "unconstrained",
    curvature: str = "hessian",
    structure: str = "dense",
    start: Mapping[str, Any] | None = None,
    throw: bool = True,
    progress_bar: bool | None = None,
    **kwargs: Any,
) -> LaplaceApproximation:
    """The Laplace approximation of a posterior whose data come in chunks of rows.

    The same search, the same certificate and the same numbers as :func:`~laplacebook.laplace` of all
    rows at once. Each evaluation of the log joint is a pass through the chunks, with two of them in
    memory. A chunk may itself be sharded over devices. Not under ``jit``.

    In the book: :eq:`laplace-posterior` and :eq:`laplace-evidence` of :doc:`/book/laplace`, and
    the section on data larger than memory of :doc:`/book/scaling`.

    Args:
        model: a NumPyro model of any number of rows, whose log likelihood is the sum over them.
        chunks: an iterable that begins afresh each time it is iterated: :class:`~laplacebook.Chunks`
            of arrays or memory maps, a list, or an object whose ``__iter__`` opens the data again. Each
            chunk is a tuple of the positional arguments of the model, or the only one.
        space: as in :func:`~laplacebook.laplace`.
        curvature: of the likelihood at the mode, as in :func:`~laplacebook.laplace`. The mode is found,
            and certified, with the Hessian.
        structure: what is kept of it: ``"dense"``, ``"diagonal"`` or ``"block"``.
        start: as in :func:`~laplacebook.laplace`.
        throw: raise if there is no mode; else all numbers are NaN.
        progress_bar: whether to show one for each pass that takes longer than two seconds; by default
            if the standard error stream is a terminal.
        kwargs: the model's keyword arguments, the same for all chunks.

    Returns:
        A :class:`~laplacebook.LaplaceApproximation`. It predicts, samples and tells the evidence; what
        takes the log joint at thousands of points (``diagnose``, importance sampling) it refuses.

    Raises:
        ValueError: the chunks can be gone through only once, have no rows, are one array, or are not
            known yet (``jit``, ``vmap``, ``grad``); or an option has no such value.
        UnsupportedModel: as :func:`~laplacebook.laplace`; or the log likelihood is not a sum over rows,
            the prior depends on the chunk, or there are more than 3,000 coordinates.
        NonFinite, NotConverged, NotPositiveDefinite: as :func:`~laplacebook.laplace`.

    >>> import numpy as np, numpyro, numpyro.distributions as dist
    >>> def coins(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([len(y)]).to_event(1), obs=y)
    >>> approx = laplace_of_chunks(coins, [np.array([1, 1, 1, 1, 0]), np.array([1, 1, 1, 1])])
    >>> print(f"{approx.mode['theta']:.4f}")  # 10/13
    0.7692
    """
    require_numbers("laplace_of_chunks", (start, kwargs))
    settings = Settings(curvature, structure)
    if structure not in ADDING_UP:
        raise ValueError(
            f"structure={structure!r} does not add up over chunks; {', '.join(ADDING_UP)} do."
        )
    passes = Passes(model, chunks, kwargs, space, progress_bar)
    first = passes.first
    if first.dimension > MANY:
        raise UnsupportedModel(
            f"The model has {first.dimension:,} coordinates, and passes through chunks compute a dense Hessian: "
            f"up to {MANY:,}.",
            remedy="take a mode found by laplacebook.train on minibatches, or fit all data at once by "
            'laplace with curvature="gauss_newton" and a structure.',
        )
    u = _start(first, None if start is None else first.start(start))
    passes.require_sum_of_chunks(u)
    first = passes.first  # fewer rows
    with twice_differentiable():
        found = _search(passes, u)
    exact = _kept(found.curvature, tuple(site.size for site in first.sites), structure)
    stationary = bool(found.certificate.converged)
    sound = stationary and _confirmed(passes, found, exact)
    certificate = replace(found.certificate, converged=jax.device_put(np.asarray(sound)))
    if throw and not sound:
        searched = SearchedChunks(passes.first.call, space, passes)
        raise explain(searched, found.point, certificate, stationary)
    precision = exact
    if sound and curvature != "hessian":
        precision = _summed(passes, found.point, settings)
        if not jnp.isfinite(precision.log_determinant()):
            if throw:
                raise _not_positive_definite(settings)
            sound, certificate = False, replace(certificate, converged=jnp.zeros((), bool))
    parts = found.point, found.beside, precision
    point, terms, precision = _if_sound(parts, np.asarray(sound))
    return LaplaceApproximation(
        terms.values,
        point,
        precision,
        terms.log_likelihood,
        terms.log_prior,
        certificate,
        ChunkedDensity(passes.first.call, space),
        settings=settings,
    )


@jit_quickly
def _start(first: Any, start: Array | None) -> Array:
    start = first.start() if start is None else start
    return off_centre(start, first.room(start))


def _search(passes: Passes, start: Float[Array, " D"]) -> Search:
    """The minimum that damped Newton steps reach, as :func:`~laplacebook.search.driven.drive` has it."""
    at, hessian_at = _few, None
    if start.size > FEW:
        at, hessian_at = _many, partial(_hessian_at, passes)
    look_at = partial(_look_at, passes, at)
    with np.errstate(all="ignore"):
        found = drive(look_at, np.asarray(start), hessian_at, estimated=hessian_at is not None)
    return jax.device_put(found)


_kept = jit_quickly(kept, static_argnums=(1, 2))


@jit_quickly
def _if_sound(parts: Any, sound: Array) -> Any:
    """The same numbers, or NaN."""
    return jax.tree.map(lambda x: x * loud(sound, x.dtype), parts)


def _look_at(passes: Passes, at: Callable, u: np.ndarray) -> Look:
    look = _total(passes, at, u)
    return jax.device_get(look._replace(beside=None))._replace(beside=look.beside)


def _hessian_at(passes: Passes, u: np.ndarray) -> np.ndarray:
    return np.asarray(passes.sum(_hessian, u))


def _total(passes: Passes, at: Callable, u: Numbers) -> Look:
    """f and its derivatives: sums, beside which the prior and the latent values are of the first chunk."""
    return reduce(_plus, passes.each(at, u))


@jit_quickly
def _plus(total: Look, look: Look) -> Look:
    terms = total.beside
    together = terms.log_likelihood + look.beside.log_likelihood
    summed = jax.tree.map(jnp.add, total._replace(beside=None), look._replace(beside=None))
    return summed._replace(beside=terms._replace(log_likelihood=together))


def _work(part: Part, *_: Any) -> int:
    return numbers_in(part) * LOOKS


@partial(jit_quickly, work=_work)
def _few(part: Part, u: Array) -> Look:
    return Look(*value_gradient_hessian(part.loss, u))


@partial(jit_quickly, work=_work)
def _many(part: Part, u: Array) -> Look:
    (value, terms), gradient = jax.value_and_grad(part.loss, has_aux=True)(u)
    return Look(value, terms, gradient, None)


@partial(jit_quickly, work=_work)
def _hessian(part: Part, u: Array) -> Array:
    return hessian_of(part.loss, u)


def _summed(passes: Passes, u: Array, settings: Settings) -> Precision:
    """The precision by the curvature of each chunk."""
    total = passes.sum(partial(_entries, settings=settings), u)
    if settings.structure == "diagonal":
        return DiagonalPrecision(*total)
    return DensePrecision.of(*total) if settings.structure == "dense" else BlockPrecision.of(total)


def _not_positive_definite(settings: Settings) -> NotPositiveDefinite:
    kind = settings.curvature.replace("_", "-")
    return NotPositiveDefinite(
        f"The {kind} precision of all chunks is not positive definite, or not a number.",
        causes=["a prior that couples the sites", "a likelihood that is not convex in its outputs"],
        remedy='use curvature="hessian", or structure="dense".',
    )


@partial(jit, static_argnames="settings")
def _entries(part: Part, u: Array, settings: Settings) -> tuple[Array, ...]:
    """What adds up: the diagonal, or the matrices of the blocks."""
    precision = precision_at(part, u, settings)
    if isinstance(precision, DiagonalPrecision):
        return (precision.diagonal,)
    return tuple(block.matrix for block in blocks_of(precision))


def _confirmed(passes: Passes, found: Search, precision: Precision) -> bool:
    """Whether f follows its gradient about the mode, which is valid and not at the edge of a support.

    Raises:
        UnsupportedModel: the log prior of a chunk is another than that of the first.
    """
    terms: Terms
    mode, terms, precision = on_host((found.point, found.beside, precision))
    with np.errstate(all="ignore"):
        if not inside(passes.first.space, terms.room, precision):
            return False
        direction = direction_of_look(mode, precision, terms.room)
        nodes = NODES.astype(mode.dtype)
        valid, line = True, np.zeros((2, LOOK_NODES), mode.dtype)
        for look, is_valid, terms_here in passes.each(_along, mode, direction, nodes[:LOOK_NODES]):
            valid &= bool(is_valid)
            line = line + np.asarray(look)
            require_same_prior(terms, on_host(terms_here))
        height = -(terms.log_likelihood + terms.log_prior)
        if valid and not abs(line[0, MIDDLE] - height) <= same_to(height):
            raise changed(
                f"the log joint at the mode is {-height:.10g} in one and {-line[0, MIDDLE]:.10g} in another"
            )
        if valid and fails(*line):
            looks = passes.each(_along, mode, direction, nodes[LOOK_NODES:])
            return bool(follows_finely(*reduce(np.add, (np.asarray(look) for look, *_ in looks))))
    return valid


@partial(jit_quickly, work=_work)
def _along(part: Part, u: Array, direction: Array, nodes: Array) -> tuple[Array, Array, Terms]:
    """f and its slope at each node of a line, shape (2, n); whether u is valid; this chunk's own terms."""

    def at(t: Array) -> Array:
        return jnp.stack(
            jax.jvp(lambda t: part.loss(u + t * direction)[0], (t,), (jnp.ones_like(t),))
        )

    return jax.lax.map(at, nodes).T, part.valid(u), part.own_terms(u)
