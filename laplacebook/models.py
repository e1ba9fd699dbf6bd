"""The NumPyro models that chapters share.

A network written in Equinox or Flax becomes such a model by NumPyro's own module support: every
array of parameters becomes a latent site, here ``net/layers[0].weight`` and so on::

    import equinox as eqx
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.contrib.module import random_eqx_module

    mlp = eqx.nn.MLP(1, "scalar", 5, depth=1, activation=jax.nn.tanh, key=jax.random.key(0))
    shapes = {"net$params": eqx.filter(mlp, eqx.is_inexact_array)}

    def network(features, targets=None):
        with numpyro.handlers.substitute(data=shapes):
            net = random_eqx_module("net", mlp, prior=dist.Normal(0, 1))
        with numpyro.plate("N", features.shape[0]):
            numpyro.sample("t", dist.Normal(jax.vmap(net)(features), 0.1), obs=targets)

The support keeps the untrained weights as a ``numpyro.param``, for their shapes alone: to substitute
it says that it is no parameter to fit. ``random_nnx_module`` does the same for Flax NNX. Both need a
NumPyro that has them. All weights at zero are a saddle of such a model: begin at
``start=laplacebook.train(network, ...)``.
"""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike

from laplacebook.base.pytrees import is_traced

__all__ = ["bayesian_mlp", "logistic_regression"]

_LIKELIHOODS = ("normal", "bernoulli", "categorical")


def bayesian_mlp(
    features: ArrayLike,
    targets: ArrayLike | None = None,
    widths: Sequence[int] = (50, 50),
    activation: Callable[[Array], Array] = jnp.tanh,
    likelihood: str = "normal",
    outputs: int = 1,
    prior_mean: ArrayLike | Sequence[ArrayLike] = 0.0,
    prior_precision: ArrayLike | Sequence[ArrayLike] = 1.0,
    noise_precision: ArrayLike | Sequence[ArrayLike] = 1.0,
) -> None:
    """A fully connected network f(x; w) with a normal prior on all weights (Bishop 2006, section 5.7).

    Layer l computes h w_l + b_l, and the activation of it in all but the last. Every entry of
    ``"w1"``, of shape (D, width), ``"b1"``, of shape (width,), ``"w2"``, ... is N(mu_w, 1/Lambda),
    with the precision as it is given: it is not divided by the number of inputs to a layer, so that
    outputs grow with the widths.

    All weights at zero are a saddle of the log joint, and there a search begins if nobody says
    otherwise: pass ``start=laplacebook.train(bayesian_mlp, ...)`` to ``laplace``.

    In the book: :eq:`neural-network-model` and :eq:`neural-network-classes` of
    :doc:`/book/neural-network`.

    Args:
        features: x_n in the rows, shape (N, D).
        targets: t_n, shape (N,); (N, outputs) for several normal outputs; None to predict them.
        widths: how many units each hidden layer has; () for a model linear in the features.
        activation: of the hidden units, elementwise.
        likelihood: ``"normal"``: t_n ~ N(f, 1/beta); ``"bernoulli"``: t_n is 0 or 1 and f the
            logit; ``"categorical"``: t_n is a class 0, ..., outputs - 1 and f the logits.
        outputs: how many normal outputs or classes there are.
        prior_mean: mu_w, one number, or one for each layer.
        prior_precision: Lambda, one number, or one for each layer.
        noise_precision: beta, one number, or one for each output; used by ``"normal"`` alone.

    Raises:
        ValueError: the likelihood is none of these, a shape does not fit, or targets are no classes.

    Example:
        >>> import numpy as np
        >>> from laplacebook.model.density import ModelDensity
        >>> density = ModelDensity.of(bayesian_mlp, (np.ones((4, 1)), np.zeros(4)))
        >>> [f"{site.name} {site.shape}" for site in density.sites]
        ['w1 (1, 50)', 'b1 (50,)', 'w2 (50, 50)', 'b2 (50,)', 'w3 (50, 1)', 'b3 (1,)']
    """
    features = jnp.asarray(features)
    if features.ndim != 2:
        hint = "; a single feature is a column, features[:, None]" if features.ndim == 1 else ""
        raise ValueError(f"features must have shape (N, D), not {features.shape}{hint}")
    if min([*widths, outputs]) < 1:
        raise ValueError(
            f"widths and outputs must be 1 or more, not widths={widths}, outputs={outputs}"
        )
    N, D = features.shape
    targets = _targets(targets, likelihood, N, outputs)
    sizes = [D, *widths, outputs]
    means = _one_for_each("layer", len(sizes) - 1, "prior_mean", prior_mean)
    precisions = _one_for_each("layer", len(sizes) - 1, "prior_precision", prior_precision)
    noise = _one_for_each("output", outputs, "noise_precision", noise_precision)
    hidden: Array = features
    for layer, shape in enumerate(zip(sizes, sizes[1:], strict=False)):
        prior = dist.Normal(means[layer], precisions[layer] ** -0.5)
        w: Array = numpyro.sample(f"w{layer + 1}", prior.expand(shape).to_event(2))
        b: Array = numpyro.sample(f"b{layer + 1}", prior.expand(shape[1:]).to_event(1))
        hidden = (activation(hidden) if layer else hidden) @ w + b
    with numpyro.plate("N", N):
        numpyro.sample("t", _outcome(likelihood, hidden, noise), obs=targets)


def _targets(targets: ArrayLike | None, likelihood: str, N: int, outputs: int) -> Array | None:
    """The targets of a network, refused where they do not fit the likelihood."""
    if likelihood not in _LIKELIHOODS:
        raise ValueError(f"likelihood must be one of {', '.join(_LIKELIHOODS)}, not {likelihood!r}")
    if likelihood == "bernoulli" and outputs != 1:
        raise ValueError(f'outputs must be 1, the logit, for likelihood="bernoulli", not {outputs}')
    if likelihood == "categorical" and outputs < 2:
        raise ValueError(
            f'outputs must be the number of classes for likelihood="categorical", not {outputs}'
        )
    if targets is None:
        return None
    targets = jnp.asarray(targets)
    several = likelihood == "normal" and outputs > 1
    shape = (N, outputs) if several else (N,)
    if targets.shape != shape:
        raise ValueError(f"targets must have shape {shape}, not {targets.shape}")
    if likelihood == "normal":
        return targets
    if likelihood == "categorical" and jnp.issubdtype(targets.dtype, jnp.inexact):
        raise ValueError(f"targets must be classes as integers, not {targets.dtype} numbers")
    classes = max(outputs, 2)
    if not is_traced(targets):
        other = np.setdiff1d(targets, np.arange(classes))
        if other.size:
            raise ValueError(
                f"targets must be classes 0, ..., {classes - 1}, not {other[:3].tolist()}"
            )
    return targets.astype(int) if likelihood == "categorical" else targets


def _one_for_each(
    what: str, number: int, name: str, value: ArrayLike | Sequence[ArrayLike]
) -> Array:
    numbers = jnp.asarray(value, float)
    if numbers.shape not in [(), (number,)]:
        raise ValueError(
            f"{name} must be one number, or one for each {what}, of shape ({number},), "
            f"not {numbers.shape}"
        )
    return jnp.broadcast_to(numbers, (number,))


def _outcome(likelihood: str, output: Array, precision: Array) -> dist.Distribution:
    if likelihood == "categorical":
        return dist.Categorical(logits=output)
    if likelihood == "bernoulli":
        return dist.Bernoulli(logits=output[:, 0])
    if output.shape[1] == 1:
        return dist.Normal(output[:, 0], precision[0] ** -0.5)
    return dist.Normal(output, precision**-0.5).to_event(1)


def logistic_regression(
    features: ArrayLike,
    targets: ArrayLike | None = None,
    prior_mean: ArrayLike = 0.0,
    prior_covariance: ArrayLike | None = None,
) -> None:
    """Bayesian logistic regression: w ~ N(m0, S0), t_n ~ Bernoulli(sigma(w' phi_n)).

    Bishop (2006), section 4.5. A column of ones among the features is the intercept.

    In the book: :eq:`logistic-regression-model` of :doc:`/book/logistic-regression`.

    Args:
        features: phi_n in the rows, shape (N, D).
        targets: t_n, zero or one, shape (N,); None to predict them.
        prior_mean: m0, shape (D,), or one number for all.
        prior_covariance: S0, shape (D, D); the identity by default.

    Raises:
        ValueError: the features are no matrix, or the targets not one for each of its rows.

    Example:
        >>> import numpy as np
        >>> from laplacebook import laplace
        >>> features = np.column_stack([np.ones(4), [-2.0, -1.0, 1.0, 2.0]])
        >>> approx = laplace(logistic_regression, features, np.array([0.0, 0.0, 1.0, 1.0]))
        >>> print(f"{approx.mode['w'][1]:.3f}")
        1.007
    """
    features = jnp.asarray(features)
    if features.ndim != 2:
        raise ValueError(f"features must have shape (N, D), not {features.shape}")
    N, D = features.shape
    if targets is not None and jnp.shape(targets) != (N,):
        raise ValueError(
            f"targets must have shape ({N},), as features have, not {jnp.shape(targets)}"
        )
    covariance = jnp.eye(D) if prior_covariance is None else jnp.asarray(prior_covariance)
    mean = jnp.broadcast_to(jnp.asarray(prior_mean, float), (D,))
    w: Array = numpyro.sample("w", dist.MultivariateNormal(mean, covariance))
    with numpyro.plate("N", N):
        numpyro.sample("t", dist.Bernoulli(logits=features @ w), obs=targets)
