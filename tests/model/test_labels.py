"""Labels that point beside the groups: refused by name at every seam where data meet a model."""

from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.contrib.control_flow import scan
from scipy import stats

import laplacebook as lb
from laplacebook.model.density import ModelDensity

J = 4
G = np.array([0, 1, 2, 3, 0, 1, 2, 3, 3, 1])
Y = np.array([0.3, -0.2, 1.1, 0.7, 0.1, -0.9, 1.4, 0.2, 0.5, -0.4])
N = len(Y)
BESIDE = {
    "labels from 1": (G + 1, J, 3),
    "one too large": (np.where(G == 2, J + 5, G), J + 5, 2),
    "pandas' missing": (np.where(G == 1, -1, G), -1, 1),
}


def effects(shape=(J,), name="a"):
    return numpyro.sample(name, dist.Normal(0, 1).expand(shape).to_event(len(shape)))


def observe(mean, y):
    with numpyro.plate("N", N):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def groups(g, y=None):
    a = effects()
    with numpyro.plate("N", len(g)):
        numpyro.sample("y", dist.Normal(a[g], 1), obs=y)


def transposed(g, y):
    observe(effects((2, J))[:, g][1], y)


def two_factors(g, y):
    observe(effects((3, J))[np.zeros(N, int), g], y)


def taken_along(g, y):
    table = jnp.broadcast_to(effects(), (N, J))
    observe(jnp.take_along_axis(table, g[:, None], axis=1)[:, 0], y)


def sliced(g, y):
    a = effects((J + 1,))
    observe(jax.vmap(lambda i: jax.lax.dynamic_slice_in_dim(a, i, 2).sum())(g), y)


def one_by_one(g, y):
    a = effects()
    observe(jnp.stack([a[g[i]] for i in range(N)]), y)


def counted(g, y):
    a = effects()
    _, means = jax.lax.scan(lambda i, _: (i + 1, a[g[i]]), 0, None, length=N)
    observe(means, y)


def chained(g, y):
    a = effects()

    def step(carry, row):
        i, outcome = row
        numpyro.sample("y", dist.Normal(a[i], 1), obs=outcome)
        return carry, None

    scan(step, 0.0, (g, y))


def remembered(g, y):
    observe(jax.checkpoint(lambda a: a[g])(effects()), y)


@jax.custom_jvp
def picked(a, g):
    return a[g]


picked.defjvp(lambda values, slopes: (picked(*values), slopes[0][values[1]]))


def with_a_rule(g, y):
    observe(picked(effects(), g), y)


def branched(g, y):
    a = effects()
    observe(jax.lax.cond(y.sum() > 0, lambda: a[g], lambda: 0 * a[g]), y)


def doubled(g, y):
    a = effects((2 * J,))
    observe(a[2 * g + 1], y)


def looked_up(g, y):
    observe(effects((2,))[jnp.array([0, 0, 1, 1])[g]], y)


def written(g, y):
    a = effects()
    observe(a[0] + jnp.zeros(J).at[g].add(y).sum(), y)


def outcome_in_a_factor(g, y):
    numpyro.factor("f", dist.Categorical(logits=effects()).log_prob(g).sum())


def weighted(g, y):
    weights, mean = effects((J,), "b") * 0 + np.ones(J), effects()[0]
    with handlers.scale(scale=weights[g]):
        observe(mean, y)


def hidden(g, y):
    means = effects()[g]
    with handlers.mask(mask=g >= 0):
        observe(means, y)


def table_of(g, y):
    return {"g": g, "y": y}


def of_table(table):
    groups(table["g"], table["y"])


def rounded(g, y):
    observe(effects()[g.astype(int)], y)


def negative(g, y):
    a = effects()
    observe(a.at[g].get(mode="clip"), y)


WAYS = {
    "in a mean": groups,
    "in columns": transposed,
    "beside another label": two_factors,
    "take_along_axis": taken_along,
    "dynamic_slice": sliced,
    "one by one": one_by_one,
    "a counter in lax.scan": counted,
    "scan of NumPyro": chained,
    "lax.cond": branched,
    "checkpoint": remembered,
    "custom_jvp": with_a_rule,
    "computed": doubled,
    "looked up": looked_up,
    "scatter": written,
    "an outcome in a factor": outcome_in_a_factor,
    "in a weight": weighted,
}


def refused_by_name(model, g, value, where):
    with pytest.raises(lb.NonFinite) as caught:
        lb.laplace(model, g, Y)
    message = " ".join(str(caught.value).split())
    assert "rgument 'g'" in message
    assert "entries, of which labels begin at 0 and end at" in message
    assert f"has the label {value}, first at [{where}]" in message or "computed from" in message


EACH = [*zip(WAYS, cycle(BESIDE))]


@pytest.mark.parametrize(("way", "beside"), EACH)
def test_refused_by_name(way, beside):
    refused_by_name(WAYS[way], *BESIDE[beside])


def test_the_message_in_full():
    with pytest.raises(lb.NonFinite) as caught:
        lb.laplace(groups, np.where(G == 2, J + 5, G), Y)
    message = " ".join(str(caught.value).split())
    assert (
        "Argument 'g' has the label 9, first at [2], and it indexes 4 entries, of which labels"
        in message
    )
    assert (
        "begin at 0 and end at 3" in message and "What to do: number the groups from 0" in message
    )


@pytest.mark.parametrize("dtype", ["int8", "uint32"])
def test_of_any_type(dtype):
    fit = lb.laplace(groups, G.astype(dtype), Y)
    np.testing.assert_allclose(fit.log_evidence, exact(np.eye(J)[G]), rtol=1e-10)
    with pytest.raises(lb.NonFinite, match="label 9, first at \\[2\\]"):
        lb.laplace(groups, np.where(G == 2, J + 5, G).astype(dtype), Y)


def test_one_label_for_all():
    def model(g, y):
        observe(effects()[g], y)

    np.testing.assert_allclose(
        lb.laplace(model, np.asarray(2), Y).log_evidence, exact(ONE[np.full(N, 2)])
    )
    for g in (J, J + 5, -1):
        with pytest.raises(lb.NonFinite, match="Argument 'g' has the label"):
            lb.laplace(model, np.asarray(g), Y)


@pytest.mark.parametrize(
    ("model", "args", "kwargs", "words"),
    [
        (of_table, (table_of(G + 1, Y),), {}, "Argument 'table['g']' has the label 4, first at [3]"),
        (hidden, (np.where(G == 1, -1, G), Y), {}, "Argument 'g' has the label -1, first at [1]"),
        (negative, (np.where(G == 1, -1, G), Y), {}, "Argument 'g' has the label -1, first at [1]"),
        (rounded, (np.where(G == 1, np.nan, G), Y), {}, "Argument 'g' has the label nan, first at [1]"),
        (rounded, (G + 1.0, Y), {}, "Argument 'g' has the label 4, first at [3]"),
        (groups, (jnp.asarray(G + 1), jnp.asarray(Y)), {}, "Argument 'g' has the label 4"),
        (doubled, (G + 1, Y), {}, "index that is computed from argument 'g' is 9, first at [3]"),
    ],
    ids=["table", "hidden", "clip", "missing", "floats", "arrays of JAX", "computed"],
)  # fmt: skip
def test_names(model, args, kwargs, words):
    with pytest.raises(lb.NonFinite) as caught:
        lb.laplace(model, *args, **kwargs)
    assert words in " ".join(str(caught.value).split())


def exact(Z, y=Y, noise=1.0):
    """log p(y) of y = Z a + noise with a ~ N(0, 1)."""
    covariance = Z @ Z.T + noise * np.eye(len(y))
    return stats.multivariate_normal(cov=covariance).logpdf(y)


def clipped(g, y):
    observe(jnp.take(effects(), g, mode="clip"), y)


def clipped_by_hand(g, y):
    observe(effects()[jnp.clip(g, 0, J - 1)], y)


def filled(g, y):
    observe(effects().at[g].get(mode="fill", fill_value=0), y)


def remainder(g, y):
    observe(effects()[g % J], y)


def with_reference(g, y):
    a = jnp.concatenate([jnp.zeros(1), effects()])
    observe(a[g], y)


def coded(g, y):
    observe(jax.nn.one_hot(g - 1, J) @ effects(), y)


def grouped(g, y, entries=J):
    sums = jax.ops.segment_sum(y, g, entries)[:J]
    numbers = jax.ops.segment_sum(jnp.ones(N), g, entries)[:J]
    a = effects()
    numpyro.factor("f", jnp.sum(a * sums - numbers * a**2 / 2) - jnp.sum(y**2) / 2)
    numpyro.factor("c", -N / 2 * jnp.log(2 * jnp.pi))


def sorted_first(g, y):
    order = jnp.argsort(g)
    numpyro.sample("y", dist.Normal(effects()[g[order]], 1), obs=y[order])


def inner_search(g, y):
    observe(effects()[jnp.searchsorted(jnp.arange(J), g)], y)


def walked(g, y):
    a = effects()
    path = jnp.cumsum(a)
    observe(jnp.interp(g.astype(float), jnp.arange(J), path), y)


def moved(g, y):
    a = numpyro.sample("a", dist.Normal(0, 1).expand([J]).to_event(1))
    place = numpyro.deterministic("place", jnp.argmax(jnp.where(jnp.arange(J) == 2, 9, a)))
    observe(a[place] + 0 * g, y)


ABOVE = np.where(G == 3, J + 1, G)
ONE = np.eye(J)
LEGITIMATE = {
    "in range": (groups, G, ONE[G]),
    "take, clip": (clipped, ABOVE, ONE[G]),
    "clipped by hand": (clipped_by_hand, ABOVE, ONE[G]),
    "filled with zero": (filled, ABOVE, ONE[G] * (G < 3)[:, None]),
    "remainder": (remainder, G + J * np.arange(N), ONE[G]),
    "reference in front": (with_reference, G, ONE[G - 1] * (G > 0)[:, None]),
    "one-hot with reference": (coded, G, ONE[G - 1] * (G > 0)[:, None]),
    "segment_sum": (grouped, G, ONE[G]),
    "sorted": (sorted_first, G, ONE[G]),
    "searchsorted": (inner_search, G, ONE[G]),
    "interpolated": (walked, G, np.tril(np.ones((J, J)))[G]),
    "place of a latent site": (moved, G, ONE[np.full(N, 2)]),
}  # fmt: skip


@pytest.mark.parametrize(("model", "g", "Z"), LEGITIMATE.values(), ids=LEGITIMATE)
def test_legitimate(model, g, Z):
    """In a fit, and where the data are not known: in a compiled log joint."""
    fit = lb.laplace(model, g, Y)
    np.testing.assert_allclose(fit.log_evidence, exact(Z), rtol=1e-9)
    minus_log_joint = jax.jit(lambda g, y, u: ModelDensity.of(model, (g, y)).loss(u)[0])
    expected = -(fit.log_likelihood + fit.log_prior)
    np.testing.assert_allclose(minus_log_joint(g, Y, fit.mode_vector), expected, rtol=1e-9)
