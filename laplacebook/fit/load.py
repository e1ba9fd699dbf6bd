"""An approximation out of a file: who loads it brings the model and its data, and they are checked."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from laplacebook.base.errors import LaplaceError
from laplacebook.fit.digest import digests, told_apart
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.saved_file import Stored, look, read
from laplacebook.model.density import ModelDensity
from laplacebook.model.known_sites import LastLayer
from laplacebook.model.not_finite import require_entries
from laplacebook.model.sites import Site

_BENT = 0.01  # relative change of the curvature along a direction
_MOVED = 0.01  # posterior standard deviations from the saved mode to that of the model now


def load(
    path: str | os.PathLike, model: Callable, /, *args: Any, **kwargs: Any
) -> LaplaceApproximation:
    """An approximation from a file that :meth:`LaplaceApproximation.save` wrote.

    In the book: :doc:`/book/intro`.

    Args:
        path: of the file.
        model: the NumPyro model that was fitted.
        args: its positional arguments, the same as in the fit.
        kwargs: its keyword arguments, the same as in the fit.

    Returns:
        The approximation with its other modes, equal to the one that was saved. That of a last
        layer takes the layers before it from the file, and the whole model from you.

    Raises:
        FileNotFoundError: there is no such file.
        LaplaceError: the file is damaged, or another program's, or of a newer version; or it is the
            approximation of another model or of other data: the latent sites differ, the numbers
            observed or passed do (in whatever order, and up to rounding), the log likelihood, the
            log prior or the curvature at the saved mode does, or the model's mode is a hundredth of
            a posterior standard deviation or more away. In a file of an earlier version, and in
            one of data on several devices, the numbers are not known.
        UnsupportedModel: the model has no density on R^D.
    """
    first, *others = [_bound(s, model, args, kwargs) for s in read(Path(path))]
    return replace(first, other_modes=tuple(others))


def _bound(stored: Stored, model: Callable, args: tuple, kwargs: dict) -> LaplaceApproximation:
    """What was stored of one mode, with the model that it is of."""
    if stored.fixed and not isinstance(model, LastLayer):
        model = LastLayer(model, stored.fixed)
    density = stored.kind.of(model, args, kwargs, stored.space)
    _check_sites(stored, density)
    require_entries(density)
    _check_log_joint(stored, density)
    return LaplaceApproximation(
        stored.mode,
        stored.mode_vector,
        stored.precision,
        stored.log_likelihood,
        stored.log_prior,
        stored.certificate,
        density,
        settings=stored.settings,
    )


def _check_sites(stored: Stored, density: ModelDensity) -> None:
    now = tuple(replace(site, improper=False) for site in density.sites)  # no part of the file
    if now != stored.sites:
        raise LaplaceError(
            f"The file is the approximation of another model: its latent sites are "
            f"{_described(stored.sites)}; those of this model are {_described(density.sites)}.",
            causes=["another model, or a newer version of it", "data of another shape"],
            remedy="pass the model and the arguments of the fit, or fit again.",
        )


def _check_log_joint(stored: Stored, density: ModelDensity) -> None:
    terms, decrement, along = look(density, stored.mode_vector, stored.precision)
    along = along[: len(stored.along)]
    sizes = jnp.abs(stored.along).max(axis=1)
    bend = (jnp.abs(along - stored.along).max(axis=1) / sizes).max()
    eps = float(jnp.finfo(stored.mode_vector.dtype).eps)
    now = (terms.log_likelihood, terms.log_prior, *(terms.values[name] for name in stored.mode))
    saved = (stored.log_likelihood, stored.log_prior, *stored.mode.values())
    same = all(
        np.allclose(a, b, rtol=eps**0.5, atol=eps**0.5) for a, b in zip(now, saved, strict=True)
    )
    moved = _MOVED + (stored.settings.tolerance or 0)
    other_data = told_apart(stored.data, digests(density, stored.mode_vector), eps)
    if same and decrement <= moved and bend <= _BENT and not other_data:
        return
    raise LaplaceError(
        f"The file is the approximation of another model or of other data: at the saved mode the "
        f"log likelihood is now {terms.log_likelihood:.8g}, saved {stored.log_likelihood:.8g}; the "
        f"log prior {terms.log_prior:.8g}, saved {stored.log_prior:.8g}; the mode of this model is "
        f"about {decrement:.2g} posterior standard deviations away; its curvature differs by {bend:.2g}.",
        causes=other_data
        or ["other data, or data in another order", "a prior or a likelihood has changed"],
        remedy="pass the model and the arguments of the fit, or fit again.",
    )


def _described(sites: tuple[Site, ...]) -> str:
    return ", ".join(f"'{site.name}' of shape {site.value_shape}" for site in sites)
