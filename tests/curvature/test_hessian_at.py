"""A Hessian by the columns of a few coordinates and of the others, beside that of all at once."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.base.jaxprs import primitives
from laplacebook.curvature.hessian import factorises, few_of, hessian_at
from laplacebook.model.density import LikelihoodDensity, ModelDensity
from laplacebook.search import search

RNG = np.random.default_rng(0)
SIZE = 110
X = np.sort(RNG.uniform(0, 10, SIZE))
Y = RNG.poisson(np.exp(1 + np.sin(X)))


def field(x, y):
    """In no order that its sites have by size: a covariance of two, and a mean beside."""
    length = numpyro.sample("length", dist.LogNormal(0, 0.5))
    covariance = jnp.exp(-((x[:, None] - x) ** 2) / 2 / length**2) + 1e-3 * jnp.eye(len(x))
    f = numpyro.sample("f", dist.MultivariateNormal(jnp.zeros(len(x)), covariance))
    both = numpyro.sample("both", dist.HalfNormal(1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(both[0] * f + both[1])).to_event(1), obs=y)


def groups(y):
    scale = numpyro.sample("scale", dist.Gamma(2.0, 2.0))
    with numpyro.plate("groups", SIZE):
        effect = numpyro.sample("effect", dist.Normal(0, scale))
        numpyro.sample("y", dist.Poisson(jnp.exp(effect)), obs=y)


DENSITIES = {
    "field": ModelDensity.of(field, (X, Y), {}),
    "constrained": ModelDensity.of(groups, (Y,), {}, "constrained"),
    "likelihood": LikelihoodDensity.of(field, (X, Y), {}),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_it_is_the_hessian(name):
    density = DENSITIES[name]
    assert few_of(density) == (("scale",) if name == "constrained" else ("length", "both"))
    u = jnp.asarray(0.5 + 0.1 * RNG.normal(size=density.dimension))
    value, (terms, valid), slope, hessian = jax.jit(hessian_at)(density, u)
    loss = lambda u: density.loss(u)[0]  # noqa: E731
    exact = jax.jit(jax.hessian(loss))(u)
    np.testing.assert_allclose(hessian, exact, rtol=1e-9, atol=1e-9 * float(abs(exact).max()))
    np.testing.assert_array_equal(hessian, hessian.T)
    np.testing.assert_allclose(value, loss(u), rtol=1e-12)
    np.testing.assert_allclose(slope, jax.grad(loss)(u), rtol=1e-8, atol=1e-8)
    assert bool(valid) and float(terms.log_likelihood) == pytest.approx(
        float(density.terms(u).log_likelihood)
    )


def test_few_columns_take_the_derivative_of_a_factor():
    """A batch of factors to differentiate is as large as the few, and not as the others."""
    density = DENSITIES["field"]
    assert factorises(density) and not factorises(DENSITIES["constrained"])
    program = jax.make_jaxpr(hessian_at)(density, jnp.ones(density.dimension))
    assert "cholesky" in primitives(program)
    widest = max(
        np.prod(variable.aval.shape) for variable in _inputs_of(program.jaxpr, "triangular_solve")
    )
    assert widest <= 3 * SIZE**2 + 1


def _inputs_of(program, name):
    for equation in program.eqns:
        if equation.primitive.name == name:
            yield from equation.invars
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from _inputs_of(inner, name)


@pytest.mark.parametrize("sizes", [(SIZE,), (3, 4), (9, SIZE), (*[8] * 5, SIZE)])
def test_without_few_and_many_there_is_one_kind(sizes):
    def plain(u):
        return -sum(jnp.sum(x**2) for x in u.values())

    start = {f"x{i:02}": np.ones(size) for i, size in enumerate(sizes)}
    assert few_of(lb.laplace_of_density(plain, start).density) == ()


def test_a_plain_density_has_both():
    def plain(u):
        return -jnp.sum((u["x"] - jnp.exp(u["s"])) ** 2) - u["s"] ** 2

    approx = lb.laplace_of_density(plain, {"x": np.ones(SIZE), "s": np.array(1.0)})
    assert len(few_of(approx.density)) == 1
    np.testing.assert_allclose(approx.mode["x"], 1, atol=1e-8)
    exact = jax.hessian(lambda u: approx.density.loss(u)[0])(approx.mode_vector)
    np.testing.assert_allclose(approx.precision.matrix, exact, atol=1e-9)


def test_a_joint_fit_of_a_field_is_that_of_its_evidence():
    """Given its length: by Laplace's method, in closed form for a normal outcome."""

    def normal(x, y):
        mean = numpyro.sample("mean", dist.Normal(0, 2))
        covariance = jnp.exp(-((x[:, None] - x) ** 2) / 2) + 1e-3 * jnp.eye(len(x))
        f = numpyro.sample("f", dist.MultivariateNormal(jnp.zeros(len(x)), covariance))
        numpyro.sample("y", dist.Normal(mean + f, 0.5).to_event(1), obs=y)

    approx = lb.laplace(normal, X, np.sin(X))
    covariance = np.exp(-((X[:, None] - X) ** 2) / 2) + (1e-3 + 0.25) * np.eye(SIZE) + 4
    exact = dist.MultivariateNormal(np.zeros(SIZE), covariance).log_prob(np.sin(X))
    assert float(approx.log_evidence) == pytest.approx(float(exact), abs=1e-6)


def test_such_a_fit_is_driven_however_often_and_long(monkeypatch):
    """The whole loop as one program would differentiate the factor in each column."""
    monkeypatch.setattr(search, "LONG", 0.0)
    monkeypatch.setattr(search, "_compiled", None)
    first, again = (lb.laplace(field, X, Y, throw=False) for _ in range(2))
    np.testing.assert_array_equal(first.mode_vector, again.mode_vector)
