"""Targets that deserve trust, targets that do not, and the reason that is given."""

from dataclasses import replace

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from arviz_stats.base.array import array_stats
from scipy import integrate, stats

import laplacebook as lb
from laplacebook.base import progress
from laplacebook.evidence.importance import importance_weights
from laplacebook.trust.diagnose import _bound
from tests.model.test_start import square
from tests.models import coin, line

KEY = jax.random.key(0)
COIN = np.repeat([1.0, 0.0], [8, 1])


def tosses(y=COIN, heads=2.0, tails=2.0, **options):
    """Always with a prior as data, and so one compiled program."""
    return lb.laplace(coin, y, *numbers(heads, tails), **options)


@pytest.fixture(scope="module")
def of_gaussian():
    """The diagnosis of a linear regression."""
    features = np.random.default_rng(0).normal(size=(20, 3))
    fit = lb.laplace(line, features, features @ np.array([1.0, -1.0, 0.5]))
    return lb.diagnose(fit, KEY, remedies=True)


def student(x, nu):
    return jnp.sum(dist.StudentT(nu).log_prob(x))


def bumps(x, at, height, precision):
    """A bump of area sqrt(2 pi) at 0, and another."""
    return jnp.logaddexp(-(x**2) / 2, height - precision * (x - at) ** 2 / 2)


def numbers(*values):
    """As data, so that other values need no other program."""
    return [np.float64(value) for value in values]


def test_of_a_gaussian_everything_is_exact(of_gaussian):
    found = of_gaussian
    assert found.level == "good"
    assert found.pareto_k == -np.inf
    assert found.effective_fraction == pytest.approx(1)
    assert found.evidence_difference.value == pytest.approx(0, abs=1e-10)
    assert found.importance_log_evidence.standard_error < 1e-10
    assert [one.skewness for one in found.slices] == pytest.approx([0, 0, 0], abs=1e-8)
    assert found.other_modes == ()
    assert (found.rise, found.share_elsewhere) == (-np.inf, 0)
    assert (found.remedies, found.tried) == ((), None)  # a good fit needs none
    assert "next:" not in repr(found)


def test_numbers_are_those_of_the_importance_weights():
    """In the constrained space, where some weights are zero."""
    approx = tosses(space="constrained")
    found = lb.diagnose(approx, KEY, 3_000)
    drawn = jax.random.split(KEY)[0]
    weights = np.asarray(importance_weights(approx, drawn, 3_000))
    clipped = np.maximum(weights, weights[np.isfinite(weights)].min() - 1000)
    assert found.pareto_k == pytest.approx(array_stats.psislw(-clipped)[1], rel=1e-12)
    if hasattr(arviz, "psislw"):  # before its 1.0
        assert found.pareto_k == pytest.approx(arviz.psislw(clipped)[1], abs=0.05)
    ratios = np.exp(weights)
    assert found.effective_sample_size == pytest.approx(ratios.sum() ** 2 / (ratios**2).sum())
    assert found.importance_log_evidence == lb.importance_sampling(
        approx, drawn, 3_000, proposal="gaussian"
    )
    assert found.importance_log_evidence.value == pytest.approx(-np.log(110), abs=0.03)


def test_much_data_makes_it_good():
    found = lb.diagnose(tosses(heads=701.0, tails=101.0), KEY)
    assert found.level == "good"
    assert found.verdict.startswith("good: Pareto k-hat 0.")
    assert "no other mode from 8 starts" in found.verdict


def test_heavy_tails_are_bad():
    found = lb.diagnose(lb.laplace_of_density(student, 0.1, *numbers(3.0)), KEY, starts=1)
    assert found.level == "bad"
    assert found.pareto_k > 0.7
    assert np.isinf(found.importance_log_evidence.standard_error)
    assert "above 0.7" in found.verdict
    assert "cannot check the log evidence" in found.verdict


def test_a_skewed_posterior_is_not_good():
    found = lb.diagnose(tosses(np.zeros(9)), KEY)
    assert found.level != "good"
    assert max(abs(one.skewness) for one in found.slices) > 0.4
    assert any("along theta (beyond 0.5)" in words for _, words in found._findings)


def test_modes_of_equal_height_are_bad():
    approx = lb.laplace(square, 4.0)
    found = lb.diagnose(approx, KEY)
    (other,) = found.other_modes
    assert other.mode["x"] == pytest.approx(-float(approx.mode["x"]))
    assert other.log_evidence == pytest.approx(float(approx.log_evidence))
    assert found.share_elsewhere == pytest.approx(0.5)
    assert found.rise == 0
    assert found.level == "bad"
    assert "holds 50% of the evidence (above 1%), at the same height" in found.verdict
    assert "2 modes found" in repr(found)


def test_modes_that_are_known_count_without_a_search():
    approx = lb.laplace(square, 4.0, starts=6, key=KEY)
    assert lb.diagnose(approx, KEY, starts=1).other_modes == approx.other_modes
    again = lb.diagnose(approx, KEY, starts=8)
    assert len(again.other_modes) == 1
    assert "not searched for" in lb.diagnose(lb.laplace(square, 4.0), KEY, starts=1).verdict


@pytest.mark.parametrize(
    ("height", "precision", "level", "rise"),
    [(np.log(3), 9.0, "bad", np.log(3)), (-1.0, 1.0, "bad", -1.0), (-6.0, 1.0, "good", -6.0)],
)
def test_a_far_mode_counts_by_its_evidence(height, precision, level, rise):
    """Draws from q do not reach it: to them, q is perfect."""
    approx = lb.laplace_of_density(bumps, 0.1, *numbers(12.0, height, precision))
    found = lb.diagnose(approx, KEY, starts=12)
    assert found.effective_fraction > 0.99
    (other,) = found.other_modes
    area = np.exp(height) / np.sqrt(precision)
    assert other.log_evidence == pytest.approx(np.log(area * np.sqrt(2 * np.pi)), abs=1e-6)
    assert found.share_elsewhere == pytest.approx(area / (1 + area), abs=1e-6)
    assert found.rise == pytest.approx(rise, abs=1e-6)
    assert found.level == level
    assert ("not the highest mode" in found.verdict) == (rise > 0)


def test_a_higher_mode_without_evidence_is_told():
    shape = numbers(12.0, 1.0, 1e6)
    found = lb.diagnose(lb.laplace_of_density(bumps, 0.1, *shape), KEY, starts=1)
    spike = lb.laplace_of_density(bumps, 12.0, *shape)
    found = replace(found, other_modes=(spike,))
    assert found.share_elsewhere < 0.01
    assert found.level == "usable"
    assert "not the highest mode: the log joint rises by 1" in found.verdict


def on_the_unit_interval(y):
    theta = numpyro.sample("theta", dist.Uniform(0, 1))
    numpyro.sample("y", dist.Normal(theta, 1), obs=y)


def test_an_evidence_above_the_maximum_likelihood_is_impossible():
    """A Gaussian wider than the support: its weights are equal but for rounding, or zero, and k-hat is blind."""
    approx = lb.laplace(on_the_unit_interval, 0.5, space="constrained")
    found = lb.diagnose(approx, KEY)
    exact = np.log(integrate.quad(lambda theta: stats.norm.pdf(0.5, theta), 0, 1)[0])
    assert float(approx.log_evidence) > stats.norm.logpdf(0) > exact
    assert found.pareto_k < 0
    assert found.slices[0].skewness == pytest.approx(0, abs=0.02)  # an end on the grid, by rounding
    assert found.maximum_log_likelihood.log_likelihood == pytest.approx(stats.norm.logpdf(0))
    assert found.excess == pytest.approx(-stats.norm.logpdf(0))
    assert found.importance_log_evidence.value == pytest.approx(exact, abs=0.1)
    assert found.level == "bad"
    assert "exceeds the maximum log likelihood by 0.92: impossible" in found.verdict
    assert "beyond log 2" in found.verdict
    assert "maximum log likelihood -0.9189" in repr(found)


def test_the_bound_is_looked_at_only_where_it_says_something():
    def flat(y):
        theta = numpyro.sample("theta", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Normal(theta, 1), obs=y)

    def tempered(y):
        with numpyro.handlers.scale(scale=0.01):
            theta = numpyro.sample("theta", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(theta, 1), obs=y)

    plain = lb.laplace_of_density(lambda x: -(x**2) / 20, 1.0)
    for approx in (lb.laplace(flat, 1.0), lb.laplace(tempered, 0.0), plain):
        assert approx.log_occam_factor > 0
        assert _bound(approx, ()) is None
    found = lb.diagnose(tosses(), KEY)
    assert found.maximum_log_likelihood is None
    assert found.excess == -np.inf


def test_an_occam_factor_above_one_is_not_yet_impossible():
    """The Gaussian about the prior's mode is too wide; but elsewhere the data are more likely."""

    def held(y):
        theta = numpyro.sample("theta", dist.Beta(3.0, 3.0))
        numpyro.sample("y", dist.Normal(theta, 2), obs=y)

    approx = lb.laplace(held, 3.0, space="constrained")
    assert approx.log_occam_factor > 0
    found = lb.diagnose(approx, KEY, starts=1)
    highest = found.maximum_log_likelihood.log_likelihood
    assert highest == pytest.approx(stats.norm.logpdf(3, 1, 2), abs=0.05)  # at the edge, theta = 1
    assert found.excess == pytest.approx(float(approx.log_evidence - highest))
    assert found.excess < 0
    assert "impossible" not in found.verdict


def test_many_coordinates_near_a_gaussian():
    """Each of 100 coordinates is nearly Gaussian; the evidence adds up their errors."""

    def counts(y):
        rate = numpyro.sample("rate", dist.Gamma(1.0, 0.02).expand([100]).to_event(1))
        numpyro.sample("y", dist.Poisson(rate).to_event(1), obs=y)

    y = np.random.default_rng(0).poisson(50, size=100)
    found = lb.diagnose(lb.laplace(counts, y), KEY, 1_000, starts=1)
    assert len(found.slices) == 20
    assert max(abs(one.skewness) for one in found.slices) < 0.2
    assert found.effective_fraction < 0.8
    assert found.level != "good"
    assert "20 longest of 100 axes" in repr(found)
    assert any("of all 100 coordinates together" in words for _, words in found._findings)


def test_the_key_decides():
    approx = tosses()
    one, same, other = (lb.diagnose(approx, jax.random.key(i)) for i in (1, 1, 2))
    assert repr(one) == repr(same)
    assert one.pareto_k != other.pareto_k


@pytest.mark.parametrize("shown", [True, False])
def test_progress_of_draws_and_of_searches(monkeypatch, capsys, shown):
    monkeypatch.setattr(progress, "PATIENCE", 0)
    lb.diagnose(tosses(), KEY, progress_bar=shown)
    bars = capsys.readouterr().err
    assert ("/7 [" in bars and "search/s" in bars, "/4000 [" in bars) == (shown, shown)


def test_a_bad_verdict_travels_with_the_fit():
    def tail(y, df=1.0):
        z = numpyro.sample("z", dist.StudentT(df, 0, 1))
        numpyro.sample("y", dist.Normal(z, 30.0), obs=y)

    heavy, light = lb.laplace(tail, 0.0), lb.laplace(tail, 0.0, df=50.0)
    assert heavy.doubt is None
    before = repr(heavy), repr(lb.compare({"heavy": heavy, "light": light}))
    x = lb.predict(heavy, None, method="monte_carlo", key=KEY).mean
    found = lb.diagnose(heavy, KEY, starts=1)
    verdict, lines = found.verdict, [one.line for one in found.remedies]
    # Above a k-hat of 0.7 the correction refuses, as importance sampling does.
    assert found.pareto_k > 0.7 and abs(found.evidence_difference.value) > 0.1
    assert "lb.corrected_evidence(approx)" not in lines
    lb.diagnose(light, KEY, starts=1)
    assert verdict.startswith("bad") and heavy.doubt == f"diagnosed {verdict}"
    assert light.doubt is None
    assert repr(heavy).startswith(before[0]) and verdict in repr(heavy)
    told = repr(lb.compare({"heavy": heavy, "light": light}))
    assert told.startswith(before[1])
    line = told[len(before[1]) :].strip()
    assert line == "doubtful, the evidence may be far off: 'heavy' (diagnosed bad)"
    with pytest.warns(lb.DoubtfulFit, match="tail is doubtful.*diagnosed bad: Pareto"):
        assert lb.predict(heavy, None, method="monte_carlo", key=KEY).mean == x
    with pytest.warns(lb.DoubtfulFit, match="diagnosed bad"):
        lb.predict(heavy, None)
    lb.predict(heavy, None, method="plug_in")
    lb.predict(light, None)
    copies = jax.tree.map(jnp.copy, heavy), lb.laplace(tail, 0.0)
    assert all(copy.doubt is None for copy in copies)


def test_what_is_printed(of_gaussian):
    for text in (repr(of_gaussian), of_gaussian._repr_html_()):
        assert "good: Pareto k-hat -inf" in text
        assert "w[0]" in text
        assert "4,000 of 4,000 draws" in text
    assert repr(of_gaussian).startswith("good")
    assert max(map(len, repr(of_gaussian).splitlines())) <= 100


def test_what_cannot_be_diagnosed():
    approx = tosses()
    with pytest.raises(ValueError, match="num_samples must be 100 or more"):
        lb.diagnose(approx, KEY, 99)
    for wrong in ({"num_samples": 0}, {"starts": 0}, {"starts": True}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be a whole number"):
            lb.diagnose(approx, KEY, **wrong)
    with pytest.raises(lb.LaplaceError, match="The fit failed"):
        lb.diagnose(tosses(np.append(COIN[1:], np.nan), throw=False), KEY)
    with pytest.raises(ValueError, match=r"batch.*on one at a time, jax\.tree\.map"):
        lb.diagnose(jax.tree.map(lambda x: jnp.stack([x, x]), approx), KEY)
    with pytest.raises(ValueError, match="cannot be compiled"):
        jax.jit(lambda approx: lb.diagnose(approx, KEY).effective_sample_size)(approx)
    with pytest.raises(ValueError, match="cannot be compiled"):
        jax.jit(lambda key: lb.diagnose(approx, key).effective_sample_size)(KEY)
    with pytest.raises(lb.NonFinite, match="NaN"):
        lb.diagnose(lb.laplace_of_density(lambda x: jnp.where(x > 2, jnp.nan, -(x**2)), 0.5), KEY)
