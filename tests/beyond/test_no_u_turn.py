"""The sampler, on densities whose moments are known."""

import numpy as np
import pytest

from laplacebook.beyond.no_u_turn import Place, settled, transitions

CHAINS = 8
COVARIANCE = np.array([[1.0, 0.9, 0], [0.9, 2, 0.5], [0, 0.5, 0.3]])
PRECISION = np.linalg.inv(COVARIANCE)


def normal(x):
    return -np.sum(x @ PRECISION * x, axis=1) / 2, -x @ PRECISION


def log_gamma(x):
    """Of the logarithm of an exponential variable: skew."""
    return np.sum(x - np.exp(x), axis=1), 1 - np.exp(x)


def half_normal(x):
    """Below zero there is no density."""
    return np.where(x[:, 0] > 0, -(x[:, 0] ** 2) / 2, np.nan), np.where(x > 0, -x, np.nan)


def sampled(density, size, number):
    def follow(x, memories):
        assert len(x) == len(memories)
        return [Place(*one, None) for one in zip(x, *density(x), strict=True)]

    generators = [np.random.default_rng([7, k]) for k in range(CHAINS)]
    places = follow(0.5 * np.ones((CHAINS, size)), [None] * CHAINS)
    moved, step = settled(follow, places, 0.5, 100, generators, lambda: None)
    counted = []
    places = [chain[-1].place for chain in moved]
    moved = transitions(follow, places, step, number, generators, lambda: counted.append(1))
    assert len(counted) == CHAINS * number
    return moved


def points(moved):
    return np.array([[one.place.x for one in chain] for chain in moved])


def test_a_correlated_normal():
    x = points(sampled(normal, 3, 600)).reshape(-1, 3)
    np.testing.assert_allclose(x.mean(axis=0) / np.sqrt(np.diag(COVARIANCE)), 0, atol=0.05)
    np.testing.assert_allclose(np.cov(x.T), COVARIANCE, atol=0.12)
    assert np.corrcoef(x.T)[0, 1] == pytest.approx(0.9 / 2**0.5, abs=0.03)


def test_a_skew_density_and_its_acceptance():
    moved = sampled(log_gamma, 2, 1000)
    x = points(moved)
    assert np.mean([one.acceptance for chain in moved for one in chain]) == pytest.approx(
        0.8, abs=0.1
    )
    assert x.mean() == pytest.approx(-np.euler_gamma, abs=0.05)
    assert x.std() == pytest.approx(np.pi / 6**0.5, rel=0.04)
    held = [np.mean(x < np.log(-np.log(1 - p))) for p in (0.05, 0.5, 0.95)]
    np.testing.assert_allclose(held, [0.05, 0.5, 0.95], atol=0.02)


def test_where_there_is_no_density_no_chain_stays():
    moved = sampled(half_normal, 1, 600)
    x = points(moved)
    assert x.min() > 0
    assert x.mean() == pytest.approx((2 / np.pi) ** 0.5, abs=0.04)
    failed = [one.failed for chain in moved for one in chain if one.failed is not None]
    assert len(failed) > 100 and max(float(one[0]) for one in failed) <= 0
    assert sum(one.diverged for chain in moved for one in chain) == len(failed)
