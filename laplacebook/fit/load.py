"""An approximation out of a file: who loads it brings the model and its data, and they are checked."""

from collections.abc import Callable
from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from laplacebook.base.errors import LaplaceError
from laplacebook.fit.digest import digests, told_apart
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.fit.saved_file import Archive, Stored, look, stored_modes
from laplacebook.model.density import ModelDensity
from laplacebook.model.known_sites import LastLayer
from laplacebook.model.not_finite import require_entries
from laplacebook.model.sites import Site

_BENT = 0.01  # relative change of the curvature along a direction
_MOVED = 0.01  # posterior standard deviations from the saved mode to that of the model now


def laplace_in(
    archive: Archive, model: Callable, args: tuple, kwargs: dict
) -> LaplaceApproximation:
    """The Laplace approximation in a file, with its other modes and the verdicts of diagnoses on them.

    Args:
        archive: the file.
        model: the NumPyro model that was fitted.
        args: its positional arguments.
        kwargs: its keyword arguments.

    Raises:
        LaplaceError: the file is damaged, or of another model or of other data.
    """
    own, found, verdicts = stored_modes(archive)
    first, *others = [_bound(stored, model, args, kwargs) for stored in (*own, *found)]
    approx = replace(first, other_modes=tuple(others[: len(own) - 1]))
    modes = [approx, *others]
    for mode, (verdict, of_shape, places, unseen) in zip(modes, verdicts, strict=bool(verdicts)):
        mode.remember(verdict, of_shape, tuple(modes[i] for i in places), unseen)
    return approx


def _bound(stored: Stored, model: Callable, args: tuple, kwargs: dict) -> LaplaceApproximation:
    """What was stored of one mode, with the model that it is of."""
    if stored.fixed and not isinstance(model, LastLayer):
        model = LastLayer(model, stored.fixed)
    density = stored.kind.of(model, args, kwargs, stored.space)
    require_sites(stored.sites, density)
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


def require_sites(sites: tuple[Site, ...], density: ModelDensity) -> None:
    """Refuse a model with other latent sites than those in a file.

    Args:
        sites: in the file.
        density: the model and its arguments.

    Raises:
        LaplaceError: they differ.
    """
    now = tuple(replace(site, improper=False) for site in density.sites)  # no part of the file
    if now != sites:
        raise LaplaceError(
            f"The file is the approximation of another model: its latent sites are "
            f"{_described(sites)}; those of this model are {_described(density.sites)}.",
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
    raise another_model(
        f"at the saved mode the log likelihood is now {terms.log_likelihood:.8g}, saved "
        f"{stored.log_likelihood:.8g}; the log prior {terms.log_prior:.8g}, saved "
        f"{stored.log_prior:.8g}; the mode of this model is about {decrement:.2g} posterior standard "
        f"deviations away; its curvature differs by {bend:.2g}.",
        other_data,
    )


def another_model(facts: str, other_data: list[str]) -> LaplaceError:
    """The error of a file that is of another model or of other data.

    Args:
        facts: what differs.
        other_data: what of the data is no longer what it was, if that is known.
    """
    return LaplaceError(
        f"The file is the approximation of another model or of other data: {facts}",
        causes=other_data
        or ["other data, or data in another order", "a prior or a likelihood has changed"],
        remedy="pass the model and the arguments of the fit, or fit again.",
    )


def _described(sites: tuple[Site, ...]) -> str:
    return ", ".join(f"'{site.name}' of shape {site.value_shape}" for site in sites)
