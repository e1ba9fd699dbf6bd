"""Models that try to fool the fit: each comes out right, by a reference of its own, or loud."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax.experimental.ode import odeint
from numpyro import handlers
from scipy import stats

import laplacebook as lb

FLAT = dist.ImproperUniform(dist.constraints.real, (), ())
Y = np.array([1.0, 2.0, 0.5, 1.5])
RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(4, 2))


def observe(mean, y, sd=1.0):
    numpyro.sample("y", dist.Normal(mean, sd).expand(np.shape(y)).to_event(1), obs=y)


def regression(features, y, noise_sd=1.0, shape=(2,)):
    w = numpyro.sample("w", dist.Normal(0, 1e9).expand(shape).to_event(len(shape)))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(features @ w, noise_sd), obs=y)


matrix = functools.partial(regression, shape=(2, 1))


def no_plate(features, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    numpyro.sample("y", dist.Normal(features @ w, 1), obs=y)


def joint(y):
    m = numpyro.sample("m", dist.Normal(0, 1))
    numpyro.sample("y", dist.MultivariateNormal(m * jnp.ones(4), jnp.eye(4)), obs=y)


def enumerated(y):
    p = numpyro.sample("p", dist.Beta(2, 2))
    z = numpyro.sample("z", dist.Bernoulli(p), infer={"enumerate": "parallel"})
    numpyro.sample("y", dist.Normal(z, 1), obs=y)


def nothing(features, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([features.shape[1]]).to_event(1))
    observe(features @ w, y)


def decay(y):
    rate = numpyro.sample("rate", dist.LogNormal(0, 1))
    observe(odeint(lambda z, t, a: -a * z, 1.0, jnp.arange(4.0), rate), y)


def halving(y):
    a = numpyro.sample("a", dist.Normal(0, 1))
    observe(jax.lax.while_loop(lambda x: abs(x) > 1, lambda x: x / 2, a), y)


def censored(y):
    shape = numpyro.sample("shape", dist.HalfNormal(1))
    late = dist.RightCensoredDistribution(dist.Gamma(shape, 1.0), np.array([1, 0, 0, 0]))
    numpyro.sample("y", late, obs=y)


def censored_t(y):
    df = numpyro.sample("df", dist.HalfNormal(1))
    late = dist.RightCensoredDistribution(dist.StudentT(df), np.array([1, 0, 0, 0]))
    numpyro.sample("y", late, obs=y)


def callback(y):
    a = numpyro.sample("a", dist.Normal(0, 1))
    observe(jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), a.dtype), a), y)


calls = []


def counts_its_calls(y):
    calls.append(1)
    observe(numpyro.sample("a", dist.Normal(0, 1)), y)


def hidden(y):
    observe(numpyro.sample("a", dist.Normal(0, 1)), y)


def imputed(y, seen):
    a = numpyro.sample("a", dist.Normal(0, 1))
    with numpyro.plate("N", 4):
        numpyro.sample("y", dist.Normal(a, 1), obs=y, obs_mask=seen)


def masked(y, seen):
    a = numpyro.sample("a", dist.Normal(0, 1))
    with numpyro.plate("N", len(y)), numpyro.handlers.mask(mask=seen):
        numpyro.sample("y", dist.Normal(a, 1), obs=y)


def lasso(y):
    observe(numpyro.sample("x", dist.Laplace(0, 0.01)), y)


def bent():
    d = numpyro.sample("x", FLAT) - 0.3
    numpyro.factor("bowl", -jnp.where(d > 0, 1.0, 4.0) * d**2)


def product(y):
    a, b = numpyro.sample("a", dist.Normal(0, 3)), numpyro.sample("b", dist.Normal(0, 2))
    numpyro.sample("y", dist.Normal(a * b, 1), obs=y)


def repeated(y):
    m, s = numpyro.sample("m", dist.Normal(0, 1)), numpyro.sample("s", dist.HalfNormal(1))
    observe(m, y, s)


def cliff():
    x = numpyro.sample("x", dist.Normal(0, 1))
    numpyro.factor("cliff", jnp.where(x > -1e-7, 0, -jnp.inf))


def root():
    observe(jnp.where((x := numpyro.sample("x", dist.Normal(-1, 1))) > 0, jnp.sqrt(x), 0.0), Y)


compiled = jax.jit(lb.laplace, static_argnums=0)
COLUMN = Y[:, None]
MISFIT, TWICE = "repeat each other", "cannot differentiate the log joint twice"


def perturbed(y):
    w = numpyro.sample("w", dist.Normal(0, 1))
    noise = np.random.normal()  # noqa: NPY002
    numpyro.sample("y", dist.Normal(w + noise, 1).expand([len(y)]).to_event(1), obs=y)


def test_what_is_said_of_obs_mask_is_right():
    """The likelihood of the data that are known, whatever stands for the others."""
    seen = Y > 1
    with pytest.raises(lb.NotPositiveDefinite) as caught:
        lb.laplace(imputed, Y, seen)
    message = " ".join(str(caught.value).split())
    assert (
        "leave obs_mask= out, and observe them as any number under numpyro.handlers.mask" in message
    )
    assert "a mask hides (obs_mask=" in message
    found = lb.laplace(masked, jnp.where(seen, Y, 7), seen)
    known = Y[seen]
    exact = stats.multivariate_normal(cov=np.eye(known.size) + 1).logpdf(known)
    np.testing.assert_allclose(found.mode["a"], known.sum() / (1 + known.size), rtol=1e-6)
    np.testing.assert_allclose(found.log_evidence, exact, rtol=1e-6)


#: model, arguments, the error, a phrase of its message
LOUD = {
    "a column of data": (regression, (FEATURES, COLUMN), lb.UnsupportedModel, MISFIT),
    "a column of data, no plate": (no_plate, (FEATURES, COLUMN), lb.UnsupportedModel, MISFIT),
    "a column of means": (matrix, (FEATURES, Y), lb.UnsupportedModel, MISFIT),
    "a column of both": (matrix, (FEATURES, COLUMN), lb.UnsupportedModel, MISFIT),
    "a column as an event": (joint, (COLUMN,), lb.UnsupportedModel, "site 'y', of shape (4, 1)"),
    "fewer data": (regression, (FEATURES, Y[:3]), lb.UnsupportedModel, "do not fit together"),
    "fewer data, no plate": (no_plate, (FEATURES, Y[:3]), lb.UnsupportedModel, "of shape (3,)"),
    "no number": (nothing, (FEATURES[:, :0], Y), lb.UnsupportedModel, "no number in them: w"),
    "enumerated": (enumerated, (1.0,), lb.UnsupportedModel, "'z' is discrete"),
    "hidden site": (handlers.block(hidden, hide=["a"]), (Y,), lb.UnsupportedModel, "block hides"),
    # Each with an error of its own in JAX.
    "differential equation": (decay, (Y,), lb.UnsupportedModel, TWICE),
    "while loop": (halving, (Y,), lb.UnsupportedModel, TWICE),
    "callback": (callback, (Y,), lb.UnsupportedModel, TWICE),
    "censored Gamma": (censored, (np.ones(4),), lb.UnsupportedModel, TWICE),
    "censored Student t": (censored_t, (np.ones(4),), lb.UnsupportedModel, TWICE),
    "NumPy's generator": (perturbed, (Y,), lb.UnsupportedModel, "from NumPy's global generator"),
    "side effect": (counts_its_calls, (Y,), lb.LaplaceError, "the model changes what it reads"),
    "lasso": (lasso, (Y,), lb.NotConverged, "slope of the log joint jumps at x ="),
    "two parabolas": (bent, (), lb.NotConverged, "not like a parabola"),
    "repeated": (
        repeated,
        (np.full(6, 1.3),),
        lb.NotPositiveDefinite,
        "a scale that can shrink to zero",
    ),
    "cliff": (cliff, (), lb.NotConverged, "not like a parabola"),
    "root": (root, (), lb.NonFinite, "sqrt, abs, log"),
}


@pytest.mark.parametrize(("model", "args", "error", "phrase"), LOUD.values(), ids=LOUD)
def test_loud(model, args, error, phrase):
    with pytest.raises(error) as caught:
        lb.laplace(model, *args)
    message = " ".join(str(caught.value).split())
    assert phrase in message and "What to do:" in message


@pytest.mark.parametrize("name", ["a column of data", "callback", "side effect"])
def test_what_a_model_shows_is_refused_within_a_program(name):
    model, args, error, _ = LOUD[name]
    with pytest.raises(error):
        compiled(model, *args)


@pytest.mark.parametrize("name", ["lasso", "two parabolas"])
def test_what_a_search_finds_is_nan_within_a_program(name):
    """As what is refused for other reasons is in test_laplace.py."""
    model, args, *_ = LOUD[name]
    approx = compiled(model, *args)
    assert not approx.certificate.converged
    assert all(np.isnan(x).all() for x in (approx.mode_vector, approx.log_evidence))


def soft(y):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([4]).to_event(1))
    numpyro.sample("near", dist.Normal(w, 1).to_event(1), obs=0.0)
    numpyro.sample("also", dist.Normal(w, 1), obs=0.0)
    observe(w, y)


def shared(y):
    with numpyro.plate("M", 3, dim=-2):
        m = numpyro.sample("m", dist.Normal(0, 1))
        with numpyro.plate("N", 4, dim=-1):
            numpyro.sample("y", dist.Normal(m, 1), obs=y)


def intervened(y):
    a = numpyro.sample("a", dist.Normal(2, 1))
    observe(numpyro.sample("b", dist.Normal(a, 1)), y)


def lifted(y):
    observe(numpyro.param("a", 1.0), y)


def beside_nothing(features, y):
    numpyro.sample("w", dist.Normal(0, 1).expand([features.shape[1]]).to_event(1))
    observe(numpyro.sample("a", dist.Normal(0, 1)), y)


def least_squares(features, y, noise_sd):
    return np.linalg.lstsq(features, y, rcond=None)[0], np.linalg.inv(
        features.T @ features
    ) * noise_sd**2


def plain(mean, *variance):
    return np.atleast_1d(mean), np.diag(np.broadcast_to(variance, np.size(mean)))


NEARLY = FEATURES @ [[1.0, 1.0], [0.0, 1e-5]]
UNITS = FEATURES * [1e9, 1e-4]
EXACTLY = FEATURES @ [1.0, 2.0] + 1e-8 * Y
#: model, arguments, mean and covariance of a posterior that is Gaussian
RIGHT = {
    "one datum for all": (soft, (Y,), plain(Y / 3.25, 1 / 3.25)),
    "data shared by groups": (shared, (Y,), plain(np.full(3, 1.0), 0.2)),
    "intervention": (handlers.do(intervened, {"b": 3.0}), (Y,), ([2.0, 2.0], [[1, 1], [1, 2]])),
    "lifted": (handlers.lift(lifted, {"a": dist.Normal(0, 1)}), (Y,), plain(1.0, 0.2)),
    "missing": (masked, (np.where(Y < 2, Y, np.nan), Y < 2), plain(0.75, 0.25)),
    "beside nothing": (beside_nothing, (FEATURES[:, :0], Y), plain(1.0, 0.2)),
    "small whole numbers": (hidden, (np.array([100, 100, 100, 100], np.int8),), plain(80.0, 0.2)),
    "nearly collinear": (regression, (NEARLY, Y), least_squares(NEARLY, Y, 1.0)),
    "units": (regression, (UNITS, Y), least_squares(UNITS, Y, 1.0)),
    "small noise": (regression, (FEATURES, EXACTLY, 1e-8), least_squares(FEATURES, EXACTLY, 1e-8)),
}


@pytest.mark.parametrize(("model", "args", "posterior"), RIGHT.values(), ids=RIGHT)
def test_right(model, args, posterior):
    """What is hard for a search is compiled in tests/search/test_driven.py, too."""
    mean, covariance = map(np.asarray, posterior)
    deviation = np.sqrt(np.diag(covariance))
    approx = lb.laplace(model, *args)
    assert approx.certificate.converged
    off = (np.asarray(approx.mode_vector) - mean) / deviation
    np.testing.assert_allclose(off, 0, atol=1e-4)
    error = (np.asarray(approx.covariance) - covariance) / np.outer(deviation, deviation)
    np.testing.assert_allclose(error, 0, atol=1e-5)


def test_a_product_is_a_saddle_at_the_start():
    approx = lb.laplace(product, 6.0)
    # By symmetry a / 3 = b / 2 = t, so that 6 t (6 t^2 - 6) + t = 0.
    t = np.sqrt(35 / 36)
    np.testing.assert_allclose(np.abs(approx.mode_vector), [3 * t, 2 * t], rtol=1e-7)


def test_a_guide_of_a_failed_fit_is_refused():
    with pytest.raises(lb.LaplaceError, match="there is no guide"):
        _ = lb.laplace(lasso, Y, throw=False).guide


def test_a_closed_over_tracer_is_data():
    def log_evidence(scale):
        return lb.laplace(
            lambda: observe(numpyro.sample("x", dist.Normal(0, scale)), Y)
        ).log_evidence

    # Of minus half of log(1 + 4 s^2) + y'y - s^2 (1'y)^2 / (1 + 4 s^2), where s = 2.
    exact = -4 * 2 / 17 + 2 * Y.sum() ** 2 / 17**2
    assert jax.jit(jax.grad(log_evidence))(2.0) == pytest.approx(exact, rel=1e-8)
