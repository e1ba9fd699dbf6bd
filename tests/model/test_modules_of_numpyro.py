"""NumPyro's own Bayesian networks: refused with a remedy, which is followed here."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from flax import nnx
from numpyro import handlers
from numpyro.contrib.module import random_flax_module, random_nnx_module

import laplacebook as lb

X = np.random.default_rng(0).normal(size=(60, 1))
Y = (np.random.default_rng(1).uniform(size=60) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)


class Line(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(x)


def of_flax():
    return random_flax_module("nn", Line(), dist.Normal(0, 1), input_shape=(1, 1))


def of_nnx():
    module = nnx.Linear(1, 1, rngs=nnx.Rngs(0))
    return random_nnx_module("nn", module, dist.Normal(0, 1))


def by_hand(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Bernoulli(logits=w[0] + w[1] * x[:, 0]), obs=y)


@pytest.mark.parametrize("network", [of_flax, of_nnx])
def test_the_remedy_works(network):
    def model(x, y=None):
        net = network()
        with numpyro.plate("N", len(x)):
            numpyro.sample("y", dist.Bernoulli(logits=jnp.ravel(net(x))), obs=y)

    with pytest.raises(lb.UnsupportedModel, match=r"is a numpyro\.param") as refused:
        lb.laplace(model, X, Y)
    told = " ".join(str(refused.value).split())
    code = told[told.index("values = ") : told.index(", and handlers.substitute")]
    found: dict = {"handlers": handlers, "model": model, "X": X, "Y": Y}
    exec(code.replace("get_trace(...)", "get_trace(X, Y)"), found)
    fit = lb.laplace(handlers.substitute(model, found["values"]), X, Y)
    exact = lb.laplace(by_hand, X, Y)
    assert float(fit.log_evidence) == pytest.approx(float(exact.log_evidence), rel=1e-9)
