"""A network of the user's own as a NumPyro model: a plain function, an Equinox or a Flax NNX module."""

import inspect
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.extend.core import jaxpr_as_fun
from jax.tree_util import DictKey, GetAttrKey, PyTreeDef, SequenceKey
from jaxtyping import Array, ArrayLike

from laplacebook.base.convolutions import with_products
from laplacebook.base.devices import platform
from laplacebook.base.jaxprs import primitives
from laplacebook.base.pytrees import is_traced
from laplacebook.model.fingerprint import Unread
from laplacebook.model.likelihoods import (
    observe_weighted,
    one_for_each,
    outcome,
    require_likelihood,
    require_link,
    require_positive,
    targets_of,
    weights_of,
)
from laplacebook.model.network_refusals import no_run, repeated, require_one_output_a_row
from laplacebook.model.repeatable import draws_numbers

_TARGETS, _ROWS = "t", "N"  # the observed site, and its plate
_DRAWS = {"random_bits", "random_gamma", "threefry2x32", "rng_bit_generator", "rng_uniform"}
_REQUIRED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

Precision = float | ArrayLike | Sequence[ArrayLike] | Mapping[str, ArrayLike]


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """A network with a normal prior on its parameters: what :func:`network` returns, a NumPyro model.

    In the book: :eq:`neural-network-model` of :doc:`/book/neural-network`.

    Attributes:
        apply: the outputs of all rows, a function of the parameters and the features.
        structure: of the parameters.
        shapes: by site.
        likelihood: of the targets.
        prior_precision: Lambda.
        noise_precision: beta.
    """

    apply: Callable
    structure: PyTreeDef
    shapes: dict[str, tuple[int, ...]]
    likelihood: str
    prior_precision: Precision
    noise_precision: Any
    _start: Unread

    is_network = True  # which has weights, and reads tables by the places of their columns

    @property
    def start(self) -> dict[str, Array]:
        """Where a search may begin, by site, at the parameters that were given. No fit depends on them."""
        return dict(self._start.value)

    def __call__(
        self,
        features: ArrayLike,
        targets: ArrayLike | None = None,
        *,
        weights: ArrayLike | None = None,
        prior_precision: Precision | None = None,
        noise_precision: ArrayLike | Sequence[ArrayLike] | None = None,
    ) -> None:
        """Sample the parameters, and observe the targets.

        Args:
            features: x_n along the first axis, shape (N, ...).
            targets: t_n; None to predict them.
            weights: how often each row counts, shape (N,); or each output of several normal ones, shape (N, C).
            prior_precision: in place of that of the network.
            noise_precision: in place of that of the network.
        """
        features = jnp.asarray(features)
        if not features.ndim:
            raise ValueError("features must have a row for each target, shape (N, ...), not ()")
        N = features.shape[0]
        if not N:
            raise ValueError(
                f"features has no rows, shape {features.shape}: there is nothing to fit or predict"
            )
        given = self.prior_precision if prior_precision is None else prior_precision
        precisions = self._precisions(given)
        values: list[Array] = []
        for (name, shape), precision in zip(self.shapes.items(), precisions, strict=True):
            prior = dist.Normal(0.0, precision**-0.5).expand(shape).to_event(len(shape))
            values.append(numpyro.sample(name, prior))
            if values[-1].shape != shape:
                raise repeated(name, shape, values[-1].shape)
        output = self._output(values, features)
        C = output.shape[1]
        counted = None if targets is None else weights_of(weights, self.likelihood, N, C)
        targets = targets_of(targets, self.likelihood, N, C, counted)
        beta = self.noise_precision if noise_precision is None else noise_precision
        law = outcome(self.likelihood, output, one_for_each("output", C, "noise_precision", beta))
        if targets is None or counted is None:
            with numpyro.plate(_ROWS, N):
                numpyro.sample(_TARGETS, law, obs=targets)
        else:
            observe_weighted(
                _TARGETS, numpyro.plate(_ROWS, N, dim=-counted.ndim), law, targets, counted
            )

    def _precisions(self, given: Precision) -> Array:
        """Lambda for each site."""
        if isinstance(given, Mapping):
            if given.keys() != self.shapes.keys():
                raise ValueError(
                    f"prior_precision must be one number, or have one for each of "
                    f"{', '.join(self.shapes)}, not for {', '.join(map(str, given)) or 'none'}"
                )
            given = jnp.stack([jnp.asarray(given[name], float) for name in self.shapes])
        return one_for_each("array of parameters", len(self.shapes), "prior_precision", given)

    def _output(self, values: list[Array], features: Array) -> Array:
        """f of all rows, shape (N, C)."""
        params = jax.tree.unflatten(self.structure, values)
        apply = partial(self.apply, params)
        try:
            program, shape = jax.make_jaxpr(
                lambda params, features: self.apply(params, features), return_shape=True
            )(params, features)
        except Exception as error:
            widths = (size for shape in self.shapes.values() for size in shape)
            told = no_run(error, apply, features, widths)
            if told is None:
                raise
            raise told from error
        require_one_output_a_row(shape, apply, features)
        require_link(program, self.likelihood)
        if _DRAWS & primitives(program):
            raise draws_numbers("(jax.random), in the network")
        if platform() == "cpu":
            output = with_products(program)(*values, features)
        else:
            (output,) = jaxpr_as_fun(program)(*values, features)
        return output.reshape(len(features), -1)


def network(
    apply: Callable,
    params: Any = None,
    *,
    likelihood: str,
    prior_precision: Precision = 1.0,
    noise_precision: ArrayLike | Sequence[ArrayLike] = 1.0,
) -> Network:
    """A network f(x; w) of your own as a NumPyro model, with a normal prior on all its parameters.

    The model is called as ``model(features, targets=None)``. Every array of parameters is a latent
    site, named by where it stands, such as ``layers[0].weight`` or ``Dense_0.kernel``, each of its
    entries N(0, 1/Lambda); the targets are the observed site ``"t"``. It computes in the precision in
    which JAX works. Sites stand in the order of the leaves of the pytree (a dict is sorted).

    What you have trained, by ``optax`` or else, is where to begin:
    ``laplace(model, x, t, start=model.start)``; or ``start=train(model, x, t, start=model.start,
    key=key)``, which ends nearer to the mode, for training without a prior ends elsewhere. A network of
    other parameters is the same model, and compiles nothing anew.

    Rows have weights by ``laplace(model, x, t, weights=w)``, shape (N,): the log likelihood of each is
    multiplied by it, so that a row of weight 2 counts as two do, and one of weight 0 is left out (in
    Fisher curvature, which is made of squares of gradients, as four do). Of several normal outputs
    each may have its own, shape (N, C). Where a weight is 0 the target may be missing:
    ``weights=np.isfinite(t)``; and derivatives with respect to a weight of 0 are 0.

    Dense layers and convolutions have Kronecker factors with ``structure="kronecker"``; biases, and
    the scales of layer normalisation, blocks of their own. Batch normalisation is for inference alone,
    with averages that are fixed: in training mode the output of a row depends on the other rows. Dropout
    is for training alone.

    In the book: :eq:`neural-network-model` and :eq:`neural-network-classes` of
    :doc:`/book/neural-network`.

    Args:
        apply: ``apply(params, features)`` returns the outputs of all N rows, shape (N,) or (N, C).
            Or a module in its place: of Equinox, whose arrays of floating-point numbers are the
            parameters, and which is called on one row after another (``jax.vmap``); or of Flax NNX,
            whose ``nnx.Param`` are, in evaluation mode (``net.eval()``).
        params: a pytree of arrays of floating-point numbers; None for a module.
        likelihood: ``"normal"``: t_n ~ N(f, 1/beta); ``"bernoulli"``: t_n is 0 or 1 and f the
            logit; ``"categorical"``: t_n is a class 0, ..., C - 1 and f the logits; ``"poisson"``:
            t_n is a count and f the logarithm of its mean.
        prior_precision: Lambda, one number, or one for each array of parameters, in their order or by
            name. An argument of the model, too, so that :func:`maximize_evidence` can tune it.
        noise_precision: beta, one number, or one for each output; used by ``"normal"`` alone.
            Likewise an argument of the model.

    Returns:
        The model, with ``start``, a dict of site -> array.

    Raises:
        TypeError: ``apply`` is no function, needs more than the features, or has no parameters.
        ValueError: the likelihood is none of these; a precision is not positive; parameters are no
            floating-point numbers, not finite or empty, or two have the same name. When the model runs: a
            shape does not fit, a weight is negative, targets are no classes, or no counts, or the network
            ends with a softmax or a sigmoid where logits are meant.
        UnsupportedModel: when the model runs: the network draws random numbers, or changes its state.

    Example:
        >>> import jax.numpy as jnp
        >>> from laplacebook import laplace
        >>> def apply(params, x):
        ...     return jnp.tanh(x @ params["w1"]) @ params["w2"]
        >>> model = network(
        ...     apply, {"w1": jnp.ones((1, 2)), "w2": jnp.ones((2, 1))}, likelihood="normal"
        ... )
        >>> x = jnp.linspace(-1, 1, 9)[:, None]
        >>> approx = laplace(model, x, x[:, 0] ** 3, start=model.start)
        >>> {name: value.shape for name, value in approx.mode.items()}
        {'w1': (1, 2), 'w2': (2, 1)}
    """
    require_likelihood(likelihood)
    require_positive("prior_precision", prior_precision)
    require_positive("noise_precision", noise_precision)
    if not callable(apply):
        raise TypeError(f"apply must be a function or a module, not a {type(apply).__name__}")
    if params is None:
        apply, given, structure = _of_module(apply)
    else:
        given, structure = jax.tree_util.tree_flatten_with_path(params)
    if not given:
        raise TypeError("params has no array in it: there is nothing to infer")
    named = [(_name(path), value) for path, value in given]
    _require_names([name for name, _ in named])
    start = {name: _parameters(name, value) for name, value in named}
    return Network(
        apply,
        structure,
        {name: value.shape for name, value in start.items()},
        likelihood,
        prior_precision,
        noise_precision,
        Unread(start),
    )


@dataclass(frozen=True, eq=False)
class _RowByRow:
    """A module that is a pytree, such as one of Equinox, as a function of its arrays."""

    module: Any  # with ... in the places of the arrays

    def __call__(self, params: list[Array], features: Array) -> Array:
        given = iter(params)
        leaves, structure = jax.tree.flatten(self.module)
        module = jax.tree.unflatten(structure, [next(given) if x is ... else x for x in leaves])
        return jax.vmap(lambda x: module(x))(features)


@dataclass(frozen=True, eq=False)
class _Merged:
    """A module of Flax NNX as a function of its parameters."""

    definition: Any
    rest: Any

    def __call__(self, params: Any, features: Array) -> Array:
        return sys.modules["flax.nnx"].merge(self.definition, params, self.rest)(features)


def _of_module(module: Any) -> tuple[Callable, list[tuple[tuple, Any]], PyTreeDef]:
    """A function of parameters and features; the parameters with their paths, and their structure."""
    nnx = sys.modules.get("flax.nnx")
    if nnx is not None and isinstance(module, nnx.Module):
        _require_one_argument(module)
        definition, params, rest = nnx.split(module, nnx.Param, ...)
        return _Merged(definition, rest), *jax.tree_util.tree_flatten_with_path(params)
    leaves, structure = jax.tree_util.tree_flatten_with_path(module)
    given = [(path, x) for path, x in leaves if _is_inexact(x)]
    if not given:
        raise TypeError(
            f"{type(module).__name__} has no parameters in it: pass them, network(apply, params, ...), or "
            "a module of Equinox or Flax NNX"
        )
    _require_one_argument(module)
    rest = jax.tree.unflatten(structure, [... if _is_inexact(x) else x for _, x in leaves])
    return _RowByRow(rest), given, jax.tree.structure([0] * len(given))


def _is_inexact(x: Any) -> bool:
    return isinstance(x, jax.Array | np.ndarray) and jnp.issubdtype(x.dtype, jnp.inexact)


def _require_one_argument(module: Any) -> None:
    """Refuse a module that cannot be called with features alone."""
    arguments = inspect.signature(module).parameters.values()
    needed = [p.name for p in arguments if p.default is p.empty and p.kind in _REQUIRED]
    if len(needed) > 1:
        raise TypeError(
            f"{type(module).__name__} is called with {', '.join(needed)}, and not with features alone. A "
            "state of batch normalisation or a key of dropout is for training: pass a function of the "
            "trained network in evaluation mode, network(apply, params, ...)"
        )


def _name(path: tuple) -> str:
    """Such as ``layers[0].weight``."""
    if len(path) > 1 and path[-1] == GetAttrKey("value"):  # of a variable of Flax
        path = path[:-1]
    return "".join(map(_part, path)).removeprefix(".") or "params"


def _part(key: Any) -> str:
    if isinstance(key, GetAttrKey):
        return f".{key.name}"
    if isinstance(key, DictKey) and isinstance(key.key, str):
        return f".{key.key}"
    return f"[{key.idx if isinstance(key, SequenceKey) else key.key}]"


def _require_names(names: list[str]) -> None:
    twice = [name for name, number in Counter([*names, _TARGETS, _ROWS]).items() if number > 1]
    if twice:
        raise ValueError(
            f"two sites of the model would be called {twice[0]!r}: name the parameters apart, and none "
            f"'{_TARGETS}', as the targets are, or '{_ROWS}', as the plate of rows is"
        )


def _parameters(name: str, value: Any) -> Array:
    """An array of parameters, refused if it is no such thing."""
    if not isinstance(value, jax.Array | np.ndarray | np.generic | float):
        raise ValueError(f"params: {name} must be an array, not a {type(value).__name__}")
    dtype = jnp.result_type(value)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(
            f"params: {name} must have floating-point numbers, not {dtype}: what is no weight has no "
            "prior, and belongs into apply; a complex weight is two real ones"
        )
    if not jnp.size(value):
        raise ValueError(f"params: {name} is empty, of shape {jnp.shape(value)}")
    if not is_traced(value) and not np.isfinite(np.asarray(value, float)).all():
        raise ValueError(
            f"params: {name} is not finite: no search can begin there; train with care"
        )
    return jnp.array(value, float)
