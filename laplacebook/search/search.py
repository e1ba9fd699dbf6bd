"""The search: the mode, the precision there, and whether that is to be believed.

In one compiled program, which a JAX transformation can take and which repeats in no time; or, where
that would be compiled for longer than it runs, or BLAS is quicker than XLA, driven from Python.
"""

import time
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import inf
from typing import Any
from warnings import warn

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import PyTreeDef
from jaxtyping import Array

from laplacebook.base.devices import platform
from laplacebook.base.errors import DoubtfulFit
from laplacebook.base.namespace import Numbers
from laplacebook.base.one_thread import by_one_thread, one_thread
from laplacebook.base.pytrees import on_host
from laplacebook.base.quick import is_eager, jit_quickly, numbers_in
from laplacebook.curvature.hessian import (
    hessian_product,
    hessian_product_again,
    twice_differentiable,
)
from laplacebook.curvature.precision_at import ends_in_minutes, kept
from laplacebook.curvature.settings import DENSE_HESSIAN, Settings, out_of_memory, require_memory
from laplacebook.model.density import ModelDensity
from laplacebook.model.hierarchy import has_shrunk
from laplacebook.model.start import off_centre
from laplacebook.search.certificate import Fit, Search, as_result, fit_of
from laplacebook.search.driven import Along, GivesUp, along, drive, looks_as_its_gradient
from laplacebook.search.follows_gradient import follows_gradient, levels_off
from laplacebook.search.looks import (
    WORK,
    is_always_driven,
    is_laborious,
    is_medium,
    is_small,
    look,
    remembered,
    slope_look,
    slope_look_again,
    terms_and_validity,
    work_of_search,
)
from laplacebook.search.metric import FEW as FEW_COORDINATES
from laplacebook.search.metric import condition_of, inside
from laplacebook.search.mode import MANY, enough, locate
from laplacebook.search.newton_step import Look
from laplacebook.search.rounds import ROUNDS

FEW = 3  # searches of a network, after which its looks and products are worth another second
PATIENCE = 200  # searches: then compiling the whole loop, half a second or so, would have paid
LONG = 0.01  # seconds of a look: so large is what a model reads beside its arguments


def search(
    density: ModelDensity,
    start: Array | None,
    settings: Settings = DENSE_HESSIAN,
    briefly: bool = False,
) -> Fit:
    """The search for the mode.

    Args:
        density: the log joint.
        start: shape (D,); None for the middle of the prior.
        settings: the curvature, and what is kept of it.
        briefly: whether that of a hierarchical model may end without a mode after 100 iterations, if a scale has shrunk
            to next to nothing by then: to zero it would take five times as many.
    """
    try:
        return _search(density, start, settings, briefly)
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise out_of_memory(density.sites, settings, f"XLA found none: {error}") from error


def _search(density: ModelDensity, start: Array | None, settings: Settings, briefly: bool) -> Fit:
    if settings.structure == "sparse" or density.only_gradients:
        return _of_numbers(density, start, settings, briefly)
    features = _features_of(density, settings)
    if features is not None:
        return _driven_by_rows(density, start, settings, features)
    past = _past_of(density, settings)
    if settings.curvature != "hessian" and platform() != "cpu":
        past = None  # between looks the vectors would travel to NumPy and back
    if past is None or (past.is_long and not is_always_driven(density)):
        return _compiled(density, start, settings)
    if settings.curvature != "hessian":
        return _driven_rounds(density, start, settings, past)
    parts, room = jax.device_get(_begin(density, start, settings))
    sizes, u = [part.size for part in parts], np.concatenate(parts)
    u = off_centre(u, room)
    gives_up = partial(has_shrunk, density, u) if briefly else None
    if is_small(density, u.size):
        return _driven(density, u, sizes, settings, past, gives_up)
    from laplacebook.search.approach import approached_by_gauss_newton

    near = approached_by_gauss_newton(density, u)
    found = _whole_of_sparse(density, u, sizes, settings, gives_up) if near is None else None
    if found is None and near is None and not is_medium(density, u.size):
        return _compiled(density, start, settings)
    # However often it is repeated: the whole loop as one program would begin from afar.
    past.searches = 0
    if found is not None:
        return found
    u = u if near is None else near
    return _driven(density, u, sizes, settings, _Past(), gives_up)


def _features_of(density: ModelDensity, settings: Settings) -> np.ndarray | None:
    """The features of many rows, if BLAS on the host may compute with them."""
    if settings.curvature != "hessian" or numbers_in(density) <= WORK or not is_eager():
        return None
    from laplacebook.curvature.predictor_on_host import features_of

    return features_of(density, MANY)


@by_one_thread
def _of_numbers(
    density: ModelDensity, start: Array | None, settings: Settings, briefly: bool
) -> Fit:
    """A search that looks at numbers all the way: of a sparse Hessian, or by gradients alone."""
    if not is_eager():
        raise ValueError(
            'A fit by structure="sparse", or of marginalize(model, sites, structure="sparse"), looks at '
            "numbers, and does not work within jit, vmap or grad; the marginal model itself does, as in NUTS."
        )
    if settings.curvature != "hessian":
        raise ValueError(
            f'curvature="{settings.curvature}" is not known of a model with a sparse integral: use "hessian".'
        )
    parts, room = jax.device_get(_begin(density, start, settings))
    point = off_centre(np.concatenate(parts), room)
    with np.errstate(all="ignore"), twice_differentiable():
        if settings.structure == "sparse" and not density.only_gradients:
            from laplacebook.search.sparse_search import sparse_search

            gives_up = partial(has_shrunk, density, point) if briefly else None
            found, sound = sparse_search(density, point, gives_up)
        else:
            from laplacebook.search.differences import search_by_differences

            marginal: Any = density.model
            followed = marginal.followed(*density.arguments)
            followed.forget()
            found, sound = search_by_differences(density, point)
            if _has_another_mode(density, followed, found.point):
                found, sound = search_by_differences(density, point)
            sizes = [part.size for part in parts]
            found = found._replace(curvature=kept(found.curvature, sizes, settings.structure))
        terms = found.beside
        sound = sound and bool(inside(density.space, terms.room, found.curvature))
        return jax.device_put(fit_of(found, np.asarray(sound)))


def _has_another_mode(density: ModelDensity, followed: Any, u: np.ndarray) -> bool:
    """Whether the effects have another mode than the one that was followed to u, which is then told."""
    followed.look_twice()
    slope_look(density, u)
    if followed.two_modes:
        warn(
            f"Given the other sites, the density behind {density.name} has two modes: a search from the last one and "
            "one from the middle of the prior end apart. The fit follows the latter, and leaves the other out. "
            "A sampler of the whole model, such as NumPyro's NUTS, may see both.",
            DoubtfulFit,
            stacklevel=2,
        )
    return bool(followed.two_modes)


@dataclass
class _Past:
    """How often a model with data of some shapes was searched, and how long a look takes.

    And whether its matrices are the weights of layers, as far as is known.
    """

    searches: int = 0
    seconds: float = 0.0
    layers: bool = True

    @property
    def is_long(self) -> bool:
        """Whether one program of the whole loop would pay."""
        return self.searches > PATIENCE or self.seconds > LONG


def _past_of(density: ModelDensity, settings: Settings) -> _Past | None:
    """What is known of such searches; None where none can be driven: by its data or caller."""
    if density.placement is not None or not is_eager():
        return None
    if settings.curvature == "hessian" and numbers_in(density) > WORK:
        return None
    leaves, structure = jax.tree.flatten(density)
    past = _known_past(structure, tuple(map(np.shape, leaves)), settings)
    past.searches += 1
    return past


@lru_cache
def _known_past(structure: PyTreeDef, shapes: tuple, settings: Settings) -> _Past:
    return _Past()


@partial(jit_quickly, static_argnames="settings")
def _begin(density: ModelDensity, start: Array | None, settings: Settings) -> tuple:
    """Where to begin, by latent site, and how far each coordinate is from the end of its interval."""
    require_memory(density.sites, settings, float)  # here, since it runs the model
    start = density.start() if start is None else start
    parts = density.unravel(start)
    return [jnp.ravel(parts[site.name]) for site in density.sites], density.room(start)


@by_one_thread
def _driven(
    density: ModelDensity,
    start: np.ndarray,
    sizes: list[int],
    settings: Settings,
    past: _Past,
    gives_up: GivesUp,
) -> Fit:
    shortest = inf

    def look_at(u: np.ndarray) -> Look:
        nonlocal shortest
        begin = time.perf_counter()
        seen = look(density, u)
        shortest = min(shortest, time.perf_counter() - begin)
        return seen

    with np.errstate(all="ignore"), twice_differentiable():
        found = drive(look_at, start, gives_up=gives_up)
        fit = _judged(density, found, along(look_at), sizes, settings)
    past.seconds = shortest
    return as_result(fit)


def _whole_of_sparse(
    density: ModelDensity,
    start: np.ndarray,
    sizes: list[int],
    settings: Settings,
    gives_up: GivesUp,
) -> Fit | None:
    """A search of many coordinates by a Hessian that is sparse, of which the matrix is kept; None where it is not.

    Where that finds no mode a search by the matrix begins anew, unless that would end likewise: where a scale of
    effects has shrunk to next to nothing, or the log joint is not finite at the start.
    """
    from laplacebook.search.sparse_search import search_if_sparse

    with np.errstate(all="ignore"), twice_differentiable():
        with one_thread():
            ended = search_if_sparse(density, start, gives_up)
        if ended is None:
            return None
        found, sound = ended
        begun = found.certificate.iterations > 1
        if not sound and begun and not has_shrunk(density, start, found.point):
            return None
        hessian = on_host(found.curvature.matrix)
        found = found._replace(curvature=kept(hessian, sizes, settings.structure))
        if sound:
            known = replace(found.certificate, condition_number=condition_of(hessian))
            found = found._replace(certificate=known)
            sound = bool(inside(density.space, found.beside.room, found.curvature))
        return as_result(fit_of(found, np.asarray(sound)))


def _driven_by_rows(
    density: ModelDensity, start: Array | None, settings: Settings, features: np.ndarray
) -> Fit:
    """A search whose products with the rows of a large linear predictor BLAS computes."""
    from laplacebook.curvature.predictor_on_host import PredictorOnHost
    from laplacebook.curvature.rows_on_host import Rows

    parts, room = jax.device_get(_begin(density, start, settings))
    sizes, u = [part.size for part in parts], off_centre(np.concatenate(parts), room)
    with np.errstate(all="ignore"), twice_differentiable(), Rows(features) as rows:
        on_host = PredictorOnHost(density, rows)

        def look_at(u: np.ndarray) -> Look:
            value, gradient = on_host.value_and_slope(u)
            return Look(value, None, gradient, None)

        estimated = u.size > FEW_COORDINATES
        sample = on_host.hessian_by_sample if start is None else None
        found = drive(look_at, u, on_host.hessian, estimated=estimated, begin_by=sample)
        found = found._replace(beside=terms_and_validity(density, found.point))
        along_a_line = on_host.value_and_slope_along
        return as_result(_judged(density, found, along_a_line, sizes, settings))


def _judged(
    density: ModelDensity, found: Search, look_along: Along, sizes: list[int], settings: Settings
) -> Fit:
    """What a driven search by the Hessian found, with what the structure keeps, and whether to believe it."""
    terms, valid = found.beside
    terms = terms._replace(room=np.asarray(terms.room))  # the rest is left where the result will be
    precision = kept(found.curvature, sizes, settings.structure)
    found = found._replace(beside=terms, curvature=precision)
    sound = bool(
        found.certificate.converged
        and valid
        and looks_as_its_gradient(look_along, found)
        and inside(density.space, terms.room, precision)
    )
    return fit_of(found, np.asarray(sound))


def _driven_rounds(
    density: ModelDensity, start: Array | None, settings: Settings, past: _Past
) -> Fit:
    from laplacebook.search.approach import approached, ridges_of
    from laplacebook.search.curvatures import Curvatures
    from laplacebook.search.driven_rounds import drive_rounds

    tolerance = enough(settings.tolerance, jnp.result_type(float))
    settings = replace(settings, tolerance=None)
    parts, room = jax.device_get(_begin(density, start, settings))
    u = np.concatenate(parts)
    nudged = off_centre(u, room)
    u = nudged if start is None else np.where(u == 0, nudged, u)

    curvatures = Curvatures(density, settings, past.layers)
    precision_at, metric_at = curvatures.precision_at, curvatures.metric_at

    # What only judges a mode, and enters no number of the fit, may be computed by other programs later.
    often = past.searches > FEW and is_laborious(density, u.size)
    product_at = hessian_product_again if often else hessian_product
    look_at = remembered(partial(slope_look, density))
    judge_at = remembered(partial(slope_look_again, density)) if often else look_at

    with np.errstate(all="ignore"), twice_differentiable():
        steps: Numbers = 0
        if settings.structure == "dense" and metric_at(u) is not None:
            u, steps = approached(look_at, metric_at, u, tolerance / 2)
        ways = look_at, precision_at, metric_at, ridges_of(density, product_at)
        rounds = curvatures.rounds
        patient = ends_in_minutes(density)
        found = drive_rounds(*ways, u, tolerance, curvatures.judge_at, rounds, patient)
        if rounds < ROUNDS and not found.certificate.converged:
            curvatures.take_the_whole()
            steps += found.certificate.iterations
            found = drive_rounds(*ways, found.point, tolerance, patient=patient)
        past.layers = curvatures.layers
        steps += found.certificate.iterations
        found = found._replace(certificate=replace(found.certificate, iterations=steps))
        terms, valid = jax.tree.map(np.asarray, found.beside)
        found = found._replace(beside=terms)
        with one_thread():
            sound = bool(
                found.certificate.converged
                and valid
                and looks_as_its_gradient(along(judge_at), found)
                and not levels_off(lambda u: judge_at(u).gradient, found.point, found.curvature)
                and inside(density.space, terms.room, found.curvature)
            )
        fit = fit_of(found, np.asarray(sound))
    return jax.device_put(fit)


def _compiled(density: ModelDensity, start: Array | None, settings: Settings) -> Fit:
    tolerance = enough(settings.tolerance, jnp.result_type(float))
    return compiled_search(density, start, tolerance, settings=replace(settings, tolerance=None))


@partial(jit_quickly, work=work_of_search, static_argnames="settings")
def compiled_search(
    density: ModelDensity, start: Array | None, tolerance: Array | float, settings: Settings
) -> Fit:
    """The same as one program, for all tolerances: the settings leave it out."""
    require_memory(density.sites, settings, float)  # here, since it runs the model
    given = jnp.zeros(()) if start is None else start
    start = density.start() if start is None else start
    # Many coordinates in single precision: a nudge of all would take a start away from its mode.
    nudged = (given == 0) | (settings.curvature == "hessian")
    start = jnp.where(nudged, off_centre(start, density.room(start)), start)
    with twice_differentiable():
        found = locate(density, start, settings, tolerance)
    room, precision = found.beside.room, found.curvature
    sound = found.certificate.converged & density.valid(found.point)
    sound &= follows_gradient(lambda u: density.loss(u)[0], found.point, precision, room)
    if settings.curvature != "hessian":
        slope = jax.jit(jax.grad(lambda u: density.loss(u)[0]))
        sound &= ~levels_off(slope, found.point, precision)
    return fit_of(found, sound & inside(density.space, room, precision))
