"""From both sides: which fits are one, which chunks are of one sum, and which file is of a model."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.fit import laplace_of_chunks
from laplacebook.fit.chunk_checks import require_same_prior, require_sum_of_chunks
from laplacebook.fit.digest import digest, same
from laplacebook.fit.laplace import distinct
from laplacebook.model.density import ModelDensity
from laplacebook.model.trace import Terms
from tests.models import coin
from tests.thresholds import Refused, check, sides

EPS = np.finfo(float).eps
ROOT = EPS**0.5
TOSSES = np.array([1.0, 1.0, 0.0])
COIN = lb.laplace(coin, TOSSES)
SD = float(COIN.covariance[0, 0]) ** 0.5


def modes(apart):
    """How many there are of two that are so many posterior standard deviations apart."""
    return len(distinct([COIN, replace(COIN, mode_vector=COIN.mode_vector + apart * SD)]))


def priors(apart):
    """Of two chunks, log priors and values at the same coordinates that differ by so much."""

    def terms(log_prior, value):
        zero = jnp.zeros(())
        return Terms(zero, zero + log_prior, {"w": jnp.zeros(2) + value}, jnp.full(2, jnp.inf))

    require_same_prior(terms(0.0, 0.0), terms(*apart))


def prior_by_number(apart):
    """A log prior that is less by so much with several rows than with one."""

    def model(y):
        w = numpyro.sample("w", dist.Normal(0, jnp.exp(jnp.asarray(apart * (len(y) > 1)))))
        with numpyro.plate("N", len(y)):
            numpyro.sample("y", dist.Normal(w, 1), obs=y)

    density = ModelDensity.of(model, (np.zeros(3),))
    return require_sum_of_chunks(density, None, jnp.zeros(1)).dimension


def same_data(units):
    """Of a number that single precision does not hold, 17.6 of its units in the last place."""
    return same(digest([1.1]), digest([1.1 + units * np.spacing(1.1)]), EPS)


def higher(height):
    def model():
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.factor("f", 1.0 + height - z**2 / 2)

    return model


def ordered(p):
    """Quantiles of a probability, and whether they are where they should be."""
    low, high = COIN.quantiles([min(p, 0.5), max(p, 0.5)])["theta"]
    return bool(0 <= low < high <= 1)


UNIT = ROOT * (1 + np.log(2 * np.pi) / 2)

THRESHOLDS = {
    "modes that are one": (modes, (0.099, 1), (-0.099, 1), (0.101, 2), (-0.101, 2)),
    "a prior that is the same in each chunk": (
        priors,
        ((0.9 * ROOT, 0.0), None),
        ((1.1 * ROOT, 0.0), Refused(lb.UnsupportedModel, "depends on the data of the chunk")),
        ((-1.1 * ROOT, 0.0), Refused(lb.UnsupportedModel, "depends on the data of the chunk")),
    ),
    "a prior that is the same for one row as for several": (
        prior_by_number,
        (0.99 * UNIT, 1),
        (1.01 * UNIT, Refused(lb.UnsupportedModel, "with one row the latent sites have another")),
        (-1.01 * UNIT, Refused(lb.UnsupportedModel, "with one row the latent sites have another")),
    ),
    "latent values that are the same in each chunk": (
        priors,
        ((0.0, 0.9 * ROOT), None),
        ((0.0, 1.1 * ROOT), Refused(lb.UnsupportedModel, "support of a latent site differs")),
        ((0.0, -1.1 * ROOT), Refused(lb.UnsupportedModel, "support of a latent site differs")),
    ),
    "data that are the same but for rounding": (same_data, (17, True), (18, False), (-18, False)),
    "a probability": (
        ordered,
        (1e-300, True),
        (1 - EPS / 2, True),
        (0.0, Refused(ValueError, "between 0 and 1")),
        (1.0, Refused(ValueError, "between 0 and 1")),
    ),
    "a start of several": (
        lambda starts: len(lb.laplace(coin, np.ones(3), starts=starts).mode),
        (1, 1),
        (2, Refused(ValueError, "do not go together")),
        (0, Refused(ValueError, "starts must be a whole number, 1 or more")),
    ),
}


@pytest.mark.parametrize(("act", "x", "result"), sides(THRESHOLDS))
def test_threshold(act, x, result):
    check(act, x, result)


def test_coordinates_of_data_in_chunks(monkeypatch):
    assert laplace_of_chunks.MANY == 3000
    monkeypatch.setattr(laplace_of_chunks, "MANY", 1)
    found = lb.laplace_of_chunks(coin, lb.Chunks(TOSSES, size=2))
    assert found.log_evidence == pytest.approx(float(COIN.log_evidence))
    monkeypatch.setattr(laplace_of_chunks, "MANY", 0)
    with pytest.raises(lb.UnsupportedModel, match="has 1 coordinates"):
        lb.laplace_of_chunks(coin, lb.Chunks(TOSSES, size=2))


@pytest.mark.parametrize(("share", "fits"), [(0.9, True), (-1.1, False)])
def test_a_log_joint_that_is_the_same_in_the_last_pass(monkeypatch, share, fits):
    along = laplace_of_chunks._along
    apart = share * ROOT * (1 + abs(float(COIN.log_likelihood + COIN.log_prior)))

    def another(*args):
        look, *rest = along(*args)
        return look.at[0].add(apart), *rest

    monkeypatch.setattr(laplace_of_chunks, "_along", another)
    if fits:
        assert lb.laplace_of_chunks(coin, lb.Chunks(TOSSES, size=3)).certificate.converged
    else:
        with pytest.raises(lb.LaplaceError, match="chunks change between passes"):
            lb.laplace_of_chunks(coin, lb.Chunks(TOSSES, size=3))


@pytest.mark.parametrize(("height", "fits"), [(1.9, True), (2.1, False), (-2.1, False)])
def test_a_log_likelihood_that_is_that_of_the_file(height, fits, tmp_path):
    """To half of the digits of one, and of the value, which is one."""
    path = tmp_path / "fit.npz"
    lb.laplace(higher(0.0)).save(path)
    other = higher(height * ROOT)
    if fits:
        assert lb.load(path, other).certificate.converged
    else:
        with pytest.raises(lb.LaplaceError, match="of another model or of other data"):
            lb.load(path, other)
