"""The same model written in two ways: where theory says so, the same approximation."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.infer import reparam

import laplacebook as lb

Y = np.array([1.0, 2.5, -0.5, 1.7])
X = np.array([[1.0, 0.3], [0.2, -1.0], [0.5, 2.0], [1.5, 0.1]])


def logistic(w):
    numpyro.sample("y", dist.Bernoulli(logits=jnp.asarray(X) @ w).to_event(1), obs=(Y > 1) * 1)


def as_event():
    logistic(numpyro.sample("w", dist.Normal(1, 2).expand([2]).to_event(1)))


def as_plate():
    with numpyro.plate("D", 2):
        w = numpyro.sample("w", dist.Normal(1, 2))
    logistic(w)


def as_two_sites():
    first, second = (numpyro.sample(name, dist.Normal(1, 2)) for name in ("w0", "w1"))
    logistic(jnp.stack([first, second]))


def in_other_order():
    second, first = (numpyro.sample(name, dist.Normal(1, 2)) for name in ("w1", "w0"))
    logistic(jnp.stack([first, second]))


def non_centred():
    z = numpyro.sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    logistic(numpyro.deterministic("w", 1 + 2 * z))


def correlated():
    z = numpyro.sample("z", dist.Normal(0, 1).expand([2]).to_event(1))
    logistic(1 + 2 * jnp.array([[0.6, 0.8], [-0.8, 0.6]]) @ z)


def by_factor():
    w = numpyro.sample("w", dist.ImproperUniform(dist.constraints.real_vector, (), (2,)))
    numpyro.factor("prior", dist.Normal(1, 2).log_prob(w).sum())
    numpyro.factor("y", dist.Bernoulli(logits=X @ w).log_prob((Y > 1) * 1).sum())


by_reparam = handlers.reparam(as_plate, config={"w": reparam.LocScaleReparam(0)})
by_condition = handlers.condition(
    lambda: numpyro.sample("v", dist.Normal(0, numpyro.sample("s", dist.HalfNormal(1)))),
    data={"s": jnp.array(2.0)},
)


def rate_in_log():
    log_rate = numpyro.sample("log", dist.TransformedDistribution(dist.Gamma(2.0, 1.0), LOG))
    numpyro.sample("y", dist.Poisson(jnp.exp(log_rate)).expand([3]).to_event(1), obs=COUNTS)


def rate():
    r = numpyro.sample("r", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Poisson(r).expand([3]).to_event(1), obs=COUNTS)


LOG, COUNTS = dist.transforms.ExpTransform().inv, np.array([1, 4, 2])


@pytest.mark.parametrize(
    "other",
    [as_plate, as_two_sites, correlated, by_factor, by_reparam],
    ids=lambda model: f"{type(model).__name__} {getattr(model, '__name__', None)}",
)
def test_affine_coordinates_do_not_matter(other):
    one, two = lb.laplace(as_event), lb.laplace(other)
    assert two.log_evidence == pytest.approx(float(one.log_evidence), rel=1e-9)
    assert two.density.loss(two.mode_vector)[0] + (two.log_likelihood + two.log_prior) == (
        pytest.approx(0, abs=1e-12)
    )


def test_the_order_of_sites_is_the_order_of_coordinates():
    one, two = lb.laplace(as_two_sites), lb.laplace(in_other_order)
    np.testing.assert_allclose(one.mode_vector, two.mode_vector[::-1], rtol=1e-7)
    np.testing.assert_allclose(
        one.precision.matrix, two.precision.matrix[::-1, ::-1], rtol=1e-9, atol=1e-12
    )


def test_covariance_in_the_coordinates_of_the_other_model():
    centred, standard = lb.laplace(as_event), lb.laplace(non_centred)
    np.testing.assert_allclose(centred.covariance, 4 * standard.covariance, rtol=1e-7)
    np.testing.assert_allclose(centred.mode["w"], 1 + 2 * standard.mode["z"], rtol=1e-7)


def test_a_positive_site_is_its_logarithm():
    one, two = lb.laplace(rate), lb.laplace(rate_in_log)
    assert one.log_evidence == pytest.approx(float(two.log_evidence), rel=1e-10)
    assert one.mode_vector[0] == pytest.approx(float(two.mode["log"]), rel=1e-8)
    constrained = lb.laplace(rate, space="constrained")
    assert constrained.log_evidence != pytest.approx(float(one.log_evidence), rel=1e-4)


def test_conditioning_is_observing():
    approx = lb.laplace(by_condition)
    assert approx.log_likelihood == pytest.approx(float(dist.HalfNormal(1).log_prob(2.0)))
    assert float(approx.covariance[0, 0]) == pytest.approx(4, rel=1e-10)
