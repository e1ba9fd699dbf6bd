"""Labels for which JAX takes zeros, or the last of its branches: one_hot, segment_sum, lax.switch."""

from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.model.test_labels import (
    BESIDE,
    ONE,
    G,
    J,
    N,
    effects,
    grouped,
    observe,
    refused_by_name,
)
from tests.model.test_labels import (
    test_legitimate as legitimate,
)


def switched(g, y):
    a = effects()
    ways = [lambda k=k: a[k] for k in range(J)]
    observe(jax.vmap(lambda i: jax.lax.switch(i, ways))(g), y)


def switched_one_by_one(g, y):
    a = effects()
    ways = [lambda k=k: a[k] for k in range(J)]
    observe(jnp.stack([jax.lax.switch(g[i], ways) for i in range(N)]), y)


def one_hot(g, y):
    observe(jax.nn.one_hot(g, J) @ effects(), y)


def indicators(g, y):
    observe((jnp.arange(J) == g[:, None]) @ effects(), y)


WAYS = {
    "lax.switch": switched,
    "switches one by one": switched_one_by_one,
    "one_hot": one_hot,
    "one_hot by hand": indicators,
    "segment_sum": grouped,
    "segment_max": lambda g, y: observe(effects() @ jax.ops.segment_max(y, g, J) + 0 * y, y),
}


@pytest.mark.parametrize(("way", "beside"), [*zip(WAYS, cycle(BESIDE))])
def test_refused(way, beside):
    refused_by_name(WAYS[way], *BESIDE[beside])


def coded_by_an_entry_more(g, y):
    observe(jax.nn.one_hot(g + 1, J + 1)[:, 1:] @ effects(), y)


def coded_with_the_last(g, y):
    observe(jax.nn.one_hot(g % (J + 1), J) @ effects(), y)


def at_one_time(g, y):
    """It happened at no time that is observed: g[0] is -1."""
    observe(effects()[0] * (jnp.arange(N) == g[0]), y)


LEGITIMATE = {
    "one-hot": (one_hot, G, ONE[G]),
    "one-hot with the last as reference": (coded_with_the_last, np.where(G == 3, J, G), ONE[G] * (G < 3)[:, None]),
    "a row of zeros by an entry more": (coded_by_an_entry_more, G - 1, ONE[G - 1] * (G > 0)[:, None]),
    "a time that is none": (at_one_time, G - 1, np.zeros((N, J))),
    "switch": (switched, G, ONE[G]),
    "segment_sum of fewer groups": (grouped, np.minimum(G, 2), ONE[np.minimum(G, 2)]),
}  # fmt: skip


@pytest.mark.parametrize(("model", "g", "Z"), LEGITIMATE.values(), ids=LEGITIMATE)
def test_what_is_meant(model, g, Z):
    legitimate(model, g, Z)
