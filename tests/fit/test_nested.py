"""A fit within a density that is itself approximated: the effects integrated out."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import optimize, stats

import laplacebook as lb

Y = np.array([1.0, 2.0, 0.0, 3.0])


def effect(h, y):
    """Of which the evidence is normal: y has the covariance exp(2h) I + 1."""
    z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(z, jnp.exp(h)), obs=y)


def log_evidence(h):
    return stats.multivariate_normal(np.zeros(4), np.eye(4) * np.exp(2 * h) + 1).logpdf(Y)


def hyper(y):
    h = numpyro.sample("h", dist.Normal(0, 1))
    numpyro.factor("integral", lb.laplace(effect, h, y).log_evidence)


def same_names(y):
    """The outer model has sites, a plate and a scale of the same names as the inner one."""
    z = numpyro.sample("z", dist.Normal(0, 1))
    with numpyro.plate("rows", 1):
        integral = lb.laplace(effect, z, y).log_evidence
    with handlers.scale(scale=1.0):
        numpyro.factor("y", integral)


@pytest.fixture(scope="module")
def truth():
    """The mode, its log joint and the curvature there, by SciPy with the exact integral."""
    f = lambda h: -log_evidence(h) - stats.norm.logpdf(h)  # noqa: E731
    best = optimize.minimize_scalar(f, options={"xtol": 1e-12})
    bend = (f(best.x + 1e-3) - 2 * best.fun + f(best.x - 1e-3)) / 1e-6
    return best.x, -best.fun + np.log(2 * np.pi / bend) / 2


@pytest.mark.parametrize("model", [hyper, same_names])
def test_the_effects_are_integrated_out(model, truth):
    approx = lb.laplace(model, Y)
    mode, evidence = truth
    np.testing.assert_allclose(approx.mode_vector, [mode], atol=1e-6)
    assert float(approx.log_evidence) == pytest.approx(evidence, abs=1e-5)


def test_a_handler_around_the_outer_model_is_of_that_model(truth):
    twice = lb.laplace(handlers.scale(hyper, 2.0), Y)
    once = optimize.minimize_scalar(lambda h: -log_evidence(h) - stats.norm.logpdf(h))
    assert float(twice.log_likelihood + twice.log_prior) == pytest.approx(-2 * once.fun, rel=1e-9)


def test_an_inner_fit_without_a_mode_makes_the_outer_one_fail():
    def ratio(y):
        h = numpyro.sample("h", dist.Normal(0, 1))

        def unbounded(h):
            z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real, (), ()))
            numpyro.factor("slope", h * z)

        numpyro.factor("integral", lb.laplace(unbounded, h).log_evidence)

    failed = lb.laplace(ratio, Y, throw=False)
    assert not failed.certificate.converged and np.isnan(failed.log_evidence)


def test_within_handlers_of_the_user_it_is_refused():
    with (
        handlers.seed(rng_seed=0),
        pytest.raises(lb.UnsupportedModel, match="within NumPyro handlers"),
    ):
        lb.laplace(effect, 0.1, Y)
