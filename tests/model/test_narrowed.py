"""Arrays that a model reads, of which JAX keeps narrower copies: changed in place between two fits."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.model import narrowed
from tests.models import single_precision

X = np.linspace(-1.0, 7.0, 30)
Y = 0.5 * X + np.sin(np.arange(30))


def line(x=None, y=None):
    w = numpyro.sample("w", dist.Normal(0, 5))
    mean = w * (X if x is None else jnp.asarray(x))
    numpyro.sample("y", dist.Normal(mean, 1).to_event(1), obs=Y if y is None else y)


def keeps_copies():
    """Whether JAX does, which of 0.8 is not so."""
    array = np.zeros(2)
    with single_precision():
        held = jax.make_jaxpr(lambda: jnp.asarray(array))()
        array[0] = 1
        again = jax.make_jaxpr(lambda: jnp.asarray(array))()
    return float(again.consts[0][0]) == float(held.consts[0][0])


of_copies = pytest.mark.skipif(not keeps_copies(), reason="this JAX keeps no copies")


@pytest.fixture
def standardised():
    """The global arrays, which are changed in place, and what they were after the test."""
    before = X.copy(), Y.copy()

    def change():
        X[:] -= X.mean()
        X[:] /= X.std()
        Y[0] += 3

    yield change
    X[:], Y[:] = before


def test_a_fit_of_a_changed_array_has_its_numbers_in_single_precision(standardised):
    with single_precision():
        lb.laplace(line)
        standardised()
        found, exact = lb.laplace(line), lb.laplace(line, X.copy(), Y.copy())
    assert float(found.mode["w"]) == pytest.approx(float(exact.mode["w"]), rel=1e-5)
    assert float(found.log_evidence) == pytest.approx(float(exact.log_evidence), rel=1e-5)


def test_labels_that_are_changed():
    labels = np.repeat([0, 1, 2], 10)

    def groups(g=None):
        z = numpyro.sample("z", dist.Normal(0, 1).expand([3]).to_event(1))
        at = z[labels if g is None else g]
        numpyro.sample("y", dist.Normal(at, 1).to_event(1), obs=Y)

    with single_precision():
        lb.laplace(groups)
        labels[:] = labels[::-1].copy()
        found, exact = lb.laplace(groups), lb.laplace(groups, labels.copy())
    np.testing.assert_allclose(found.mode["z"], exact.mode["z"], rtol=1e-5)


def test_double_precision_after_single_has_all_digits():
    with single_precision():
        lb.laplace(line)
    exact = np.sum(X * Y) / (np.sum(X**2) + 1 / 25)
    assert float(lb.laplace(line).mode["w"]) == pytest.approx(exact, rel=1e-12)


@of_copies
def test_where_a_program_with_the_old_numbers_is_held_it_is_loud(standardised):
    with single_precision():
        held = jax.make_jaxpr(lambda: jnp.asarray(X))()
        standardised()
        with pytest.raises(lb.LaplaceError, match="'line' reads was changed in place"):
            lb.laplace(line)
        del held
        lb.laplace(line)


@of_copies
def test_within_a_program_it_is_loud(standardised):
    with single_precision():
        fit = lb.laplace(line)
        standardised()
        with pytest.raises(lb.LaplaceError, match="changed in place"):
            jax.jit(lambda y: lb.laplace(line, y=y).log_evidence)(Y)
        assert np.isfinite(fit.log_evidence)


def test_nothing_is_looked_at_that_is_not_narrowed(monkeypatch):
    jax.clear_caches()  # which have copies of the tests before
    monkeypatch.setattr(narrowed, "_narrows", False)
    monkeypatch.setattr(narrowed, "_are_read", lambda arrays: pytest.fail("it was"))
    lb.laplace(line)
