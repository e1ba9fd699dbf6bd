"""The verb: ``laplace(model, ...)`` returns a :class:`~laplacebook.LaplaceApproximation`."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from laplacebook.base.checks import require_key, require_number, require_numbers
from laplacebook.base.errors import UnsupportedModel
from laplacebook.base.progress import progress
from laplacebook.base.pytrees import is_traced, on_host
from laplacebook.base.quick import in_full_precision, jit_quickly, uncollected
from laplacebook.curvature.last_layer import last_layer_given, last_layer_of
from laplacebook.curvature.precision_at import low_rank_at, metric_of
from laplacebook.curvature.settings import DENSE_HESSIAN, Settings
from laplacebook.fit.other_starts import start_by_effects, start_by_weights
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.gaussian.low_rank import LowRankPrecision
from laplacebook.gaussian.precision import Precision
from laplacebook.model.density import ModelDensity
from laplacebook.model.start import start_arrays
from laplacebook.search.certificate import Fit
from laplacebook.search.driven import SOON
from laplacebook.search.mode import MANY
from laplacebook.search.no_mode import explain
from laplacebook.search.no_mode_gauss_newton import explain_shortfall
from laplacebook.search.search import search


@in_full_precision
def laplace(
    model: Callable,
    *args: Any,
    space: str = "unconstrained",
    curvature: str = "hessian",
    structure: str = "dense",
    rank: int | None = None,
    batch_size: int | None = None,
    tolerance: float | None = None,
    start: Mapping[str, Any] | None = None,
    starts: int = 1,
    key: Key[Array, ""] | None = None,
    throw: bool = True,
    **kwargs: Any,
) -> LaplaceApproximation:
    """The Laplace approximation of the posterior of a NumPyro model.

    Compiled once for a model and the shapes of its arrays. Arrays among the arguments are data;
    any other value (a Python number, a string, a callable) is part of the program, and a new value
    compiles anew. A model with an argument named like an option of this function takes it through
    ``functools.partial``.

    Of a fit by the Hessian of up to 600 coordinates, which times the numbers of data make up to twenty million, or of
    up to 2,000 of a field whose covariance a few decide, the log joint with its derivatives alone is compiled, and
    Python takes the steps. A larger one, one within ``jit``, ``vmap`` or ``grad``, and of up to 200 coordinates one
    made 200 times before, or of which the log joint took above 10 ms before, is one program, which takes longer to
    compile. Where a matrix of a million numbers or more is among the data, and the model sees its rows through one
    linear predictor, Python takes the steps too, and NumPy's BLAS computes the products with the rows.
    Where a site is a matrix, as the weights of a layer, those of more than 200 coordinates begin where rounds by the
    Gauss-Newton matrix end, if that takes up to 30 billion products. Of more than 500 the steps go by the entries of
    the Hessian where most are zero, in double precision, if the extra ``sparse`` is installed. Where the curvature is
    not the Hessian, whatever the size, the log joint, the curvature and a round of steps are programs of their own,
    and Python takes the rounds.

    Beside an accelerator a fit of up to a million numbers, but of a large network, is computed by the processor, for
    which a program is compiled in a third of the time; unless an array was put on a device by request
    (``jax.device_put(x, device)``), or one was chosen for all (``jax_default_device``). Arrays that are
    sharded by rows over devices (:func:`~laplacebook.shard`) stay where they are: sums over rows are
    taken there, and then over devices. What has D or D^2 numbers, with its Cholesky factor, is whole on
    each device, so that the memory of one bounds D.

    In the book: :prf:ref:`laplace-theorem`, :eq:`laplace-posterior` and :eq:`laplace-evidence` of
    :doc:`/book/laplace`, and for ``structure="sparse"`` :prf:ref:`latent-fields-zeros` of
    :doc:`/book/latent-fields`.

    Args:
        model: any NumPyro model with continuous latent sites, called as ``model(*args, **kwargs)``.
        args: its positional arguments.
        space: ``"unconstrained"``: Gaussian in the coordinates that NumPyro and Stan sample in;
            ``"constrained"``: Gaussian in the parameters as the model writes them.
        curvature: of the likelihood, to which the Hessian of the prior is added: ``"hessian"``;
            ``"gauss_newton"``, which is positive semi-definite for most likelihoods wherever it is
            taken, as that of a network need not be; or ``"empirical_fisher"``.
        structure: what is kept of it: all (``"dense"``); its ``"diagonal"``; a ``"block"`` for each
            latent site; for the weights of dense layers two factors (``"kronecker"``); the largest
            eigenvalues (``"low_rank"``, with ``rank=``); or the ``"last_layer"`` alone, the sites
            nearest to the outputs in which these are linear. Those before it count as known: where ``start`` has
            them, if it has them all, as training ends; else at the mode of the whole. ``"kronecker"`` and
            ``"low_rank"`` are not of the Hessian. ``"sparse"`` keeps all of a Hessian most of whose entries are zero,
            as that of thousands of effects or of the states of a series: where it has entries is found from the program
            of the model, and its factor takes the memory (``pip install "laplacebook[sparse]"``). Not under ``jit``.
        rank: how many eigenvalues, for ``"low_rank"``.
        batch_size: how many rows of data at a time go into Gauss-Newton or Fisher curvature; by
            default so many that memory does not grow with the data.
        tolerance: the Newton decrement, a distance in posterior standard deviations, below 1, that
            passes for a mode where the curvature is not the Hessian; the summary says so. By default 1.5e-8,
            and 0.001 in single precision.
        start: values of latent sites from which the search for the mode begins; those without
            begin at their prior means, given the others. (``"last_layer"`` takes those before as they are.)
            By default, where the weights of a network would be left at their means, there is a second
            search from scaled draws of them with a fixed key, as :func:`~laplacebook.train` begins; not within
            ``jit``, ``vmap`` or ``grad``.
        starts: how many searches, from ``start`` or the middle of the prior, and then from draws
            that ``key`` decides. The modes that they find are compared; the result is the one with
            the highest log joint, with the rest in its ``other_modes``. Not under ``jit``.
        key: a JAX random key, for ``starts``.
        throw: raise if there is no mode. Under ``jit``, ``vmap`` and ``grad`` nothing can be
            raised: then, as with ``throw=False``, the certificate says so and all numbers are NaN.
        kwargs: the model's keyword arguments.

    Returns:
        A :class:`LaplaceApproximation`.

    Raises:
        ValueError: an option has no such value, ``start`` does not fit the latent sites, or one of
            ``starts`` and ``key`` is given without the other.
        TypeError: ``key`` is no random key.
        ImportError: ``structure="sparse"``, and its packages are not installed.
        UnsupportedModel: no latent site, a discrete one, a plate that subsamples, random numbers, or
            data that repeat each other, a column beside a vector; a Hessian that is not sparse, where it
            should be.
        NonFinite: the log joint is not finite where the search begins, a distribution's parameters
            are not valid at the mode, data lie outside the support of their distribution, or a label
            points beside what it indexes.
        NotConverged: the search found no mode, or one at the edge of the support or at infinity.
        NotPositiveDefinite: the log joint is flat, or curves upwards, at the point found.

    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> def coin(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)
    >>> approx = laplace(coin, jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0]))
    >>> print(f"{approx.mode['theta']:.4f}")  # 10/13
    0.7692
    >>> print(f"{jnp.exp(-approx.log_evidence):.1f}")  # the exact value is 110
    113.3
    """
    settings = Settings(curvature, structure, rank, batch_size, tolerance)
    density = ModelDensity.of(model, args, kwargs, space)
    return approximate(density, start, starts, key, throw, settings)


@uncollected
def approximate(
    density: ModelDensity,
    start: Mapping[str, Any] | None,
    starts: int = 1,
    key: Key[Array, ""] | None = None,
    throw: bool = True,
    settings: Settings = DENSE_HESSIAN,
) -> LaplaceApproximation:
    """The Laplace approximation of a density.

    Args:
        density: the log joint, or another function of the same coordinates.
        start: as in :func:`laplace`, like the rest.
        starts: how many searches.
        key: a JAX random key, for ``starts``.
        throw: raise if there is no mode.
        settings: the curvature, and what is kept of it.

    Returns:
        A :class:`LaplaceApproximation`; raises as :func:`laplace` does.
    """
    require_number("starts", starts)
    if (starts > 1) != (key is not None):
        raise ValueError(
            f"starts={starts} and key={'None' if key is None else '...'} do not go together: more than "
            "one search needs key=, a JAX random key, and one search draws nothing. (A model with an "
            "argument named key takes it through functools.partial.)"
        )
    if key is not None:
        require_key(key)
    if settings.structure == "last_layer" and start is not None:
        layer = last_layer_given(density, density.start(start), start_arrays(start))
        if layer is not None:
            own = {site.name: start[site.name] for site in layer.sites if site.name in start}
            return _approximate(layer, own or None, starts, key, throw, settings)
    fit_by = partial(_approximate, density, start, starts, key)
    found = _first_fit(fit_by, density, throw, settings)
    if settings.structure == "last_layer":
        return _last_layer(found, settings, throw)
    return _low_rank(found, settings) if settings.structure == "low_rank" else found


def _approximate(
    density: ModelDensity,
    start: Mapping[str, Any] | None,
    starts: int,
    key: Key[Array, ""] | None,
    throw: bool,
    settings: Settings,
) -> LaplaceApproximation:
    begin = None if start is None else density.start(start)
    found = search(density, begin, settings, briefly=start is None)
    traced = is_traced(found)
    if start is None and not traced:
        found = _weights_apart(density, settings, found)
        if not found.certificate.converged:
            found = _effects_first(density, settings, found)
        if not found.certificate.converged and found.certificate.iterations == SOON:
            found = search(density, begin, settings)
    best = _result(density, found, settings)
    if key is not None:
        require_numbers("starts=", (found, key), "find the modes first; then pass start=.")
        best = _best_of_several(best, key, starts)
    if throw and not traced and not best.certificate.converged:
        failed = (density, found.last, found.certificate, bool(found.stationary))
        exact = settings.curvature == "hessian"
        sparse = settings.structure == "sparse"
        refused = explain(*failed, sparse) if exact else explain_shortfall(*failed, settings, begin)
        refused.last = found.last
        raise refused
    return best


def _effects_first(density: ModelDensity, settings: Settings, failed: Fit) -> Fit:
    """The search once more, from another start, if that is one of a hierarchical model."""
    if settings.curvature != "hessian":  # which takes a scale that is known for an outcome
        return failed
    another = start_by_effects(density, settings)
    found = failed if another is None else search(density, another, settings)
    return found if found.certificate.converged else failed


def _weights_apart(density: ModelDensity, settings: Settings, found: Fit) -> Fit:
    """The search once more, from weights that differ, if those of a network are as they were; the higher mode."""
    another = start_by_weights(density, found)
    if another is None:
        return found
    apart = search(density, another, settings)
    if not (apart.certificate.converged and found.certificate.converged):
        return apart if apart.certificate.converged else found
    higher = apart.log_likelihood + apart.log_prior > found.log_likelihood + found.log_prior
    return apart if higher else found


def _first_fit(
    fit_by: Callable[[bool, Settings], LaplaceApproximation],
    density: ModelDensity,
    throw: bool,
    settings: Settings,
) -> LaplaceApproximation:
    """The fit, or that at whose mode another structure is taken, by a function of ``throw`` and settings."""
    first = _first(density, settings)
    metric = metric_of(density, first) if first.structure != settings.structure else None
    if metric is not None:
        # The steps are by it anyway: by it alone there is no second program.
        try:
            found = fit_by(False, metric)
        except UnsupportedModel:  # which has no such factors
            return fit_by(throw, first)
        if found.certificate.converged:
            return found
    return fit_by(throw, first)


def _first(density: ModelDensity, settings: Settings) -> Settings:
    """The settings of the search for a mode at which another structure is taken."""
    if settings.structure not in ("last_layer", "low_rank"):
        return settings
    metric = "dense" if density.dimension <= MANY else "diagonal"
    return replace(settings, curvature="gauss_newton", structure=metric, rank=None)


@in_full_precision
def _last_layer(
    whole: LaplaceApproximation, settings: Settings, throw: bool
) -> LaplaceApproximation:
    density = last_layer_of(whole.density, whole.mode_vector)
    start = {site.name: whole.mode[site.name] for site in density.sites}
    failed = not is_traced(whole) and not whole.certificate.converged
    layer = _approximate(density, None if failed else start, 1, None, throw, settings)
    others = tuple(_last_layer(mode, settings, throw) for mode in whole.other_modes)
    return replace(layer, other_modes=others)


def _low_rank(whole: LaplaceApproximation, settings: Settings) -> LaplaceApproximation:
    u, rank = whole.mode_vector, settings.rank or 0
    if is_traced(u) or whole.certificate.converged:
        precision = low_rank_at(whole.density, u, rank)
    else:
        precision = LowRankPrecision.of(u, u[:, None] * jnp.ones(rank), jnp.nan * jnp.ones(rank))
    others = tuple(_low_rank(mode, settings) for mode in whole.other_modes)
    return replace(whole, precision=precision, settings=settings, other_modes=others)


def _best_of_several(first: LaplaceApproximation, key: Array, starts: int) -> LaplaceApproximation:
    """The highest mode found, with the others; the first one, which failed, if there is none."""
    found = [first] if first.certificate.converged else []
    modes = distinct(by_height([*found, *search_again(first, key, starts - 1)]))
    return replace(modes[0], other_modes=tuple(modes[1:])) if modes else first


def search_again(
    approx: LaplaceApproximation,
    key: Key[Array, ""],
    searches: int,
    progress_bar: bool | None = None,
) -> list[LaplaceApproximation]:
    """The modes at which searches from elsewhere end, that of ``approx`` mostly among them.

    Args:
        approx: an approximation, or a fit that failed.
        key: a JAX random key, which decides where the searches begin.
        searches: how many.
        progress_bar: whether to show one if they take longer than two seconds; by default if the
            standard error stream is a terminal.

    Returns:
        An approximation for each search that ended at a mode.
    """
    density, settings = approx.density, approx.settings
    low_rank = settings.structure == "low_rank"
    first = _first(density, settings) if low_rank else settings
    if not searches:
        return []
    points = more_starts(density, key, searches, approx.mode_vector, approx.precision)
    found = []
    with progress(searches, progress_bar, unit="search") as bar:
        for u in points:
            found.append(_result(density, search(density, u, first), first))
            bar.update()
    modes = [mode for mode in found if mode.certificate.converged]
    return [_low_rank(mode, settings) for mode in modes] if low_rank else modes


def _result(density: ModelDensity, fit: Fit, settings: Settings) -> LaplaceApproximation:
    return LaplaceApproximation(
        fit.mode,
        fit.mode_vector,
        fit.precision,
        fit.log_likelihood,
        fit.log_prior,
        fit.certificate,
        density,
        settings=settings,
    )


SPREAD = 10  # posterior standard deviations about the first mode
SAME = 0.1  # posterior standard deviations: nearer points are one mode


@partial(jit_quickly, static_argnames="number")
def more_starts(
    density: ModelDensity,
    key: Key[Array, ""],
    number: int,
    point: Float[Array, " D"],
    precision: Precision,
) -> list[Float[Array, " D"]]:
    """Points from which to search again: far from one another, and from the mode that is known.

    In turn a draw from the prior, which reaches modes far away, and a draw from the approximation
    ten times as wide, which reaches those near by where the prior is vague.

    Args:
        density: the log joint.
        key: a JAX random key.
        number: how many points, one or more.
        point: the mode that is known, shape (D,).
        precision: A at that mode; NaN if there is none, and all points are draws from the prior.

    Returns:
        Points of shape (D,).
    """
    keys = jax.random.split(key, number)
    draws = jax.lax.map(density.draw_start, keys)
    wide = jnp.isfinite(precision.log_determinant())
    far = point + SPREAD * jax.vmap(precision.sample)(keys)
    return [jnp.where(wide, far[i], draws[i]) if i % 2 else draws[i] for i in range(number)]


def by_height(modes: Iterable[LaplaceApproximation]) -> list[LaplaceApproximation]:
    """By falling log joint."""
    return sorted(modes, key=log_joint, reverse=True)


def log_joint(mode: LaplaceApproximation) -> float:
    """log p(D, mode): the height of a mode."""
    return float(mode.log_likelihood) + float(mode.log_prior)


def distinct(modes: Iterable[LaplaceApproximation]) -> list[LaplaceApproximation]:
    """Those that differ from all before them, by the posterior standard deviations between them."""
    kept: list[LaplaceApproximation] = []
    for mode in modes:
        if all(_distance(mode.mode_vector, one) > SAME for one in kept):
            kept.append(mode)
    return kept


def _distance(point: Array, mode: LaplaceApproximation) -> float:
    here, there, precision = on_host((point, mode.mode_vector, mode.precision))
    return float((here - there) @ precision.matvec(here - there)) ** 0.5
