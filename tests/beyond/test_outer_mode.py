"""The search for the mode of the hyperparameters, where they are all but exchangeable for one another."""

import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from laplacebook.beyond.outer_mode import outer_mode


@pytest.mark.parametrize("condition", [10, 1e3, 1e5])
@pytest.mark.parametrize("size", [2, 3, 8])
def test_a_ridge_is_followed_to_its_highest_point_and_measured(size, condition):
    rng = np.random.default_rng(0)
    ways = np.linalg.qr(rng.normal(size=(size, size)))[0]
    root = ways * np.geomspace(2, 2 * condition**0.5, size)  # of the precision
    middle = rng.normal(size=size)
    looks = []

    def heights(points, scale):
        looks.append(len(points))
        return -np.sum(((points - middle) @ root) ** 2, axis=1) / 2

    mode = outer_mode(heights, np.full(size, 2.0))
    assert mode.found
    assert np.linalg.norm(root.T @ (mode.point - middle)) < 0.05
    np.testing.assert_allclose(np.linalg.svd(root.T @ mode.axes)[1], 1, atol=1e-6)
    assert sum(looks) < 200 * size


def test_a_ridge_without_an_end_has_no_mode():
    def heights(points, scale):
        return -500 * (points[:, 0] - points[:, 1]) ** 2

    assert not outer_mode(heights, np.array([2.0, 1.0])).found


def sums(y, size):
    h = numpyro.sample("h", dist.Normal(0, 100).expand([size]).to_event(1))
    with numpyro.plate("rows", len(y)):
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(h.sum() + z, 0.5), obs=y)


@pytest.mark.parametrize("size", [2, 7])
def test_hyperparameters_of_which_the_data_tell_the_sum_alone(size):
    y = 1 + np.random.default_rng(0).normal(size=30)
    fit = lb.nested(sums, y, size, over="h")
    assert fit.doubt is None and "NUTS" not in fit.grid.told()
    precision = np.eye(size) / 100**2 + 30 / 1.25
    covariance = np.linalg.inv(precision)
    sd = covariance.diagonal() ** 0.5
    mean = covariance @ np.full(size, y.sum() / 1.25)
    np.testing.assert_allclose(fit.mean["h"], mean, atol=0.05 * sd.max())
    np.testing.assert_allclose(fit.standard_deviation["h"], sd, rtol=0.03)
    law = stats.multivariate_normal(np.zeros(30), 1.25 * np.eye(30) + size * 100**2)
    assert fit.log_evidence == pytest.approx(law.logpdf(y), abs=0.05)
