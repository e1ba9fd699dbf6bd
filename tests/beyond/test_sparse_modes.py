"""Effects with two modes given the others, and what a sparse integral refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from laplacebook.model.density import ModelDensity
from laplacebook.search import newton_step, sparse_search

Y = 2 + 0.1 * np.random.default_rng(0).normal(size=8)


def signs(y):
    """Of z the data know the size, and little of the sign."""
    m = numpyro.sample("m", dist.Normal(0, 3))
    z = numpyro.sample("z", dist.Normal(m, 1).expand([y.size]).to_event(1))
    both = dist.Normal(z, 0.3).log_prob(y), dist.Normal(-z + 0.4, 0.3).log_prob(y)
    numpyro.factor("y", jnp.logaddexp(*both).sum())


def moving(y):
    """Two modes for each h, near h - 4 and h + 4; from zero, where z begins, the nearer one is found."""
    h = numpyro.sample("h", dist.Normal(2, 0.5))
    z = numpyro.sample("z", dist.Normal(0, 3).expand([y.size]).to_event(1))
    both = dist.Normal(h + 4, 1).log_prob(z), dist.Normal(h - 4, 1).log_prob(z)
    numpyro.factor("y", jnp.logaddexp(*both).sum())


def sparse_of(model):
    return lb.marginalize(model, "z", structure="sparse")


def loss_of(marginal, y=Y):
    density = ModelDensity.of(marginal, (y,))
    return jax.jit(lambda u: density.loss(u)[0])


def test_a_fit_does_not_depend_on_those_before():
    sparse = sparse_of(signs)
    fits = [lb.laplace(sparse, Y, start={"m": m}) for m in (2.0, -2.0, 2.0)]
    one, other, again = (float(fit.mode["m"]) for fit in fits)
    assert one * other < 0  # two modes of the whole, indeed
    assert one == pytest.approx(again, abs=1e-9)
    assert float(fits[0].log_evidence) == pytest.approx(float(fits[2].log_evidence), abs=1e-9)


def followed(marginal):
    return marginal.followed((Y,), {})


def test_of_64_searches_one_begins_in_the_middle_of_the_prior():
    marginal = sparse_of(signs)
    sparse, dense = map(loss_of, (marginal, lb.marginalize(signs, "z")))
    integral = followed(marginal)
    integral.forget()
    here, there = jnp.array([-2.0]), jnp.array([1.0])
    expected = float(dense(there))
    assert float(sparse(here)) == pytest.approx(float(dense(here)), rel=1e-10)
    assert float(sparse(there)) > expected + 10  # the mode that was followed, a bad one
    values = [float(sparse(there)) for _ in range(64)]
    assert integral.two_modes
    assert values[-1] == pytest.approx(expected, rel=1e-10)
    assert float(sparse(here)) == pytest.approx(float(dense(here)), rel=1e-10)
    assert float(sparse(there)) == pytest.approx(expected, rel=1e-10)


def test_a_fit_that_followed_another_mode_is_made_again_and_told():
    """About the nearer mode, eight standard deviations from the other one, all is Gaussian."""
    with pytest.warns(lb.DoubtfulFit, match="has two modes"):
        found = lb.laplace(sparse_of(moving), Y, start={"h": -0.5})
    precision = 1 / 0.5**2 + Y.size / 10
    h = (2 / 0.5**2 + 4 * Y.size / 10) / precision
    expected = stats.norm(2, 0.5).logpdf(h) + Y.size * stats.norm(4, 10**0.5).logpdf(h)
    expected += np.log(2 * np.pi / precision) / 2
    assert float(found.log_evidence) == pytest.approx(expected, abs=1e-6)
    assert float(found.mode["h"]) == pytest.approx(h, abs=1e-6)


def test_one_mode_is_not_told_to_be_two():
    def plain(y):
        s = numpyro.sample("s", dist.HalfNormal(1))
        z = numpyro.sample("z", dist.Normal(0, s).expand([y.size]).to_event(1))
        numpyro.sample("y", dist.StudentT(5, z, 1).to_event(1), obs=y)

    sparse = sparse_of(plain)
    loss = loss_of(sparse)
    values = [float(loss(jnp.array([0.3]))) for _ in range(70)]
    np.testing.assert_allclose(values, values[0], rtol=1e-12)
    assert not followed(sparse).two_modes


def test_single_precision_is_refused_at_the_door():
    sparse = sparse_of(signs)
    with jax.enable_x64(False):
        for call in (lb.laplace, lb.maximum_likelihood, loss_of):
            with pytest.raises(lb.UnsupportedModel, match="enable_x64"):
                call(sparse, Y.astype(np.float32))
        with pytest.raises(lb.UnsupportedModel, match="enable_x64"):
            jax.jit(numpyro.handlers.seed(sparse, jax.random.key(0)))(jnp.asarray(Y, jnp.float32))


def late(y, strength=0.497):
    """Neighbours meet where both are above 2, far from the start; a loop hides that from the program."""
    z = numpyro.sample("z", dist.Normal(0, 100).expand([y.size]).to_event(1))
    over = jnp.maximum(z - 2, 0)
    pairs = jnp.stack([over[1:], over[:-1]], 1)
    total, _ = jax.lax.scan(lambda c, pair: (c + pair[0] * pair[1], None), 0.0, pairs)
    numpyro.factor("pairs", strength * total)
    numpyro.sample("y", dist.Normal(z, 1).to_event(1), obs=y)


def late_with_another(y):
    numpyro.sample("a", dist.Normal(0, 1))
    late(y)


@pytest.fixture
def _few_iterations(monkeypatch):
    """Of a search that ends nowhere: a thousand end there too, in half a minute."""
    monkeypatch.setattr(newton_step, "MAX_ITERATIONS", 30)


@pytest.mark.usefixtures("_few_iterations")
def test_a_pattern_that_is_another_where_the_search_ended_is_looked_for_there():
    """With the pattern of the start, the steps of Newton's method end nowhere."""
    found = lb.laplace(late, 4 + Y, structure="sparse")
    precision = 1.0001 * np.eye(Y.size) - 0.497 * (np.eye(Y.size, k=1) + np.eye(Y.size, k=-1))
    slope = 4 + Y - 0.994 * (precision < 0).sum(axis=1)  # at zero, if all were above 2 there
    z = np.linalg.solve(precision, slope)
    assert z.min() > 2
    np.testing.assert_allclose(found.mode["z"], z, rtol=1e-8)
    over = z - 2
    expected = stats.norm(0, 100).logpdf(z).sum() + stats.norm(z).logpdf(4 + Y).sum()
    expected += 0.497 * over[1:] @ over[:-1] + Y.size * np.log(2 * np.pi) / 2
    expected -= np.linalg.slogdet(precision)[1] / 2
    assert float(found.log_evidence) == pytest.approx(expected, rel=1e-9)
    marginal = lb.marginalize(late_with_another, "z", structure="sparse")
    with pytest.raises(lb.LaplaceError, match="entries there that it did not have"):
        lb.laplace(marginal, 4 + Y)
    again = -float(loss_of(marginal, 4 + Y)(jnp.zeros(1)))
    assert again == pytest.approx(expected + stats.norm.logpdf(0), rel=1e-9)


@pytest.mark.usefixtures("_few_iterations")
def test_a_pattern_that_stays_wrong_is_told(monkeypatch):
    right = sparse_search.SparseHessian.of
    blind = right(ModelDensity.of(late, (Y,)), np.zeros(Y.size))
    monkeypatch.setattr(sparse_search.SparseHessian, "of", lambda density, u: blind)
    sparse_search._PATTERNS.clear()
    with pytest.raises(lb.LaplaceError, match="the pattern misses some") as error:
        lb.laplace(late, 4 + Y, structure="sparse")
    sparse_search._PATTERNS.clear()
    assert "without a mode" in " ".join(str(error.value).split())
