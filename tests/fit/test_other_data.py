"""A file is of its data: the same numbers in any guise, and no others."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
import pytest

import laplacebook as lb
from laplacebook.fit.digest import digest, same
from tests.models import single_precision

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 2)), RNG.normal(size=40)
COUNTS = RNG.poisson(3.0, size=40)
#: of Y, other numbers with the same mean and the same sum of squares
SQUARED = Y - Y.mean()
OTHER = np.roll(X[:, 0] - X[:, 0].mean(), 1)
OTHER = Y.mean() + OTHER * np.sqrt(SQUARED @ SQUARED / (OTHER @ OTHER))


def centre(y, scale=1.0):
    w = numpyro.sample("w", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.sample("y", dist.Normal(w, scale).expand(jnp.shape(y)).to_event(), obs=y)


def line(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(x @ w, 1), obs=y)


def rate(y):
    u = numpyro.sample("u", dist.Normal(0, 1))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Poisson(jnp.exp(u)), obs=y)


def bowl(curvature):
    """Whatever the matrix, its mode is zero and so is its log likelihood there."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([len(curvature)]).to_event(1))
    numpyro.factor("bowl", -w @ curvature @ w / 2)


def within(model, *args):
    """The model with its data inside of it: there is no argument to compare."""

    def closed():
        model(*args)

    return closed


def earlier(path):
    """What a package that knew no digests has written: the curvature along one direction, no data."""
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    kept = {n: a for n, a in arrays.items() if not n.startswith("argument/")}
    del kept["observed"], kept["along_others"]
    np.savez(path, **kept)


def told(path, model, *args, **kwargs):
    with pytest.raises(lb.LaplaceError) as caught:
        lb.load(path, model, *args, **kwargs)
    return " ".join(str(caught.value).split())


#: the model and the data of the fit; the same in another guise
SAME = {
    "another order": (centre, (Y,), centre, (Y[::-1],), {}),
    "a column": (centre, (Y,), centre, (Y[:, None],), {}),
    "single precision": (rate, (COUNTS,), rate, (COUNTS.astype(np.float32),), {}),
    "whole numbers": (rate, (COUNTS.astype(float),), rate, (COUNTS.astype(np.uint8),), {}),
    "of JAX": (line, (X, Y), line, (jnp.asarray(X), jnp.asarray(Y)), {}),
    "of pandas": (centre, (Y,), centre, (pd.Series(Y),), {}),
    "by name": (line, (X, Y), line, (), {"y": Y, "x": X}),
    "bound before": (line, (X, Y), partial(line, X), (Y,), {}),
    "within the model": (line, (X, Y), within(line, X, Y), (), {}),
    "out of the model": (within(line, X, Y), (), line, (X, Y), {}),
    "a default": (centre, (Y,), centre, (Y, 1.0), {}),
    "computed in another way": (centre, (Y,), centre, ((Y / 3 + 1) * 3 - 3,), {}),
}


@pytest.mark.parametrize("case", SAME)
def test_the_same_numbers_are_the_same_data(case, tmp_path):
    model, args, again, same_args, names = SAME[case]
    approx, path = lb.laplace(model, *args), tmp_path / "fit.npz"
    approx.save(path)
    assert lb.load(path, again, *same_args, **names).log_evidence == approx.log_evidence


#: likewise, but other data, of which most have the same log joint; and what is said of them
OTHERS = {
    "the same statistics": (centre, (Y,), centre, (OTHER,), "argument 'y' had other numbers"),
    "in the model": (within(centre, Y), (), within(centre, OTHER), (), "numbers are observed (40"),
    "bound": (centre, (Y,), partial(centre, OTHER), (), "other numbers are observed"),
    "rows twice": (
        partial(centre, scale=np.sqrt(2)),
        (np.repeat(Y, 2),),
        centre,
        (Y,),
        "'y' had other numbers (80 of them)",
    ),
    "a matrix": (bowl, (np.eye(2),), bowl, (np.array([[2.0, -1], [-1, 2]]),), "'curvature' had"),
    "in a matrix": (
        within(bowl, np.eye(2)),
        (),
        within(bowl, np.array([[2.0, -1], [-1, 2]])),
        (),
        "curvature differs by",
    ),
    "a column of two": (line, (X, Y), line, (X * [1, -1], Y), "argument 'x' had other numbers"),
    "one number": (line, (X, Y), line, (X + 1e-9 * np.eye(40, 2), Y), "argument 'x' had other"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_numbers_are_other_data_and_it_is_said_which(case, tmp_path):
    model, args, now, other_args, phrase = OTHERS[case]
    path = tmp_path / "fit.npz"
    lb.laplace(model, *args).save(path)
    text = told(path, now, *other_args)
    assert phrase in text and "other data" in text and "What to do:" in text


def moved(sds):
    """Y with the mean moved by so many posterior sds, and the log likelihood at the old mode as it was."""
    squares = SQUARED @ SQUARED
    shift = sds / np.sqrt(Y.size)
    return Y.mean() + shift + SQUARED * np.sqrt(1 - Y.size * shift**2 / squares)


@pytest.mark.parametrize("sds", [0.2, 0.02, -0.02])
def test_a_mode_that_moved_at_equal_height_is_refused(sds, tmp_path):
    path = tmp_path / "fit.npz"
    lb.laplace(centre, Y).save(path)
    assert "argument 'y'" in told(path, centre, moved(sds))
    earlier(path)
    assert f"{abs(sds):.2g} posterior standard deviations away" in told(path, centre, moved(sds))


def test_a_file_of_an_earlier_package_is_checked_as_it_was(tmp_path):
    path = tmp_path / "fit.npz"
    lb.laplace(centre, Y).save(path)
    earlier(path)
    assert lb.load(path, centre, Y[::-1]).certificate.converged
    assert lb.load(path, centre, moved(0.009)).certificate.converged
    assert "log likelihood" in told(path, centre, Y + 0.1)


@pytest.mark.parametrize("change", [0.008, 0.012, -0.012])
def test_a_hundredth_of_the_curvature_counts(change, tmp_path):
    """Along (1, -1) the fit's A^-1 s has no part but for the directions beside the first."""
    path = tmp_path / "fit.npz"
    lb.laplace(within(bowl, np.zeros((2, 2)))).save(path)
    other = within(bowl, change * np.array([[1.0, -1], [-1, 1]]) / 2 * 1.5)
    if abs(change) < 0.01:
        assert lb.load(path, other).certificate.converged
    else:
        assert "curvature differs by" in told(path, other)


def test_single_precision(tmp_path):
    path = tmp_path / "fit.npz"
    with single_precision():
        lb.laplace(centre, Y.astype(np.float32)).save(path)
        again = (Y.astype(np.float32) / 3 + 1) * 3 - 3
        assert lb.load(path, centre, again).certificate.converged
        assert "argument 'y'" in told(path, centre, OTHER.astype(np.float32))


EPS = np.finfo(float).eps
WIDE = RNG.normal(size=1000)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (WIDE, WIDE[::-1], True),
        (WIDE, WIDE.astype(np.float32), True),
        (WIDE, WIDE * (1 + 2 * EPS), True),
        (WIDE, np.where(np.arange(1000) == 7, WIDE + 1e-6, WIDE), False),
        (WIDE, WIDE + 1e-12, False),
        (WIDE.astype(np.float32), WIDE.astype(np.float32) * np.float32(1 + 1e-6), False),
        (WIDE, -WIDE, False),
        (WIDE, WIDE[:-1], False),
        (np.append(WIDE, np.nan), np.append(np.nan, WIDE), True),
        (np.append(WIDE, np.nan), np.append(WIDE, 0.0), False),
        (WIDE + 1j, (WIDE + 1j)[::-1], True),
        (WIDE + 1j, WIDE - 1j, False),
        (np.array([1e300, 1.0]), np.array([1.0, 1e300]), True),
        (np.array([1e300, 1.0]), np.array([1.0, 2e300]), False),
        (np.zeros(3), np.array([0.0, -0.0, False]), True),
        (np.arange(2**24, 2**24 + 5), np.arange(2**24, 2**24 + 5)[::-1], True),
        (np.zeros((0, 2)), np.zeros(0), True),
    ],
)
def test_a_digest_is_of_numbers_and_not_of_how_they_are_kept(one, other, equal):
    assert same(digest(one), digest(other), EPS) == equal
