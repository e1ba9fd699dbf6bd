"""Labels that a model holds itself, in an array that it closes over."""

import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb
from tests.model.test_labels import ONE, G, N, Y, effects, exact, observe

HELD, LAST = np.array([0, 1, 2, 3, 0, 1, 2, 3, 3, 4]), np.array([0, 1, 2, 3, 0, 1, 2, 3, 3, -1])


def holds(held, pick=lambda a, held: a[held]):
    return lambda y: observe(pick(effects(), held), y)


@pytest.mark.parametrize(
    "model",
    [
        holds(HELD),
        holds(jnp.asarray(HELD)),
        holds(HELD, jnp.take),
        holds(HELD, lambda a, held: a.reshape(2, 2)[held // 2, held % 2]),
        holds(HELD, lambda a, held: a[4] * np.ones(N)),
    ],
    ids=["NumPy", "JAX", "take", "two labels", "a number"],
)
def test_labels_that_the_model_holds(model):
    with pytest.raises(lb.UnsupportedModel, match="by a number that it holds itself"):
        lb.laplace(model, Y)


@pytest.mark.parametrize("held", [LAST, jnp.asarray(LAST)], ids=["NumPy", "JAX"])
def test_from_the_end_by_a_constant(held):
    np.testing.assert_allclose(lb.laplace(holds(held), Y).log_evidence, exact(ONE[LAST]), rtol=1e-9)


def test_a_choice_between_constants_is_no_label():
    def model(g, y):
        a = effects()
        chosen = jnp.where(jnp.asarray(Y) < jnp.asarray(Y[::-1].copy()), jnp.asarray(G), g)
        observe(a[chosen], y)

    np.testing.assert_allclose(lb.laplace(model, G, Y).log_evidence, exact(ONE[G]), rtol=1e-9)
