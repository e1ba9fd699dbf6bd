"""Counts are compared with counts, and out of the same totals; no count is taken for another thing."""

from dataclasses import replace
from functools import cache

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.scipy.stats import norm

import laplacebook as lb
from laplacebook.evidence.comparable import Contender, refuse_other_data
from laplacebook.model.density import ModelDensity
from laplacebook.model.observations import observed, same_numbers

COUNTS = np.array([3, 1, 4, 2, 0, 3])
TOSSES = np.array([1, 0, 1, 1, 0, 1])
VOTES = np.array([[1.0, 2, 3], [2, 2, 2]])
TOTALS = np.array([10, 20, 10, 5, 5, 30])


def model(y, fn):
    """Of one latent, u, with the distribution ``fn(u)`` of the data."""
    u = numpyro.sample("u", dist.Normal(0, 1))
    numpyro.sample("y", fn(u), obs=y)


@cache
def a_fit():
    return lb.laplace(model, COUNTS, NORMAL)


def of(name, fn, y):
    """With a fit of these data, of which nothing else is looked at: in its numbers it is another one."""
    return Contender(name, 0.0, approx=replace(a_fit(), density=ModelDensity.of(model, (y, fn))))


def many(fn):
    """The distribution for each of six data."""
    return lambda u: fn(u).expand([6]).to_event(1)


class Rounded(dist.Distribution):
    """A normal that is seen rounded: the probability of an interval of length one."""

    support = dist.constraints.integer_interval(-1000, 1000)
    pytree_data_fields = ("loc",)

    def __init__(self, loc):
        self.loc = loc
        super().__init__(batch_shape=jnp.shape(loc))

    def log_prob(self, value):
        return jnp.log(norm.cdf(value + 0.5 - self.loc) - norm.cdf(value - 0.5 - self.loc))


def share(u):
    return jnp.array([u, 0.0, -u])


POISSON = many(lambda u: dist.Poisson(jnp.exp(u)))
NORMAL = many(lambda u: dist.Normal(u, 1))
BINOMIAL = many(lambda u: dist.Binomial(10, logits=u))
BERNOULLI = many(lambda u: dist.Bernoulli(logits=u))

COMPARED = {
    "Poisson, negative binomial": (
        COUNTS,
        POISSON,
        many(lambda u: dist.NegativeBinomial2(jnp.exp(u), 2.0)),
    ),
    "Poisson, inflated": (
        COUNTS,
        POISSON,
        many(lambda u: dist.ZeroInflatedPoisson(0.1, jnp.exp(u))),
    ),
    "Poisson, Binomial": (COUNTS, POISSON, BINOMIAL),
    "Poisson, mixed": (
        COUNTS,
        POISSON,
        many(
            lambda u: dist.MixtureSameFamily(
                dist.Categorical(jnp.ones(2) / 2), dist.Poisson(jnp.exp(jnp.stack([u, u + 1])))
            )
        ),
    ),
    "negative binomials of other dispersions": (
        COUNTS,
        many(lambda u: dist.NegativeBinomialLogits(3.0, u)),
        many(lambda u: dist.NegativeBinomialLogits(jnp.exp(u), 0.5)),
    ),
    "Poisson, a rounded normal": (COUNTS, POISSON, many(Rounded)),
    "Binomial by logits and by probabilities": (
        COUNTS,
        BINOMIAL,
        many(lambda u: dist.Binomial(10, 1 / (1 + jnp.exp(-u)))),
    ),
    "Binomial, BetaBinomial": (
        COUNTS,
        BINOMIAL,
        many(lambda u: dist.BetaBinomial(jnp.exp(u), 2.0, 10)),
    ),
    "Binomial, inflated": (
        COUNTS,
        BINOMIAL,
        many(lambda u: dist.ZeroInflatedDistribution(dist.Binomial(10, logits=u), gate=0.1)),
    ),
    "Bernoulli, Binomial of one": (TOSSES, BERNOULLI, many(lambda u: dist.Binomial(1, logits=u))),
    "Bernoulli, Categorical": (
        TOSSES,
        BERNOULLI,
        many(lambda u: dist.Categorical(logits=jnp.stack([jnp.zeros_like(u), u]))),
    ),
    "Multinomials of two totals": (
        VOTES * [[1], [2]],
        lambda u: dist.Multinomial(jnp.array([6, 12]), logits=share(u)).to_event(1),
        lambda u: dist.DirichletMultinomial(jnp.exp(share(u)), jnp.array([6, 12])).to_event(1),
    ),
    "Normal, StudentT": (COUNTS, NORMAL, many(lambda u: dist.StudentT(4.0, u, 1.0))),
}


@pytest.mark.parametrize("case", COMPARED)
def test_models_of_the_same_kind_are_compared(case):
    y, one, other = COMPARED[case]
    assert refuse_other_data([of("one", one, y), of("other", other, y)]) == []


MASS, TOTAL = "of a real number a density", "Totals are data too"
REFUSED = {
    "Poisson, Normal": (COUNTS, POISSON, NORMAL, MASS),
    "a rounded normal, Normal": (COUNTS, many(Rounded), NORMAL, MASS),
    "inflated, StudentT": (
        COUNTS,
        many(lambda u: dist.ZeroInflatedPoisson(0.1, jnp.exp(u))),
        many(lambda u: dist.StudentT(4.0, u, 1.0)),
        MASS,
    ),
    "Multinomial, Normal": (
        VOTES,
        lambda u: dist.Multinomial(6, logits=share(u)).expand([2]).to_event(1),
        lambda u: dist.Normal(u, 1).expand([2, 3]).to_event(2),
        MASS,
    ),
    "Binomials of 10 and of 11": (
        COUNTS,
        BINOMIAL,
        many(lambda u: dist.Binomial(11, logits=u)),
        TOTAL,
    ),
    "Binomials of totals in another order": (
        COUNTS,
        lambda u: dist.Binomial(TOTALS, logits=u).to_event(1),
        lambda u: dist.Binomial(TOTALS[::-1], logits=u).to_event(1),
        TOTAL,
    ),
    "Binomial of 10, BetaBinomial of 12": (
        COUNTS,
        BINOMIAL,
        many(lambda u: dist.BetaBinomial(jnp.exp(u), 2.0, 12)),
        TOTAL,
    ),
    "Binomial of 10, inflated of 12": (
        COUNTS,
        BINOMIAL,
        many(lambda u: dist.ZeroInflatedDistribution(dist.Binomial(12, logits=u), gate=0.1)),
        TOTAL,
    ),
    "Bernoulli, Binomial of ten": (TOSSES, BERNOULLI, BINOMIAL, TOTAL),
    "Binomials of other shapes": (
        COUNTS,
        BINOMIAL,
        lambda u: dist.Binomial(jnp.array([[10], [12]]), logits=u).expand([2, 3]).to_event(2),
        TOTAL,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_models_of_other_kinds_are_refused(case):
    y, one, other, phrase = REFUSED[case]
    reshaped = y.reshape(other(0.0).shape())
    with pytest.raises(lb.LaplaceError) as caught:
        refuse_other_data([of("one", one, y), of("other", other, reshaped)])
    text = " ".join(str(caught.value).split())
    for part in (phrase, "'one'", "'other'", "What to do:"):
        assert part in text


def test_it_does_not_matter_which_is_better_or_named_first():
    hundred = many(lambda u: dist.Binomial(100, logits=u))
    models = [lb.laplace(model, COUNTS, fn) for fn in (BINOMIAL, hundred)]
    for names in (("a", "b"), ("b", "a")):
        with pytest.raises(lb.LaplaceError, match="out of 100"):
            lb.compare(dict(zip(names, models, strict=True)))


def test_two_sites_of_two_kinds():
    """A count and a real number of each, the numbers swapped between the sites."""

    def both(counts, reals):
        u = numpyro.sample("u", dist.Normal(0, 1))
        numpyro.sample("n", dist.Poisson(jnp.exp(u)).expand([2]).to_event(1), obs=counts)
        numpyro.sample("x", dist.Normal(u, 1).expand([2]).to_event(1), obs=reals)

    one = lb.laplace(both, np.array([1, 2]), np.array([3.0, 4.0]))
    again = lb.laplace(both, np.array([2, 1]), np.array([4.0, 3.0]))
    swapped = lb.laplace(both, np.array([3, 4]), np.array([1.0, 2.0]))
    assert lb.compare({"one": one, "again": again}).footer == ()
    with pytest.raises(lb.LaplaceError, match="of a real number a density"):
        lb.compare({"one": one, "swapped": swapped})


def test_a_mask_hides_totals_too():
    def of_totals(total, seen):
        u = numpyro.sample("u", dist.Normal(0, 1))
        fn = dist.Binomial(total, logits=u).expand([6]).mask(seen).to_event(1)
        numpyro.sample("y", fn, obs=COUNTS)

    seen = np.arange(6) < 5
    fits = [lb.laplace(of_totals, np.where(seen, 10, hidden), seen) for hidden in (10, 100)]
    assert lb.compare({"ten": fits[0], "more": fits[1]}).footer == ()


def test_totals_stand_beside_their_counts():
    density = ModelDensity.of(
        model, (COUNTS, lambda u: dist.Binomial(TOTALS, logits=u).to_event(1))
    )
    rows = observed(density, jnp.zeros(1)).of_totals
    pairs = sorted(zip(TOTALS.tolist(), COUNTS.tolist(), strict=True))
    assert rows.tolist() == [[count, total] for total, count in pairs]


X = np.random.default_rng(0).normal(size=50)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (X, X.astype(np.float32).astype(float), True),
        (X, X.astype(np.float32), True),
        (X, X * (1 + 2e-8), False),
        (X.astype(np.float32).astype(float), X.astype(np.float32) * (1 + 1e-5), False),
        (np.array([1e6, 3e6]), np.array([1e6, 3e6 + 1]), False),
        (np.array([2.0**24]), np.array([2.0**24 + 1]), True),
        (np.array([2.0**24 + 1]), np.array([2.0**24 + 3]), False),
    ],
)
def test_numbers_out_of_a_file_of_single_precision_are_the_same(one, other, equal):
    one, other = np.sort(one), np.sort(other)
    assert same_numbers(one, other) == same_numbers(other, one) == equal
