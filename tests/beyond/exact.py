"""Posteriors of normal hierarchies by closed forms and fine grids over the hyperparameters."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.optimize import brentq
from scipy.special import logsumexp

LEVELS = (0.05, 0.95)
_LITTLE = 1e-8  # of the mass: what is left out of quantiles


class Linear(NamedTuple):
    """Effects b ~ N(0, prior), of which y ~ N(design b, noise), at K values of the hyperparameters."""

    design: np.ndarray
    prior: np.ndarray
    noise: np.ndarray

    def posterior(self, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """log p(y), and mean and standard deviations of the effects, of shapes (K,) and (K, d)."""
        across = self.design @ self.prior
        covariance = across @ np.swapaxes(self.design, 1, 2) + self.noise
        root = np.linalg.cholesky(covariance)
        score = np.linalg.solve(root, np.broadcast_to(y, root.shape[:2])[..., None])
        half = np.linalg.solve(root, across)
        log_root = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        log_evidence = -(score**2).sum(axis=(1, 2)) / 2 - log_root - len(y) * np.log(2 * np.pi) / 2
        mean = (np.swapaxes(half, 1, 2) @ score)[..., 0]
        variances = np.diagonal(self.prior, axis1=1, axis2=2) - (half**2).sum(axis=1)
        return log_evidence, mean, np.sqrt(variances)


class Exact(NamedTuple):
    """Evidence, moments and quantiles, of shapes (n,) and (2, n): hyperparameters, then effects."""

    log_evidence: float
    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray


def exact(
    y: np.ndarray,
    axes: list[np.ndarray],
    log_prior: Callable[..., np.ndarray],
    linear: Callable[..., Linear],
) -> Exact:
    """By the trapezoidal rule on a grid of logarithms of positive hyperparameters.

    Args:
        y: the data.
        axes: of the grid, evenly spaced.
        log_prior: of the hyperparameters themselves, an argument of shape (K,) each.
        linear: the effects given them.
    """
    logs = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
    hyper = np.exp(logs)
    heights, means, sds = linear(*hyper.T).posterior(y.ravel())
    heights = heights + log_prior(*hyper.T) + logs.sum(axis=1)
    weights = np.exp(heights - logsumexp(heights))
    cell = sum(np.log(axis[1] - axis[0]) for axis in axes)
    mean = np.concatenate([weights @ hyper, weights @ means])
    squares = np.concatenate([weights @ hyper**2, weights @ (means**2 + sds**2)])
    sd = np.sqrt(squares - mean**2)
    quantiles = []
    for i, axis in enumerate(axes):
        others = tuple(j for j in range(len(axes)) if j != i)
        mass = weights.reshape([len(axis) for axis in axes]).sum(axis=others)
        assert max(mass[0], mass[-1]) < 1e-5  # else the grid does not hold the posterior
        quantiles.append(np.exp(np.interp(LEVELS, np.cumsum(mass) - mass / 2, axis)))
    kept = weights > _LITTLE
    for i in range(means.shape[1]):
        k, laws = len(axes) + i, stats.norm(means[kept, i], sds[kept, i])
        below = lambda x, p, laws=laws: weights[kept] @ laws.cdf(x) - p  # noqa: E731
        ends = mean[k] + np.array([-9, 9]) * sd[k]
        quantiles.append([brentq(below, *ends, (p,), xtol=1e-4 * sd[k]) for p in LEVELS])
    return Exact(logsumexp(heights) + cell, mean, sd, np.array(quantiles).T)


def groups(shape: tuple[int, int], mu_sd: float, centred: bool = True) -> Callable[..., Linear]:
    """mu ~ N(0, mu_sd), J effects around it of sd tau, and K rows of each with noise of sd sigma."""
    number, rows = shape
    mean, each = np.ones((number * rows, 1)), np.kron(np.eye(number), np.ones((rows, 1)))

    def linear(tau: np.ndarray, sigma: np.ndarray | float = 1.0) -> Linear:
        tau, sigma = np.broadcast_arrays(*(np.reshape(x, (-1, 1, 1)) for x in (tau, sigma)))
        means = np.broadcast_to(mean, (len(tau), *mean.shape))
        alone = np.eye(number + 1)[1:]
        first = np.full((number + 1, number + 1), float(mu_sd) ** 2)
        if centred:
            design = np.concatenate([0 * means, each + 0 * tau], axis=2)
            prior = first + tau**2 * (alone.T @ alone)
        else:
            design = np.concatenate([means, tau * each], axis=2)
            prior = np.diag([mu_sd**2] + [1.0] * number) + 0 * tau
        return Linear(design, prior, sigma**2 * np.eye(number * rows))

    return linear
