"""What probabilities of classes are worth beside what happened, and how much of a doubt more data would end."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import entr

from laplacebook.base.checks import require_number, require_numbers
from laplacebook.base.estimate import Estimate
from laplacebook.base.table import Table
from laplacebook.predictive.prediction import Prediction

_ROUNDING = 1e-5  # how far beside 0, 1 and a sum of 1 single precision may be


def reliability_curve(
    probabilities: Any, labels: Any, num_bins: int = 10, equal_count: bool = False
) -> Table:
    """How often what was predicted with a probability has happened, in bins of that probability.

    Of two classes, shape (N,), the probability of class 1 is compared with how often it came (Naeini, Cooper
    and Hauskrecht 2015). Of C classes, shape (N, C), the largest probability of a row, its confidence, is compared
    with how often that class was right (Guo, Pleiss, Sun and Weinberger 2017, arXiv:1706.04599); of equal ones the
    first class counts. Calibrated probabilities have both columns equal, up to the scatter of so few rows.

    In the book: :doc:`/book/digits`.

    Args:
        probabilities: of class 1, shape (N,), or of every class, shape (N, C).
        labels: what happened, classes 0, ..., C - 1, shape (N,).
        num_bins: how many bins there are between 0 and 1; each has its upper end, the first its lower too.
        equal_count: whether they end at quantiles, so that each has about as many rows, instead of being of
            equal width.

    Returns:
        A :class:`~laplacebook.Table` of the bins that are not empty, with the columns ``from``, ``to``,
        ``rows``, ``predicted``, the mean of the probabilities, and ``observed``, the frequency.

    Raises:
        ValueError: there is no row; a probability is not finite, not between 0 and 1, or those of a row do not
            sum to one; a label is no class; shapes do not fit; ``num_bins`` is no number of bins; within a
            compiled program.
        TypeError: they are no real numbers.

    >>> reliability_curve([0.1, 0.2, 0.7, 0.9], [0, 1, 1, 1], num_bins=2)
    Reliability of 4 probabilities, expected calibration error 0.2750
        from      to  rows  predicted  observed
      0.0000  0.5000     2     0.1500    0.5000
      0.5000  1.0000     2     0.8000    1.0000
    """
    p, y = _probabilities_and_labels(probabilities, labels)
    bins = _bins(p, y, num_bins, equal_count)
    error = _calibration_error(bins)
    title = f"Reliability of {len(y):,} probabilities, expected calibration error {error:.4f}"
    columns = {name: values.tolist() for name, values in bins.items()}
    decimals = dict.fromkeys(columns.keys() - {"rows"}, 4)
    return Table(title, columns, decimals=decimals)


def expected_calibration_error(
    probabilities: Any, labels: Any, num_bins: int = 10, equal_count: bool = False
) -> float:
    """The mean distance between what is predicted and what is observed, over the bins of a reliability curve.

    sum_b (n_b / N) abs(observed_b - predicted_b) (Naeini, Cooper and Hauskrecht 2015; Guo, Pleiss, Sun and
    Weinberger 2017, arXiv:1706.04599). It depends on the bins, and the scatter of few rows in a bin makes it larger
    than zero even for probabilities that are right.

    In the book: :doc:`/book/digits`.

    Args:
        probabilities: of class 1, shape (N,), or of every class, shape (N, C).
        labels: what happened, classes 0, ..., C - 1, shape (N,).
        num_bins: how many bins there are.
        equal_count: whether they have about as many rows each, instead of being of equal width.

    Returns:
        A number between 0 and 1.

    Raises:
        ValueError: as :func:`~laplacebook.reliability_curve`.
        TypeError: likewise.

    >>> round(expected_calibration_error([0.1, 0.2, 0.7, 0.9], [0, 1, 1, 1], num_bins=2), 4)
    0.275
    """
    p, y = _probabilities_and_labels(probabilities, labels)
    return _calibration_error(_bins(p, y, num_bins, equal_count))


def brier_score(probabilities: Any, labels: Any) -> float:
    """The mean squared distance of probabilities from what happened; smaller is better.

    Of C classes (1/N) sum_n sum_c (p_nc - [c = y_n])^2, between 0 and 2 (Brier 1950, Monthly Weather Review 78,
    1-3). Of two classes, as shape (N,), (1/N) sum_n (p_n - y_n)^2, between 0 and 1, which is half of that. In the
    mean it is least for the true probabilities, and only for them.

    In the book: :doc:`/book/digits`.

    Args:
        probabilities: of class 1, shape (N,), or of every class, shape (N, C).
        labels: what happened, classes 0, ..., C - 1, shape (N,).

    Raises:
        ValueError: there is no row; a probability is not finite, not between 0 and 1, or those of a row do not
            sum to one; a label is no class; shapes do not fit; within a compiled program.
        TypeError: they are no real numbers.

    >>> round(brier_score([0.8, 0.3], [1, 0]), 4), round(brier_score([[0.2, 0.8], [0.7, 0.3]], [1, 0]), 4)
    (0.065, 0.13)
    """
    p, y = _probabilities_and_labels(probabilities, labels)
    happened = y if p.ndim == 1 else y[:, None] == np.arange(p.shape[1])
    return float(np.mean(np.sum((p - happened).reshape(len(y), -1) ** 2, axis=1)))


def predictive_entropy(probabilities: Any) -> Float[np.ndarray, " N"]:
    """The entropy of the outcome of each row, -sum_c p_c log p_c: all of its uncertainty.

    In the book: :doc:`/book/digits`.

    Args:
        probabilities: averaged over the parameters, of class 1, shape (N,), or of every class, shape (N, C).

    Returns:
        Shape (N,), in nats, between 0 and log C.

    Raises:
        ValueError: there is no row; a probability is not finite, not between 0 and 1, or those of a row do not
            sum to one; the shape is another; within a compiled program.
        TypeError: they are no real numbers.

    >>> print(predictive_entropy([[0.5, 0.5], [1.0, 0.0]]).round(4))
    [0.6931 0.    ]
    """
    p = _probabilities(probabilities)
    return entr(np.stack([1 - p, p], axis=-1) if p.ndim == 1 else p).sum(axis=-1)


def mutual_information(draws: Any) -> Float[np.ndarray, " N"]:
    """The mutual information of each row's outcome and the parameters: what of its entropy more data would end.

    H(E[p]) - E[H(p)], with the means over draws of the parameters (Houlsby et al. 2011,
    arXiv:1112.5745): the entropy of the outcome less what of it stays where the parameters are known. It is zero
    where all parameters say the same, however undecided. From S draws it is too small, by about 1/S of itself.

    Draws of the probabilities of new rows, which are those of the linearised model, or, with
    ``method="monte_carlo"``, of the model as it is, are predictions from one draw each::

        def draw(key):
            return lb.predict(
                approx, features, method="output_monte_carlo", key=key, num_samples=1
            ).value

        draws = jax.vmap(draw)(jax.random.split(jax.random.key(0), 1000))

    In the book: :doc:`/book/digits`.

    Args:
        draws: probabilities of every class given each draw, shape (S, N, C); of class 1 alone, p of shape (S, N),
            they are ``np.stack([1 - p, p], axis=-1)``.

    Returns:
        Shape (N,), in nats, between 0 and log C.

    Raises:
        ValueError: there is no row, or only one draw; a probability is not finite, not between 0 and 1, or those of
            a row do not sum to one; the shape is another; within a compiled program.
        TypeError: they are no real numbers.

    >>> print(mutual_information([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]]).round(4))
    [0.6931 0.    ]
    """
    p = _numbers("draws", draws)
    if p.ndim != 3 or p.shape[0] < 2 or p.shape[2] < 2:
        raise ValueError(
            f"`draws` must have shape (S, N, C), of two draws or more and of two classes or more, not {p.shape}; "
            "draws of the probability of class 1 alone are np.stack([1 - p, p], axis=-1)."
        )
    p = _require_probabilities("draws", p)
    information = entr(p.mean(axis=0)).sum(axis=-1) - entr(p).sum(axis=-1).mean(axis=0)
    return np.maximum(information, 0)


def _bins(
    p: Float[np.ndarray, "N *C"], y: Int[np.ndarray, " N"], num_bins: int, equal_count: bool
) -> dict[str, np.ndarray]:
    """The columns of a reliability curve."""
    require_number("num_bins", num_bins)
    if p.ndim == 2:
        p, y = p.max(axis=1), p.argmax(axis=1) == y
    edges = np.linspace(0, 1, num_bins + 1)
    if equal_count:
        edges = np.quantile(p, edges)
    of_row = np.searchsorted(edges[1:-1], p)
    rows = np.bincount(of_row, minlength=num_bins)
    there = rows > 0
    predicted, observed = (
        np.bincount(of_row, x, minlength=num_bins)[there] / rows[there] for x in (p, y)
    )
    return {
        "from": edges[:-1][there],
        "to": edges[1:][there],
        "rows": rows[there],
        "predicted": predicted,
        "observed": observed,
    }


def _calibration_error(bins: dict[str, np.ndarray]) -> float:
    away = abs(bins["observed"] - bins["predicted"])
    return float(np.average(away, weights=bins["rows"]))


def _probabilities_and_labels(probabilities: Any, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    p = _probabilities(probabilities)
    return p, _labels(labels, len(p), p.shape[1] if p.ndim == 2 else 2)


def _probabilities(probabilities: Any) -> np.ndarray:
    p = _numbers("probabilities", probabilities)
    if p.ndim not in (1, 2) or p.shape[1:] == (1,):
        raise ValueError(
            "`probabilities` must have shape (N,), of class 1 of two classes, or (N, C), of every class, not "
            f"{p.shape}."
        )
    return _require_probabilities("probabilities", p)


def _numbers(name: str, values: Any) -> np.ndarray:
    """As NumPy's array of floats, not empty and finite."""
    if isinstance(values, Estimate | Prediction):
        attribute = "value" if isinstance(values, Estimate) else "mean"
        raise TypeError(
            f"`{name}` must be an array, not {type(values).__name__}: pass its .{attribute}."
        )
    require_numbers(f"What measures `{name}`", values)
    if np.ma.is_masked(values):
        raise TypeError(f"`{name}` hides values by a mask: leave these rows out of all arguments.")
    array = np.asarray(values)
    kinds = (np.floating, np.integer, np.bool_)
    if not any(jnp.issubdtype(array.dtype, kind) for kind in kinds):
        raise TypeError(f"`{name}` must be real numbers, not {array.dtype}.")
    if not array.size:
        raise ValueError(f"`{name}` has shape {array.shape}: there is no row.")
    array = array.astype(float)
    _refuse(name, array, ~np.isfinite(array), "must be finite")
    return array


def _refuse(name: str, array: np.ndarray, wrong: Any, rule: str, remedy: str = "") -> None:
    """Raise where any entry is wrong, and name the first."""
    if wrong.any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise ValueError(f"`{name}` {rule}, and has {array[place]:g} at {list(place)}{remedy}.")


def _require_probabilities(name: str, p: np.ndarray) -> np.ndarray:
    """Between 0 and 1; along the last of two axes or more they sum to one."""
    beside = (p < -_ROUNDING) | (p > 1 + _ROUNDING)
    logits = "; of logits they are jax.nn.softmax(logits), or jax.nn.sigmoid(logits) of two classes"
    _refuse(name, p, beside, "must lie between 0 and 1", logits)
    if p.ndim > 1:
        sums = p.sum(axis=-1)
        _refuse(f"{name}.sum(axis=-1)", sums, abs(sums - 1) > _ROUNDING, "must be 1")
    return np.clip(p, 0, 1)


def _labels(labels: Any, number: int, classes: int) -> Int[np.ndarray, " N"]:
    y = _numbers("labels", labels)
    if y.shape != (number,):
        raise ValueError(
            f"`labels` must have shape ({number},), one class for each row of `probabilities`, not {y.shape}; "
            "of one column for each class they are labels.argmax(axis=1)."
        )
    begin = "; where classes begin at 1, subtract 1" if y.max() == classes and y.min() >= 1 else ""
    wrong = (y != np.round(y)) | (y < 0) | (y >= classes)
    _refuse("labels", y, wrong, f"must be classes 0, ..., {classes - 1}", begin)
    return y.astype(int)
