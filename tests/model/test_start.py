"""Where a search begins: at the prior mean, or where the reader says."""

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.contrib.control_flow import scan
from scipy import optimize, special

import laplacebook as lb
from laplacebook.model.density import ModelDensity
from laplacebook.search.mode import find_mode
from tests.models import logistic, single_precision


def one(prior):
    def model():
        numpyro.sample("x", prior)

    return model


TAILED = dist.LogNormal(0.0, 50.0)
FLAT = dist.ImproperUniform(dist.constraints.positive, (), (2,))
#: a prior, and the value that the search begins at
CENTRES = [
    (dist.Normal(170, 30), 170.0),
    (dist.Beta(1.0, 3.0), 0.25),
    (dist.Uniform(2.0, 8.0), 5.0),
    (dist.HalfNormal(1.0), np.sqrt(2 / np.pi)),
    (dist.Gamma(3.0, jnp.array([1.0, 2.0])), [3.0, 1.5]),
    (dist.Normal(jnp.array([3.0, 4.0]), 1).expand([3, 2]).to_event(2), [[3.0, 4.0]] * 3),
    (dist.Normal(5, 1).mask(False), 5.0),
    (dist.Dirichlet(jnp.array([1.0, 2.0, 5.0])), [0.125, 0.25, 0.625]),
    (dist.MultivariateNormal(jnp.arange(2.0), jnp.eye(2)), [0.0, 1.0]),
    (TAILED, 1.0),  # the image of the mean, not the mean: exp(1250)
    (dist.Cauchy(7.0, 1.0), 0.0),
    (dist.HalfCauchy(7.0), 1.0),
    (FLAT, [1.0, 1.0]),
    (dist.LKJCholesky(2, 3.0), np.eye(2)),
    (dist.VonMises(jnp.pi, 1.0), 0.0),  # its mean has no coordinate
]


@pytest.mark.parametrize(("prior", "centre"), CENTRES, ids=lambda p: type(p).__name__)
def test_the_middle_of_the_prior(prior, centre):
    density = ModelDensity.of(one(prior))
    values = jax.jit(density.terms)(density.start()).values
    np.testing.assert_allclose(values["x"], centre, rtol=1e-9, atol=1e-12)


def test_priors_see_the_values_before_them_in_either_space():
    def model():
        mean = numpyro.sample("mean", dist.Normal(100.0, 10.0))
        numpyro.sample("x", dist.Gamma(mean, 2.0))

    for space in ("unconstrained", "constrained"):
        density = ModelDensity.of(model, space=space)
        values = density.terms(density.start()).values
        assert (values["mean"], values["x"]) == (100, pytest.approx(50, rel=1e-12))


def test_within_scan():
    def model():
        scan(lambda x, _: (numpyro.sample("x", dist.Gamma(2 * x, 1.0)), None), 3.0, None, length=3)

    density = ModelDensity.of(model)
    np.testing.assert_allclose(jnp.exp(density.start()), [6, 12, 24], rtol=1e-12)


def heights(y, mean=100.0):
    mu = numpyro.sample("mu", dist.Normal(mean, 10))
    numpyro.sample("y", dist.Normal(jnp.log(mu), 0.1).expand([3]).to_event(1), obs=y)


def test_a_model_that_is_not_defined_at_zero_needs_no_start():
    approx = lb.laplace(heights, np.array([4.6, 4.7, 4.5]))
    assert approx.mode["mu"] == pytest.approx(99, abs=2)
    assert approx.certificate.iterations < 8


def test_units_do_not_matter():
    def model(y, unit):
        mu = numpyro.sample("mu", dist.Normal(0, unit))
        sd = numpyro.sample("sd", dist.HalfNormal(unit))
        numpyro.sample("y", dist.Normal(mu, sd).expand([20]).to_event(1), obs=y)

    y = np.random.default_rng(0).normal(1, 0.5, size=20)
    iterations = {int(lb.laplace(model, y * c, c).certificate.iterations) for c in (1e-5, 1.0, 1e5)}
    assert len(iterations) == 1 and max(iterations) < 15


def test_the_start_is_no_variable_of_the_derivative():
    y = np.array([4.6, 4.7, 4.5])
    slope = jax.grad(lambda mean: ModelDensity.of(heights, (y, mean)).start().sum())(100.0)
    assert slope == 0


HALF, NORMAL, BOTH = dist.HalfNormal(1), dist.Normal(0, 1), ("unconstrained", "constrained")
FREE = BOTH[:1]
#: a prior, a start, in which spaces it is refused, the error, what it says
REFUSED = {
    "below": (HALF, {"x": -1.0}, BOTH, ValueError, r"start\['x'\] = -1.0 is outside"),
    "above": (dist.Uniform(0, 1), {"x": 1.5}, BOTH, ValueError, "Interval"),
    "no simplex": (dist.Dirichlet(jnp.ones(3)), {"x": [0.5] * 3}, FREE, ValueError, "Simplex"),
    "no number": (NORMAL, {"x": np.nan}, BOTH, ValueError, "Real"),
    "on the edge": (HALF, {"x": 0.0}, FREE, ValueError, "on the edge of, the support of 'x', Pos"),
    "complex": (HALF, {"x": 1j}, FREE, ValueError, r"start\['x'\] is .*: it is complex"),
    "nothing": (NORMAL, {"x": None}, FREE, ValueError, r"start\['x'\] is no array of numbers"),
    "text": (NORMAL, {"x": "a"}, FREE, ValueError, r"start\['x'\] is no array of numbers"),
    "shape": (NORMAL, {"x": [0.0] * 3}, FREE, ValueError, r"\['x'\] has shape \(3,\), not \(\)"),
    "name": (NORMAL, {"y": 0.0}, FREE, ValueError, r"of \['x'\], not \['y'\]"),
    "list": (NORMAL, [1.0], FREE, TypeError, "start is a dict of latent site -> value"),
    "array": (NORMAL, np.ones(1), FREE, TypeError, "start is a dict of latent site -> value"),
    "number for a name": (NORMAL, {1: 0.0, "x": 0.0}, FREE, TypeError, "start is a dict of"),
}


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize("name", REFUSED)
def test_a_start_that_is_none_is_refused(name):
    prior, start, spaces, error, message = REFUSED[name]
    for space in spaces:
        with pytest.raises(error, match=message):
            lb.laplace(one(prior), start=start, space=space)


def square(y):
    x = numpyro.sample("x", dist.Normal(0, 2))
    numpyro.sample("y", dist.Normal(x**2, 0.5), obs=y)


def test_what_a_start_does_not_name_begins_in_the_middle_of_its_prior():
    def tall(y):
        mean = numpyro.sample("mean", dist.Normal(0, 1000))
        with numpyro.plate("N", 3):
            each = numpyro.sample("each", dist.Normal(mean, 1))
            numpyro.sample("y", dist.Normal(each, 1), obs=y)

    density = ModelDensity.of(tall, (np.zeros(3),))
    np.testing.assert_array_equal(density.start({"mean": 7.0}), [7, 7, 7, 7])
    np.testing.assert_array_equal(density.start({"each": np.arange(3.0)}), [0, 0, 1, 2])
    for start in ({"nobody": 1.0}, {"mean": 1.0, "nobody": 1.0}, {}):
        with pytest.raises(ValueError, match="start must name latent sites"):
            density.start(start)
    found = lb.laplace(tall, np.ones(3), start={"mean": 7.0})
    np.testing.assert_allclose(found.mode_vector, [1, 1, 1, 1], rtol=1e-5)


def test_several_starts_find_the_modes():
    """x^2 near 4 has two modes of one height; a flat prior cannot be drawn, and is searched all the same."""
    approx = lb.laplace(square, 4.0, starts=6, key=jax.random.key(0))
    (other,) = approx.other_modes
    assert other.mode["x"] == pytest.approx(-float(approx.mode["x"]), rel=1e-8)
    assert other.log_evidence == pytest.approx(float(approx.log_evidence), rel=1e-8)
    assert "2 modes found" in repr(approx)

    def cauchy(y):
        m = numpyro.sample("m", dist.ImproperUniform(dist.constraints.real, (), ()))
        numpyro.sample("y", dist.Cauchy(m, 1).expand([2]).to_event(1), obs=y)

    found = lb.laplace(cauchy, np.array([-10.0, 10.0]), starts=8, key=jax.random.key(0))
    assert len(found.other_modes) == 1


def test_several_starts_of_one_mode_are_one():
    def normal(y):
        x = numpyro.sample("x", dist.Normal(0, 100))
        numpyro.sample("y", dist.Normal(x, 1), obs=y)

    approx = lb.laplace(normal, 3.0, starts=5, key=jax.random.key(1))
    assert approx.other_modes == ()
    assert "modes found" not in repr(approx)


def test_what_several_starts_need():
    with pytest.raises(ValueError, match="needs key="):
        lb.laplace(square, 4.0, starts=2)
    for starts in (0, True):
        with pytest.raises(ValueError, match="starts must be a whole number, 1 or more"):
            lb.laplace(square, 4.0, starts=starts, key=jax.random.key(0))
    with pytest.raises(ValueError, match="one search draws nothing"):
        lb.laplace(square, 4.0, key=jax.random.key(0))
    with pytest.raises(ValueError, match="cannot be compiled"):
        jax.jit(lambda y: lb.laplace(square, y, starts=2, key=jax.random.key(0)).log_evidence)(4.0)


@pytest.mark.parametrize("tosses", [[0.0], [1, 0.0], [1] * 8 + [0.0]])
@pytest.mark.parametrize("start", [None, {"w": np.zeros(1)}])
@pytest.mark.parametrize("precision", [nullcontext, single_precision])
def test_a_wrong_slope_at_logit_zero_does_not_matter(tosses, start, precision):
    """NumPyro's slope there is 0 or 1, not -1/2 or 1/2: at y = 0 it looked like a mode.

    All have nine rows, of one program: those beyond the tosses have the feature 0, and say nothing.
    """
    y = np.array(tosses)
    features, padded = np.zeros((9, 1)), np.zeros(9)
    features[: len(y)], padded[: len(y)] = 1, y
    with precision():
        approx = lb.laplace(logistic, features, padded, start=start)
    mode = optimize.brentq(lambda w: w + (special.expit(w) - y).sum(), -9, 9)
    np.testing.assert_allclose(
        approx.mode["w"], [mode], atol=1e-7 if precision is nullcontext else 1e-3
    )


def test_rows_that_cancel_do_not_bring_the_zero_back():
    features = np.array([[1, -1], [2, -2], [1, 1], [-1, -1.0]])
    y = np.array([0, 0, 1, 1.0])
    approx = lb.laplace(logistic, features, y)
    w = np.asarray(approx.mode["w"])
    score = features.T @ (y - special.expit(features @ w)) - w
    np.testing.assert_allclose(score, 0, atol=1e-7)


def test_a_slope_that_is_wrong_at_one_point_makes_no_mode():
    """softplus(x) + x^2 / 2 as NumPyro has it, whose slope is 0 at 0 by JAX, and 1/2 on paper."""

    def f(x):
        return jnp.sum(x**2 / 2 + jnp.clip(x, 0) + jnp.log1p(jnp.exp(-jnp.abs(x)))), ()

    assert jax.grad(lambda x: f(x)[0])(jnp.zeros(1)) == 0
    assert not find_mode(f, jnp.zeros(1)).certificate.converged


@pytest.mark.parametrize("start", [None, {"x": np.array(5e-10)}])
def test_a_search_begins_within_a_narrow_support(start):
    def model(y):
        x = numpyro.sample("x", dist.Uniform(0, 1e-9))
        numpyro.sample("y", dist.Normal(x, 1e-10), obs=y)

    approx = lb.laplace(model, 4e-10, space="constrained", start=start)
    np.testing.assert_allclose(approx.mode["x"], 4e-10, rtol=1e-6)


def test_a_next_call_from_a_start_does_not_run_the_model(capsys):
    """Whoever runs the model needs its sites, and finds them."""

    def announced(y):
        print("run")
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    lb.laplace(announced, np.array(1.0), start={"mean": 0.2})
    assert "run" in capsys.readouterr().out
    again = lb.laplace(announced, np.array(3.0), start={"mean": 0.4})
    assert "run" not in capsys.readouterr().out
    assert again.mode["mean"] == pytest.approx(1.5)


def test_the_middle_of_a_transformed_prior_with_whole_numbers():
    def model(y):
        to_unit = dist.transforms.SigmoidTransform()
        p = numpyro.sample("p", dist.TransformedDistribution(dist.Normal(0, 1), to_unit))
        numpyro.sample("y", dist.Bernoulli(p).expand([2]).to_event(1), obs=y)

    assert ModelDensity.of(model, (np.array([1, 0]),)).start() == pytest.approx(0)
