"""What a result prints, what its model is called, and its copies."""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.fit.summary import rounding_told
from laplacebook.model.fingerprint import name_of
from tests.models import coin, line, single_precision

COIN = np.repeat([1.0, 0.0], [8, 1])


def test_repr_says_what_a_person_wants_to_know():
    approx = lb.laplace(coin, COIN)
    parts = ("coin", "unconstrained", "theta", "0.7692", "0.1166", "-4.7301", "mode certified")
    for text in (repr(approx), approx._repr_html_()):
        assert all(part in text for part in parts)
    long = lb.laplace(line, np.random.default_rng(0).normal(size=(30, 12)), np.ones(30))
    assert "w[9]" in repr(long)
    assert "w[10]" not in repr(long)
    assert "... and 2 more" in repr(long)
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), approx)  # as jax.vmap returns it
    assert repr(batch).startswith("LaplaceApproximation(")
    assert batch._repr_html_() is None
    assert "LaplaceApproximation(" in repr(jax.tree.map(lambda leaf: None, approx))


def test_repr_within_jit(capsys):
    jax.jit(lambda y: print(lb.laplace(coin, y)))(COIN)
    assert "LaplaceApproximation(" in capsys.readouterr().out


def test_an_improper_prior_is_told():
    def flat(y):
        real, positive = dist.constraints.real, dist.constraints.positive
        a = numpyro.sample("a", dist.ImproperUniform(real, (), ()))
        b = numpyro.sample("b", dist.ImproperUniform(positive, (), ()).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(a, b[0] + b[1] ** 0).expand([len(y)]).to_event(1), obs=y)
        numpyro.sample("c", dist.Normal(b, 1).to_event(1), obs=np.ones(2))

    said = repr(lb.laplace(coin, COIN))
    assert "constant" not in said and "left out" not in said
    told = repr(lb.laplace(flat, np.array([1.0, 2.0, 4.0])))
    assert "only up to a constant: the priors of 'a' and 'b' are improper" in told


def test_names_of_models_in_handlers_and_of_objects():
    class Callable:
        def __call__(self):
            pass

    assert name_of(coin) == "coin"
    assert name_of(numpyro.handlers.scale(jax.tree_util.Partial(coin), scale=2.0)) == "coin"
    assert name_of(Callable()) == "Callable"


def bowl(z):
    return -((z - 1) ** 2)


@pytest.mark.parametrize(
    "fit",
    [lambda: lb.laplace(coin, COIN), lambda: lb.laplace_of_density(bowl, 0.0)],
    ids=["of a model", "of a plain density"],
)
def test_copies(fit):
    approx, key = fit(), jax.random.key(0)
    vars(approx)["guide"] = (_ for _ in ())  # which, like a guide, cannot be pickled
    for other in (pickle.loads(pickle.dumps(approx)), copy.deepcopy(approx), copy.copy(approx)):
        assert repr(other) == repr(approx)
        assert other.sample(key) == approx.sample(key)
        assert jax.tree.structure(other) == jax.tree.structure(approx)


def means(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(w[0] + w[1] * x, 1), obs=y)


def test_what_rounding_leaves_of_the_evidence_of_very_many_rows_is_told():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 400_000)).astype(np.float32)
    with single_precision():
        one, other = lb.laplace(means, x, y), lb.laplace(means, x[::-1], y)
    assert 5e5 < -one.log_evidence < 6e5  # of which numbers of float32 lie 1/16 apart
    for told in (repr(one), repr(lb.compare({"one": one, "other": other}))):
        assert "known to about 0.5 in single precision" in " ".join(told.split()), told
    assert rounding_told([np.float64(one.log_likelihood)]) == []
