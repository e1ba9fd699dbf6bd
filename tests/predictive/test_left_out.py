"""What new arguments leave out: other outcomes, settings of the fit, an axis of a column."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb

RNG = np.random.default_rng(0)
X = RNG.normal(size=60)
TREATED = (RNG.uniform(size=60) < 1 / (1 + np.exp(-X))).astype(int)
Y = 1 + 3.0 * TREATED + RNG.normal(size=60)
NEW, KEY = np.array([-2.0, 0.0, 2.0]), jax.random.key(0)

MEANS = {  # of the outcome, given a treatment that is 0 or 1
    "comparison": lambda t, b: jnp.where(t == 1, b[1], b[0]),
    "choice": lambda t, b: jax.vmap(lambda t: jax.lax.cond(t > 0, lambda: b[1], lambda: b[0]))(t),
}


def treatment(mean):
    def model(x, t=None, y=None):
        a = numpyro.sample("a", dist.Normal(0, 2))
        b = numpyro.sample("b", dist.Normal(0, 2).expand([2]).to_event(1))
        with numpyro.plate("N", len(x)):
            t = numpyro.sample("t", dist.Bernoulli(logits=a * x), obs=t)
            numpyro.sample("y", dist.Normal(mean(t, b), 1.0), obs=y)

    return model


@pytest.mark.parametrize("name", MEANS)
def test_an_outcome_of_one_that_is_left_out(name):
    fit = lb.laplace(treatment(MEANS[name]), X, TREATED, Y)
    for options in ({}, {"method": "monte_carlo", "key": KEY}, {"method": "plug_in"}):
        with pytest.raises(lb.UnsupportedModel, match="'y' depends on 't', which"):
            lb.predict(fit, NEW, site="y", **options)
    with pytest.raises(lb.UnsupportedModel, match="'y' depends on 't', which"):
        jax.jit(lambda x: lb.predict(fit, x, site="y").mean)(NEW)
    a, b = float(fit.mode["a"]), fit.mode["b"]
    first = lb.predict(fit, NEW, site="t", method="plug_in")
    np.testing.assert_allclose(first, 1 / (1 + np.exp(-a * NEW)), rtol=1e-9)
    known = lb.predict(fit, NEW, np.array([0, 1, 1]), site="y", method="plug_in")
    np.testing.assert_allclose(known.mean, MEANS[name](np.array([0, 1, 1]), b), rtol=1e-9)


def test_two_outcomes_that_do_not_depend_on_each_other():
    def model(x, one=None, other=None):
        a = numpyro.sample("a", dist.Normal(0, 2))
        with numpyro.plate("N", len(x)):
            numpyro.sample("one", dist.Normal(a * x, 1), obs=one)
            numpyro.sample("other", dist.Bernoulli(logits=a * x), obs=other)

    fit = lb.laplace(model, X, Y, TREATED)
    found = lb.predict(fit, NEW, site="one")
    np.testing.assert_allclose(found.mean, float(fit.mode["a"]) * NEW)


def line(x, scale=1.0, y=None, *, offset=None, power=1, **others):
    b = numpyro.sample("b", dist.Normal(0, 2))
    mean = b * x**power + (0.0 if offset is None else offset) + others.get("shift", 0.0)
    numpyro.sample("y", dist.Normal(mean, scale).to_event(1), obs=y)


def test_a_setting_is_that_of_the_fit():
    fit = lb.laplace(line, X, 0.3, Y, offset=1.0, power=2, shift=0.5)
    b = float(fit.mode["b"])
    left_out = lb.predict(fit, NEW)
    np.testing.assert_allclose(left_out.mean, b * NEW**2 + 1.5)
    np.testing.assert_allclose(left_out.noise, 0.09)
    given = lb.predict(fit, NEW, scale=2.0, power=1, shift=0.0)
    np.testing.assert_allclose(given.mean, b * NEW + 1)
    np.testing.assert_allclose(given.noise, 4)
    named = lb.laplace(line, x=X, y=Y, scale=np.array(0.3))
    np.testing.assert_allclose(lb.predict(named, x=NEW).noise, 0.09)


def test_an_array_may_be_of_rows_and_is_not_taken_over():
    fit = lb.laplace(line, X, np.full(60, 0.3), Y)
    np.testing.assert_allclose(lb.predict(fit, NEW).noise, 1)


def test_an_array_of_another_length_than_the_rows_is_a_setting():
    fit = lb.laplace(line, X, np.array([0.3]), Y)
    np.testing.assert_allclose(lb.predict(fit, NEW).noise, 0.09)
    net = lb.network(lambda p, x: x @ p, np.ones((1, 2)), likelihood="normal")
    both = lb.laplace(net, X[:, None], np.stack([Y, -Y], 1), noise_precision=np.array([4.0, 25.0]))
    np.testing.assert_allclose(lb.predict(both, NEW[:, None]).noise, [[0.25, 0.04]] * len(NEW))


def test_the_noise_that_evidence_found_is_that_of_predictions():
    net = lb.network(
        lambda p, x: x @ p["w"] + p["b"],
        {"w": jnp.ones((1, 1)), "b": jnp.zeros(1)},
        likelihood="normal",
    )
    begin = {"prior_precision": 1.0, "noise_precision": 1.0}
    best = lb.maximize_evidence(lb.laplace(net, X[:, None], Y), begin)
    noise = 1 / best.hyperparameters["noise_precision"]
    assert noise != pytest.approx(1, rel=0.1)
    np.testing.assert_allclose(lb.predict(best.approx, NEW[:, None]).noise, noise)


@pytest.mark.usefixtures("types_unchecked")
def test_arguments_that_are_named_as_those_of_predict():
    def model(x, num_samples=10, site=0, y=None):
        b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
        numpyro.sample("y", dist.Binomial(num_samples, logits=b[site] * x).to_event(1), obs=y)

    y = RNG.binomial(1000, 1 / (1 + np.exp(-X)))
    fit = lb.laplace(model, X, num_samples=1000, y=y)
    exact = 1000 / (1 + np.exp(-float(fit.mode["b"][0]) * NEW))
    found = lb.predict(fit, NEW, key=KEY)
    np.testing.assert_allclose(found.mean, exact, atol=5)
    np.testing.assert_allclose(
        lb.predict(fit, NEW, 1000, 0, num_samples=400, key=KEY).mean, exact, atol=5
    )
    for given in ({"num_samples": 400}, {"site": 1}):
        with pytest.raises(ValueError, match=f"argument named '{next(iter(given))}', and so has"):
            lb.predict(fit, NEW, key=KEY, **given)


@pytest.fixture(scope="module")
def of_rates():
    def model(x, y=None):
        a = numpyro.sample("a", dist.Normal(0, 1))
        with numpyro.plate("N", len(x)):
            numpyro.sample("y", dist.Poisson(jnp.exp(a * x)), obs=y)

    return lb.laplace(model, X, np.random.default_rng(1).poisson(np.exp(0.3 * X)))


def test_a_column_in_a_plate_of_rows(of_rates):
    for options in ({"method": "plug_in"}, {"method": "monte_carlo", "key": KEY}):
        with pytest.raises(lb.UnsupportedModel, match="pairs of a column of shape"):
            lb.predict(of_rates, NEW[:, None], **options)
        assert lb.predict(of_rates, NEW, **options).mean.shape == (3,)


def test_a_mean_that_draws_do_not_tell_is_nan_within_a_program(of_rates):
    def mean(x):
        return lb.predict(of_rates, x, key=KEY).mean

    far = np.array([60.0])
    with pytest.raises(lb.NonFinite, match="largest weigh too"):
        mean(far)
    assert np.isnan(jax.jit(mean)(far)).all()
    assert np.isnan(jax.vmap(mean)(far[None])).all()
    near = np.array([1.0])
    np.testing.assert_allclose(jax.jit(mean)(near), mean(near), rtol=1e-10)
    slope = jax.jacobian(mean)(near)
    assert slope[0, 0] == pytest.approx(
        float(mean(near + 1e-4)[0] - mean(near)[0]) / 1e-4, rel=1e-2
    )


def test_draws_of_draws_are_worth_no_more_than_these():
    """Of a Bernoulli outcome with one datum, whose mean is known by quadrature: over ten keys."""

    def model(y=None):
        a = numpyro.sample("a", dist.Normal(0, 3))
        numpyro.sample("y", dist.Bernoulli(logits=a), obs=y)

    u = np.linspace(-25, 25, 20_001)
    weights = np.exp(-(u**2) / 18) / (1 + np.exp(-u))
    exact = np.sum(weights / (1 + np.exp(-u))) / weights.sum()
    fit, scores = lb.laplace(model, 1), []
    for key in jax.random.split(KEY, 10):
        draws = lb.resampled(fit, key, 1000)
        found = lb.predict(draws, key=key, num_samples=5000)
        scores.append(float((found.value - exact) / found.standard_error))
    assert 0.6 < np.sqrt(np.mean(np.square(scores))) < 1.5
