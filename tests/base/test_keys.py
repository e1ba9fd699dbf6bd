"""What is no random key is refused by each function that takes one, before anything is computed with it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb

Y = jnp.array([1.0, 1, 1, 1, 1, 1, 1, 1, 0])
KEY = jax.random.key(0)
WRONG = {
    "a number": (3, "not 3"),
    "nothing": (None, "not None"),
    "numbers": (np.arange(3), r"not an array of shape \(3,\) and type int64"),
    "a generator": (np.random.default_rng(0), "not Generator"),
    "several": (jax.random.split(KEY), r"not an array of shape \(2,\) and type key"),
}


def coin(y):
    theta = numpyro.sample("theta", dist.Beta(2, 2))
    numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)


def effects(y):
    scale = numpyro.sample("scale", dist.HalfNormal(2))
    with numpyro.plate("groups", y.size):
        z = numpyro.sample("z", dist.Normal(0, scale))
        numpyro.sample("y", dist.Normal(z, 1), obs=y)


@cache
def family():
    gaussian = lb.laplace(coin, Y)
    return {
        "laplace": gaussian,
        "skewed": lb.skewed(gaussian),
        "mixture": lb.mixture(gaussian),
        "resampled": lb.resampled(gaussian, KEY, 200),
        "nested": lb.nested(effects, jnp.array([2.0, -1.0, 0.5, -3.0]), over="scale"),
    }


def marginal_sample(key):
    model = lb.marginalize(effects, ["z"])
    return model.sample(key, {"scale": jnp.ones(2)}, jnp.ones(3))


def bridge(key):
    draws = jax.random.beta(KEY, 10, 3, (200,))
    return lb.bridge_sampling(family()["laplace"], {"theta": draws}, key)


#: the functions that take a key; ``approx`` is each member of the family
OF_ANY = {
    "sample": lambda approx, key: approx.sample(key, (2,)),
    "sample_vector": lambda approx, key: approx.sample_vector(key, (2,)),
    "resampled": lambda approx, key: lb.resampled(approx, key),
    "nuts": lambda approx, key: lb.nuts(approx, key, 10),
    "diagnose": lambda approx, key: lb.diagnose(approx, key),
}
ALONE = {
    "laplace": lambda key: lb.laplace(coin, Y, starts=2, key=key),
    "train": lambda key: lb.train(coin, Y, key=key, steps=1),
    "prior_sampling": lambda key: lb.prior_sampling(coin, Y, key=key),
    "importance_sampling": lambda key: lb.importance_sampling(family()["laplace"], key),
    "bridge_sampling": bridge,
    "marginalize(...).sample": marginal_sample,
    "precision.sample": lambda key: family()["laplace"].precision.sample(key),
}
#: where None stands for a key that is fixed, or for none
OR_NONE = {
    "expectation": lambda key: lb.expectation(family()["laplace"], lambda s: s["theta"], key=key),
    "quantiles": lambda key: family()["laplace"].quantiles([0.5], key),
    "to_arviz": lambda key: family()["laplace"].to_arviz(key, 2),
    "to_arviz of draws": lambda key: family()["skewed"].to_arviz(key, 2),
    "predict": lambda key: lb.predict(
        family()["laplace"], None, key=key, method="monte_carlo", num_samples=2_000
    ),
    "predict of draws": lambda key: lb.predict(family()["skewed"], None, key=key),
}
EACH = {
    **ALONE,
    **OR_NONE,
    **{
        f"{name} of {member}": lambda key, call=call, member=member: call(family()[member], key)
        for name, call in OF_ANY.items()
        for member in ("laplace", "skewed", "mixture", "resampled", "nested")
        if (name, member) != ("resampled", "resampled")
    },
}


NOT_NONE = set(EACH) - set(OR_NONE) - {"laplace"}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [(name, wrong) for name in EACH for wrong in WRONG if wrong != "nothing" or name in NOT_NONE],
)
def test_what_is_no_key_is_refused(name, wrong, types_unchecked):
    key, words = WRONG[wrong]
    with pytest.raises(TypeError, match=rf"key is a JAX random key.*{words}.*jax\.random\.split"):
        EACH[name](key)


def test_keys_of_older_programs_are_keys(types_unchecked):
    old = jax.random.PRNGKey(0)
    for key in (old, np.asarray(old)):
        assert family()["skewed"].sample_vector(key, (3,)).shape == (3, 1)
    np.testing.assert_array_equal(
        family()["laplace"].sample_vector(old, (3,)), family()["laplace"].sample_vector(KEY, (3,))
    )


def test_keys_that_are_mapped_over_are_keys():
    draws = jax.vmap(family()["laplace"].sample_vector)(jax.random.split(KEY, 4))
    assert draws.shape == (4, 1)
