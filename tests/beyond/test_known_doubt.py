"""A verdict of a diagnosis, and modes that are known, go with whatever is made of a fit."""

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.fit import glance
from tests.beyond.test_mixture import place, root

KEY = jax.random.key(0)
TOLD = r"it leaves out other modes that were found, with 23% of the evidence; lb\.mixture"


def student(x, nu):
    return dist.StudentT(nu).log_prob(x)


@pytest.fixture(scope="module")
def found():
    """A diagnosis of a fit of one mode of two."""
    return lb.diagnose(lb.laplace(root, 9.0, 0.2, start={"x": 3.0}), KEY)


@pytest.fixture(scope="module")
def both():
    return lb.laplace(root, 9.0, 0.2, starts=8, key=KEY)


@pytest.fixture(scope="module")
def heavy():
    """A fit with tails far too light, and no skewness."""
    fit = lb.laplace_of_density(student, jnp.array(0.1), 2.0)
    lb.diagnose(fit, KEY)
    return fit


MADE = {
    "mixture": lb.mixture,
    "skewed": lb.skewed,
    "resampled": lambda fit: lb.resampled(fit, KEY, 1_000),
    "skewed and resampled": lambda fit: lb.resampled(lb.skewed(fit), KEY, 1_000),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_modes_that_a_diagnosis_found_go_with_what_is_made_of_the_fit(found, make):
    made = make(found.approx)
    assert "1 other mode holds 23%" in found.approx.doubt
    assert made.doubt.startswith("it leaves out other modes that were found, with 23% of")
    assert "lb.mixture([approx, *diagnosis.other_modes]) joins them" in repr(made)
    assert "'made' (it leaves out" in repr(lb.compare({"made": made}))


def test_so_do_modes_that_several_starts_found(both):
    for approx in (lb.skewed(both), lb.resampled(both, KEY, 1_000)):
        assert "other modes that were found, with 23% of the evidence" in approx.doubt


def test_a_mixture_that_holds_them_is_not_doubted(found):
    joined = lb.mixture([found.approx, *found.other_modes])
    assert joined.doubt is None
    assert lb.resampled(joined, KEY, 1_000).doubt is None
    assert lb.expectation(joined, place).doubt is None


def test_of_a_share_below_a_hundredth_nothing_is_said():
    """At this tilt the mode at -3 holds 0.2 % of the evidence."""
    fit = lb.laplace(root, 9.0, 1.0, starts=8, key=KEY)
    assert len(fit.other_modes) == 1
    assert fit.known_doubt is None


def test_what_is_bad_about_the_shape_goes_with_what_does_not_mend_it(heavy):
    assert heavy.doubt.startswith("diagnosed bad: Pareto k-hat")
    assert lb.mixture(heavy).doubt.startswith(
        "of the component with a share of 1.00, diagnosed bad: Pareto k-hat"
    )
    skewed = lb.skewed(heavy)
    assert skewed.doubt.startswith("the Gaussian was diagnosed bad: Pareto k-hat")
    skewed.remember("")  # as a diagnosis of its own does that finds it good
    assert skewed.doubt is None
    mean = lb.expectation(heavy, place, method="delta")
    assert repr(mean).endswith(f"; doubtful: {heavy.doubt}")


def test_of_a_verdict_a_mixture_that_holds_the_modes_keeps_the_rest(found):
    fit = lb.laplace(root, 9.0, 0.2, start={"x": 3.0})
    fit.remember("bad: a long tail; another mode.", "bad: a long tail.", found.other_modes)
    doubt = lb.mixture([fit, *found.other_modes]).doubt
    assert doubt == "of the component with a share of 0.77, diagnosed bad: a long tail."
    assert lb.resampled(fit, KEY, 1_000).doubt.startswith("it leaves out")


def test_what_draws_cannot_see_of_an_approximation_goes_with_draws_of_it(found):
    """Of one that is no single Gaussian the words of its own diagnosis, which are in the place of its Gaussian's."""
    fit = lb.laplace(root, 9.0, 0.2, start={"x": 3.0})
    fit.remember("bad: a long tail.", "bad: a long tail.")
    skewed = lb.skewed(fit)
    assert skewed.doubt == "the Gaussian was diagnosed bad: a long tail."
    assert lb.resampled(skewed, KEY, 1_000).doubt is None
    lb.diagnose(skewed, KEY)
    assert skewed.doubt.startswith("diagnosed bad: 1 other mode")
    doubt = lb.resampled(skewed, KEY, 1_000).doubt
    assert doubt.startswith("1 other mode holds 23% of the evidence")


def test_inner_modes_in_words_go_along():
    fit = lb.laplace(root, 9.0, 0.2, start={"x": 3.0})
    fit.remember("bad: the effects have two modes.", unseen="the effects have two modes")
    for make in (lb.skewed, lb.mixture):
        assert "the effects have two modes" in make(fit).doubt


def test_numbers_by_expansions_tell_it(found, both):
    for one, told in ((found.approx, "diagnosed bad: 1 other mode holds 23%"), (both, "it leaves")):
        evidence = lb.corrected_evidence(one)
        mean = lb.expectation(one, place)
        for number in (evidence, mean):
            assert number.doubt.startswith(told)
            assert repr(number).endswith(f"; doubtful: {number.doubt}")
    joined = lb.mixture(both)
    assert "doubtful" not in repr(lb.corrected_evidence(joined))
    assert "doubtful" not in repr(lb.corrected_evidence(lb.laplace(root, 9.0, 0.2)))


def test_a_mean_by_draws_tells_of_modes_and_an_evidence_by_draws_warns(found, both, heavy):
    assert "23%" in lb.expectation(both, lambda sites: sites["x"] > 3, method="draws").doubt
    for fit in (found.approx, both):
        with pytest.warns(lb.DoubtfulFit, match=TOLD):
            lb.importance_sampling(fit, KEY, 200)
        with pytest.warns(lb.DoubtfulFit, match=TOLD):
            lb.gauss_hermite(fit)
    lb.importance_sampling(heavy, KEY, 200)  # whose weights tell the rest


def test_nothing_is_looked_at_anew(monkeypatch):
    def look(*_):
        raise AssertionError

    fit = lb.laplace(root, 9.0, 0.2, start={"x": 3.0})
    monkeypatch.setattr(glance, "doubt_at_a_glance", look)
    assert lb.corrected_evidence(fit).doubt is None
    assert lb.expectation(lb.mixture(fit), place).doubt is None
    lb.importance_sampling(fit, KEY, 200)
    with pytest.raises(AssertionError):
        _ = fit.doubt


def test_within_a_compiled_program_there_is_no_word(both):
    found = jax.jit(lambda fit: lb.corrected_evidence(fit))(both)
    assert found.doubt is None
    assert found.value == pytest.approx(float(lb.corrected_evidence(both).value))
    inside = jax.jit(lambda x: x * lb.corrected_evidence(both).value)(1.0)
    assert inside == pytest.approx(float(found.value))
    joined = lb.mixture(both)
    mean = lb.expectation(joined, place, method="delta").value
    inside = jax.jit(
        lambda x: lb.expectation(joined, lambda sites: x * sites["x"], method="delta").value
    )(2.0)
    assert inside == pytest.approx(2 * float(mean))
