"""A verdict of a diagnosis, and the modes that it found, are in the file of what was diagnosed."""

import copy
import json
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from tests.beyond.test_mixture import root

KEY = jax.random.key(0)
DATA = 9.0, 0.2


def one_of_two():
    return lb.laplace(root, *DATA, start={"x": 3.0})


def loaded(fit, folder, model=root, args=DATA):
    fit.save(folder / "fit.npz")
    return lb.load(folder / "fit.npz", model, *args)


def same_words(one, other):
    for name in ("doubt", "known_doubt", "unseen", "inherited"):
        assert getattr(one, name, None) == getattr(other, name, None)
    assert repr(one) == repr(other)


def test_modes_that_were_found_come_back_with_the_verdict(tmp_path):
    fit = one_of_two()
    found = lb.diagnose(fit, KEY)
    again = loaded(fit, tmp_path)
    assert "1 other mode holds 23%" in again.doubt
    assert not again.other_modes
    same_words(fit, again)
    same_words(lb.mixture(fit), lb.mixture(again))
    assert lb.mixture([again, *again.found]).doubt is None
    assert float(again.found[0].mode["x"]) == float(found.other_modes[0].mode["x"])
    same_words(again, loaded(again, tmp_path))
    again.found[0].save(tmp_path / "other.npz")
    assert lb.load(tmp_path / "other.npz", root, *DATA).known_doubt is None


def test_copies_and_pickles_have_it():
    fit = one_of_two()
    lb.diagnose(fit, KEY)
    _ = repr(fit)  # of which a cached property is no part of the copy
    for other in (pickle.loads(pickle.dumps(fit)), copy.deepcopy(fit), copy.copy(fit)):
        same_words(fit, other)
        same_words(lb.mixture(fit), lb.mixture(other))
    assert pickle.loads(pickle.dumps(one_of_two())).known_doubt is None


def test_a_good_verdict_comes_back_as_one(tmp_path):
    fit = one_of_two()
    fit.remember("")
    again = loaded(fit, tmp_path)
    assert again._diagnosed == "" and again.known_doubt is None


MADE = {
    "mixture": lb.mixture,
    "skewed": lb.skewed,
    "resampled": lambda fit: lb.resampled(fit, KEY, 400),
    "resampled of skewed": lambda fit: lb.resampled(lb.skewed(fit), KEY, 400),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_of_the_family_its_own_verdict_and_that_on_what_it_is_made_of(make, tmp_path):
    fit = one_of_two()
    plain = make(fit)
    same_words(plain, loaded(plain, tmp_path))
    lb.diagnose(plain, KEY)
    assert "23%" in plain.doubt
    same_words(plain, loaded(plain, tmp_path))
    fit.remember("bad: a tail; one mode more.", "bad: a tail.", unseen="one mode more")
    made = make(fit)
    assert made.known_doubt
    same_words(made, loaded(made, tmp_path))
    made.remember(None)
    same_words(made, loaded(made, tmp_path))


def test_of_a_component_of_a_mixture(tmp_path):
    fit = lb.laplace(root, *DATA, starts=8, key=KEY)
    fit.other_modes[0].remember("bad: a tail.", "bad: a tail.")
    joined = lb.mixture(fit)
    assert joined.doubt == "of the component with a share of 0.23, diagnosed bad: a tail."
    same_words(joined, loaded(joined, tmp_path))
    same_words(joined, lb.mixture(loaded(fit, tmp_path)))


def test_of_a_nested_fit(tmp_path):
    def poisson(y):
        tau = numpyro.sample("tau", dist.HalfNormal(1))
        with numpyro.plate("groups", y.size):
            z = numpyro.sample("z", dist.Normal(0, tau))
            numpyro.sample("y", dist.Poisson(jnp.exp(z)), obs=y)

    counts = np.array([0, 1, 7, 2, 3, 12])
    fit = lb.nested(poisson, counts)
    fit.remember("bad: the effects have two modes.", "the effects have two modes")
    again = loaded(fit, tmp_path, poisson, (counts,))
    assert again.doubt == "diagnosed bad: the effects have two modes."
    same_words(fit, again)


@pytest.mark.parametrize("change", [{"verdicts": [["bad", "", [], None]]}, {"verdicts": 3}])
def test_verdicts_on_other_modes_are_damage(change, tmp_path):
    fit, path = one_of_two(), tmp_path / "fit.npz"
    lb.diagnose(fit, KEY)
    fit.save(path)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(str(arrays["header"]))
    arrays["header"] = np.array(json.dumps(header | change))
    np.savez(path, **arrays)
    with pytest.raises(lb.LaplaceError, match="not a whole file"):
        lb.load(path, root, *DATA)
