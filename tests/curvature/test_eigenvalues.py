"""The largest eigenpairs of a whitened matrix, and when they are refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import laplacebook as lb
from laplacebook.curvature.eigenvalues import top_eigenpairs

D = 24
rng = np.random.default_rng(0)
BASIS = np.linalg.qr(rng.normal(size=(D, D)))[0]
P = rng.uniform(0.5, 2, size=D)
SPECTRUM = np.array([50.0, 9.0, 9.0, 4.0, 1.0, -2.0] + [0.0] * (D - 6))


def curvature(spectrum):
    root = np.sqrt(P)[:, None] * BASIS
    return root @ np.diag(spectrum) @ root.T


def times(matrix, v):
    return matrix @ v


G = jnp.asarray(curvature(SPECTRUM))


@pytest.mark.parametrize(
    ("rank", "atol"), [(5, 0), (7, 1e-10), (12, 1e-12), (D, 1e-12), (D + 1, 1e-12)]
)
def test_the_largest_eigenpairs_and_no_others(rank, atol):
    """One of them twice, some of many zeros, a negative one; twelve come from all 24, seven do not."""
    vectors, values = top_eigenpairs(Partial(times, G), P, rank)
    assert vectors.shape == (D, min(rank, D))
    expected = np.sort(SPECTRUM)[::-1][:rank]
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=atol)
    kept = curvature(np.where(expected[-1] <= SPECTRUM, SPECTRUM, 0))
    np.testing.assert_allclose(vectors @ np.diag(values) @ vectors.T, kept, atol=max(atol, 1e-12))


def test_what_is_no_eigenpair_is_refused():
    skew = G + 30 * np.triu(np.ones((D, D)), 1)
    with pytest.raises(lb.NotConverged, match="eigenpairs"):
        top_eigenpairs(Partial(times, skew), P, 3)


def test_what_has_no_eigenpairs_is_refused():
    with pytest.raises(lb.NonFinite, match="curvature of the likelihood"):
        top_eigenpairs(Partial(times, jnp.nan * G), P, 3)
    with pytest.raises(lb.NotPositiveDefinite, match="2 of its 24"):
        top_eigenpairs(Partial(times, G), np.where(np.arange(D) < 2, 0.0, P), 3)
    with pytest.raises(ValueError, match="1 or more"):
        top_eigenpairs(Partial(times, G), P, 0)
