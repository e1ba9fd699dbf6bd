"""What is no run of a network: features that it does not take, outputs that are none, a state that it changes."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp

from laplacebook.base.errors import LaplaceError, UnsupportedModel

_OF_VALUES = jax.errors.JAXTypeError | jax.errors.JAXIndexError  # which a trace does not have


def no_run(
    error: Exception, apply: Callable[[Any], Any], features: Any, widths: Iterable[int]
) -> Exception | None:
    """The error for a network that does not run with its features, or None where it is not of these.

    Args:
        error: that it raises.
        apply: its outputs, a function of features.
        features: x_n along the first axis.
        widths: what its last axis may be instead.
    """
    if type(error).__name__ == "TraceContextError":  # of Flax
        return _changes_state(error)
    if "requires a key" in str(error):  # as Equinox's Dropout says
        return _drops_out(error)
    shape = features.shape
    if isinstance(error, LaplaceError | _OF_VALUES):
        return None
    column = ""
    if len(shape) == 1:
        if _takes(apply, features, (1, *shape)) and not _takes(apply, features, (*shape, 1)):
            return _one_row(shape)
        column = ": a single feature is a column, features[:, None]"
    others = [(*shape[:-1], width) for width in sorted(set(widths) - {shape[-1]})]
    taken = [other for other in others if not column and _takes(apply, features, other)]
    if len(taken) == 1:
        fits = ", ".join(["N", *map(str, taken[0][1:])])
        return ValueError(
            f"features must have shape ({fits}), as the network takes them, not {shape}"
        )
    if not isinstance(error, TypeError | ValueError | IndexError):
        return None
    said = str(error).partition("\n")[0]
    return ValueError(f"the network takes no features of shape {shape}{column}. It says: {said}")


def _takes(apply: Callable[[Any], Any], features: Any, shape: tuple[int, ...]) -> bool:
    """Whether a network has an output for each row of features of another shape."""
    try:
        output = jax.eval_shape(apply, jax.ShapeDtypeStruct(shape, features.dtype))
        return len(output.shape) in (1, 2) and output.shape[0] == shape[0]
    except Exception:
        return False


def _is_one_row(apply: Callable[[Any], Any], features: Any) -> bool:
    """Whether features of shape (D,) are those of a row, even where its outputs are as many as the features."""
    (D,) = features.shape
    return not _takes(apply, features, (D + 1,)) and _takes(apply, features, (1, D))


def _one_row(shape: tuple[int, ...]) -> ValueError:
    return ValueError(
        f"features must have a row for each target, not shape {shape}: a single row is X[:1], of shape "
        f"{(1, *shape)}"
    )


def require_one_output_a_row(output: Any, apply: Callable[[Any], Any], features: Any) -> None:
    """Refuse what are no outputs of rows, one each.

    Args:
        output: the shape and type of what the network returns.
        apply: its outputs, a function of features.
        features: x_n along the first axis.

    Raises:
        ValueError: they are none.
    """
    N = len(features)
    if features.ndim == 1 and N > 1 and _is_one_row(apply, features):
        raise _one_row(features.shape)
    if not isinstance(output, jax.ShapeDtypeStruct):
        raise ValueError(
            f"apply must return one array, the outputs, not a {type(output).__name__}: leave out a new "
            "state, and use the network as it is to predict"
        )
    if len(output.shape) not in (1, 2) or output.shape[0] != N:
        raise ValueError(
            f"apply must return shape ({N},) or ({N}, C) for {N} rows of features, not {output.shape}; a "
            "network of one row is one of many by jax.vmap(apply, (None, 0))"
        )
    if not jnp.issubdtype(output.dtype, jnp.floating):
        raise ValueError(f"apply must return floating-point numbers, not {output.dtype}")


def _drops_out(error: Exception) -> UnsupportedModel:
    return UnsupportedModel(
        f"The network draws random numbers when it is run: {str(error).splitlines()[0]}",
        causes=["dropout in training mode"],
        remedy="call it in evaluation mode: network(eqx.nn.inference_mode(net), ...) of Equinox.",
    )


def _changes_state(error: Exception) -> UnsupportedModel:
    return UnsupportedModel(
        "The network changes its own state when it is run, so that its outputs depend on more than "
        f"parameters and features: {str(error).splitlines()[0]}",
        causes=[
            "batch normalisation in training mode, which averages over the rows",
            "dropout in training mode, which counts its random numbers",
        ],
        remedy="call net.eval() before network(net, ...).",
    )


def repeated(name: str, shape: tuple[int, ...], found: tuple[int, ...]) -> UnsupportedModel:
    """The error for an array of parameters that a handler around the network gives another shape."""
    return UnsupportedModel(
        f"The parameters '{name}' have shape {found} and not {shape}: a handler around the network repeats them.",
        causes=["numpyro.handlers.mask, with a truth value for each row, or a plate"],
        remedy="leave the handler out; rows that are to be left out have weight 0, model(x, t, weights=w).",
    )
