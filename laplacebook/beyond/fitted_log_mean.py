"""The logarithm of the mean of ratios as a smooth function of where they were taken."""

from itertools import combinations_with_replacement
from math import prod

import numpy as np
from jaxtyping import Float

_STEPS = 40  # of Newton's method
_FARTHEST = 2.0  # nats, of one of these
_SAME = 1e-6  # nats
_RANK = 1e-10  # relative, below which directions are none
_LOWEST = np.log(0.01)  # of a ratio: of less the mean hardly changes


def fitted_log_mean(
    terms: Float[np.ndarray, "P T"], log_ratios: Float[np.ndarray, " P"]
) -> Float[np.ndarray, " T"]:
    """The coefficients c with which exp(terms @ c) is the mean of ratios whose relative spread is everywhere the same.

    By the quasi-likelihood of gamma numbers: what is left, ratio / exp(terms @ c) - 1, is orthogonal to each term. So
    the few pairs that lie where the mean is large do not rule, as in a fit by squares.

    Args:
        terms: of each pair, shape (P, T).
        log_ratios: of each pair, shape (P,).
    """
    logs = np.maximum(log_ratios, _LOWEST)
    unit, scale, back = np.linalg.svd(terms, full_matrices=False)
    kept = scale > _RANK * scale[0]
    unit = unit[:, kept]
    level = np.logaddexp.reduce(logs) - np.log(len(logs))
    at = unit.sum(axis=0) * level  # of a constant, which is one of the terms
    for _ in range(_STEPS):
        left = np.exp(logs - unit @ at)
        bend = (unit * left[:, None]).T @ unit
        bend += _RANK * np.trace(bend) * np.eye(len(bend))
        step = np.linalg.solve(bend, unit.T @ (left - 1))
        longest = abs(unit @ step).max()
        at = at + step * min(1.0, _FARTHEST / longest if longest else 1.0)
        if longest < _SAME:
            break
    return (at / scale[kept]) @ back[kept]


def polynomial(x: Float[np.ndarray, "K H"], degree: int) -> Float[np.ndarray, "K T"]:
    """The terms of a polynomial of so many coordinates, the constant first.

    Args:
        x: shape (K, H).
        degree: of it.
    """
    columns = list(x.T)
    products = [
        prod(which)
        for power in range(1, degree + 1)
        for which in combinations_with_replacement(columns, power)
    ]
    return np.stack([np.ones(len(x)), *products], axis=1)


def standardized(
    hyper: Float[np.ndarray, "K H"], log_weights: Float[np.ndarray, " K"]
) -> Float[np.ndarray, "K H"]:
    """The same points with mean zero and the unit matrix as covariance.

    Args:
        hyper: shape (K, H).
        log_weights: of them, shape (K,).
    """
    weights = shares(log_weights)
    away = hyper - weights @ hyper
    spread, axes = np.linalg.eigh((weights[:, None] * away).T @ away)
    return away @ axes / np.sqrt(np.maximum(spread, _RANK * spread[-1] + np.finfo(float).tiny))


def moved(points: Float[np.ndarray, "K H"], after: Float[np.ndarray, " K"]) -> float:
    """How far the mean or the standard deviation of a coordinate is from what it was, in standard deviations, at most.

    Args:
        points: standardized with the weights before, shape (K, H).
        after: their other log weights, shape (K,).
    """
    weights = shares(after)
    mean = weights @ points
    deviations = np.sqrt(weights @ (points - mean) ** 2)
    return float(max(abs(mean).max(), abs(deviations - 1).max()))


def shares(log_weights: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """The weights, which sum to one."""
    weights = np.exp(log_weights - log_weights.max())
    return weights / weights.sum()
