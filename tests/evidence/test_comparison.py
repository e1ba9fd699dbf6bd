"""Comparing models: Bayes factors and probabilities against exact evidences."""

import itertools

import numpy as np
import pytest
from scipy import stats

import laplacebook as lb
from tests.fit.test_maximum_likelihood import COIN, REAL, X
from tests.models import coin, line

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


def test_one_model_is_certain():
    assert lb.compare({"only": lb.laplace(coin, COIN)})["probability"] == [1.0]


@pytest.mark.parametrize("error", [1e200, 1e300])
def test_errors_whose_square_is_no_float(error):
    table = lb.compare({"a": lb.Estimate(-3.0, error), "b": -4.0})
    p = 1 / (1 + np.exp(-1))
    for probability, value in zip(table["probability"], (p, 1 - p), strict=True):
        np.testing.assert_allclose(probability.value, value, rtol=1e-12)
        np.testing.assert_allclose(probability.standard_error, p * (1 - p) * error, rtol=1e-12)
    assert len(str(table)) < 400
