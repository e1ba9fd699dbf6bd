"""What may be compared: the same data, and evidences that are defined."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import laplacebook as lb
from laplacebook.model.observations import observed_numbers, same_numbers
from tests.fit.test_maximum_likelihood import COIN, REAL
from tests.models import coin

SKEWED = np.exp(REAL)


def with_shape(y, sites=1):
    """A normal mean; the data come in several shapes and sites."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    for i, part in enumerate(jnp.split(y, sites)):
        numpyro.sample(f"y{i}", dist.Normal(mean, 1).expand(part.shape).to_event(), obs=part)


def log_normal(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.LogNormal(mean, 1), obs=y)


def masked(y, seen):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("N", len(y)), handlers.mask(mask=seen):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def masked_within(y, seen):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(mean, 1).expand(y.shape).mask(seen).to_event(1), obs=y)


def rows(y, seen):
    """Pairs, of which a mask hides whole rows."""
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    with numpyro.plate("N", len(y)), handlers.mask(mask=seen):
        numpyro.sample("y", dist.Normal(mean, 1).expand([2]).to_event(1), obs=y)


def factor_only(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.factor("likelihood", dist.Normal(mean, 1).log_prob(y).sum())


def shifted(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(0, 1).expand(y.shape).to_event(1), obs=y - mean)


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (with_shape, (REAL[::-1],)),
        (with_shape, (REAL[:, None],)),
        (with_shape, (REAL.reshape(20, 3),)),
        (with_shape, (REAL, 4)),
        (masked, (np.append(REAL, np.nan), np.arange(61) < 60)),
        (masked_within, (np.append(REAL, 7.0), np.arange(61) < 60)),
        (rows, (np.append(REAL, [1.0, 2.0]).reshape(31, 2), np.arange(31) < 30)),
    ],
)
def test_the_same_numbers_are_the_same_data(model, args):
    table = lb.compare({"a": lb.laplace(with_shape, REAL), "b": lb.laplace(model, *args)})
    assert table.footer == ()
    assert table["log evidence"] == pytest.approx([table["log evidence"][0]] * 2, rel=1e-9)


def test_whole_numbers_and_rounded_ones_are_the_same_data():
    whole, single = COIN.astype(int), COIN.astype(np.float32)
    lb.compare(
        {"a": lb.laplace(coin, COIN), "b": lb.laplace(coin, whole), "c": lb.laplace(coin, single)}
    )
    rounded = lb.laplace(with_shape, REAL.astype(np.float32))
    lb.compare({"a": lb.laplace(with_shape, REAL), "b": rounded})


@pytest.mark.parametrize(
    ("model", "args", "phrase"),
    [
        (with_shape, (np.log(SKEWED),), "lacks the Jacobian"),
        (with_shape, (SKEWED[:-1],), "59 numbers"),
        (with_shape, (SKEWED + 1e-9,), "different data"),
        (masked, (SKEWED, SKEWED < 1), "masked in one model only"),
        (masked, (SKEWED, False), "no number"),
        (rows, (SKEWED.reshape(30, 2), np.arange(30) < 29), "58 numbers"),
        (shifted, (SKEWED,), "depends on a latent site"),
    ],
)
def test_different_data_are_refused(model, args, phrase):
    models = {"one": lb.laplace(log_normal, SKEWED), "other": lb.laplace(model, *args)}
    with pytest.raises(lb.LaplaceError) as caught:
        lb.compare(models)
    text = " ".join(str(caught.value).split())
    for part in (phrase, "different data", "'one'", "'other'", "What to do:"):
        assert part in text


def test_data_that_cannot_be_checked_are_told():
    models = {
        "factor": lb.laplace(factor_only, REAL),
        "model": lb.laplace(with_shape, REAL),
        "plain": lb.laplace_of_density(lambda z: -(z**2), 1.0),
    }
    table = lb.compare(models)
    assert table.footer == ("not checked to be of the same data: 'factor', 'plain'",)
    assert len(table["D"]) == 3


def test_a_datum_counts_as_often_as_the_likelihood_does():
    def repeated():
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mean, 1).expand([3]), obs=2.0)

    approx = lb.laplace(repeated)
    assert observed_numbers(approx.density, approx.mode_vector).tolist() == [2.0, 2.0, 2.0]


def test_several_modes_are_told():
    def folded(y):
        x = numpyro.sample("x", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(x**2, 0.1), obs=y)

    approx = lb.laplace(folded, np.float64(1.0), starts=8, key=jax.random.key(0))
    assert lb.compare({"folded": approx}).footer == (
        "one mode of several counts, the highest: 'folded'",
    )
    both = lb.compare({"one": approx, "both": lb.mixture(approx)})
    assert both.footer[-1].endswith("more with more searches: 'both'")
    np.testing.assert_allclose(both["log Bayes factor"][1], -np.log(2), rtol=1e-3)


# What is refused


def flat(y):
    mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.sample("y", dist.Normal(mean, 1).expand(y.shape).to_event(1), obs=y)


def hidden_prior(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1).mask(False))
    numpyro.sample("y", dist.Normal(mean, 1).expand(y.shape).to_event(1), obs=y)


WITHOUT_PRIOR = [
    (lb.laplace, flat, "improper"),
    (lb.laplace, hidden_prior, "improper"),
    (lb.maximum_likelihood, with_shape, "left out"),
]


@pytest.mark.parametrize(("verb", "model", "why"), WITHOUT_PRIOR)
def test_evidences_up_to_a_constant_are_not_estimated(verb, model, why):
    approx, key = verb(model, REAL), jax.random.key(0)
    for estimate in (
        lambda: lb.importance_sampling(approx, key),
        lambda: lb.gauss_hermite(approx),
        lambda: lb.bridge_sampling(approx, {"mean": jnp.arange(9.0)}, key),
    ):
        with pytest.raises(lb.UnsupportedModel, match=f"'mean' is {why}: the evidence is defined"):
            estimate()


@pytest.mark.parametrize(("verb", "model", "why"), WITHOUT_PRIOR)
def test_evidences_up_to_a_constant_are_refused(verb, model, why):
    with pytest.raises(lb.UnsupportedModel) as caught:
        lb.compare({"proper": lb.laplace(with_shape, REAL), "flat": verb(model, REAL)})
    text = " ".join(str(caught.value).split())
    for part in (
        "'flat'",
        "only up to a constant",
        f"'mean' is {why}",
        "maximum_likelihood",
        "bic",
    ):
        assert part in text


NO_EVIDENCE = {
    "nothing": (lambda: {}, ValueError, "one model or more"),
    "text": (lambda: {"a": "-3"}, TypeError, "models\\['a'\\] is a str"),
    "a truth value": (lambda: {"a": True}, TypeError, "is a bool"),
    "a model": (lambda: {"a": coin}, TypeError, "is a function"),
    "an array": (lambda: {"a": np.zeros(2)}, ValueError, "'a'.*is a batch"),
    "estimates": (
        lambda: {"a": lb.Estimate(np.zeros(2), np.zeros(2))},
        ValueError,
        "is a batch",
    ),
    "nan": (lambda: {"a": np.nan}, lb.LaplaceError, "'a' is nan"),
    "-inf": (lambda: {"a": -np.inf}, lb.LaplaceError, "'a' is -inf"),
    "an estimate of nan": (lambda: {"a": lb.Estimate(np.nan, 0.1)}, lb.LaplaceError, "'a' is nan"),
    "an infinite error": (
        lambda: {"a": lb.Estimate(-1.0, np.inf)},
        lb.LaplaceError,
        "standard error of inf",
    ),
    "an error of nan": (
        lambda: {"a": lb.Estimate(-1.0, np.nan)},
        lb.LaplaceError,
        "standard error of nan",
    ),
    "a failed fit": (
        lambda: {"a": lb.laplace(coin, np.append(COIN[1:], np.nan), throw=False)},
        lb.LaplaceError,
        "fit of 'a' failed",
    ),
    "fits": (
        lambda: {"a": jax.tree.map(lambda x: jnp.stack([x, x]), lb.laplace(coin, COIN))},
        ValueError,
        "is a batch",
    ),
}


@pytest.mark.parametrize(("models", "error", "message"), NO_EVIDENCE.values(), ids=NO_EVIDENCE)
def test_what_has_no_evidence_is_refused(models, error, message):
    with pytest.raises(error, match=message):
        lb.compare(models())


def test_nothing_is_compared_while_it_is_compiled():
    with pytest.raises(ValueError, match="compare looks at numbers.*cannot be compiled"):
        jax.jit(lambda y: lb.compare({"a": lb.laplace(coin, y)}).rows())(COIN)
    with pytest.raises(ValueError, match="compare looks at numbers.*cannot be compiled"):
        jax.jit(lambda z: lb.compare({"a": z}).rows())(1.0)


def scaled_coin(y):
    with handlers.scale(scale=0.1):
        coin(y)


def coin_with_factor(y):
    coin(y)
    numpyro.factor("more", -1.0)


def test_a_power_of_a_density_is_refused():
    with pytest.raises(lb.UnsupportedModel, match="'theta', 'y' is scaled"):
        lb.compare({"coin": lb.laplace(coin, COIN), "scaled": lb.laplace(scaled_coin, COIN)})


def test_a_factor_beside_the_data_is_told():
    models = {"coin": lb.laplace(coin, COIN), "more": lb.laplace(coin_with_factor, COIN)}
    assert lb.compare(models).footer == ("not checked to be of the same data: 'more'",)


def test_small_numbers_count_beside_large_ones():
    one, other = (np.array([a, b, 1000], np.float32) for a, b in ((0.001, 0.002), (0.0025, 0.0005)))
    assert not same_numbers(np.sort(one), np.sort(other))
    assert same_numbers(np.sort(one), np.sort(one.astype(float)))


def test_a_mixture_has_the_curvature_of_its_components():
    def pair(y):
        x = numpyro.sample("x", dist.Normal(0, 3).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(x @ jnp.array([[1.0, 0.5], [0.5, 1.0]]), 1), obs=y)

    y = np.array([2.0, 1.0])
    whole, part = lb.laplace(pair, y), lb.laplace(pair, y, structure="diagonal")
    mixture = lb.mixture(part)
    with pytest.raises(
        lb.LaplaceError, match=r"'mixture'\s+with\s+hessian\s+curvature,\s+diagonal"
    ):
        lb.compare({"mixture": mixture, "fit": whole})
    assert len(lb.compare({"mixture": mixture, "fit": part}).rows()) == 2
    assert len(lb.compare({"mixture": lb.mixture(whole), "fit": whole}).rows()) == 2
