"""Nine heads and a Cauchy prior: what the chapter says of it, computed in other ways.

The truth is mpmath's quadrature with 20 digits; no draw of the chapter is used again.
"""

from functools import cache

import jax
import mpmath as mp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import optimize, stats
from scipy.special import log_expit, roots_hermitenorm

import laplacebook as lb

SCALE = 2.5
RUNS = 200


def coin(y, prior):
    theta = numpyro.sample("theta", prior)
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=theta), obs=y)


def log_joint(theta):
    return 9 * log_expit(theta) - np.log(np.pi * SCALE * (1 + (theta / SCALE) ** 2))


@cache
def fit():
    return lb.laplace(coin, np.ones(9), dist.Cauchy(0, SCALE))


@cache
def log_evidence():
    def joint(theta):
        return 1 / ((1 + mp.exp(-theta)) ** 9 * mp.pi * SCALE * (1 + (theta / SCALE) ** 2))

    with mp.workdps(20):
        return float(mp.log(mp.quad(joint, [-mp.inf, -10, 0, 3, 10, 100, mp.inf])))


def center_and_scale():
    best = optimize.minimize_scalar(lambda x: -log_joint(x), bounds=(0, 10), method="bounded")
    step = 1e-3
    A = -np.dot([1, -2, 1], log_joint(best.x + step * np.array([-1, 0, 1]))) / step**2
    return best.x, A**-0.5


def test_mode_scale_evidence_and_the_share_beyond():
    mode, scale = center_and_scale()
    assert fit().mode["theta"] == pytest.approx(mode, abs=1e-5)
    assert fit().standard_deviation["theta"] == pytest.approx(scale, rel=1e-4)
    assert log_evidence() == pytest.approx(-1.368215, abs=5e-7)
    assert fit().log_evidence - log_evidence() == pytest.approx(-0.5734, abs=5e-5)
    tail = mp.quad(lambda x: mp.exp(float(log_joint(float(x)))), [mode + 4 * scale, 30, 300, 3e4])
    beyond = float(tail) + stats.cauchy(0, SCALE).sf(3e4)  # where all is heads
    assert beyond / np.exp(log_evidence()) == pytest.approx(0.31, abs=5e-3)


def runs(proposal, number, seed):
    """(estimate, stated error) of each run of importance sampling."""
    theta = proposal.rvs((RUNS, number), random_state=np.random.default_rng(seed))
    w = np.exp(log_joint(theta) - proposal.logpdf(theta))
    return np.log(w.mean(1)), w.std(1, ddof=1) / w.mean(1) / np.sqrt(number)


@pytest.mark.parametrize("number", [1_000, 10_000])
def test_which_error_bars_hold(number):
    held = {}
    for seed in (1, 2):
        for name, proposal in (
            ("gaussian", stats.norm(*center_and_scale())),
            ("five", stats.t(5, *center_and_scale())),
            ("one", stats.t(1, *center_and_scale())),
        ):
            value, stated = runs(proposal, number, seed)
            held[name] = np.mean(abs(value - log_evidence()) < 2 * stated)
        assert held["gaussian"] < 0.3 < held["five"] < 0.7 < 0.9 < held["one"]


@pytest.mark.parametrize("degrees", [1, 2, 5])
def test_weights_grow_by_the_difference_of_the_powers(degrees):
    theta = np.array([1e5, 1e7])
    log_w = log_joint(theta) - stats.t(degrees, *center_and_scale()).logpdf(theta)
    assert np.diff(log_w)[0] / np.log(100) == pytest.approx(degrees - 1, abs=1e-3)


def test_the_package_on_it():
    key = jax.random.key(3)
    heavy = lb.importance_sampling(fit(), key, degrees_of_freedom=1.0)
    assert abs(heavy.value - log_evidence()) < 4 * heavy.standard_error < 0.1
    u = np.random.default_rng(4).uniform(size=40_000)
    prior = SCALE * np.tan(np.pi * (u - 0.5))
    keep = np.log(np.random.default_rng(5).uniform(size=u.size)) < 9 * log_expit(prior)
    bridge = lb.bridge_sampling(fit(), {"theta": prior[keep][:4000]}, key)  # by rejection
    assert abs(bridge.value - log_evidence()) < 4 * bridge.standard_error < 0.1


def test_quadrature_crawls():
    mode, scale = center_and_scale()
    errors = {}
    for number in (40, 120, 160):
        z, w = roots_hermitenorm(number)
        value = np.log(scale * (w @ np.exp(log_joint(mode + scale * z) + z**2 / 2)))
        errors[number] = value - log_evidence()
        assert lb.gauss_hermite(fit(), number) == pytest.approx(value, abs=1e-5)
    assert errors[40] / errors[160] == pytest.approx(2, abs=0.1)
    assert errors[160] == pytest.approx(-0.0717, abs=5e-5)
    assert errors[160] - errors[120] == pytest.approx(0.011, abs=5e-4)
