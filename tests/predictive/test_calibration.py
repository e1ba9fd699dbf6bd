"""Measures of calibration and of doubt: scikit-learn, closed forms, sums by hand, and what they refuse."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import digamma, softmax
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

import laplacebook as lb
from laplacebook.models import logistic_regression

RNG = np.random.default_rng(0)
N, C = 500, 4
BINARY = RNG.beta(0.7, 1.2, size=N)
HAPPENED = (RNG.random(N) < BINARY**1.5).astype(int)
CLASSES = softmax(2 * RNG.normal(size=(N, C)), axis=1)
LABELS = RNG.integers(C, size=N)
RIGHT = (CLASSES.argmax(axis=1) == LABELS).astype(int)
BY_BINS = [lb.reliability_curve, lb.expected_calibration_error]
MEASURES = [*BY_BINS, lb.brier_score]


@pytest.mark.parametrize(("equal_count", "strategy"), [(False, "uniform"), (True, "quantile")])
@pytest.mark.parametrize("num_bins", [1, 7, 10])
@pytest.mark.parametrize(
    ("given", "one"), [((BINARY, HAPPENED), (BINARY, HAPPENED)), ((CLASSES, LABELS), (None, RIGHT))]
)
def test_a_reliability_curve_is_that_of_scikit_learn(given, one, num_bins, equal_count, strategy):
    predicted, happened = CLASSES.max(axis=1) if one[0] is None else one[0], one[1]
    observed, mean = calibration_curve(happened, predicted, n_bins=num_bins, strategy=strategy)
    curve = lb.reliability_curve(*given, num_bins=num_bins, equal_count=equal_count)
    np.testing.assert_allclose(curve["predicted"], mean, rtol=1e-12)
    np.testing.assert_allclose(curve["observed"], observed, rtol=1e-12)
    ends = [*curve["from"][:1], *curve["to"]]
    counts = [np.sum((a < predicted) & (predicted <= b)) for a, b in pairwise(ends)]
    counts[0] += np.sum(predicted == ends[0])
    assert curve["rows"] == counts and sum(counts) == N
    error = np.sum(np.array(counts) / N * np.abs(observed - mean))
    assert lb.expected_calibration_error(*given, num_bins, equal_count) == pytest.approx(error)
    assert f"{error:.4f}" in curve.title


def test_bins_that_are_empty_are_left_out_and_edges_belong_below():
    curve = lb.reliability_curve([0.0, 0.25, 0.5, 1.0], [0, 1, 0, 1], num_bins=4)
    assert (curve["from"], curve["to"]) == ([0.0, 0.25, 0.75], [0.25, 0.5, 1.0])
    assert (curve["rows"], curve["observed"]) == ([2, 1, 1], [0.5, 0.0, 1.0])
    assert curve["predicted"] == [0.125, 0.5, 1.0]
    same = lb.reliability_curve([0.3] * 5, [0, 0, 1, 0, 0], equal_count=True)
    assert (same["rows"], same["observed"]) == ([5], [0.2])


def test_what_happens_as_often_as_predicted_is_calibrated():
    p = np.repeat([0.25, 0.75], 4)
    assert lb.expected_calibration_error(p, [0, 0, 0, 1, 1, 1, 1, 0]) == 0
    assert lb.expected_calibration_error(p, [1, 1, 1, 1, 0, 0, 0, 0]) == 0.75
    certain = np.eye(3)[[0, 1, 2, 2]]
    assert lb.expected_calibration_error(certain, [0, 1, 2, 0]) == 0.25


def test_the_brier_score_is_that_of_scikit_learn():
    one = lb.brier_score(BINARY, HAPPENED)
    assert one == pytest.approx(brier_score_loss(HAPPENED, BINARY), rel=1e-12)
    of_all = brier_score_loss(LABELS, CLASSES, scale_by_half=False, labels=np.arange(C))
    assert lb.brier_score(CLASSES, LABELS) == pytest.approx(of_all, rel=1e-12)
    both = np.column_stack([1 - BINARY, BINARY])
    assert lb.brier_score(both, HAPPENED) == pytest.approx(2 * one, rel=1e-12)
    assert lb.brier_score(np.eye(3), [0, 1, 2]) == 0
    assert lb.brier_score(np.eye(3), [1, 2, 0]) == 2
    assert lb.brier_score([1.0, 0.0], [0, 1]) == 1


def test_entropies_in_closed_form():
    thirds = np.full((1, 3), 1 / 3)
    found = lb.predictive_entropy(np.vstack([thirds, np.eye(3)[:1], [[0.5, 0.25, 0.25]]]))
    np.testing.assert_allclose(found, [np.log(3), 0, 1.5 * np.log(2)], rtol=1e-12)
    both = np.column_stack([1 - BINARY, BINARY])
    np.testing.assert_allclose(lb.predictive_entropy(BINARY), lb.predictive_entropy(both))
    np.testing.assert_allclose(lb.predictive_entropy([0.0, 0.5, 1.0]), [0, np.log(2), 0])


def test_information_of_a_dirichlet_in_closed_form():
    """E[H(p)] = digamma(a + 1) - sum_c (a_c / a) digamma(a_c + 1), with a the sum of the a_c."""
    alphas = np.array([[0.5, 0.5, 0.5], [2.0, 1.0, 4.0], [40.0, 1.0, 1.0]])
    draws = np.stack([RNG.dirichlet(alpha, size=40_000) for alpha in alphas], axis=1)
    total = alphas.sum(axis=1)
    mean = alphas / total[:, None]
    expected = digamma(total + 1) - np.sum(mean * digamma(alphas + 1), axis=1)
    exact = -np.sum(mean * np.log(mean), axis=1) - expected
    np.testing.assert_allclose(lb.mutual_information(draws), exact, rtol=0.02)
    total_entropy = lb.predictive_entropy(draws.mean(axis=0))
    assert np.all(lb.mutual_information(draws) < total_entropy)


def test_information_where_it_is_all_or_none():
    classes = np.eye(3)[:, None]  # each draw sure of another class
    np.testing.assert_allclose(lb.mutual_information(classes), [np.log(3)], rtol=1e-12)
    same = np.broadcast_to(CLASSES, (7, N, C))
    np.testing.assert_allclose(lb.mutual_information(same), 0, atol=1e-15)
    assert np.all(lb.mutual_information(same) >= 0)


def test_draws_of_probabilities_are_predictions_of_one_draw_each():
    """The line of the docstring; beside the average that a prediction of many draws is."""
    x = np.column_stack([np.ones(30), np.linspace(-2, 2, 30)])
    fit = lb.laplace(logistic_regression, x, (x[:, 1] + np.sin(9 * x[:, 1]) > 0).astype(float))
    new = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 6.0]])
    method = "monte_carlo"

    def draw(key):
        return lb.predict(fit, new, method=method, key=key, num_samples=1).value

    p = np.asarray(jax.vmap(draw)(jax.random.split(jax.random.key(0), 4000)))
    assert p.shape == (4000, 3)
    whole = lb.predict(
        fit, new, method=method, key=jax.random.key(1), num_samples=4000, with_spread=True
    )
    squares = (p - p.mean(axis=0)) ** 2  # each average beside that of as many other draws
    for draws, other in ((p, whole.mean), (squares, whole.epistemic)):
        error = draws.std(axis=0) * (2 / 4000) ** 0.5
        assert np.all(np.abs(draws.mean(axis=0) - other) < 4 * error)
    information = lb.mutual_information(np.stack([1 - p, p], axis=-1))
    expected = lb.predictive_entropy(p.mean(axis=0)) - [
        lb.predictive_entropy(column).mean() for column in p.T
    ]
    np.testing.assert_allclose(information, expected, rtol=1e-9)


def test_single_precision_and_whole_numbers_are_as_good():
    p = jax.nn.softmax(jnp.asarray(np.log(CLASSES), jnp.float32))
    for measure in MEASURES[1:]:
        exact = measure(np.asarray(p, float), LABELS)
        for labels in (jnp.asarray(LABELS, jnp.int32), LABELS.astype(float), LABELS.tolist()):
            assert measure(p, labels) == pytest.approx(exact, rel=1e-6)
    over = np.array([1 + 6e-8, -6e-8])
    np.testing.assert_array_equal(lb.predictive_entropy(over), [0, 0])
    assert lb.brier_score([1, 0], [True, False]) == 0


WRONG = [
    (np.where(np.arange(N) == 3, np.nan, BINARY), HAPPENED, r"finite, and has nan at \[3\]"),
    (np.log(CLASSES), LABELS, r"(?s)between 0 and 1, and has -.*jax\.nn\.softmax\(logits\)"),
    (BINARY + 1, HAPPENED, r"between 0 and 1, and has 1\.\d+ at \[0\]"),
    (CLASSES * 0.999, LABELS, r"sum\(axis=-1\)` must be 1, and has 0\.999 at \[0\]"),
    (np.zeros(0), np.zeros(0, int), "there is no row"),
    (np.zeros((0, 3)), np.zeros(0, int), "there is no row"),
    (BINARY[:, None], HAPPENED, r"shape \(N,\).*or \(N, C\).*not \(500, 1\)"),
    (CLASSES[None], LABELS, r"not \(1, 500, 4\)"),
    (np.float64(0.5), 1, r"not \(\)"),
    (CLASSES, LABELS[1:], r"shape \(500,\).*not \(499,\)"),
    (CLASSES, np.eye(C)[LABELS], r"not \(500, 4\); .*labels\.argmax\(axis=1\)"),
    (CLASSES, LABELS + 1, r"classes 0, \.\.\., 3, and has 4 at .*subtract 1"),
    (CLASSES, LABELS - 1, r"classes 0, \.\.\., 3, and has -1 at"),
    (BINARY, HAPPENED * 2, r"classes 0, \.\.\., 1, and has 2 at"),
    (CLASSES, LABELS + 0.5, r"classes 0, \.\.\., 3, and has \d\.5 at \[0\]"),
    (CLASSES, np.where(LABELS == 1, np.nan, LABELS), "`labels` must be finite"),
]


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize(("probabilities", "labels", "match"), WRONG)
def test_what_is_no_probability_or_no_class_is_refused(measure, probabilities, labels, match):
    with pytest.raises(ValueError, match=match):
        measure(probabilities, labels)


@pytest.mark.parametrize("number", [0, -1, True])
@pytest.mark.parametrize("measure", BY_BINS)
def test_so_many_bins_there_are_not(measure, number):
    with pytest.raises(ValueError, match="num_bins must be a whole number, 1 or more"):
        measure(BINARY, HAPPENED, num_bins=number)


@pytest.mark.parametrize(
    ("measure", "more"),
    [
        *((m, (HAPPENED,)) for m in MEASURES),
        (lb.predictive_entropy, ()),
        (lb.mutual_information, ()),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(measure, more):
    with pytest.raises(TypeError, match="not Estimate: pass its .value"):
        measure(lb.Estimate(BINARY, 0 * BINARY), *more)
    with pytest.raises(TypeError, match="not Prediction: pass its .mean"):
        measure(lb.Prediction(BINARY, BINARY, BINARY, BINARY), *more)
    for values in (["a", "b"], np.array([None, 0.5]), np.array([0.5 + 0j])):
        with pytest.raises(TypeError, match="must be real numbers"):
            measure(values, *more)
    with pytest.raises(ValueError, match="looks at numbers, so it cannot be compiled"):
        jax.jit(measure)(jnp.asarray(BINARY), *more)


@pytest.mark.parametrize(
    ("p", "match"),
    [
        (CLASSES, r"shape \(S, N, C\).*not \(500, 4\); .*np\.stack\(\[1 - p, p\], axis=-1\)"),
        (CLASSES[None], r"two draws or more.*not \(1, 500, 4\)"),
        (BINARY[:, None, None], r"two classes or more.*not \(500, 1, 1\)"),
        (np.zeros((3, 0, 2)), "there is no row"),
        (np.stack([CLASSES, CLASSES / 2]), r"sum\(axis=-1\)` must be 1, and has 0\.5 at \[1, 0\]"),
        (np.stack([CLASSES, CLASSES + np.nan]), r"finite, and has nan at \[1, 0, 0\]"),
        (np.stack([CLASSES, -CLASSES]), "between 0 and 1"),
    ],
)
def test_what_are_no_draws_is_refused(p, match):
    with pytest.raises(ValueError, match=match):
        lb.mutual_information(p)


@pytest.mark.parametrize(
    ("p", "match"),
    [
        ([0.5, 1.5], r"between 0 and 1, and has 1\.5 at \[1\]"),
        ([[0.5, 0.4]], r"must be 1, and has 0\.9 at \[0\]"),
        ([np.inf, 0.5], r"finite, and has inf at \[0\]"),
        ([], "there is no row"),
        (np.full((2, 2, 2), 0.5), r"not \(2, 2, 2\)"),
    ],
)
def test_what_has_no_entropy_is_refused(p, match):
    with pytest.raises(ValueError, match=match):
        lb.predictive_entropy(p)


@pytest.mark.parametrize("measure", [lb.brier_score, lb.expected_calibration_error])
def test_what_a_mask_hides_is_not_counted_without_a_word(measure):
    p, y = np.array([0.9, 0.8, 0.1, 0.5]), np.array([1, 1, 0, 0])
    hidden = [False, False, False, True]
    for given in ((p, np.ma.array(y, mask=hidden)), (np.ma.array(p, mask=hidden), y)):
        with pytest.raises(TypeError, match="hides values by a mask"):
            measure(*given)
    assert measure(np.ma.array(p), y) == measure(p, y)
