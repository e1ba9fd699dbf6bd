"""Parameters that no distribution has give no approximation; boundaries and rounding are no error."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import laplacebook as lb
from laplacebook.model.distributions import holds, parameters

# Within jax.jit, and so within a fit, NumPyro cannot check them.
UNCHECKED = {"validate_args": False}


def beta(a):
    p = numpyro.sample("p", dist.Beta(a, 2.0, **UNCHECKED))
    numpyro.sample("y", dist.Bernoulli(p).expand([3]).to_event(1), obs=jnp.ones(3))


def negative_scale(sd):
    numpyro.sample("x", dist.Normal(0, sd, **UNCHECKED))


def unnormalised(p):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("N", 2):
        parts = dist.Normal(jnp.array([0.0, 1.0]) + w, 1)
        mixing = dist.Categorical(probs=p, **UNCHECKED)
        numpyro.sample("y", dist.MixtureSameFamily(mixing, parts, **UNCHECKED), obs=Y)


Y = np.array([0.5, 1.0])
#: a model, its argument, what the message says
INVALID = [
    (beta, np.array(-0.5), "site 'p' are not valid", "concentration1 = -0.5 is not"),
    (negative_scale, np.array(-1.0), "site 'x'", "scale = -1 is not a scale of Normal"),
    (unnormalised, np.array([1.0, 3.0]), "site 'y'", "not a probs of CategoricalProbs"),
]


@pytest.mark.parametrize(("model", "argument", "site", "parameter"), INVALID)
def test_an_invalid_parameter_is_named(model, argument, site, parameter):
    with pytest.raises(lb.NonFinite) as caught:
        lb.laplace(model, argument)
    message = " ".join(str(caught.value).split())
    assert site in message and parameter in message


def test_an_invalid_parameter_is_nan_within_a_program():
    """And the same model with one that is valid has a mode."""
    fit = jax.jit(lambda p: lb.laplace(unnormalised, p))
    approx = fit(np.array([1.0, 3.0]))
    assert not approx.certificate.converged and np.isnan(approx.log_evidence)
    assert fit(np.array([0.25, 0.75])).certificate.converged


def invalid(fn):
    return [p.name for p in parameters(fn) if not np.all(p.valid)]


BAD = dist.Normal(jnp.zeros(3), jnp.array([1.0, -1.0, 1.0]), **UNCHECKED)


def test_a_mask_hides_invalid_parameters_of_what_it_hides():
    seen, hidden = jnp.array([False, True, False]), jnp.array([True, False, True])
    assert invalid(BAD.mask(seen)) == ["scale"]
    assert invalid(BAD.mask(hidden)) == []
    rows = BAD.to_event(1).expand((2,)).mask(jnp.array([False, False]))
    assert invalid(rows) == []
    assert invalid(BAD.to_event(1).expand((2,)).mask(jnp.array([False, True]))) == ["scale"]
    parts = dist.MixtureSameFamily(dist.Categorical(jnp.ones(3) / 3), BAD, **UNCHECKED)
    assert invalid(parts.expand((2,)).mask(jnp.array([False, False]))) == []
    assert invalid(parts.expand((2,))) == ["scale"]
    assert invalid(BAD.mask(False)) == []


THIRDS = np.full((4, 3), 1 / 3)
OFF = np.where(np.arange(4)[:, None] == 2, [0.5, 0.5, 0.1], THIRDS)
BELOW = np.where(np.arange(4)[:, None] == 1, [-0.1, 0.6, 0.5], THIRDS)


def rows_of(kind, table):
    """Distributions with a parameter of shape (4, 3), of which each row is a simplex."""
    table = jnp.asarray(table)
    return {
        "categorical": lambda: dist.Categorical(probs=table, **UNCHECKED),
        "multinomial": lambda: dist.Multinomial(5, probs=table, **UNCHECKED),
        "to_event": lambda: dist.Categorical(probs=table, **UNCHECKED).to_event(1),
        "two axes": lambda: dist.Categorical(probs=table[None], **UNCHECKED).expand((2, 4)),
        "mixture": lambda: dist.MixtureSameFamily(
            dist.Categorical(probs=table, **UNCHECKED), dist.Normal(jnp.zeros(3), 1), **UNCHECKED
        ),
    }[kind]()


@pytest.mark.parametrize("kind", ["categorical", "multinomial", "to_event", "two axes", "mixture"])
def test_each_row_of_a_table_of_probabilities_is_a_simplex(kind):
    """Neither the table as a whole, which adds up to four, nor its columns."""
    assert invalid(rows_of(kind, THIRDS)) == []
    assert invalid(rows_of(kind, OFF)) == invalid(rows_of(kind, BELOW)) == ["probs"]
    assert invalid(rows_of(kind, THIRDS * (1 + 1e-9))) == []
    assert invalid(rows_of(kind, THIRDS * (1 + 3e-6))) == ["probs"]


def test_rows_of_dirichlets_have_a_mode():
    """Each row of counts with the prior of its row: a posterior Dirichlet(a + y), in R^(K-1) a row."""
    counts = np.arange(6.0).reshape(2, 3) + 1
    totals = counts.sum(axis=1).astype(int)

    def model(y):
        with numpyro.plate("rows", 2):
            p = numpyro.sample("p", dist.Dirichlet(jnp.full(3, 2.0)))
            numpyro.sample("y", dist.Multinomial(totals, p, **UNCHECKED), obs=y)

    approx = lb.laplace(model, counts)
    concentration = counts + 2.0
    expected = concentration / concentration.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(approx.mode["p"], expected, rtol=1e-6)
    assert approx.density.valid(approx.mode_vector)


def test_of_rows_of_data_each_is_in_the_simplex():
    def model(y):
        u = numpyro.sample("u", dist.Normal(1, 0.1))
        numpyro.sample(
            "y", dist.Dirichlet(jnp.full(3, u), **UNCHECKED).expand([4]).to_event(1), obs=y
        )

    assert lb.laplace(model, THIRDS).certificate.converged
    for table in (OFF, BELOW):
        with pytest.raises(lb.NonFinite, match="outside the support"):
            lb.laplace(model, table)


ROUNDED = jnp.array([[1e8, 1e-5], [0, 1e8]])
ASYMMETRIC = dist.MultivariateNormal(jnp.zeros(2), ROUNDED, **UNCHECKED)


@pytest.mark.parametrize(
    "fn",
    [
        dist.Poisson(0.0, **UNCHECKED),
        dist.Categorical(logits=jnp.array([0.0, -jnp.inf]), **UNCHECKED),
        dist.Bernoulli(1.0),
        dist.TruncatedNormal(0.0, 1.0, low=0.0, high=2.0),
        ASYMMETRIC,
        dist.LogNormal(0.0, 1.0).expand([3, 2]).to_event(1),
        dist.ZeroInflatedPoisson(0.3, 2.0),
        dist.ImproperUniform(dist.constraints.real, (), ()),
        dist.BetaBinomial(1.0, 2.0, 10),
    ],
    ids=lambda fn: type(fn).__name__,
)
def test_no_false_alarm(fn):
    assert invalid(fn) == []


def test_probabilities_of_many_classes_are_rounded_in_single_precision():
    p = np.random.default_rng(0).random(20_000).astype(np.float32)
    p = jnp.asarray(p / p.sum(dtype=np.float64) * (1 + 2e-6), jnp.float32)
    assert invalid(dist.Categorical(probs=p, **UNCHECKED)) == []
    assert invalid(dist.Categorical(probs=p * 1.01, **UNCHECKED)) == ["probs"]


def test_masked_rows_may_have_parameters_that_are_not_valid():
    def model(sd, seen):
        x = numpyro.sample("x", dist.Normal(0, 1))
        with numpyro.plate("N", 2), handlers.mask(mask=seen):
            numpyro.sample("y", dist.Normal(x, jnp.where(seen, sd, -1.0), **UNCHECKED), obs=Y)

    approx = lb.laplace(model, np.array([1.0, -1.0]), np.array([True, False]))
    assert approx.mode["x"] == pytest.approx(0.25, rel=1e-8)


def test_a_parameter_that_a_mask_shows_in_some_places_is_named():
    def model(y, seen):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.handlers.mask(mask=seen):
            numpyro.sample("y", dist.Normal(w, -1.0).expand([3]), obs=y)

    with pytest.raises(lb.NonFinite, match="scale = -1 is not a scale of Normal"):
        lb.laplace(model, np.zeros(3), np.array([True, False, True]))


def probit(y, offset, seen=True):
    a = numpyro.sample("a", dist.Normal(0, 2))
    law = dist.Bernoulli(probs=jax.scipy.special.ndtr(a + offset), **UNCHECKED)
    numpyro.sample("y", law.mask(seen).to_event(1), obs=y)


def test_data_of_a_probability_that_rounds_to_zero_are_an_error_and_not_clipped():
    y, offset = np.array([0, 1, 1, 0]), np.array([0, 0, 0, 9.0])
    with pytest.raises(lb.NonFinite, match="'y' has probability zero in 1 place") as caught:
        lb.laplace(probit, y, offset)
    assert "log_ndtr(a) - log_ndtr(-a)" in " ".join(str(caught.value).split())
    assert not lb.laplace(probit, y, offset, throw=False).certificate.converged

    def by_logits(y, offset):
        a = numpyro.sample("a", dist.Normal(0, 2)) + offset
        log_ndtr = jax.scipy.special.log_ndtr
        numpyro.sample("y", dist.Bernoulli(logits=log_ndtr(a) - log_ndtr(-a)).to_event(1), obs=y)

    # By scipy.stats.norm.logcdf and scipy.optimize.minimize_scalar.
    assert lb.laplace(by_logits, y, offset).log_evidence == pytest.approx(-36.121749, abs=1e-5)


def test_probabilities_of_zero_and_one_that_the_data_agree_with_or_a_mask_hides_are_no_error():
    y, offset = np.array([0, 1, 1, 0]), np.array([0, 0, 0, 9.0])
    seen = np.array([True, True, True, False])
    hidden = float(lb.laplace(probit, y, offset, seen).log_evidence)
    agreeing = float(lb.laplace(probit, np.array([0, 1, 1, 1]), offset).log_evidence)
    assert hidden == pytest.approx(agreeing, rel=1e-8)


class _Positive(dist.constraints.Constraint):
    """A reader's own, which says it by 0 and 1."""

    event_dim, is_discrete = 0, False

    def __call__(self, x):
        return (x > 0) * 1

    def tree_flatten(self):
        return (), ((), {})


class _OwnNormal(dist.Normal):
    arg_constraints = {"loc": dist.constraints.real, "scale": _Positive()}


@pytest.mark.parametrize("scale", [1.0, -1.0])
def test_a_constraint_may_say_it_by_numbers(scale):
    fn = _OwnNormal(jnp.zeros(3), scale * jnp.ones(3), validate_args=False)
    (found,) = (p for p in parameters(fn) if p.name == "scale")
    assert bool(holds(found.valid)) is (scale > 0)
