"""Predictions by the layers of a network, against the whole Jacobian through all rows."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.base.jaxprs import array_sizes
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.predictive import linearized
from tests.curvature.test_convolutions import convolve

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(7, 3, 3, 2))
SHAPES = {"kernel": (2, 2, 2, 3), "bias": (3,), "turned": (4, 12), "scale": (), "last": (4, 2)}
D = sum(int(np.prod(shape)) for shape in SHAPES.values())
U = jnp.array(RNG.normal(size=D))


def network(x, y=None, outputs=2):
    """A convolution at four positions, a weight that is written transposed, and others that are no layers."""
    sites = {
        name: numpyro.sample(name, dist.Normal(0, 1).expand(shape).to_event(len(shape)))
        for name, shape in SHAPES.items()
    }
    maps = convolve(x, sites["kernel"], "NHWC HWIO NHWC", {}) + sites["bias"]
    hidden = jnp.tanh(jnp.tanh(maps).reshape(len(x), -1) @ sites["turned"].T)
    f = jnp.exp(sites["scale"]) * hidden @ sites["last"]
    numpyro.sample("y", dist.Normal(f, 0.5).to_event(1), obs=y)


def positive(size):
    root = RNG.normal(size=(size, size))
    return jnp.array(root @ root.T)


def kronecker():
    two = {"kernel": (8, 3), "turned": (4, 12), "last": (4, 2)}
    return lb.KroneckerPrecision.of(
        tuple(
            lb.KroneckerBlock(*map(positive, two[name]), jnp.array(2.0))
            if name in two
            else positive(int(np.prod(shape)))
            for name, shape in SHAPES.items()
        )
    )


def dense_kernel():
    """A layer of which the block has no factors."""
    first, *others = kronecker().blocks
    return lb.KroneckerPrecision((lb.DensePrecision.of(positive(first.size)), *others))


PRECISIONS = {
    "kronecker": kronecker(),
    "a dense kernel": dense_kernel(),
    "diagonal": lb.DiagonalPrecision(jnp.array(RNG.gamma(2, size=D))),
}


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("name", PRECISIONS)
def test_moments_are_those_of_the_whole_jacobian(name, joint, monkeypatch):
    precision = PRECISIONS[name]
    density = ModelDensity.of(network, (IMAGES[:2], np.zeros((2, 2))))
    monkeypatch.setattr(linearized, "_AT_ONCE", 500)  # several batches, of which the last is filled
    fit = (density, Call.of(network, (IMAGES,)), U, precision, None, joint)
    found, same = linearized._by_rows(*fit)
    assert same

    def predictor(u):
        at = jax.tree.map(jnp.asarray, density.unravel(u))
        with numpyro.handlers.seed(rng_seed=0):
            trace = numpyro.handlers.trace(numpyro.handlers.substitute(network, at))
            return trace.get_trace(IMAGES)["y"]["fn"].base_dist.loc

    jacobian = np.asarray(jax.jacobian(predictor)(U))
    expected = np.einsum("ncd,de,nfe->ncf", jacobian, np.linalg.inv(precision.matrix), jacobian)
    np.testing.assert_allclose(found.mean, predictor(U), rtol=1e-12)
    np.testing.assert_allclose(found.variance, np.einsum("ncc->nc", expected), rtol=1e-9)
    if joint:
        np.testing.assert_allclose(found.covariance, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("structure", ["diagonal", "kronecker"])
def test_no_row_of_a_jacobian_is_in_memory(structure):
    """Of a dense network no array is larger than the units of all rows, or than a weight."""
    N, width = 50, 40
    fit = ModelDensity.of(
        lb.models.bayesian_mlp, (np.ones((2, 3)), np.zeros(2)), {"widths": (width, width)}
    )
    precision = lb.DiagonalPrecision(jnp.ones(fit.dimension))
    if structure == "kronecker":
        two = [(3, width), (width, width), (width, 1)]
        blocks = [
            block
            for m, k in two
            for block in (lb.KroneckerBlock(jnp.eye(m), jnp.eye(k), jnp.array(1.0)), jnp.eye(k))
        ]
        precision = lb.KroneckerPrecision.of(tuple(blocks))

    def variances(features, u):
        new = Call.of(lb.models.bayesian_mlp, (features,), {"widths": (width, width)})
        return linearized._by_rows(fit, new, u, precision, None, False)

    shapes = [jax.ShapeDtypeStruct(shape, float) for shape in ((N, 3), (fit.dimension,))]
    assert max(array_sizes(jax.make_jaxpr(variances)(*shapes).jaxpr)) <= N * width


def test_a_precision_that_is_not_positive_has_no_variance():
    negative = PRECISIONS["diagonal"].diagonal.at[3].set(-1.0)
    density = ModelDensity.of(network, (IMAGES[:2], np.zeros((2, 2))))
    new = Call.of(network, (IMAGES,))
    found, _ = linearized._by_rows(density, new, U, lb.DiagonalPrecision(negative), None, True)
    assert np.all(np.isnan(found.variance))
