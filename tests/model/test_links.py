"""The outputs of a network are logits, or the logarithm of a rate: the inverse of the link at its end is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb
from laplacebook.model.density import ModelDensity
from tests.model.test_network import X, Y, apply, drawn


def two(p, x):
    return jnp.hstack([apply(p, x), -apply(p, x)])


INVERSE_LINKS = {
    "softmax": (lambda p, x: jax.nn.softmax(two(p, x)), "categorical", "softmax.*probabilities"),
    "softmax of a row": (
        jax.vmap(lambda p, x: jax.nn.softmax(two(p, x[None])[0]), (None, 0)),
        "categorical",
        "leave softmax out",
    ),
    "by hand": (
        lambda p, x: jnp.exp(two(p, x)) / jnp.exp(two(p, x)).sum(1, keepdims=True),
        "categorical",
        "they are the logits",
    ),
    "sigmoid": (lambda p, x: jax.nn.sigmoid(apply(p, x)), "bernoulli", "they are the logit;"),
    "sigmoid without its axis": (
        lambda p, x: jax.nn.sigmoid(apply(p, x))[:, 0],
        "bernoulli",
        "ends with sigmoid",
    ),
    "sigmoid of one of two": (
        lambda p, x: jax.nn.sigmoid(two(p, x))[:, :1],
        "bernoulli",
        "ends with sigmoid",
    ),
    "rates": (lambda p, x: jnp.exp(apply(p, x)), "poisson", "rates.*logarithm of the rate"),
}


@pytest.mark.parametrize("name", INVERSE_LINKS)
def test_a_link_is_not_inverted_twice(name):
    function, likelihood, words = INVERSE_LINKS[name]
    with pytest.raises(ValueError, match=words):
        lb.laplace(lb.network(function, drawn(0), likelihood=likelihood), X, Y > 0)


@pytest.mark.parametrize(
    ("function", "likelihood"),
    [
        (lambda p, x: jax.nn.log_softmax(two(p, x)), "categorical"),
        (lambda p, x: 2 * jax.nn.softmax(two(p, x)), "categorical"),
        (lambda p, x: apply(p, jax.nn.softmax(x)), "bernoulli"),
        (lambda p, x: apply(p, x) / jnp.exp(x[:, :1]), "bernoulli"),
        (lambda p, x: jax.nn.sigmoid(apply(p, x)), "normal"),
    ],
    ids=["log softmax", "twice a softmax", "softmax before", "over exp", "normal"],
)
def test_what_only_looks_like_it_is_taken(function, likelihood):
    model = lb.network(function, drawn(0), likelihood=likelihood)
    y = Y if likelihood == "normal" else (Y > 0).astype(int)
    density = ModelDensity.of(model, (X, y))
    assert np.isfinite(jax.jit(density.log_joint)(density.start(model.start)))
