"""Many effects integrated out by a sparse Hessian, against the dense one, differences and TMB."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from laplacebook.beyond.kept_integrals import _INTEGRALS
from laplacebook.model.density import ModelDensity

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
FLAT = dist.ImproperUniform(dist.constraints.real, (), ())
SERIES = lb.datasets.ar1_counts()


def ar1(y, x=0.0):
    b, log_s, p = (numpyro.sample(name, dist.Normal(0, 3)) for name in ("b", "log_s", "p"))
    s, phi = jnp.exp(log_s), 2 / (1 + jnp.exp(-p)) - 1
    states = dist.ImproperUniform(dist.constraints.real_vector, (), (len(y),))
    z = numpyro.sample("z", states)
    numpyro.factor("first", dist.Normal(0, s / jnp.sqrt(1 - phi**2)).log_prob(z[0]))
    numpyro.factor("rest", dist.Normal(phi * z[:-1], s).log_prob(z[1:]).sum())
    numpyro.sample("y", dist.Poisson(jnp.exp(b + z + x)).to_event(1), obs=y)


LATTICE = np.arange(25).reshape(5, 5)
EDGES = np.concatenate(
    [
        np.stack([LATTICE[1:].ravel(), LATTICE[:-1].ravel()]),
        np.stack([LATTICE[:, 1:].ravel(), LATTICE[:, :-1].ravel()]),
    ],
    axis=1,
)


def icar(edges, y, x):
    b, tau = numpyro.sample("b", dist.Normal(0, 2)), numpyro.sample("tau", dist.HalfNormal(2))
    phi = numpyro.sample("phi", dist.Normal(0, 1).expand([40]).to_event(1).mask(False))
    squares = jnp.sum((phi[:25][edges[0]] - phi[:25][edges[1]]) ** 2) + jnp.sum(phi[25:] ** 2)
    numpyro.factor("icar", -0.5 * tau * squares + 19.5 * jnp.log(tau))
    numpyro.factor("soft", dist.Normal(0, 0.04).log_prob(jnp.sum(phi)))
    numpyro.sample("y", dist.Poisson(jnp.exp(b * x + phi)).to_event(1), obs=y)


def crossed(one, other, x, y):
    s = numpyro.sample("s", dist.HalfNormal(1).expand([2]).to_event(1))
    w = numpyro.sample("w", dist.Normal(0, 1))
    a = numpyro.sample("a", dist.Normal(0, s[0]).expand([8]).to_event(1))
    c = numpyro.sample("c", dist.Normal(0, s[1]).expand([5]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=a[one] + c[other] + w * x).to_event(1), obs=y)


ONE, OTHER = RNG.integers(0, 8, 60), RNG.integers(0, 5, 60)
X, BITS = RNG.normal(size=60), RNG.integers(0, 2, 60)
# The model, the sites, the data, and which of these is a covariate.
CASES = {
    "series": (ar1, "z", (SERIES[:40], 0.3 * RNG.normal(size=40)), 1, [0.9, -1.0, 2.0]),
    "map": (icar, "phi", (EDGES, RNG.poisson(2.0, 40), RNG.normal(size=40)), 2, [0.2, 0.3]),
}


def loss_of(marginal, *args):
    density = ModelDensity.of(marginal, args)
    return lambda u: density.loss(u)[0]


def levels(hyper, y):
    """The mode of the effects of the series, their covariance and the log of their integral, by NumPy."""
    b, s, phi = hyper["b"], np.exp(hyper["log_s"]), 2 / (1 + np.exp(-hyper["p"])) - 1
    steps = np.eye(y.size) - phi * np.eye(y.size, k=-1)
    steps[0, 0] = np.sqrt(1 - phi**2)
    prior, z = steps.T @ steps / s**2, np.zeros(y.size)
    for _ in range(30):
        rate = np.exp(b + z)
        precision = prior + np.diag(rate)
        z = z + np.linalg.solve(precision, y - rate - prior @ z)
    value = stats.poisson(np.exp(b + z)).logpmf(y).sum() - z @ prior @ z / 2
    value += (np.linalg.slogdet(prior)[1] - np.linalg.slogdet(precision)[1]) / 2
    return z, np.linalg.inv(precision), value


def loss(marginal, name, u, x):
    _, _, data, k, _ = CASES[name]
    return loss_of(marginal, *data[:k], x, *data[k + 1 :])(u)


LOOK = jax.jit(jax.value_and_grad(loss, (2, 3)), static_argnums=(0, 1))


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient_in_hyperparameters_and_in_data(name):
    model, sites, data, k, u = CASES[name]
    sparse, dense = (lb.marginalize(model, sites, structure=s) for s in ("sparse", "dense"))
    sparse.prepare(data, {})
    u, x = jnp.array(u), jnp.array(data[k])
    (found, slopes), (value, expected) = (LOOK(m, name, u, x) for m in (sparse, dense))
    assert float(found) == pytest.approx(float(value), rel=1e-10)
    for one, other in zip(slopes, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)
    for way_u, way_x in ((1.0, 0.0), (0.0, 1.0)):
        step = way_u * jnp.linspace(1, 2, u.size), way_x * jnp.cos(jnp.arange(x.size))
        ahead, behind = (
            LOOK(sparse, name, u + sign * 1e-4 * step[0], x + sign * 1e-4 * step[1])[0]
            for sign in (1, -1)
        )
        slope = float(slopes[0] @ step[0] + slopes[1] @ step[1])
        assert float(ahead - behind) / 2e-4 == pytest.approx(slope, rel=1e-6, abs=1e-6)


@pytest.fixture(scope="module")
def series():
    marginal = lb.marginalize(ar1, "z", structure="sparse")
    marginal.prepare(CASES["series"][2], {})
    return marginal


def test_under_vmap_it_says_the_same(series):
    points = np.array([[0.9, -1.0, 2.0], [1.1, -1.5, 3.0], [0.8, -0.5, 1.0]])
    y, x = CASES["series"][2]
    values, slopes = zip(*(LOOK(series, "series", u, x) for u in points), strict=True)
    slopes = np.array([slope[0] for slope in slopes])
    of_one = loss_of(series, y, x)
    found, slope = jax.jit(jax.vmap(jax.value_and_grad(of_one)))(points)
    np.testing.assert_allclose(found, np.array(values), rtol=1e-12)
    np.testing.assert_allclose(slope, slopes, 1e-8, 1e-9)
    slope = jax.jit(jax.grad(lambda u: jnp.sum(jax.vmap(of_one)(u))))(points)
    np.testing.assert_allclose(slope, slopes, 1e-8, 1e-9)


def test_maximum_likelihood_is_that_of_tmb(series):
    approx = lb.maximum_likelihood(series, SERIES)
    assert float(approx.log_likelihood) == pytest.approx(-4158.187, abs=5e-4)
    np.testing.assert_allclose(approx.mode_vector, [0.9807363, -1.204325, 2.954963], rtol=1e-6)
    errors = [0.06923815, 0.05138142, 0.1377107]
    np.testing.assert_allclose(np.sqrt(np.diagonal(approx.covariance)), errors, rtol=1e-5)
    assert approx.certificate.converged


def test_draws_and_the_effects_given_the_others(series):
    y = SERIES[:40]
    hyper = {"b": 0.9, "log_s": -1.0, "p": 2.0}
    mode, covariance, evidence = levels(hyper, y)
    given = series.given(hyper, y)
    np.testing.assert_allclose(given.mode["z"], mode, atol=1e-8)
    assert float(given.log_evidence) == pytest.approx(evidence, abs=1e-8)
    samples = {name: np.full(60, value) for name, value in hyper.items()}
    draws = series.sample(KEY, samples, y)["z"]
    assert draws.shape == (60, 40)
    scores = (draws - mode) / np.sqrt(np.diagonal(covariance))
    assert abs(scores.mean()) < 0.15 and abs(scores.std() - 1) < 0.1


def test_other_data_of_the_same_shapes_in_between():
    """Its memory of the last mode, and of where the Hessian has entries, is of other data then."""
    sparse, dense = (lb.marginalize(crossed, ["a", "c"], structure=s) for s in ("sparse", "dense"))
    look = jax.jit(lambda one, bits, u: jax.value_and_grad(loss_of(dense, one, OTHER, X, bits))(u))
    evidences = []
    for one, bits in ((ONE[::-1], BITS), (ONE, BITS[::-1]), (ONE, BITS)):
        fit = lb.laplace(sparse, one, OTHER, X, bits)
        value, slope = look(one, bits, fit.mode_vector)
        assert float(fit.log_likelihood + fit.log_prior) == pytest.approx(-float(value), abs=1e-7)
        np.testing.assert_allclose(fit.covariance @ slope, 0, atol=1e-7)
        evidences.append(float(fit.log_evidence))
    assert np.min(np.diff(np.sort(evidences))) > 1e-3


def test_a_program_that_keeps_another_pattern_says_nothing():
    marginal = lb.marginalize(crossed, ["a", "c"], structure="sparse")
    program = jax.jit(lambda one, u: loss_of(marginal, one, OTHER, X, BITS)(u))
    u = jnp.array([-0.1, 0.2, 0.4])
    marginal.prepare((ONE, OTHER, X, BITS), {})
    assert np.isfinite(program(ONE, u))
    assert np.isnan(program(ONE[::-1].copy(), u))


def separable(x, y):
    s = numpyro.sample("s", dist.HalfNormal(1))
    w = numpyro.sample("w", FLAT)
    numpyro.sample("y", dist.Bernoulli(logits=w * x / s), obs=y)


def kinked(y):
    s = numpyro.sample("s", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.Laplace(0, 0.1).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(z, s).to_event(1), obs=y)


def hidden(y):
    """A sum of squares of which JAX sees a half: a gradient that is not that of the function."""
    s = numpyro.sample("s", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.Normal(0, s).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(jax.lax.stop_gradient(3 * z) + z, 1).to_event(1), obs=y)


def two_modes(y):
    s = numpyro.sample("s", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.Normal(0, 1).expand(y.shape).to_event(1))
    numpyro.sample("y", dist.Normal(z**2, s).to_event(1), obs=y)


SQUARES = np.array([1.0, 2.0, 1.5, 1.0])
NOWHERE = {
    "a tail": (separable, "w", (np.array([-2.0, -1, 1, 2]), np.array([0, 0, 1, 1]))),
    "a kink": (kinked, "z", (np.zeros(3),)),
    "a hidden slope": (hidden, "z", (np.array([3.0, -2.0, 4.0]),)),
}


@pytest.mark.parametrize("name", NOWHERE)
def test_no_number_where_the_effects_have_no_mode(name):
    model, sites, data = NOWHERE[name]
    loss = loss_of(lb.marginalize(model, sites, structure="sparse"), *data)
    value, slope = jax.jit(jax.value_and_grad(loss))(jnp.array([0.1]))
    assert np.isnan(value) and np.isnan(slope).all()


def test_data_that_a_program_takes_are_refused_before_they_were_seen():
    marginal = lb.marginalize(two_modes, "z", structure="sparse")
    program = jax.jit(lambda y: loss_of(marginal, y)(jnp.array([0.1])))
    with pytest.raises(lb.UnsupportedModel, match="cannot be seen within a compiled program"):
        program(SQUARES[:3])
    marginal.prepare((SQUARES[:3],), {})
    assert np.isfinite(program(SQUARES[:3]))


def test_a_start_on_a_ridge_is_left():
    """Either of the modes of each effect, of which z^2 = y - s^2/2, has the same integral."""
    marginal, u = lb.marginalize(two_modes, "z", structure="sparse"), 0.1
    found = jax.jit(loss_of(marginal, SQUARES))(jnp.array([u]))
    s = np.exp(u)
    square = SQUARES - s**2 / 2
    expected = square / 2 + s**2 / 8 + np.log(1 + (6 * square - 2 * SQUARES) / s**2) / 2
    expected = expected.sum() + 4 * (np.log(2 * np.pi) / 2 + u) - stats.halfnorm.logpdf(s) - u
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_a_last_mode_that_leads_nowhere_is_forgotten(series):
    u, x = jnp.array([0.9, -1.0, 2.0]), CASES["series"][2][1]
    value = float(LOOK(series, "series", u, x)[0])
    for integral in _INTEGRALS.values():
        integral._mode = np.full_like(integral.start, 600.0)
    assert float(LOOK(series, "series", u, x)[0]) == pytest.approx(value, rel=1e-12)
