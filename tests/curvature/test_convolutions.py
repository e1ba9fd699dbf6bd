"""Kronecker factors of convolutions, against loops over the positions of an image."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.base.convolutions import with_products
from laplacebook.base.jaxprs import primitives
from laplacebook.curvature import gauss_newton, settings
from laplacebook.curvature.kfac import kronecker_factors, kronecker_factors_and_diagonal
from laplacebook.model.density import ModelDensity

RNG = np.random.default_rng(0)
N = 4

#: layouts of JAX of image, kernel and output, sizes of the image and of the kernel, and options
CONVOLUTIONS = {
    "HWIO, with options": (
        "NHWC HWIO NHWC",
        (5, 4),
        (3, 2),
        {"window_strides": (2, 1), "padding": ((1, 1), (0, 2)), "rhs_dilation": (1, 3)},
    ),
    "OIHW, transposed": (
        "NCHW OIHW NCHW",
        (2, 3),
        (3, 2),
        {"lhs_dilation": (2, 1), "padding": ((2, 1), (-1, 2))},
    ),
    "IHWO": ("NHWC IHWO NCHW", (4, 4), (2, 3), {}),
    "in three": ("NDHWC DHWIO NDHWC", (3, 2, 3), (2, 2, 2), {"padding": "SAME"}),
    "as large as the image": ("NCHW OIHW NCHW", (2, 3), (2, 3), {}),
}
CHANNELS, OUTPUTS = 2, 3


def sizes(layout, names, space):
    """The shape of an array in a layout, such as NHWC: the letters of space in their order."""
    rest = iter(space)
    return tuple(names[letter] if letter in names else next(rest) for letter in layout)


def convolve(x, kernel, layouts, options):
    options = {"window_strides": (1,) * (x.ndim - 2), "padding": "VALID"} | options
    return jax.lax.conv_general_dilated(x, kernel, **options, dimension_numbers=layouts.split())


def convolutional(x, y=None, kernel=(), layouts="", options=None):
    """One convolution, after which each row has two outputs, not linear in it."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand(kernel).to_event(len(kernel)))
    z = convolve(x, w, layouts, options)
    mixed = jnp.tanh(z).reshape(len(x), -1)
    mixing = jnp.cos(1.0 + jnp.arange(mixed.shape[1] * 2)).reshape(-1, 2)
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Normal(mixed @ mixing, 0.5).to_event(1), obs=y)


def problem(name):
    layouts, image, kernel, options = CONVOLUTIONS[name]
    of_image, of_kernel, _ = layouts.split()
    x = RNG.normal(size=sizes(of_image, {"N": N, "C": CHANNELS}, image))
    shape = sizes(of_kernel, {"I": CHANNELS, "O": OUTPUTS}, kernel)
    about = {"kernel": shape, "layouts": layouts, "options": options}
    density = ModelDensity.of(convolutional, (x, RNG.normal(size=(N, 2))), about)
    return density, x, RNG.normal(size=shape), about


def derivatives(x, kernel, layouts, options):
    """The outputs of a convolution, their derivatives by its kernel, and of both outputs of a row by them."""
    convolved = jax.jit(lambda w: convolve(x, w, layouts, options))
    z, by_kernel = map(np.asarray, (convolved(kernel), jax.jit(jax.jacobian(convolved))(kernel)))
    mixing = np.cos(1.0 + np.arange(z[0].size * 2)).reshape(*z[0].shape, 2)
    return z, by_kernel, (1 - np.tanh(z) ** 2)[..., None] * mixing


def by_loops(z, by_kernel, by_output, layouts):
    """A and B of a kernel whose outputs are its first or its last axis, from the map that it is.

    One position after another: as the convolution is linear in the kernel, its derivative there, for
    the first output, are the inputs, in the order of the kernel without its axis of outputs.
    """
    of_kernel, of_output = layouts.split()[1:]
    of_inputs = np.moveaxis(by_kernel, z.ndim + of_kernel.index("O"), -1)
    space = [z.shape[i] for i, letter in enumerate(of_output) if letter not in "NC"]
    inputs, outputs = 0, 0
    for n, place in itertools.product(range(N), np.ndindex(*space)):
        at = sizes(of_output, {"N": n, "C": slice(None)}, place)
        a = of_inputs[at][0, ..., 0].ravel()
        inputs = inputs + np.outer(a, a) / (N * np.prod(space))
        outputs = outputs + 4.0 * by_output[at] @ by_output[at].T
    return (inputs, outputs) if of_kernel.endswith("O") else (outputs, inputs)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_factors_and_blocks_are_sums_over_rows_and_positions(name):
    """Of a kernel that is applied once, and so counts as a layer of its own; IHWO has no factors."""
    density, x, kernel, about = problem(name)
    z, by_kernel, by_output = derivatives(x, kernel, about["layouts"], about["options"])

    @jax.jit
    def found(density, u):
        blocks = gauss_newton.diagonal(density, u), gauss_newton.dense(density, u)
        if name == "IHWO":
            return blocks, None
        return blocks, kronecker_factors_and_diagonal(density, u, "gauss_newton", 3)

    (diagonal, dense), with_factors = found(density, jnp.asarray(kernel).ravel())
    slopes = np.einsum(
        "nzd,nzk->nkd", by_kernel.reshape(N, z[0].size, -1), by_output.reshape(N, -1, 2)
    )
    exact = 4.0 * np.einsum("nkd,nke->de", slopes, slopes)
    np.testing.assert_allclose(dense, exact, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(diagonal, np.diagonal(exact), rtol=1e-9, atol=1e-12)
    if with_factors:
        (factors,), of_the_same_rows = with_factors
        expected = by_loops(z, by_kernel, by_output, about["layouts"])
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), factors, expected)
        np.testing.assert_allclose(of_the_same_rows, diagonal, rtol=1e-12)


def linear(x, y=None, kernel=(), layouts=""):
    w = numpyro.sample("w", dist.Normal(0, 1).expand(kernel).to_event(len(kernel)))
    with numpyro.plate("N", len(x)):
        z = convolve(x, w, layouts, {}).reshape(len(x), -1)
        numpyro.sample("y", dist.Normal(z, 0.5).to_event(1), obs=y)


def test_a_kernel_at_one_position_of_a_linear_network_has_the_exact_precision():
    """There H and J do not depend on the row, and the posterior is Gaussian."""
    x, y = RNG.normal(size=(N, 2, 1, 4)), RNG.normal(size=(N, OUTPUTS))
    options = {"kernel": (3, 1, 4, 2), "layouts": "NCHW OHWI NHWC"}
    about = {"curvature": "gauss_newton", "structure": "kronecker"}
    exact = lb.laplace(linear, x, y, **options)
    fit = lb.laplace(linear, x, y, **options, **about)
    dense, kronecker = np.asarray(exact.covariance), np.asarray(fit.covariance)
    np.testing.assert_allclose(kronecker, dense, rtol=1e-6, atol=1e-9)
    assert float(fit.log_evidence) == pytest.approx(float(exact.log_evidence), rel=1e-6)
    one, other = (lb.predict(a, x, **options, method="linearized") for a in (exact, fit))
    np.testing.assert_allclose(
        other.epistemic_covariance, one.epistemic_covariance, rtol=1e-6, atol=1e-9
    )


def refused_kernel(x, y, shape, layer):
    w = numpyro.sample("w", dist.Normal(0, 1).expand(shape).to_event(4))
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.Normal(layer(x, w).sum((1, 2, 3)), 1), obs=y)


def plain(x, w, **options):
    return convolve(x, w, "NHWC HWIO NHWC", options)


KERNELS = {
    r"feature_group_count=2\s+\(a\s+depthwise": (
        (2, 2, 1, 4),
        lambda x, w: plain(x, w, feature_group_count=2),
    ),
    r"2\s+places": ((2, 2, 2, 2), lambda x, w: plain(jnp.tanh(plain(x, w)), w)),
    r"of\s+which\s+it\s+is\s+not\s+the\s+kernel": (
        (1, 3, 3, 2),
        lambda x, w: jax.vmap(lambda k: plain(w, k[..., None]))(x)[:, 0],
    ),
    r"only\s+parts\s+of\s+it": ((2, 2, 2, 2), lambda x, w: plain(x, w[:1])),
    r"neither\s+its\s+first\s+nor": (
        (2, 2, 2, 2),
        lambda x, w: convolve(x, w, "NHWC IHOW NHWC", {}),
    ),
}


@pytest.mark.parametrize("words", KERNELS)
def test_a_kernel_without_kronecker_factors_is_refused(words):
    shape, layer = KERNELS[words]
    x, y = RNG.normal(size=(N, 3, 3, 2)), RNG.normal(size=N)
    density = ModelDensity.of(refused_kernel, (x, y, shape, layer))
    with pytest.raises(lb.UnsupportedModel, match=rf"'w'[^$]*{words}[^$]*structure=\"block\""):
        kronecker_factors(density, jnp.ones(int(np.prod(shape))))


def three_axes(x, y):
    """A weight of three axes, as attention has, and a scale of three axes that multiplies nothing else."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2, 2, 3]).to_event(3))
    s = numpyro.sample("s", dist.Normal(0, 1).expand([3, 1, 1]).to_event(3))
    with numpyro.plate("N", len(x)):
        heads = jnp.einsum("nd,dhe->nhe", x, w)
        numpyro.sample("y", dist.Normal((heads * s[:, 0, 0]).sum((1, 2)), 0.5), obs=y)


def test_of_other_sites_with_many_axes_a_weight_has_factors_and_the_rest_a_block():
    x, y = RNG.normal(size=(N, 2)), RNG.normal(size=N)
    density = ModelDensity.of(three_axes, (x, y))
    u = jnp.asarray(RNG.normal(size=15))
    (one, two), block = kronecker_factors(density, u)
    assert (one.shape, two.shape) == ((2, 2), (6, 6))
    exact = jax.jit(gauss_newton.dense_at_once)(density, u)
    np.testing.assert_allclose(np.kron(one, two), exact[:12, :12], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(block, exact[12:, 12:], rtol=1e-9, atol=1e-12)


def test_memory_is_asked_for_once_it_is_known_which_sites_are_kernels(monkeypatch):
    """Before that, a site of four axes is taken for one."""
    of_kernel, _, _, _ = problem("HWIO, with options")
    options = settings.Settings("gauss_newton", "kronecker")
    least = settings.precision_bytes(of_kernel.sites, options, float)
    assert least == 6 * 8 * (12**2 + 3**2 + 36)
    monkeypatch.setattr(settings, "available_memory", lambda: least)
    jax.block_until_ready(kronecker_factors(of_kernel, jnp.ones(36)))

    def scaled(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 1).expand([3, 2, 2, 3]).to_event(4))
        with numpyro.plate("N", len(x)):
            numpyro.sample("y", dist.Normal(jnp.sum(w**2) * x, 1), obs=y)

    block = ModelDensity.of(scaled, (RNG.normal(size=N), RNG.normal(size=N)))
    settings.require_memory(block.sites, options, float)
    with pytest.raises(lb.LaplaceError, match=r"kronecker precision of 36 coordinates needs"):
        kronecker_factors(block, jnp.ones(36))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_as_a_product_of_matrices_it_is_the_same(name):
    """With its derivatives by the kernel and by the image."""
    layouts, image, kernel, options = CONVOLUTIONS[name]
    of_image, of_kernel, _ = layouts.split()
    x = jnp.asarray(RNG.normal(size=sizes(of_image, {"N": N, "C": CHANNELS}, image)))
    w = jnp.asarray(RNG.normal(size=sizes(of_kernel, {"I": CHANNELS, "O": OUTPUTS}, kernel)))

    def layer(w, x):
        return jnp.tanh(convolve(x, w, layouts, options)) * jax.nn.relu(1 + jnp.cos(x.sum()))

    program = jax.make_jaxpr(layer)(w, x)
    by_products = with_products(program)
    assert "conv_general_dilated" in primitives(program)
    assert "conv_general_dilated" not in primitives(jax.make_jaxpr(by_products)(w, x))
    (found, slopes), (expected, known) = (
        jax.jit(lambda *a, f=f: (f(*a), jax.grad(lambda *a: jnp.sin(f(*a)).sum(), (0, 1))(*a)))(
            w, x
        )
        for f in (by_products, layer)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    for slope, other in zip(slopes, known, strict=True):
        np.testing.assert_allclose(slope, other, rtol=1e-10, atol=1e-12)


def test_a_convolution_with_groups_stays_one():
    def layer(w, x):
        return jax.lax.conv_general_dilated(x, w, (1,), "SAME", feature_group_count=2)

    w, x = jnp.asarray(RNG.normal(size=(2, 1, 3))), jnp.asarray(RNG.normal(size=(N, 2, 5)))
    by_products = with_products(jax.make_jaxpr(layer)(w, x))
    np.testing.assert_allclose(by_products(w, x), layer(w, x), rtol=1e-12)
