"""A network that ends with the inverse of the link is refused, however that is written; others are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb

X = np.random.default_rng(0).normal(size=(6, 1))
Y = np.array([0, 1, 0, 1, 1, 0])
ONE = {"w": jnp.ones((1, 1)), "b": jnp.zeros(1)}
THREE = {"w": jnp.ones((1, 3)), "b": jnp.zeros(3)}

PROBABILITIES = {  # of logits h
    "sigmoid": jax.nn.sigmoid,
    "by hand": lambda h: 1 / (1 + jnp.exp(-h)),
    "by hand, the other way": lambda h: jnp.exp(h) / (1 + jnp.exp(h)),
    "of its logarithm": lambda h: jnp.exp(jax.nn.log_sigmoid(h)),
    "cut off": lambda h: jnp.clip(jax.nn.sigmoid(h), 1e-6, 1 - 1e-6),
    "kept above zero": lambda h: jnp.maximum(jax.nn.sigmoid(h), 1e-9),
    "by tanh": lambda h: 0.5 * (1 + jnp.tanh(h / 2)),
    "by tanh and a division": lambda h: (jnp.tanh(h / 2) + 1) / 2,
}
CLASSES = {
    "softmax": jax.nn.softmax,
    "by hand": lambda h: jnp.exp(h) / jnp.exp(h).sum(axis=1, keepdims=True),
    "of its logarithm": lambda h: jnp.exp(jax.nn.log_softmax(h)),
    "cut off": lambda h: jnp.clip(jax.nn.softmax(h), 1e-7, 1),
}
LOGITS = {
    "linear": lambda h: h,
    "swish": jax.nn.swish,
    "swish by hand": lambda h: h / (1 + jnp.exp(-h)),
    "capped softly": lambda h: 30 * jnp.tanh(h / 30),
    "cut off": lambda h: jnp.clip(h, -20, 20),
    "softplus": lambda h: jax.nn.softplus(h) - 1,
    "tempered": lambda h: h / 2,
    "log_softmax": jax.nn.log_softmax,
}


def run(end, params, likelihood):
    net = lb.network(lambda p, x: end(x @ p["w"] + p["b"]), params, likelihood=likelihood)
    return lb.laplace(net, X, Y, throw=False)


@pytest.mark.parametrize("name", PROBABILITIES)
def test_probabilities_are_no_logits(name):
    with pytest.raises(ValueError, match="apply ends with (sigmoid|exp), so that its outputs are"):
        run(PROBABILITIES[name], ONE, "bernoulli")


@pytest.mark.parametrize("name", CLASSES)
def test_nor_are_those_of_classes(name):
    with pytest.raises(ValueError, match="apply ends with (softmax|exp), so that its outputs are"):
        run(CLASSES[name], THREE, "categorical")


@pytest.mark.parametrize("name", LOGITS)
def test_logits_are(name):
    params, likelihood = (THREE, "categorical") if name == "log_softmax" else (ONE, "bernoulli")
    run(LOGITS[name], params, likelihood)
