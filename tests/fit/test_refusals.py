"""The refusals that the contract names: what the message says, and that nothing else comes out."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer.reparam import LocScaleReparam

import laplacebook as lb
from tests.models import coin, single_precision

FLAT = dist.ImproperUniform(dist.constraints.real, (), ())
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(50, 2))
EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def laplace_prior(y):
    w = numpyro.sample("w", dist.Laplace(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(w, 1).to_event(1), obs=y)


def flat_logistic(features, y):
    w = numpyro.sample("w", FLAT.expand([features.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=features @ w).to_event(1), obs=y)


def flat_regression(features, y):
    w = numpyro.sample("w", FLAT.expand([features.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(features @ w, 1).to_event(1), obs=y)


def eight_schools(effects, errors):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("schools", len(effects)):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("effect", dist.Normal(theta, errors), obs=effects)


def flat_normal(y):
    mean = numpyro.sample("mean", FLAT)
    sd = numpyro.sample("sd", dist.ImproperUniform(dist.constraints.positive, (), ()))
    numpyro.sample("y", dist.Normal(mean, sd).expand([len(y)]).to_event(1), obs=y)


def rounded(y):
    x = numpyro.sample("x", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(jnp.round(100 * x) / 100, 0.1), obs=y)


def stopped(y):
    x = numpyro.sample("x", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(jax.lax.stop_gradient(x), 0.1), obs=y)


def between_visits(visits, left):
    shape = numpyro.sample("shape", dist.LogNormal(0, 1))
    law = dist.Weibull(2.0, shape)
    no = np.zeros(len(visits), bool)
    outcome = dist.IntervalCensoredDistribution(law, left_censored=left, right_censored=no)
    numpyro.sample("y", outcome, obs=visits)


VISITS = np.array([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]])
COLLINEAR = np.c_[FEATURES, FEATURES.sum(1)]
#: model, arguments, the error, what its message has to say
REFUSED = [
    (
        laplace_prior,
        (np.array([0.3, 5.0]),),
        lb.NotConverged,
        ["jumps", "w[0] (by 2)", "dist.Laplace"],
    ),
    (flat_logistic, (FEATURES, FEATURES[:, 0] > 0), lb.NotConverged, ["levels off", "separable"]),
    (
        flat_regression,
        (COLLINEAR, FEATURES[:, 0]),
        lb.NotPositiveDefinite,
        ["flat along -1 w[0] -1 w[1] +1 w[2]", "collinear"],
    ),
    (
        eight_schools,
        (EFFECTS, ERRORS),
        (lb.NotConverged, lb.NotPositiveDefinite),  # on the way to tau = 0
        ["tau", "shrink to zero", "integrate 'theta' out"],
    ),
    (
        flat_normal,
        (np.full(4, 2.0),),
        lb.NotConverged,
        ["edge of the support of 'sd'", "shrink to zero", "a repeated or single observation"],
    ),
    (rounded, (3.0,), lb.NotConverged, ["does not follow its own gradient", "round"]),
    (
        between_visits,
        (VISITS, np.zeros(3, bool)),
        lb.NonFinite,
        ["interval [0.0, 1.0] at [0] of site 'y' begins at the edge", "left_censored=lower == 0"],
    ),
    (stopped, (3.0,), lb.NotConverged, ["does not follow its own gradient", "stop_gradient"]),
]


def name(value):
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("model", "args", "error", "phrases"), REFUSED, ids=name)
def test_it_is_refused_with_a_reason(model, args, error, phrases):
    with pytest.raises(error) as caught:
        lb.laplace(model, *args)
    message = " ".join(str(caught.value).split())
    for phrase in (*phrases, "Likely causes:", "What to do:"):
        assert phrase in message


def test_what_does_not_follow_its_gradient_is_nan_in_a_compiled_fit():
    """As what is refused for other reasons is in test_laplace.py and test_fool.py."""
    assert np.isnan(jax.jit(lb.laplace, static_argnums=0)(rounded, 3.0).log_evidence)


def test_what_was_advised_works():
    numbers = {"effects": EFFECTS, "errors": ERRORS}
    free = numpyro.handlers.reparam(eight_schools, config={"theta": LocScaleReparam(0)})
    assert lb.laplace(free, **numbers).certificate.converged
    assert lb.laplace(flat_normal, np.array([1.0, 2.0])).mode["sd"] == pytest.approx(0.5**0.5)
    open_to_the_left = lb.laplace(between_visits, VISITS, VISITS[:, 0] == 0)
    nearly = lb.laplace(between_visits, np.maximum(VISITS, 1e-9), np.zeros(3, bool))
    assert open_to_the_left.mode["shape"] == pytest.approx(float(nearly.mode["shape"]), rel=1e-6)


def in_single_precision(action):
    with single_precision():
        return action()


ROUNDED = {
    "at an edge": (lambda x: numpyro.sample("p", dist.Beta(1, 2)), {"space": "constrained"}),
    "without bound": (lambda x: numpyro.factor("f", numpyro.sample("v", FLAT) ** 4), {}),
    "at a jump": (
        lambda x: numpyro.factor("f", jnp.round(3 * numpyro.sample("v", dist.Normal(0, 1)))),
        {},
    ),
    "without a density": (
        lambda x: numpyro.factor("f", jnp.log(numpyro.sample("v", dist.Normal(0, 1)) - 50)),
        {},
    ),
    "without a slope": (
        lambda x: numpyro.factor("f", -jnp.sqrt(jnp.abs(numpyro.sample("v", FLAT) * x))),
        {"start": {"v": 0.0}},
    ),
}


@pytest.mark.parametrize("refusal", ROUNDED)
def test_what_rounding_may_cause_names_the_type(refusal):
    model, options = ROUNDED[refusal]
    run = functools.partial(lb.laplace, model, np.zeros(1)[0], **options)
    with pytest.raises(lb.LaplaceError) as refused:
        in_single_precision(run)
    told = " ".join(str(refused.value).split())
    assert "This is float32: also try numpyro.enable_x64()." in told
    if refusal == "at an edge":
        with pytest.raises(lb.LaplaceError) as refused:
            run()
        assert "float32" not in str(refused.value)


def test_single_precision_recommends_double():
    """At 10,000 float32 moves in steps of 0.001, and the standard deviation is 0.03."""
    y = (1e4 + RNG.normal(size=1000)).astype(np.float32)

    def normal(y):
        mean = numpyro.sample("mean", dist.Normal(0, 1e6))
        numpyro.sample("y", dist.Normal(mean, 1).expand([len(y)]).to_event(1), obs=y)

    with pytest.raises(lb.LaplaceError, match=r"numpyro\.enable_x64\(\)"):
        in_single_precision(lambda: lb.laplace(normal, y))
    assert lb.laplace(normal, y).mode["mean"] == pytest.approx(float(np.mean(np.float64(y))))


def test_single_precision_agrees_with_double_to_its_own_tolerance():
    double = lb.laplace(flat_normal, np.float32(EFFECTS))
    single = in_single_precision(lambda: lb.laplace(flat_normal, np.float32(EFFECTS)))
    deviations = jnp.sqrt(double.precision.diagonal_of_inverse())
    assert single.mode_vector.dtype == np.float32
    assert single.certificate.newton_decrement < 4e-4
    assert np.max(np.abs(single.mode_vector - double.mode_vector) / deviations) < 8e-4
    assert single.log_evidence == pytest.approx(float(double.log_evidence), abs=2e-3)


AFTERWARDS = {
    "diagnose": lambda fit, path: lb.diagnose(fit, jax.random.key(0)),
    "importance_sampling": lambda fit, path: lb.importance_sampling(fit, jax.random.key(0)),
    "gauss_hermite": lambda fit, path: lb.gauss_hermite(fit),
    "expectation": lambda fit, path: lb.expectation(fit, lambda sites: sites["theta"]),
    "predict": lambda fit, path: lb.predict(fit, EFFECTS),
    "save": lambda fit, path: fit.save(path / "fit"),
}


@pytest.mark.parametrize("use", AFTERWARDS.values(), ids=AFTERWARDS)
def test_a_fit_in_double_precision_is_of_no_use_in_single(use, tmp_path):
    fit = lb.laplace(coin, np.array([1.0, 1.0, 0.0]))
    with (
        single_precision(),
        pytest.raises(lb.LaplaceError, match=r"numbers in float64, which JAX is set not to use"),
    ):
        use(fit, tmp_path)
