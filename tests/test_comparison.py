"""Comparing models: BIC against statsmodels, Bayes factors against exact evidences, and what is refused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import statsmodels.api as sm
from numpyro import handlers
from scipy import stats

import laplacebook as lb
from laplacebook.observations import observed_numbers, same_numbers
from tests.models import coin, line
from tests.test_maximum_likelihood import (
    BINARY,
    COIN,
    COUNTS,
    REAL,
    X,
    counts,
    linear,
    logistic,
)

SKEWED = np.exp(REAL)


# BIC


def test_bic_of_least_squares_counts_the_noise():
    fit, exact = lb.maximum_likelihood(linear, X, REAL), sm.OLS(REAL, X).fit()
    # statsmodels counts the three weights, R and we the noise scale too.
    np.testing.assert_allclose(lb.bic(fit, 60), exact.bic + np.log(60), rtol=1e-9)


def test_bic_of_generalised_linear_models():
    logit = sm.Logit(BINARY, X).fit(disp=0, tol=1e-12)
    np.testing.assert_allclose(
        lb.bic(lb.maximum_likelihood(logistic, X, BINARY), len(BINARY)), logit.bic, rtol=1e-9
    )
    poisson = sm.GLM(COUNTS, X, sm.families.Poisson()).fit(tol=1e-14)
    fit = lb.maximum_likelihood(counts, X, COUNTS)
    np.testing.assert_allclose(lb.bic(fit, np.int64(60)), poisson.bic_llf, rtol=1e-9)


def test_bic_at_the_posterior_mode_is_bishops():
    approx = lb.laplace(coin, COIN)
    expected = np.log(9) - 2 * stats.bernoulli(10 / 13).logpmf(COIN).sum()
    np.testing.assert_allclose(lb.bic(approx, 9), expected, rtol=1e-9)
    assert lb.bic(approx, 9) > lb.bic(lb.maximum_likelihood(coin, COIN), 9)


def test_half_the_bic_is_the_log_evidence_up_to_a_constant():
    gaps = []
    for copies in (1, 10, 100):
        y = np.tile(REAL, copies)
        approx = lb.laplace(line, np.tile(X, (copies, 1)), y)
        gaps.append(approx.log_evidence + lb.bic(approx, len(y)) / 2)
    assert abs(gaps[2] - gaps[1]) < 0.05 < abs(gaps[0])


@pytest.mark.parametrize("number", [0, 0.5, -3, np.nan, np.inf])
def test_bic_checks_the_number_of_observations(number):
    with pytest.raises(ValueError, match="1 or more"):
        lb.bic(lb.laplace(coin, COIN), number)


def test_bic_refuses_what_has_no_likelihood():
    with pytest.raises(lb.LaplaceError, match="The fit failed"):
        lb.bic(lb.laplace(coin, np.append(COIN, np.nan), throw=False), 10)
    with pytest.raises(lb.UnsupportedModel, match="plain density"):
        lb.bic(lb.laplace_of_density(lambda z: -(z**2), 1.0), 10)


def test_bic_of_a_batch():
    tosses = np.array([COIN, 1 - COIN])
    inside = jax.vmap(lambda y: lb.bic(lb.laplace(coin, y), 9))(tosses)
    outside = lb.bic(jax.vmap(lambda y: lb.laplace(coin, y))(tosses), 9)
    np.testing.assert_allclose(inside, outside)
    np.testing.assert_allclose(inside[0], lb.bic(lb.laplace(coin, COIN), 9))


# Exact evidences


def test_nested_regressions_have_the_exact_bayes_factor():
    def exact(features):
        covariance = 4 * features @ features.T + 0.25 * np.eye(60)
        return stats.multivariate_normal(np.zeros(60), covariance).logpdf(REAL)

    sizes = {f"{k} columns": X[:, :k] for k in (1, 2, 3)}
    table = lb.compare({name: lb.laplace(line, x, REAL) for name, x in sizes.items()})
    evidences = {name: exact(x) for name, x in sizes.items()}
    best = max(evidences.values())
    total = sum(np.exp(e - best) for e in evidences.values())
    assert table["log evidence"] == sorted(table["log evidence"], reverse=True)
    for row in table.rows():
        log_evidence = evidences[row["model"]]
        assert row["log evidence"] == pytest.approx(log_evidence, rel=1e-9)
        assert row["log Bayes factor"] == pytest.approx(log_evidence - best, abs=1e-8)
        assert row["probability"] == pytest.approx(np.exp(log_evidence - best) / total, rel=1e-6)
        parts = row["log likelihood"] + row["log Occam factor"]
        assert parts == pytest.approx(row["log evidence"])
        assert f"{row['D']} columns" == row["model"]
    assert table.footer == ()


def test_a_coin_that_may_be_fair():
    approx = lb.laplace(coin, COIN)
    table = lb.compare({"fair": 9 * np.log(0.5), "unknown": approx, "exact": -np.log(110)})
    assert table["model"] == ["exact", "unknown", "fair"]
    assert table["log Bayes factor"][2] == pytest.approx(np.log(110 / 512))
    assert table["D"] == [None, 1, None]
    assert table.footer == ("not checked to be of the same data: 'exact', 'fair'",)
    for text in (repr(table), table._repr_html_()):
        assert all(part in text for part in ("Comparison of 3 models", "—", "-4.7301", "-1.5378"))


# Probabilities


@pytest.mark.parametrize("shift", [0.0, -1e5, 1e5])
def test_probabilities_sum_to_one_far_from_zero(shift):
    values = {"a": shift, "b": shift - 1.0, "c": shift - 1e3, "d": shift - 2e3}
    table = lb.compare(values)
    assert sum(table["probability"]) == pytest.approx(1, abs=1e-12)
    assert table["probability"][0] == pytest.approx(1 / (1 + np.exp(-1)), rel=1e-9)
    assert table["probability"][2:] == [0, 0]
    assert table["log Bayes factor"] == pytest.approx([0, -1, -1e3, -2e3], abs=1e-9)


def test_large_evidences_print_their_differences():
    text = repr(lb.compare({"a": -100000.0, "b": -100000.1}))
    assert "-100000.0000" in text
    assert "-100000.1000" in text


def test_the_order_of_the_models_does_not_matter():
    models = {
        "b": -3.0,
        "a": -3.0,
        "d": lb.Estimate(-3.0, 0.1),
        "c": -2.0,
        "e": lb.laplace(coin, COIN),
    }
    weights = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.15, "e": 0.25}
    tables = {
        repr(lb.compare(dict(order), weights)) for order in itertools.permutations(models.items())
    }
    assert len(tables) == 1
    assert lb.compare(models)["model"] == ["c", "a", "b", "d", "e"]


def test_a_prior_over_models():
    models = {"a": 0.0, "b": -1.0, "c": -2.0}
    table = lb.compare(models, {"a": 2, "b": 6.0, "c": 0})
    odds = np.array([2, 6 * np.exp(-1), 0])
    np.testing.assert_allclose(table["probability"], odds / odds.sum(), rtol=1e-12)
    assert table["log Bayes factor"] == [0, -1, -2]
    assert table.footer[0] == "prior probability: a 0.25, b 0.75, c 0"
    only = lb.compare(models, {"a": 0, "b": 0, "c": 1})
    assert only["probability"] == [0, 0, 1]
    same = lb.compare(models, {"a": 3, "b": 3, "c": 3})
    assert same["probability"] == pytest.approx(lb.compare(models)["probability"], rel=1e-12)
    assert same.footer == lb.compare(models).footer


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ({"a": 1.0}, "must name the models"),
        ({"a": 1.0, "b": 1.0, "z": 1.0}, "must name the models"),
        ({}, "must name the models"),
        ({"a": 1.0, "b": -1.0}, "not negative"),
        ({"a": 0.0, "b": 0.0}, "not all 0"),
        ({"a": np.nan, "b": 1.0}, "not negative"),
        ({"a": np.inf, "b": 1.0}, "not negative"),
    ],
)
def test_the_prior_is_checked(prior, message):
    with pytest.raises(ValueError, match=message):
        lb.compare({"a": 0.0, "b": 1.0}, prior)


def test_estimates_carry_their_error_into_every_column():
    models = {"a": lb.Estimate(-10.0, 0.02), "b": lb.Estimate(-10.5, 0.01), "c": -11.0}
    table = lb.compare(models)
    assert table["log Bayes factor"][0] == 0
    assert table["log Bayes factor"][1].standard_error == pytest.approx(np.hypot(0.02, 0.01))
    assert table["log Bayes factor"][2].standard_error == pytest.approx(0.02)
    draws = np.random.default_rng(0).normal([-10, -10.5, -11], [0.02, 0.01, 0], (100_000, 3))
    shares = np.exp(draws + 10)
    shares /= shares.sum(1, keepdims=True)
    assert sum(p.value for p in table["probability"]) == pytest.approx(1)
    for estimate, share in zip(table["probability"], shares.T, strict=True):
        assert estimate.value == pytest.approx(share.mean(), abs=1e-4)
        assert estimate.standard_error == pytest.approx(share.std(), rel=0.02)
    for text in (repr(table), table._repr_html_()):
        assert "-10.00 ± 0.02" in text
        assert "-0.50 ± 0.02" in text
    assert "—" not in repr(table)


# The same data


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


# What is refused


def flat(y):
    mean = numpyro.sample("mean", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.sample("y", dist.Normal(mean, 1).expand(y.shape).to_event(1), obs=y)


def hidden_prior(y):
    mean = numpyro.sample("mean", dist.Normal(0, 1).mask(False))
    numpyro.sample("y", dist.Normal(mean, 1).expand(y.shape).to_event(1), obs=y)


@pytest.mark.parametrize(
    ("verb", "model", "why"),
    [
        (lb.laplace, flat, "improper"),
        (lb.laplace, hidden_prior, "improper"),
        (lb.maximum_likelihood, with_shape, "left out"),
    ],
)
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


@pytest.mark.parametrize(
    ("models", "error", "message"),
    [
        (lambda: {}, ValueError, "one model or more"),
        (lambda: {"a": "-3"}, TypeError, "models\\['a'\\] is a str"),
        (lambda: {"a": True}, TypeError, "is a bool"),
        (lambda: {"a": coin}, TypeError, "is a function"),
        (lambda: {"a": np.zeros(2)}, ValueError, "'a'.*is a batch"),
        (lambda: {"a": lb.Estimate(np.zeros(2), np.zeros(2))}, ValueError, "is a batch"),
        (lambda: {"a": np.nan}, lb.LaplaceError, "'a' is nan"),
        (lambda: {"a": -np.inf}, lb.LaplaceError, "'a' is -inf"),
        (lambda: {"a": lb.Estimate(np.nan, 0.1)}, lb.LaplaceError, "'a' is nan"),
        (lambda: {"a": lb.Estimate(-1.0, np.inf)}, lb.LaplaceError, "standard error of inf"),
        (lambda: {"a": lb.Estimate(-1.0, np.nan)}, lb.LaplaceError, "standard error of nan"),
        (
            lambda: {"a": lb.laplace(coin, np.append(COIN, np.nan), throw=False)},
            lb.LaplaceError,
            "fit of 'a' failed",
        ),
        (
            lambda: {"a": jax.vmap(lambda y: lb.laplace(coin, y))(np.array([COIN, COIN]))},
            ValueError,
            "is a batch",
        ),
    ],
    ids=itertools.count(),
)
def test_what_has_no_evidence_is_refused(models, error, message):
    with pytest.raises(error, match=message):
        lb.compare(models())


def test_nothing_is_compared_while_it_is_compiled():
    with pytest.raises(ValueError, match="not computed yet"):
        jax.jit(lambda y: lb.compare({"a": lb.laplace(coin, y)}).rows())(COIN)
    with pytest.raises(ValueError, match="not computed yet"):
        jax.jit(lambda z: lb.compare({"a": z}).rows())(1.0)


def test_one_model_is_certain():
    assert lb.compare({"only": lb.laplace(coin, COIN)})["probability"] == [1.0]


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
