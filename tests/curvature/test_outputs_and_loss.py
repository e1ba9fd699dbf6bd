"""A likelihood as outputs and a loss, over all rows and one by one."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.curvature.outputs_and_loss import split_likelihood
from laplacebook.curvature.row_jacobians import sum_over_rows
from laplacebook.model.density import ModelDensity
from laplacebook.model.rows import rows_of
from tests.models import single_precision

rng = np.random.default_rng(0)
X = rng.normal(size=(7, 2))
real, binary = rng.normal(size=7), rng.integers(0, 2, 7)
u = jnp.asarray(rng.normal(size=7))

#: distribution of the outcome given a (7, 3) and a scale; data; outputs a row; whether it is convex
FAMILIES = {
    "normal": (lambda a, s: dist.Normal(a[:, 0], 0.3), real, 1, True),
    "normal, scale too": (lambda a, s: dist.Normal(a[:, 0], s), real, 2, True),
    "vector": (lambda a, s: dist.Normal(a, 0.2).to_event(1), rng.normal(size=(7, 3)), 3, True),
    "log-normal": (lambda a, s: dist.LogNormal(a[:, 0], 0.5), np.exp(real), 2, True),
    "logits": (lambda a, s: dist.Bernoulli(logits=a[:, 0]), binary, 1, True),
    "probabilities": (lambda a, s: dist.Bernoulli(jax.nn.sigmoid(a[:, 0])), binary, 1, True),
    "binomial": (lambda a, s: dist.Binomial(3, logits=a[:, 1]), binary, 1, True),
    "categorical": (lambda a, s: dist.Categorical(logits=a), binary, 3, True),
    "poisson": (lambda a, s: dist.Poisson(jnp.exp(a[:, 0])), binary, 1, True),
    "student": (lambda a, s: dist.StudentT(4.0, a[:, 0], 0.1), real, 1, False),
    "masked": (lambda a, s: dist.Normal(a[:, 0], 0.3).mask(binary > 0), real, 1, True),
}


def network(family, X, y=None, z=None):
    """The rows count twice; with z there are two observed sites."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 3]).to_event(2))
    s = numpyro.sample("s", dist.HalfNormal(1.0))
    a = jnp.tanh(X @ w)
    with numpyro.plate("n", X.shape[0]), numpyro.handlers.scale(scale=2.0):
        numpyro.sample("y", FAMILIES[family][0](a, s), obs=y)
        if z is not None:
            numpyro.sample("z", dist.Bernoulli(logits=a[:, 1]), obs=z)


def density_of(family, *more):
    return ModelDensity.of(partial(network, family), (X, FAMILIES[family][1], *more))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_loss_of_the_outputs_is_minus_the_log_likelihood_of_all_rows_and_of_each(family):
    density, (_, _, width, convex) = density_of(family), FAMILIES[family]
    by_row = family != "masked"
    rows = rows_of(density) if by_row else None
    if by_row:
        assert (rows.number, rows.carried) == (7, (True, True))

    @jax.jit
    def found(density, u):
        eta, loss = split_likelihood(density, u)

        def one(index):
            eta, loss = split_likelihood(rows.take(index[None]), u)
            return eta(u), loss(eta(u))

        points = u, u.at[1].add(0.3)
        pairs = [(loss(eta(at)), -density.terms(at).log_likelihood) for at in points]
        each = jax.vmap(one)(jnp.arange(7)) if by_row else None
        return pairs, jax.hessian(loss)(eta(u)), each

    pairs, curvature, each = found(density, u)
    np.testing.assert_allclose(*zip(*pairs, strict=True), rtol=1e-12)
    assert (np.linalg.eigvalsh(curvature)[0] > -1e-12) == convex
    if by_row:
        outputs, losses = each
        assert outputs.shape == (7, width)
        assert losses.sum() == pytest.approx(float(pairs[0][1]), rel=1e-12)


def test_the_model_is_run_four_times_for_the_curvature_of_its_rows(monkeypatch):
    """To see what its outputs depend on, for their program, at a row, and for the loss of the row."""
    density, runs, trace = density_of("categorical"), [], ModelDensity.trace
    rows = rows_of(density)
    monkeypatch.setattr(ModelDensity, "trace", lambda *args: runs.append(1) or trace(*args))
    jax.eval_shape(
        lambda u: sum_over_rows(rows, u, "gauss_newton", None, lambda row: row.hessians.sum(0)), u
    )
    assert len(runs) == 4


def test_the_curvature_of_classes_keeps_its_digits_where_one_is_all_but_certain():
    """p (1 - p) of a probability of 0.999994 is known to two digits in single precision."""
    logits = np.array([12.0, 0.0, -3.0])

    def classes(y):
        moved = logits + numpyro.sample("a", dist.Normal(0, 1).expand([3]).to_event(1))
        numpyro.sample("y", dist.Categorical(logits=moved), obs=y)

    p = np.exp(logits) / np.exp(logits).sum()
    exact = np.diag(p) - np.outer(p, p)
    exact[0, 0] = p[0] * (p[1] + p[2])

    @jax.jit
    def curvature(density, u):
        eta, loss = split_likelihood(density, u)
        return jax.hessian(loss)(eta(u))

    for label in (0, 1):
        with single_precision():
            density = ModelDensity.of(classes, (np.array(label),))
            found = curvature(density, jnp.zeros(3))
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, exact, rtol=3e-6)


def test_a_factor_and_a_prior_alone_are_refused():
    def factor(X, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]))
        numpyro.factor("y", -jnp.sum((X @ w - y) ** 2))

    for density in (
        ModelDensity.of(factor, (X, real)),
        ModelDensity.of(lambda X: factor(X, 0.0), (X,)),
    ):
        with pytest.raises(lb.UnsupportedModel, match=r"numpyro\.factor"):
            split_likelihood(density, jnp.zeros(2))
    prior = ModelDensity.of(lambda: numpyro.sample("w", dist.Normal(0, 1).expand([2])))
    with pytest.raises(lb.UnsupportedModel, match="observes nothing"):
        split_likelihood(prior, jnp.zeros(2))


def scaled_by_a_latent(X, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]))
    with numpyro.plate("n", 7), numpyro.handlers.scale(scale=jnp.exp(w[0])):
        numpyro.sample("y", dist.Normal(X @ w, 1), obs=y)


def data_less_a_latent(X, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]))
    numpyro.sample("y", dist.Normal(X @ w, 1), obs=y - w[0])


def masked_by_a_latent(X, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]))
    numpyro.sample("y", dist.Normal(X @ w, 1).mask(X[:, 0] > w[0]), obs=y)


@pytest.mark.parametrize("model", [scaled_by_a_latent, data_less_a_latent, masked_by_a_latent])
def test_what_outputs_do_not_tell_is_refused(model):
    with pytest.raises(
        lb.UnsupportedModel, match="the scale or the mask of 'y' depends on a latent"
    ):
        split_likelihood(ModelDensity.of(model, (X, real)), jnp.zeros(2))


def of_fixed_size(X, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]))
    with numpyro.plate("n", 7):
        numpyro.sample("y", dist.Normal(X @ w, 1), obs=y)


def effect_by_row(X, y):
    with numpyro.plate("n", X.shape[0]):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(w, 1), obs=y)


def one_outcome(X, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]))
    numpyro.sample("y", dist.Normal(jnp.sum(X @ w), 1), obs=y[0])


@pytest.mark.parametrize("model", [of_fixed_size, effect_by_row, one_outcome])
def test_rows_that_cannot_be_taken_apart_are_refused(model):
    with pytest.raises(lb.UnsupportedModel, match="one by one"):
        rows_of(ModelDensity.of(model, (X, real)))


def test_rows_may_have_weights():
    """Such as those of rare classes, here of a linear model, whose Gauss-Newton matrix is exact."""
    weights = rng.integers(1, 4, 7) * 1.0

    def weighted(x, y, weights):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
        with numpyro.plate("n", len(x)), numpyro.handlers.scale(scale=weights):
            numpyro.sample("y", dist.Normal(x @ w, 1), obs=y)

    exact = (X.T * weights) @ X + np.eye(2)
    for batch_size in (None, 3):
        fit = lb.laplace(
            weighted, X, real, weights, curvature="gauss_newton", batch_size=batch_size
        )
        np.testing.assert_allclose(np.linalg.inv(fit.covariance), exact, rtol=1e-10)
    fisher = lb.laplace(weighted, X, real, weights, curvature="empirical_fisher")
    scores = X * (weights * (real - X @ fisher.mode["w"]))[:, None]
    np.testing.assert_allclose(
        np.linalg.inv(fisher.covariance), scores.T @ scores + np.eye(2), rtol=1e-8
    )
