"""A start by Adam: as low as L-BFGS goes from there, unbiased, and refused where it cannot be."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.base import progress
from laplacebook.model.density import ModelDensity
from laplacebook.model.rows import rows_of
from laplacebook.models import bayesian_mlp
from laplacebook.search.lbfgs import descend
from laplacebook.search.train import _advance, minibatch_loss, train

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, size=(24, 1))
Y = np.sin(2 * X[:, 0]) + 0.1 * RNG.normal(size=24)
OPTIONS = {"widths": (2,), "noise_precision": 100.0}
DENSITY = ModelDensity.of(bayesian_mlp, (X, Y), OPTIONS)
KEY = jax.random.key(0)


def loss(u):
    return DENSITY.loss(u)[0]


@jax.jit
def lower(u):
    return loss(descend(loss, u)), loss(u), loss(jnp.zeros(u.size))


@pytest.mark.parametrize("batch_size", [None, 8])
def test_it_ends_as_low_as_a_search_from_there(batch_size):
    asked = {"steps": 4000, "learning_rate": 0.05, "batch_size": batch_size}
    values = train(bayesian_mlp, X, Y, key=KEY, **asked, **OPTIONS)
    u = DENSITY.ravel(values)
    below, here, zero = lower(u)
    assert below <= here < below + 0.5
    assert here < zero - 100


def test_the_gradients_of_all_batches_have_the_mean_of_the_whole():
    rows, u = rows_of(DENSITY), jnp.asarray(RNG.normal(size=DENSITY.dimension))
    batches = jnp.asarray(RNG.permutation(24).reshape(4, 6))

    @jax.jit
    def gradients(u):
        gradient = jax.grad(minibatch_loss, argnums=1)
        each = jax.lax.map(lambda index: gradient(rows, u, index), batches)
        return jnp.mean(each, axis=0), jax.grad(loss)(u)

    mean, whole = gradients(u)
    np.testing.assert_allclose(mean, whole, rtol=1e-10)


def test_it_begins_with_layers_that_neither_vanish_nor_explode():
    """Glorot and Bengio (2010), equation 12."""
    model = {"widths": (40,), "prior_precision": 1e-6}
    values = train(bayesian_mlp, X, Y, key=KEY, steps=1, learning_rate=1e-12, **model)
    for name in ("w1", "w2"):  # one input and forty outputs, or the other way round
        assert np.sqrt(np.mean(values[name] ** 2)) == pytest.approx(np.sqrt(2 / 41), rel=1e-6)
    np.testing.assert_allclose(values["b1"], 0, atol=1e-11)


def standardised(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("N", x.shape[0]):
        numpyro.sample("t", dist.Normal(w * (x - jnp.mean(x)), 1), obs=y)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"steps": 0}, ValueError, "steps must be a whole number, 1 or more, not 0"),
        ({"batch_size": 0}, ValueError, "from 1 to the 24 rows of the data, not 0"),
        ({"batch_size": 25}, ValueError, "from 1 to the 24 rows of the data, not 25"),
        ({"learning_rate": 0.0}, ValueError, "learning_rate must be positive"),
        ({"batch_size": 4}, lb.UnsupportedModel, "not the sum over"),
        ({"start": {}}, ValueError, r"start lacks the latent sites \['w'\]"),
        ({"learning_rate": 1e200}, lb.NonFinite, "learning rate of 1e\\+200"),
    ],
)
def test_what_cannot_be_trained_is_refused(options, error, words):
    with pytest.raises(error, match=words):
        train(standardised, X[:, 0], Y, key=KEY, **options)


def test_nan_among_the_data_is_found_before_the_first_step():
    with pytest.raises(lb.NonFinite, match="argument 'y' has 1\\s+NaN, first at \\[3\\]"):
        train(standardised, X[:, 0], np.where(np.arange(24) == 3, np.nan, Y), key=KEY)


def test_it_begins_where_it_is_told_compiles_once_and_shows_its_progress(monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE", 0)
    before = _advance._cache_size()
    for steps in (1, 7):
        told = {"steps": steps, "start": {"w": 2.0}, "learning_rate": 1e-9, "progress_bar": True}
        values = train(standardised, X[:, 0], Y, key=KEY, **told)
        assert f"0/{steps} [" in capsys.readouterr().err
        assert values["w"] == pytest.approx(2.0, abs=1e-7)
    assert _advance._cache_size() <= before + 1
