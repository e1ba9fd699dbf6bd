"""Groups that are told by how many rows each has, ``jnp.repeat``: the counts add up to the rows, or are refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import laplacebook as lb
from tests.model.test_labels import J, N, Y, effects, exact, observe

COUNTS = np.array([N - 5, 2, 2, 1])
ONE = np.repeat(np.eye(J), COUNTS, axis=0)


def repeated(counts, y):
    observe(jnp.repeat(effects(), counts, total_repeat_length=N), y)


def labels_repeated(counts, y):
    observe(effects()[jnp.repeat(jnp.arange(J), counts, total_repeat_length=N)], y)


def along_an_axis(counts, y):
    table = jnp.stack([effects(), 0 * jnp.arange(J)], axis=1)
    observe(jnp.repeat(table, counts, axis=0, total_repeat_length=N).sum(1), y)


WAYS = {"effects": repeated, "labels": labels_repeated, "rows": along_an_axis}
WRONG = {"fewer": (COUNTS - [1, 0, 0, 0], N - 1), "more": (COUNTS + [0, 0, 0, 3], N + 3)}


@pytest.mark.parametrize("model", WAYS.values(), ids=WAYS)
def test_counts_that_add_up(model):
    np.testing.assert_allclose(lb.laplace(model, COUNTS, Y).log_evidence, exact(ONE), rtol=1e-10)


@pytest.mark.parametrize(
    ("model", "counts", "total"),
    [
        (repeated, *WRONG["fewer"]),
        (labels_repeated, *WRONG["more"]),
        (along_an_axis, *WRONG["more"]),
    ],
)
def test_counts_that_do_not(model, counts, total):
    with pytest.raises(lb.NonFinite) as caught:
        lb.laplace(model, counts, Y)
    said = " ".join(str(caught.value).split())
    assert f"The counts of argument 'counts' add up to {total}, and the model makes {N}" in said


def test_a_group_without_rows():
    counts = np.array([N - 4, 0, 4, 0])
    np.testing.assert_allclose(
        lb.laplace(repeated, counts, Y).log_evidence,
        exact(np.repeat(np.eye(J), counts, axis=0)),
        rtol=1e-10,
    )


def test_a_compiled_fit_is_nan():
    fit = jax.jit(functools.partial(lb.laplace, repeated))
    np.testing.assert_allclose(fit(COUNTS, Y).log_evidence, exact(ONE), rtol=1e-10)
    assert np.isnan(fit(WRONG["fewer"][0], Y).log_evidence)


@pytest.mark.parametrize("total", [N - 1, N])
def test_counts_that_the_model_holds(total):
    held = COUNTS - np.array([N - total, 0, 0, 0])

    def model(y):
        repeated(held, y)

    if total == N:
        np.testing.assert_allclose(lb.laplace(model, Y).log_evidence, exact(ONE), rtol=1e-10)
    else:
        with pytest.raises(lb.UnsupportedModel, match=rf"add\s+up\s+to\s+{total}"):
            lb.laplace(model, Y)
