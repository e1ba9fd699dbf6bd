"""A fit of a network by its Hessian begins where rounds by the Gauss-Newton matrix end."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.models import bayesian_mlp
from laplacebook.search import looks, search
from tests.models import single_precision
from tests.test_next_calls import compiled

NETWORK = partial(bayesian_mlp, widths=(31,), likelihood="bernoulli")


def rows(dtype=float):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(546, 6))
    signal = np.sin(x[:, 0]) + x[:, 1] * x[:, 2] / 2
    return x.astype(dtype), (signal + 0.3 * rng.normal(size=546) > 0).astype(dtype)


@pytest.fixture
def afar(monkeypatch):
    """Searches without an approach are counted."""
    begun = []
    compiled = search.compiled_search
    monkeypatch.setattr(
        search,
        "compiled_search",
        lambda *args, **options: begun.append(1) or compiled(*args, **options),
    )
    return begun


def test_a_few_newton_steps_are_left_and_again_at_a_second_call(afar):
    approx = lb.laplace(NETWORK, *rows())
    assert approx.mode_vector.size == 249 and approx.certificate.converged
    assert approx.certificate.iterations < 40  # over 100 from afar
    again = []
    assert not compiled(lambda: again.append(lb.laplace(NETWORK, *rows())))
    np.testing.assert_array_equal(again[0].mode_vector, approx.mode_vector)
    assert not afar
    near = approx.density.loss(approx.mode_vector + 1e-4)[0]
    assert near > approx.density.loss(approx.mode_vector)[0]


@pytest.mark.parametrize("coordinates", [50, 200], ids=["compiled", "driven"])
def test_a_matrix_without_rows_is_searched_as_ever(coordinates, afar, monkeypatch):
    monkeypatch.setattr(looks, "COORDINATES", coordinates)

    def wishes(y):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([15, 15]).to_event(2))
        numpyro.factor("wish", -((w - y) ** 2).sum() - jnp.logaddexp(w, -w).sum())

    approx = lb.laplace(wishes, np.arange(225.0).reshape(15, 15) / 100)
    assert approx.certificate.converged and bool(afar) == (coordinates == 50)


def test_effects_by_two_are_approached_without_a_word(afar):
    """Of correlated slopes the precision on the way is not positive definite: no warning of NumPy gets out."""
    rng = np.random.default_rng(1)

    def slopes(y, x):
        scale = numpyro.sample("scale", dist.HalfNormal(1).expand([2]).to_event(1))
        corr = numpyro.sample("corr", dist.LKJCholesky(2, 2.0))
        noise = numpyro.sample("noise", dist.HalfNormal(1))
        with numpyro.plate("groups", 105):
            effect = dist.MultivariateNormal(0, scale_tril=scale[:, None] * corr)
            b = numpyro.sample("b", effect)
        numpyro.sample("y", dist.Normal(b[:, :1] + b[:, 1:] * x, noise).to_event(2), obs=y)

    x = rng.normal(size=10)
    intercepts, slope = rng.normal(size=(2, 105, 1))
    y = intercepts + 0.7 * slope * x + rng.normal(size=(105, 10))
    with np.errstate(all="raise"), pytest.raises(lb.LaplaceError, match="integrate"):
        lb.laplace(slopes, y, x)
    assert not afar


def test_a_refusal_in_single_precision_leads_to_gauss_newton():
    with single_precision():
        data = rows("float32")
        with pytest.raises(
            lb.LaplaceError,
            match=r"(?s)rounding: of a network.*enable_x64.*gauss_newton",
        ):
            lb.laplace(NETWORK, *data)
        assert lb.laplace(NETWORK, *data, curvature="gauss_newton").certificate.converged
