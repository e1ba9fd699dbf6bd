"""An approximation of any kind out of a file: who loads it brings the model and its data."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from laplacebook.base.quick import in_full_precision
from laplacebook.beyond import mixture, resampled, skewed
from laplacebook.beyond.by_draws import ByDraws
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.mixture import MixtureApproximation, alone
from laplacebook.beyond.nested_approximation import NestedApproximation
from laplacebook.beyond.resampled import ResampledApproximation
from laplacebook.beyond.saved_nested import KIND, StoredNested, looked_at, parse_nested, terms_at
from laplacebook.beyond.skewed import SkewedApproximation
from laplacebook.beyond.skewed_effects import SkewedEffects
from laplacebook.beyond.sparse_conditional import SparseConditional
from laplacebook.beyond.sparse_effects import SparseEffects
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.digest import digests, told_apart
from laplacebook.fit.load import another_model, laplace_in, require_sites
from laplacebook.fit.saved_file import Archive
from laplacebook.model.density import ModelDensity
from laplacebook.model.not_finite import require_entries


def load(path: str | os.PathLike, model: Callable, /, *args: Any, **kwargs: Any) -> Approximation:
    """An approximation from a file that its method ``save`` wrote.

    In the book: :doc:`/book/intro`.

    Args:
        path: of the file.
        model: the NumPyro model that was fitted.
        args: its positional arguments, the same as in the fit.
        kwargs: its keyword arguments, the same as in the fit.

    Returns:
        What was saved, with the same numbers and the verdict of :func:`~laplacebook.diagnose` if it was asked: a
        :class:`LaplaceApproximation` with its other modes, or another :class:`Approximation`. The approximation of a
        last layer takes the layers before it from the file, and the whole model from you.

    Raises:
        FileNotFoundError: there is no such file.
        LaplaceError: it is a folder; the file is damaged, or another program's, or of a newer version; or it is the
            approximation of another model or of other data: the latent sites differ, the numbers
            observed or passed do (in whatever order, and up to rounding), the log likelihood, the
            log prior or the curvature at the saved mode does, or the model's mode is a hundredth of
            a posterior standard deviation or more away; of a nested approximation the log likelihood or
            the log prior at one of 32 draws does. In a file of an earlier version, and in
            one of data on several devices, the numbers are not known.
        UnsupportedModel: the model has no density on R^D.
    """
    archive = Archive.read(Path(path))
    found = _loaded(archive, model, args, kwargs)
    if isinstance(found, ByDraws):
        found._recall(archive.header)
    if resampled.KIND not in archive.header:
        return found
    return archive.parsed(partial(ResampledApproximation.in_archive, proposal=found), resampled.U)


def _loaded(archive: Archive, model: Callable, args: tuple, kwargs: dict) -> Approximation:
    kind = archive.header.get("kind")
    if kind == KIND:
        return _bound(archive.parsed(parse_nested, "log_likelihood"), model, args, kwargs)
    gaussian = laplace_in(archive, model, args, kwargs)
    if kind == skewed.KIND:
        return archive.parsed(
            lambda archive: SkewedApproximation(gaussian, float(archive.header["cubic"])),
            "mode_vector",
        )
    if kind == mixture.KIND:
        return MixtureApproximation((alone(gaussian), *gaussian.other_modes))
    return gaussian


@in_full_precision
def _bound(stored: StoredNested, model: Callable, args: tuple, kwargs: dict) -> NestedApproximation:
    """What was stored, with the model that it is of."""
    density = ModelDensity.of(model, args, kwargs)
    require_sites(stored.sites, density)
    require_entries(density)
    at = stored.grid.conditional
    kind = SparseEffects if isinstance(at, SparseConditional) else Effects
    effects = kind(density, stored.over)
    skewed = SkewedEffects(effects, at, **stored.skewed).corrected(stored.grid.log_weights)
    fit = NestedApproximation(effects, stored.grid, skewed, stored.start)
    _check_log_joint(stored, fit)
    return fit


def _check_log_joint(stored: StoredNested, fit: NestedApproximation) -> None:
    rows = looked_at(fit._draws)
    terms = jax.device_get(terms_at(fit.density, rows))
    likelihood, prior, values = stored.seen
    eps = float(jnp.finfo(likelihood.dtype).eps)
    now = (terms.log_likelihood, terms.log_prior, *(terms.values[name] for name in values))
    saved = (likelihood, prior, *values.values())
    same = all(
        np.allclose(a, b, rtol=eps**0.5, atol=eps**0.5) for a, b in zip(now, saved, strict=True)
    )
    other_data = told_apart(stored.data, digests(fit.density, rows[0]), eps)
    if same and not other_data:
        return
    raise another_model(
        f"at a draw of it the log likelihood is now {terms.log_likelihood[0]:.8g}, saved "
        f"{likelihood[0]:.8g}; the log prior {terms.log_prior[0]:.8g}, saved {prior[0]:.8g}.",
        other_data,
    )
