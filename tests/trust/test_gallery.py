"""The gallery: its chains beside closed forms and quadrature, and verdicts and remedies tried again."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer.util import log_density
from scipy import stats

import laplacebook as lb
from laplacebook import gallery
from laplacebook.model.density import ModelDensity

KEY = jax.random.key(1)
MEDIAN, WIDTH, HOLDS = 0.3, 0.2, (0.86, 0.94)


def is_right(step):
    return step["median"] <= MEDIAN and abs(step["width"] - 1) <= WIDTH


def answer(name):
    """The first step of the path that is judged good or usable."""
    accepted = [x for x in gallery.tried(name) if x["verdict"] in ("good", "usable")]
    return accepted[0] if accepted else None


def test_twenty_models():
    assert len(gallery.names()) == 20
    for name in gallery.names():
        about = gallery.example(name).about
        assert len(about.splitlines()) == 3, name  # what it is, a line between, where it comes from


def test_unknown_models_are_told():
    with pytest.raises(ValueError, match=r"one of \['globe'"):
        gallery.example("radon")


def test_chains_may_be_trusted():
    for name in gallery.names():
        found = gallery.nuts(name)
        assert found["r_hat"] <= 1.01, name
        assert found["ess"] >= 1000, name
        assert found["divergences"] <= 0.005 * found["chains"] * found["draws"], name


def test_chains_of_the_globe_are_those_of_a_beta_law():
    found = np.array(gallery.nuts("globe")["quantiles"]["share"])
    np.testing.assert_allclose(stats.beta(7, 4).cdf(found), gallery.LEVELS, atol=0.012)


def test_chains_of_the_rings_are_those_of_quadrature():
    model, data, _ = gallery.example("o_rings")
    intercept, slope = np.linspace(-12, 8, 401), np.linspace(-15, 6, 421)
    logits = intercept[:, None, None] + slope[:, None] * (data["temperature"] - 70) / 10
    log_p = stats.norm(0, 5).logpdf(intercept)[:, None] + stats.norm(0, 5).logpdf(slope)
    log_p += (data["distress"] * logits - np.logaddexp(0, logits)).sum(-1)
    p = np.exp(log_p - log_p.max())
    for grid, marginal, site in ((intercept, p.sum(1), "intercept"), (slope, p.sum(0), "slope")):
        exact = (marginal.cumsum() - marginal / 2) / marginal.sum()
        found = np.interp(gallery.nuts("o_rings")["quantiles"][site], grid, exact)
        np.testing.assert_allclose(found, gallery.LEVELS, atol=0.012)


@pytest.mark.parametrize(
    ("name", "site", "other"), [("seeds", "sigma", "sigma"), ("pumps", "alpha", "alpha")]
)
def test_chains_agree_with_others_of_the_same_model(name, site, other):
    path = Path(__file__).parents[1] / "beyond" / "practice.json"
    known = json.loads(path.read_text())[name]["sites"][other]
    found = gallery.nuts(name)
    ours = dict(zip(gallery.LEVELS, found["quantiles"][site], strict=True))
    for level in (0.05, 0.5, 0.95):
        assert abs(ours[level] - known["quantiles"][str(level)]) < 0.1 * found["sd"][site]


def test_an_approximation_beside_nuts():
    """Of a Gaussian with known moments, whose quantiles are looked up in those of the chains by hand."""
    approx = lb.laplace(gallery.example("globe").model, **gallery.example("globe").data)
    (row,) = gallery.against_nuts("globe", approx, KEY).rows()
    low, median, high = (float(x) for x in approx.quantiles((0.05, 0.5, 0.95))["share"])
    exact = stats.beta(7, 4)
    sd = np.ptp(exact.interval(0.9)) / 2 / stats.norm.ppf(0.95)
    assert row["median off (sd)"] == pytest.approx((median - exact.median()) / sd, abs=0.03)
    assert row["width ratio"] == pytest.approx((high - low) / np.ptp(exact.interval(0.9)), abs=0.02)
    assert row["holds"] == pytest.approx(exact.cdf(high) - exact.cdf(low), abs=0.015)


def test_labels_are_put_into_order():
    draws = {
        "share": jnp.array([0.2, 0.7]),
        "mean": jnp.array([[1.0, 2], [4, 3]]),
        "sd": jnp.array([[5.0, 6], [7, 8]]),
    }
    told = gallery.told("eruptions", draws)
    np.testing.assert_allclose(told["share"], [0.2, 0.3])
    np.testing.assert_allclose(told["mean"], [[1, 2], [3, 4]])
    np.testing.assert_allclose(told["sd"], [[5, 6], [8, 7]])
    assert gallery.told("globe", draws) is draws


def test_nothing_wrong_is_called_good_or_usable():
    for name in gallery.names():
        for step in gallery.tried(name):
            if step["verdict"] in ("good", "usable"):
                assert is_right(step), (name, step)


def test_no_key_calls_a_wrong_fit_good_or_usable():
    for name in gallery.names():
        fit, first = gallery.tried(name)[0], gallery.first_verdicts(name)
        assert (fit["verdict"] == "refused") == (first == []), name
        assert first[:1] == [fit["verdict"]] * bool(first), name
        if first and not is_right(fit):
            assert set(first) == {"bad"}, name


def test_priors_make_the_posteriors_proper():
    """Of data with ties the log joint does not rise where a standard deviation shrinks around them."""

    def heights(points):
        log_joint = jax.jit(lambda point: log_density(model, (), data, point)[0])
        return np.array([float(log_joint(point)) for point in points])

    small = np.array([1e-2, 1e-4, 1e-6, 1e-8])
    model, data, _ = gallery.example("eruptions")
    spike = {"share": 0.5, "mean": jnp.array([78.0, 70.0])}
    at = [spike | {"sd": jnp.array([sd, 10.0])} for sd in small]
    assert np.all(np.diff(heights(at)) < 0)
    model, data, _ = gallery.example("stack_loss")
    center, scale = data["x"].mean(0), data["x"].std(0)
    weights = np.array([0.5, 1, 0])  # of a plane in which eight days lie
    plane = {"intercept": -36 + center @ weights, "weights": scale * weights}
    on_it = plane["intercept"] + (data["x"] - center) / scale @ plane["weights"]
    assert np.sum(np.isclose(on_it, data["y"])) == 8
    at = [plane | {"sigma": sigma, "degrees": 0.1} for sigma in small]
    assert np.all(np.diff(heights(at) + 4 * np.log(small)) < 0)  # with the volume about the plane


def test_most_models_end_with_an_answer_other_than_nuts():
    answers = [answer(name) for name in gallery.names()]
    held = [x for x in answers if x and HOLDS[0] <= x["holds"][0] and x["holds"][1] <= HOLDS[1]]
    assert len(held) >= 17


@pytest.mark.parametrize("name", gallery.names())
@pytest.mark.filterwarnings("ignore::laplacebook.DoubtfulFit")
def test_the_path_is_what_is_written(name):
    """To the first answer."""
    steps = gallery.path(name, KEY, everything=False)
    kept = gallery.tried(name)
    assert steps[-1]["line"] == (answer(name) or kept[-1])["line"]
    for found, written in zip(steps, kept, strict=False):
        assert (found["line"], found["verdict"]) == (written["line"], written["verdict"])
        if "median" in written:
            assert found["median"] == pytest.approx(written["median"], abs=0.03)
            assert found["width"] == pytest.approx(written["width"], abs=0.03)
            assert found["holds"] == pytest.approx(written["holds"], abs=0.015)


def test_what_nested_would_sample_is_not_tried():
    """The 12 hyperparameters of a horseshoe, whose first fit is refused."""
    for name, is_tried in (("mileage", False), ("eight_schools", True)):
        model, data, _ = gallery.example(name)
        density = ModelDensity.of(model, tuple(data.values()))
        assert gallery._without_nuts(density) == is_tried
        assert (len(gallery.tried(name)) > 1) == is_tried
