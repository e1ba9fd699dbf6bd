"""Many effects integrated out by a sparse Hessian, against NumPy's dense one, differences and TMB."""

from functools import partial

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

RNG = np.random.default_rng(0)
FLAT = dist.ImproperUniform(dist.constraints.real, (), ())
SERIES = lb.datasets.ar1_counts()
SIZE, SUM_SD = 36, 0.5


def ar1(y):
    b, log_s, p = (numpyro.sample(name, dist.Normal(0, 3)) for name in ("b", "log_s", "p"))
    s, phi = jnp.exp(log_s), 2 / (1 + jnp.exp(-p)) - 1
    states = dist.ImproperUniform(dist.constraints.real_vector, (), (len(y),))
    z = numpyro.sample("z", states)
    numpyro.factor("first", dist.Normal(0, s / jnp.sqrt(1 - phi**2)).log_prob(z[0]))
    numpyro.factor("rest", dist.Normal(phi * z[:-1], s).log_prob(z[1:]).sum())
    numpyro.sample("y", dist.Poisson(jnp.exp(b + z)).to_event(1), obs=y)


def walk(y, x):
    """A walk less its mean, which makes terms of low rank."""
    b, log_s = numpyro.sample("b", dist.Normal(0, 2)), numpyro.sample("log_s", dist.Normal(0, 1))
    states = dist.ImproperUniform(dist.constraints.real_vector, (), (len(y),))
    z = numpyro.sample("z", states)
    numpyro.factor("steps", dist.Normal(z[:-1], jnp.exp(log_s)).log_prob(z[1:]).sum())
    numpyro.factor("sum", dist.Normal(0, SUM_SD).log_prob(z.sum()))
    numpyro.sample("y", dist.Poisson(jnp.exp(b + z - z.mean() + x)).to_event(1), obs=y)


DATA = SERIES[:SIZE], 0.3 * RNG.normal(size=SIZE)
POINT = np.array([0.9, -1.0])


def by_numpy(u, x):
    """The mode of the effects of the walk, their covariance and the log of their integral."""
    y, (b, log_s), less = DATA[0], u, np.eye(SIZE) - 1 / SIZE
    steps, z = np.diff(np.eye(SIZE), axis=0) / np.exp(log_s), np.zeros(SIZE)
    prior = steps.T @ steps + np.full((SIZE, SIZE), SUM_SD**-2)
    for _ in range(30):
        rate = np.exp(b + less @ z + x)
        precision = prior + less @ np.diag(rate) @ less
        z = z + np.linalg.solve(precision, less @ (y - rate) - prior @ z)
    value = stats.poisson(np.exp(b + less @ z + x)).logpmf(y).sum() - z @ prior @ z / 2
    value -= (SIZE - 1) * log_s + np.log(SUM_SD)  # as many normal laws as effects
    value -= np.linalg.slogdet(precision)[1] / 2
    return z, np.linalg.inv(precision), value


def loss_of(marginal, *args):
    density = ModelDensity.of(marginal, args)
    return lambda u: density.loss(u)[0]


@pytest.fixture(scope="module")
def marginal():
    found = lb.marginalize(walk, "z", structure="sparse")
    found.prepare(DATA, {})
    return found


@pytest.fixture(scope="module")
def look(marginal):
    """The negative log joint of b and log_s, and its slopes in these and in x."""
    return jax.jit(jax.value_and_grad(lambda u, x: loss_of(marginal, DATA[0], x)(u), (0, 1)))


def test_value_and_gradient_in_hyperparameters_and_in_data(look):
    def truth(u, x):
        return -by_numpy(u, x)[2] - stats.norm(0, [2, 1]).logpdf(u).sum()

    x = DATA[1]
    value, (in_u, in_x) = look(POINT, x)
    assert float(value) == pytest.approx(truth(POINT, x), rel=1e-10)
    for i, way in enumerate(1e-4 * np.eye(2)):
        slope = (truth(POINT + way, x) - truth(POINT - way, x)) / 2e-4
        assert in_u[i] == pytest.approx(slope, rel=1e-6)
    for i in (0, 13, SIZE - 1):
        way = 1e-4 * np.eye(SIZE)[i]
        slope = (truth(POINT, x + way) - truth(POINT, x - way)) / 2e-4
        assert in_x[i] == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_under_vmap_it_says_the_same(marginal, look):
    points = np.array([POINT, [1.1, -1.5], [0.8, -0.5]])
    values, slopes = zip(*(look(u, DATA[1]) for u in points), strict=True)
    found, slope = jax.jit(jax.vmap(jax.value_and_grad(loss_of(marginal, *DATA))))(points)
    np.testing.assert_allclose(found, np.array(values), rtol=1e-12)
    np.testing.assert_allclose(slope, np.array([of_u for of_u, _ in slopes]), 1e-8, 1e-9)


def test_a_last_mode_that_leads_nowhere_is_forgotten(look):
    value = float(look(POINT, DATA[1])[0])
    for integral in _INTEGRALS.values():
        integral._mode = 1200.0 * (np.arange(integral.start.size) % 2)
    assert float(look(POINT, DATA[1])[0]) == pytest.approx(value, rel=1e-12)


def test_maximum_likelihood_is_that_of_tmb():
    approx = lb.maximum_likelihood(lb.marginalize(ar1, "z", structure="sparse"), SERIES)
    assert float(approx.log_likelihood) == pytest.approx(-4158.187, abs=5e-4)
    np.testing.assert_allclose(approx.mode_vector, [0.9807363, -1.204325, 2.954963], rtol=1e-6)
    errors = [0.06923815, 0.05138142, 0.1377107]
    np.testing.assert_allclose(np.sqrt(np.diagonal(approx.covariance)), errors, rtol=1e-5)
    assert approx.certificate.converged


def test_draws_and_the_effects_given_the_others(marginal):
    hyper = dict(zip(("b", "log_s"), POINT.tolist(), strict=True))
    mode, covariance, evidence = by_numpy(POINT, DATA[1])
    given = marginal.given(hyper, *DATA)
    assert given.precision.left.size  # terms of low rank, indeed
    np.testing.assert_allclose(given.mode["z"], mode, atol=1e-8)
    assert float(given.log_evidence) == pytest.approx(evidence, abs=1e-8)
    samples = {name: np.full(20, value) for name, value in hyper.items()}
    draws = np.asarray(marginal.sample(jax.random.key(0), samples, *DATA)["z"])
    assert draws.shape == (20, SIZE)
    scores = (draws - mode) / np.sqrt(np.diagonal(covariance))
    assert abs(scores.mean()) < 0.15 and abs(scores.std() - 1) < 0.1


def crossed(one, other, y):
    s = numpyro.sample("s", dist.HalfNormal(1))
    a = numpyro.sample("a", dist.Normal(0, s).expand([4]).to_event(1))
    c = numpyro.sample("c", dist.Normal(0, 1).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(a[one] + c[other], 1).to_event(1), obs=y)


def test_other_data_of_the_same_shapes_in_between():
    """Its memory of the last mode, and of where the Hessian has entries, is of other data then."""
    one, other = RNG.integers(0, 4, 8), RNG.integers(0, 3, 8)
    y, s = 3 * RNG.normal(size=8), 0.7

    def right(one, y):
        a, c = np.eye(4)[one], np.eye(3)[other]
        law = stats.multivariate_normal(np.zeros(8), s**2 * a @ a.T + c @ c.T + np.eye(8))
        return pytest.approx(-law.logpdf(y) - stats.halfnorm.logpdf(s) - np.log(s), rel=1e-10)

    sparse, u = lb.marginalize(crossed, ["a", "c"], structure="sparse"), jnp.log(jnp.array([s]))
    look = jax.jit(lambda density: density.loss(u)[0])
    densities = []
    for now, outcomes in ((one, y), (one, y[::-1]), (one[::-1], y)):
        densities.append(ModelDensity.of(sparse, (now, other, outcomes)))
        assert float(look(densities[-1])) == right(now, outcomes)
    first, _, last = densities
    assert jax.tree.structure(first) != jax.tree.structure(last)  # they have a program each
    with_the_pattern_of_others = jax.tree.unflatten(
        jax.tree.structure(first), jax.tree.leaves(last)
    )
    assert np.isnan(look(with_the_pattern_of_others))


def nowhere(weights):
    """One weight is one: of what levels off, of what has a kink, or of what hides a part of its slope."""
    tail, kink, hidden = weights
    s = numpyro.sample("s", dist.HalfNormal(1))
    z = numpyro.sample("z", FLAT.expand([3]).to_event(1)) / s
    numpyro.factor("tail", tail * dist.Bernoulli(logits=z).log_prob(1).sum())
    numpyro.factor("kink", kink * dist.Laplace(0, 0.1).log_prob(z).sum())
    partly_seen = jax.lax.stop_gradient(3 * z) + z - jnp.array([3.0, -2.0, 4.0])
    numpyro.factor("hidden", -hidden * (partly_seen**2 + z**2).sum() / 2)


@pytest.fixture(scope="module")
def anywhere():
    sparse = lb.marginalize(nowhere, "z", structure="sparse")
    sparse.prepare((np.ones(3),), {})
    return jax.jit(lambda x: jax.value_and_grad(loss_of(sparse, x))(jnp.array([0.1])))


@pytest.mark.parametrize("weights", np.eye(3).tolist(), ids=["tail", "kink", "hidden"])
def test_no_number_where_the_effects_have_no_mode(weights, anywhere):
    value, slope = anywhere(np.array(weights))
    assert np.isnan(value) and np.isnan(slope).all()


def two_modes(y):
    s = numpyro.sample("s", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.Normal(0, 1).expand(y.shape).to_event(1))
    numpyro.sample("y", dist.Normal(z**2, s).to_event(1), obs=y)


def test_data_that_a_program_takes_are_refused_before_they_were_seen_and_a_ridge_is_left():
    """Either of the modes of each effect, of which z^2 = y - s^2/2, has the same integral."""
    y, u = np.array([1.0, 2.0, 1.5, 1.0]), 0.1
    marginal = lb.marginalize(two_modes, "z", structure="sparse")
    program = jax.jit(lambda y: loss_of(marginal, y)(jnp.array([u])))
    with pytest.raises(lb.UnsupportedModel, match="cannot be seen within a compiled program"):
        program(y)
    marginal.prepare((y,), {})
    s = np.exp(u)
    square = y - s**2 / 2
    expected = square / 2 + s**2 / 8 + np.log(1 + (6 * square - 2 * y) / s**2) / 2
    expected = expected.sum() + 4 * (np.log(2 * np.pi) / 2 + u) - stats.halfnorm.logpdf(s) - u
    assert float(program(y)) == pytest.approx(expected, rel=1e-10)


def test_a_marginal_model_is_not_nested_again():
    """JAX, asked for second derivatives, spoke of custom_vjp; and a partial was not shown its data before."""
    model = lb.marginalize(walk, "z", structure="sparse")
    assert lb.laplace(partial(model, x=DATA[1]), DATA[0]).certificate.converged
    with pytest.raises(lb.UnsupportedModel, match="pass the model with all its sites"):
        lb.nested(model, *DATA)
