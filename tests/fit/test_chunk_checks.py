"""Chunks that are no sum over rows, that have several priors or that change: each is refused."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import laplacebook as lb
from tests.models import logistic

N, D = 103, 18
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(N, D))
CLASSES = (RNG.uniform(size=N) < 1 / (1 + np.exp(-FEATURES[:, 0]))).astype(float)
FEW = FEATURES[:, :2]


def standardised(features, y):
    logistic((features - features.mean(0)) / features.std(0), y)


def scaled_by_data(features, y):
    logistic(features, y, features.std())


def by_row(features, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([len(features)]).to_event(1))
    numpyro.sample("y", dist.Normal(w, 1).to_event(1), obs=y)


def jump(features, y):
    at = numpyro.sample("at", dist.Normal(0, 1))
    with numpyro.plate("N", len(features)):
        numpyro.sample("y", dist.Normal(jnp.where(features[:, 0] > at, 1.0, 0.0), 1), obs=y)


def flat(features, y):
    prior = dist.ImproperUniform(dist.constraints.real, (), (features.shape[1],))
    numpyro.sample("y", dist.Bernoulli(logits=features @ numpyro.sample("w", prior)), obs=y)


def by_number(features, y):
    logistic(features, y, 1 / len(features))


def scaled_to_all(features, y):
    with handlers.scale(scale=N / len(features)):
        logistic(features, y)


def by_name(columns, y):
    w = {name: numpyro.sample(f"w_{name}", dist.Normal(0, 1)) for name in columns}
    with numpyro.plate("N", len(y)):
        logits = sum(w[name] * columns[name] for name in columns)
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


class Growing:
    """Rows that come while the others are read."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        yield FEW[:40], CLASSES[:40]
        if self.passes > 3:
            yield FEW[40:], CLASSES[40:]


A, B = FEW.T
SORTED = FEW.copy()
SORTED[:40] = FEW[0]
REFUSED = {
    "once": (logistic, iter([(FEW, CLASSES)]), ValueError, "an iterator"),
    "an array": (logistic, FEW, ValueError, r"chunks is a ndarray.*laplacebook\.Chunks"),
    "text": (logistic, "abc", ValueError, "chunks is a str"),
    "none": (logistic, [], ValueError, "no chunk with rows"),
    "empty": (logistic, [(FEW[:0], CLASSES[:0])], ValueError, "no chunk with rows"),
    "widths": (
        logistic,
        [(FEW[:50], CLASSES[:50]), (FEATURES[50:], CLASSES[50:])],
        lb.UnsupportedModel,
        "latent sites of chunk 1",
    ),
    "not a sum": (
        standardised,
        lb.Chunks(FEW, CLASSES, size=40),
        lb.UnsupportedModel,
        "not the sum",
    ),
    "prior": (
        scaled_by_data,
        lb.Chunks(FEW, CLASSES, size=40),
        lb.UnsupportedModel,
        r"another\sprior",
    ),
    "a latent each": (by_row, lb.Chunks(FEW, CLASSES, size=40), lb.UnsupportedModel, "not the sum"),
    "prior by number": (
        by_number,
        [(FEW[:50], CLASSES[:50]), (FEW[50:100], CLASSES[50:100])],
        lb.UnsupportedModel,
        "number of rows",
    ),
    "one row first": (
        scaled_to_all,
        [(FEW[:1], CLASSES[:1]), (FEW[1:], CLASSES[1:])],
        lb.UnsupportedModel,
        "not the sum",
    ),
    "equal rows first": (
        lambda features, y: logistic(features - features.mean(0), y),
        [(SORTED[:40], CLASSES[:40]), (SORTED[40:], CLASSES[40:])],
        lb.UnsupportedModel,
        "not the sum",
    ),
    "order of names": (
        by_name,
        [
            ({"a": A[:40], "b": B[:40]}, CLASSES[:40]),
            ({"b": B[40:80], "a": A[40:80]}, CLASSES[40:80]),
        ],
        lb.UnsupportedModel,
        "sites of chunk 1|not the sum",
    ),
    "data beside their support": (
        logistic,
        [(FEW[:40], CLASSES[:40]), (FEW[40:80], 2 * CLASSES[40:80])],
        lb.NonFinite,
        r"outside\s+the\s+support",
    ),
    "growing": (logistic, Growing(), lb.LaplaceError, "change between passes"),
    "large": (
        logistic,
        lb.Chunks(np.zeros((2, 3001)), np.zeros(2), size=1),
        lb.UnsupportedModel,
        "3,001 coordinates",
    ),
    "jump": (jump, lb.Chunks(FEW, CLASSES, size=40), lb.NotConverged, "follow its own gradient"),
    "collinear": (
        flat,
        lb.Chunks(np.column_stack([FEW, FEW[:, 0]]), CLASSES, size=40),
        lb.NotPositiveDefinite,
        "is flat along",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_done_is_refused(name):
    model, chunks, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        lb.laplace_of_chunks(model, chunks)
