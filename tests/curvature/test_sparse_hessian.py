"""The sparse Hessian, with its terms of low rank, against the dense one by JAX; and where it has entries."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan

import laplacebook as lb
from laplacebook.curvature.sparse_hessian import SparseHessian
from laplacebook.curvature.sparse_pattern import generic_point
from laplacebook.model.density import ModelDensity
from laplacebook.search.sparse_search import pattern_of

RNG = np.random.default_rng(0)

T, N = 40, 120

FLAT = dist.ImproperUniform(dist.constraints.real, (), ())

COUNTS = RNG.poisson(3.0, T)

Y, X = RNG.normal(size=N), RNG.normal(size=N)

ONE, OTHER = RNG.integers(0, 12, N), RNG.integers(0, 5, N)

LATTICE = np.arange(36).reshape(6, 6)

EDGES = np.concatenate(
    [
        np.stack([LATTICE[1:].ravel(), LATTICE[:-1].ravel()]),
        np.stack([LATTICE[:, 1:].ravel(), LATTICE[:, :-1].ravel()]),
    ],
    axis=1,
)

Y36 = RNG.poisson(2.0, 36)


def ar1(y):
    b, s = numpyro.sample("b", FLAT), numpyro.sample("s", dist.HalfNormal(1))
    phi = numpyro.sample("phi", dist.Uniform(-1, 1))
    z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real_vector, (), (len(y),)))
    numpyro.factor("first", dist.Normal(0, s / jnp.sqrt(1 - phi**2)).log_prob(z[0]))
    numpyro.factor("rest", dist.Normal(phi * z[:-1], s).log_prob(z[1:]).sum())
    numpyro.sample("y", dist.Poisson(jnp.exp(b + z)).to_event(1), obs=y)


def walk(y):
    z = numpyro.sample("z", dist.GaussianRandomWalk(0.5, num_steps=len(y)))
    numpyro.sample("y", dist.Poisson(jnp.exp(z)).to_event(1), obs=y)


def plates(g, x, y):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", 12):
        z = numpyro.sample("z", dist.Normal(0, tau))
        slope = numpyro.sample("slope", dist.Normal(0, 1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.StudentT(4, z[g] + slope[g] * x, 1), obs=y)


def crossed(one, other, y):
    a = numpyro.sample("a", dist.Normal(0, 1).expand([12]).to_event(1))
    b = numpyro.sample("b", dist.Normal(0, 1).expand([5]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=a[one] + b[other]).to_event(1), obs=y > 0)


def centred(edges, y):
    a = numpyro.sample("a", dist.Normal(0, 1))
    phi = numpyro.sample("phi", dist.Normal(0, 1).expand([len(y)]).to_event(1))
    numpyro.factor("icar", -0.5 * jnp.sum((phi[edges[0]] - phi[edges[1]]) ** 2))
    numpyro.sample("y", dist.Poisson(jnp.exp(a + phi - phi.mean())).to_event(1), obs=y)


def nested_sums(y):
    """A variance about a mean: one sum uses another, and is bent."""
    z = numpyro.sample("z", dist.Normal(0, 1).expand([len(y)]).to_event(1))
    numpyro.factor("variance", -jnp.log1p(jnp.sum((z - z.mean()) ** 2)))
    numpyro.sample("y", dist.Poisson(jnp.exp(z)).to_event(1), obs=y)


def transformed(y):
    with numpyro.plate("ten", 10):
        p = numpyro.sample("p", dist.Beta(2, 3))
        w = numpyro.sample("w", dist.Dirichlet(jnp.ones(3)))
    mean = p[:, None] + w @ jnp.arange(12.0).reshape(3, 4)
    numpyro.sample("y", dist.Normal(mean, 1).to_event(2), obs=y.reshape(10, 4))


def masked(y):
    z = numpyro.sample("z", dist.GaussianRandomWalk(1.0, num_steps=len(y)))
    with handlers.mask(mask=~jnp.isnan(y)), numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(z**3, 1), obs=jnp.where(jnp.isnan(y), 0, y))


def spline(basis, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([basis.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(basis @ w)).to_event(1), obs=y)


def branches(y, wide):
    z = numpyro.sample("z", dist.Normal(0, 1).expand([len(y)]).to_event(1))
    mean = jax.lax.cond(jnp.sum(wide) > 0, lambda z: jnp.exp(z), lambda z: z[::-1] * z, z)
    numpyro.sample("y", dist.Normal(mean, 1).to_event(1), obs=y)


def tiny(y):
    z = numpyro.sample("z", dist.Normal(0, 1).expand([len(y)]).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(jnp.cumsum(z))).to_event(1), obs=y)


def by_values(y):
    """A neighbour that counts where a state is positive, and nowhere else."""
    z = numpyro.sample("z", dist.Normal(0, 1).expand([len(y)]).to_event(1))
    mean = jnp.where(z[:-1] > 0, z[:-1] * z[1:], z[1:])
    numpyro.sample("y", dist.Normal(mean, 1).to_event(1), obs=y[1:])


def hats(rows, number):
    """A basis of linear splines: each row has two entries."""
    at = np.linspace(0, number - 1, rows)
    return np.maximum(0, 1 - abs(at[:, None] - np.arange(number)))


def chain(size):
    return np.eye(size) + np.eye(size, k=1) + np.eye(size, k=-1)


def arrow(head, rest):
    size = head + len(rest)
    whole = np.ones((size, size))
    whole[head:, head:] = rest
    return whole


def graph(edges, size):
    both = np.eye(size)
    both[edges[0], edges[1]] = both[edges[1], edges[0]] = 1
    return both


HOLES = np.where(np.arange(T) % 5 == 0, np.nan, RNG.normal(size=T))

AR1 = arrow(3, chain(T))

AR1[0, 1:3] = AR1[1:3, 0] = 0  # b meets the states alone

BACKWARDS = np.eye(T) + np.eye(T)[::-1]

# The model, its data, where S has entries if that is known, and the rank of what is beside it. Effects by
# group and loops are below.
MODELS = {
    "AR(1)": (ar1, (COUNTS,), AR1, 0),
    "centred": (centred, (EDGES, Y36), arrow(1, graph(EDGES, 36)), 2),
    "nested sums": (nested_sums, (COUNTS,), np.eye(T), 4),
    "transformed": (transformed, (Y[:T],), None, 0),
    "masked rows": (masked, (HOLES,), chain(T), 0),
    "spline": (spline, (hats(T, 12), COUNTS), chain(12), 0),
    "a branch": (branches, (Y[:T], np.ones(3)), np.eye(T), 0),
    "another branch": (branches, (Y[:T], -np.ones(3)), BACKWARDS, 0),
    "one": (tiny, (COUNTS[:1],), np.ones((1, 1)), 0),
    "by values": (by_values, (Y[:T],), chain(T), 0),
    "a walk and float32": (walk, (COUNTS.astype("float32"),), chain(T), 0),
}


def density_of(model, data):
    return ModelDensity.of(model, data)


@jax.jit
def whole(precision):
    return precision.matrix


def assert_is_the_hessian(density, pattern, u):
    precision = pattern.precision(jax.device_get(pattern.parts_at(density, u)))
    dense = np.asarray(jax.jit(jax.hessian(lambda u: density.loss(u)[0]))(u))
    bends = abs(np.diagonal(dense))
    scale = np.where(bends > 0, bends, 1) ** -0.5
    error = scale[:, None] * (np.asarray(whole(precision)) - dense) * scale
    assert np.abs(error).max() < 1e-10 * np.abs(scale[:, None] * dense * scale).max()
    assert not pattern.misses(density, u, precision)
    return precision


@pytest.mark.parametrize("name", MODELS)
def test_against_the_dense_hessian(name):
    model, data, places, rank = MODELS[name]
    density = density_of(model, data)
    u = np.random.default_rng(3).normal(size=density.dimension) / 2
    pattern = SparseHessian.of(density, np.zeros_like(u))
    precision = assert_is_the_hessian(density, pattern, u)
    if places is not None:
        found = np.zeros(places.shape, int)
        found[pattern.layout.rows, pattern.layout.cols] = 1
        whole = found + np.tril(found, -1).T
        # Up to JAX 0.10.1 the entries of the branch that is not taken are kept, too, as zeros.
        kept = places < BACKWARDS if name == "a branch" else 0
        np.testing.assert_array_equal(np.where(kept, 0, whole), places)
    assert precision.left.shape[1] == rank


def innovations(y):
    z = numpyro.sample("z", dist.Normal(0, 1).expand([len(y)]).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(jnp.cumsum(0.01 * z))).to_event(1), obs=y)


def test_a_dense_hessian_is_refused_where_it_is_large():
    refused = density_of(innovations, (np.ones(501, int),))
    begin = time.perf_counter()
    with pytest.raises(lb.UnsupportedModel, match="is not sparse: a typical one of its 501") as why:
        SparseHessian.of(refused, np.zeros(501))
    assert time.perf_counter() - begin < 20
    assert "cumsum" in str(why.value) and "make the states themselves the site" in str(why.value)
    small = density_of(innovations, (np.ones(60, int),))
    pattern = SparseHessian.of(small, np.zeros(60))
    assert pattern.layout.rows.size == 60 * 61 // 2
    assert_is_the_hessian(small, pattern, np.zeros(60))


def looped(y):
    """Which neighbours meet is decided by numbers, within a loop that cannot be read."""

    def step(before, here):
        z = numpyro.sample("z", dist.Normal(0, 1))
        meet = jnp.where(before > 0.5, before * z, z)
        numpyro.sample("y", dist.Normal(meet, 1), obs=here)
        return z, None

    scan(step, 0.0, y)


def test_a_pattern_that_is_another_one_elsewhere_is_caught_and_found_anew():
    density = density_of(looped, (Y[:20],))
    low, high = np.full(20, -1.0), np.full(20, 2.0)
    pattern = SparseHessian.of(density, low)
    assert pattern.layout.rows.size == 20
    there = pattern.precision(jax.device_get(pattern.parts_at(density, high)))
    assert pattern.misses(density, high, there)
    assert_is_the_hessian(density, SparseHessian.of(density, high), high)


def test_a_kept_pattern_serves_other_data_and_not_other_labels():
    u = np.full(17, 0.1)
    density = density_of(crossed, (ONE, OTHER, Y))
    first = pattern_of(density, u)
    assert pattern_of(density_of(crossed, (ONE, OTHER, Y + 1)), u) is first
    swapped = density_of(crossed, (ONE[::-1], OTHER, Y))
    second = pattern_of(swapped, u)
    assert second.layout != first.layout
    assert_is_the_hessian(swapped, second, u)


def test_a_covariate_that_was_zero_and_is_not_is_seen():
    u = np.full(25, 0.1)
    zeros = pattern_of(density_of(plates, (ONE, 0 * X, Y)), u)
    pattern = pattern_of(density_of(plates, (ONE, X, Y)), u)
    assert pattern.layout.rows.size == zeros.layout.rows.size + 12


def unequal(a, y):
    """Most coordinates are known to a millionth, and two that are known badly meet."""
    z = numpyro.sample("z", dist.Normal(0, 1).expand([len(y)]).to_event(1))
    numpyro.sample("y", dist.Normal(z, 1e-8).to_event(1), obs=y)
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.factor("pair", -0.5 * (w[0] + w[1] * a[0]) ** 2)


def test_an_entry_is_missed_whatever_the_scale_of_the_others():
    density = density_of(unequal, (np.zeros(1), Y))
    u = np.zeros(N + 2)
    pattern = pattern_of(density, u)
    places = pattern.layout.rows != N + 1  # the same, without the entry of the two
    kept = places | (pattern.layout.cols == N + 1)
    assert kept.sum() == N + 2
    blind = SparseHessian(
        type(pattern.layout)(N + 2, pattern.layout.rows[kept], pattern.layout.cols[kept]),
        np.zeros(N + 2, np.int32),
        np.arange(N + 2),
        1,
        0,
        (),
    )
    joined = density_of(unequal, (np.ones(1), Y))
    for at, missed in ((density, False), (joined, True)):
        precision = blind.precision(jax.device_get(blind.parts_at(at, u)))
        assert blind.misses(at, u, precision) == missed


GROUPS, ITEMS = 30, 12

GROUP, ITEM = RNG.integers(0, GROUPS, N), RNG.integers(0, ITEMS, N)

BITS = RNG.integers(0, 2, N)

SEEN = RNG.random(N) < 0.8


def effects(scale=1.0):
    with numpyro.plate("groups", GROUPS):
        u = numpyro.sample("u", dist.Normal(0, scale))
    with numpyro.plate("items", ITEMS):
        v = numpyro.sample("v", dist.Normal(0, scale))
    return u, v


def with_slopes(y):
    b = numpyro.sample("b", dist.Normal(0, 1))
    u, v = effects()
    eta = 0.3 + b * X + u[GROUP] * X + v[ITEM]
    with numpyro.plate("rows", N):
        numpyro.sample("y", dist.Poisson(jnp.exp(eta / 2)), obs=y)


def masked_outcome(y):
    """Beside another one."""
    u, v = effects()
    with handlers.mask(mask=SEEN):
        numpyro.sample("y", dist.Bernoulli(logits=u[GROUP] - v[ITEM]), obs=y)
    numpyro.sample("x", dist.StudentT(4, 2 * u[GROUP], 0.5), obs=X)


def correlated(y):
    """An effect twice in a row: one entry of the Jacobian, not two."""
    u, v = effects()
    numpyro.sample("y", dist.Bernoulli(logits=u[GROUP] + u[(GROUP + 1) % GROUPS] + v[ITEM]), obs=y)


def scaled_effects(y):
    """The predictor is a product of coordinates, and not affine."""
    s = numpyro.sample("s", dist.HalfNormal(1))
    u, v = effects()
    numpyro.sample("y", dist.Bernoulli(logits=s * u[GROUP] + v[ITEM]), obs=y)


def row_against_row(y):
    """Neighbours among the rows meet in the likelihood: it is no sum over rows."""
    u, v = effects()
    eta = u[GROUP] + v[ITEM]
    numpyro.factor("pairs", -0.5 * jnp.sum((eta[1:] * eta[:-1] - 1) ** 2))


def correlated_pairs(y):
    """A prior with a triangular solve, of which the search for a pattern knows nothing."""
    root = jnp.array([[1.0, 0.0], [0.4, 0.9]])
    with numpyro.plate("groups", GROUPS):
        u = numpyro.sample("u", dist.MultivariateNormal(jnp.zeros(2), scale_tril=root))
    eta = u[GROUP, 0] + u[GROUP, 1] * X
    numpyro.sample("y", dist.Bernoulli(logits=eta).to_event(1), obs=y)


def found(model):
    density = ModelDensity.of(model, (BITS,), {})
    point = generic_point(density, np.asarray(density.start(), float))
    pattern = SparseHessian.of(density, point)
    parts = jax.device_get(pattern.parts_at(density, jnp.asarray(point)))
    whole = np.asarray(pattern.precision(parts).matrix)
    exact = np.asarray(jax.jit(jax.hessian(lambda u: density.loss(u)[0]))(point))
    np.testing.assert_allclose(whole, exact, rtol=1e-10, atol=1e-10 * np.abs(exact).max())
    return pattern


@pytest.mark.parametrize(
    ("model", "products"),
    [(with_slopes, 3), (masked_outcome, 3), (correlated, 4)],
)
def test_a_predictor_holds_the_hessian_in_few_products(model, products):
    pattern = found(model)
    assert pattern.predictor is not None
    assert pattern.predictor[1] <= products
    assert pattern.number <= 2


@pytest.mark.parametrize("model", [scaled_effects, row_against_row, correlated_pairs])
def test_what_is_no_affine_predictor_or_not_seen_to_be_is_not_taken_for_one(model):
    assert found(model).predictor is None
