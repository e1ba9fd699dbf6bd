"""The NumPyro models that chapters share.

A network of your own, as a plain function, an Equinox module or a Flax NNX module, becomes such a model
by :func:`laplacebook.network`::

    model = lb.network(net, likelihood="normal")
    approx = lb.laplace(model, x, y, start=lb.train(model, x, y, key=key, start=model.start))
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Array, ArrayLike

from laplacebook.model.likelihoods import (
    features_of,
    one_for_each,
    outcome,
    require_positive,
    targets_of,
)

__all__ = ["bayesian_mlp", "logistic_regression"]


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

    A search begins at the prior means if nobody says otherwise. With all weights at zero a tanh network has a slope
    in its last bias alone, and is often near a saddle; where a search ends there, as with two hidden layers,
    ``laplace`` begins once more from scaled draws. To choose where it begins pass
    ``start=laplacebook.train(bayesian_mlp, ...)``.

    In the book: :eq:`neural-network-model` and :eq:`neural-network-classes` of
    :doc:`/book/neural-network`.

    Args:
        features: x_n in the rows, shape (N, D).
        targets: t_n, shape (N,); (N, outputs) for several normal outputs; None to predict them.
        widths: how many units each hidden layer has; () for a model linear in the features.
        activation: of the hidden units, elementwise; a smooth function.
        likelihood: ``"normal"``: t_n ~ N(f, 1/beta); ``"bernoulli"``: t_n is 0 or 1 and f the
            logit; ``"categorical"``: t_n is a class 0, ..., outputs - 1 and f the logits; ``"poisson"``:
            t_n is a count and f the logarithm of its mean.
        outputs: how many normal outputs or classes there are.
        prior_mean: mu_w, one number, or one for each layer.
        prior_precision: Lambda, one number, or one for each layer.
        noise_precision: beta, one number, or one for each output; used by ``"normal"`` alone.

    Raises:
        TypeError: ``widths`` is no sequence, or a precision no number.
        ValueError: the activation is no function, the likelihood is none of these, a shape does not fit, a
            precision is not positive, or targets are no classes, or no counts.

    Example:
        >>> import numpy as np
        >>> from laplacebook.model.density import ModelDensity
        >>> density = ModelDensity.of(bayesian_mlp, (np.ones((4, 1)), np.zeros(4)))
        >>> [f"{site.name} {site.shape}" for site in density.sites]
        ['w1 (1, 50)', 'b1 (50,)', 'w2 (50, 50)', 'b2 (50,)', 'w3 (50, 1)', 'b3 (1,)']
    """
    features = features_of(features)
    if not callable(activation):
        raise ValueError(_no_function(activation))
    if not isinstance(widths, Sequence | np.ndarray):
        raise TypeError(
            f"widths must be a sequence, one number for each hidden layer, such as (50,), not {widths!r}"
        )
    require_positive("prior_precision", prior_precision)
    require_positive("noise_precision", noise_precision)
    if min([*widths, outputs]) < 1:
        raise ValueError(
            f"widths and outputs must be 1 or more, not widths={widths}, outputs={outputs}"
        )
    N, D = features.shape
    targets = targets_of(targets, likelihood, N, outputs)
    sizes = [D, *widths, outputs]
    means = one_for_each("layer", len(sizes) - 1, "prior_mean", prior_mean)
    precisions = one_for_each("layer", len(sizes) - 1, "prior_precision", prior_precision)
    noise = one_for_each("output", outputs, "noise_precision", noise_precision)
    hidden: Array = features
    for layer, shape in enumerate(zip(sizes, sizes[1:], strict=False)):
        prior = dist.Normal(means[layer], precisions[layer] ** -0.5)
        w: Array = numpyro.sample(f"w{layer + 1}", prior.expand(shape).to_event(2))
        b: Array = numpyro.sample(f"b{layer + 1}", prior.expand(shape[1:]).to_event(1))
        hidden = (activation(hidden) if layer else hidden) @ w + b
    with numpyro.plate("N", N):
        numpyro.sample("t", outcome(likelihood, hidden, noise), obs=targets)


def _no_function(activation: Any) -> str:
    named = isinstance(activation, str) and hasattr(jax.nn, activation)
    return (
        f"activation must be a function, {f'jax.nn.{activation}, ' if named else ''}not {activation!r}; smooth "
        "ones have a curvature, such as jnp.tanh, jax.nn.softplus and jax.nn.gelu, and jax.nn.relu has kinks"
    )


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
    features = features_of(features)
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
