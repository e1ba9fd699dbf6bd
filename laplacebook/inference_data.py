"""Draws and data for ArviZ, old and new."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from jaxtyping import Array

__all__ = ["inference_data"]


def inference_data(posterior: Mapping[str, Array], observed_data: Mapping[str, Array]) -> Any:
    """One chain of draws, and the data, in ArviZ's container.

    Args:
        posterior: site -> draws, shape (S, *site shape).
        observed_data: site -> data.

    Returns:
        An ``arviz.InferenceData`` (ArviZ 0.x) or an ``xarray.DataTree`` (ArviZ 1.x), with the groups
        ``posterior`` (dimensions chain, draw, ...) and, where there are data, ``observed_data``.

    Raises:
        ImportError: ArviZ is not installed.
    """
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz() needs ArviZ: pip install arviz") from error
    groups: dict[str, Any] = {"posterior": {name: draws[None] for name, draws in posterior.items()}}
    if observed_data:
        groups["observed_data"] = dict(observed_data)
    if "posterior" in signature(arviz.from_dict).parameters:  # ArviZ 0.x
        return arviz.from_dict(**groups)
    return arviz.from_dict(groups)
