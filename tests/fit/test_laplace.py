"""The contract: right or loud; jit, vmap and grad; one compilation; nothing stale."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import laplacebook as lb
from tests.models import coin, line, normal, redundant

COIN = np.repeat([1.0, 0.0], [8, 1])


def no_latent(y):
    numpyro.sample("y", dist.Normal(0, 1), obs=y)


def discrete(y):
    label = numpyro.sample("label", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(label, 1), obs=y)


def subsampled(y):
    theta = numpyro.sample("theta", dist.Normal(0, 1))
    with numpyro.plate("N", len(y), subsample_size=2):
        numpyro.sample("y", dist.Normal(theta, 1), obs=numpyro.subsample(y, 0))


def random(y):
    theta = numpyro.sample("theta", dist.Normal(0, 1))
    dropout = jax.random.bernoulli(numpyro.prng_key(), 0.5)
    numpyro.sample("y", dist.Normal(theta * dropout, 1), obs=y)


def parameter(y):
    theta = numpyro.sample("theta", dist.Normal(numpyro.param("mean", 0.0), 1))
    numpyro.sample("y", dist.Normal(theta, 1), obs=y)


def simplex(y):
    p = numpyro.sample("p", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("y", dist.Multinomial(10, p), obs=y)


def quartic():
    w = numpyro.sample("w", dist.ImproperUniform(dist.constraints.real, (), ()))
    numpyro.factor("bowl", -((w - 1) ** 4))


def out_of_range(y):
    sd = numpyro.sample("sd", dist.HalfNormal(1))
    numpyro.sample("y", dist.Normal(0, sd - 2), obs=y)


CONSTRAINED = {"space": "constrained"}
#: model, arguments, options, the error, what its message has to say
FAILURES = [
    (no_latent, (1.0,), {}, lb.UnsupportedModel, "no latent site"),
    (discrete, (1.0,), {}, lb.UnsupportedModel, "'label' is discrete"),
    (subsampled, (np.ones(5),), {}, lb.UnsupportedModel, "plate 'N' takes 2 of its 5"),
    (random, (1.0,), {}, lb.UnsupportedModel, "random numbers of its own"),
    (parameter, (1.0,), {}, lb.UnsupportedModel, "'mean' is a numpyro.param"),
    (simplex, (np.array([1.0, 2.0, 7.0]),), CONSTRAINED, lb.UnsupportedModel, "support of 'p'"),
    (coin, (np.append(COIN[1:], np.nan),), {}, lb.NonFinite, "data of site 'y'"),
    (coin, (np.append(COIN[1:], np.inf),), {}, lb.NonFinite, "data of site 'y'"),
    (normal, (COIN, np.nan), {}, lb.NonFinite, "site 'mean'"),
    (out_of_range, (1.0,), {}, lb.NonFinite, "likelihood is not defined there"),
    (coin, (np.ones(9), 1.0, 1.0), CONSTRAINED, lb.NotConverged, "edge of the support of 'theta'"),
    (coin, (np.zeros(9), 1.0, 1.0), CONSTRAINED, lb.NotConverged, "edge of the support of 'theta'"),
    (quartic, (), {}, lb.NotConverged, "w = 0.9999"),
    (redundant, (1.0,), {}, lb.NotPositiveDefinite, "is flat along -1 a +1 b"),
]


def name(value):
    return getattr(value, "__name__", None)


@pytest.mark.parametrize(("model", "args", "options", "error", "message"), FAILURES, ids=name)
def test_no_approximation_is_an_error_that_teaches(model, args, options, error, message):
    with pytest.raises(error) as caught:
        lb.laplace(model, *args, **options)
    assert message in " ".join(str(caught.value).split())
    assert "What to do:" in str(caught.value)


compiled = jax.jit(lb.laplace, static_argnums=0, static_argnames="space")
LATE = [FAILURES[i] for i in (6, 9, 10, 12, 13)]  # each for another reason


@pytest.mark.parametrize(("model", "args", "options", "error", "message"), LATE, ids=name)
def test_where_nothing_can_be_raised_every_number_is_nan(model, args, options, error, message):
    def numbers(approx):
        values = (approx.mode, approx.mode_vector, approx.covariance, approx.log_evidence)
        parts = (approx.log_likelihood, approx.log_prior, approx.log_occam_factor)
        return (
            values,
            parts,
            approx.sample(jax.random.key(0)),
            approx.log_density(approx.mode_vector),
        )

    fits = lb.laplace(model, *args, throw=False, **options), compiled(model, *args, **options)
    for approx in fits:
        assert not approx.certificate.converged
        assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(numbers(approx)))
    driven, other = (np.isinf(approx.certificate.condition_number) for approx in fits)
    assert driven == other


def test_options_are_checked():
    with pytest.raises(ValueError, match="space is"):
        lb.laplace(coin, COIN, space="logit")


def test_a_model_argument_named_like_an_option_goes_through_partial():
    def spaced(y, space):
        numpyro.sample("y", dist.Normal(numpyro.sample("x", dist.Normal(0, space)), 1), obs=y)

    approx = lb.laplace(functools.partial(spaced, space=3.0), 1.0)
    assert approx.mode["x"] == pytest.approx(0.9, rel=1e-10)


def linear_data(seed, n=20, d=3):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d))
    return features, features @ rng.normal(size=d) + 0.5 * rng.normal(size=n)


SD = np.array([2.0, 0.5])  # of prior and noise: data, so that one program serves all


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.1, 10), st.floats(0.1, 10))
def test_exact_for_a_gaussian_posterior(seed, prior_sd, noise_sd):
    features, y = linear_data(seed)
    approx = lb.laplace(line, features, y, np.float64(prior_sd), np.float64(noise_sd))
    covariance = noise_sd**2 * np.eye(len(y)) + prior_sd**2 * features @ features.T
    exact = stats.multivariate_normal(cov=covariance).logpdf(y)
    precision = np.eye(3) / prior_sd**2 + features.T @ features / noise_sd**2
    mean = np.linalg.solve(precision, features.T @ y / noise_sd**2)
    assert approx.log_evidence == pytest.approx(exact, rel=1e-9)
    np.testing.assert_allclose(approx.precision.matrix, precision, rtol=1e-9)
    np.testing.assert_allclose(approx.mode["w"], mean, rtol=1e-7, atol=1e-9)


def test_on_a_gaussian_target_log_p_minus_log_density_is_the_evidence_at_every_draw():
    features, y = linear_data(0)
    approx = lb.laplace(line, features, y, *SD)
    draws = approx.sample(jax.random.key(0), (100,))["w"]

    @jax.jit
    @jax.vmap
    def log_ratio(w):
        return -approx.density.loss(w)[0] - approx.log_density(w)

    np.testing.assert_allclose(log_ratio(draws), approx.log_evidence, rtol=1e-10)


def test_the_covariance_of_the_draws_is_that_of_q():
    features, y = linear_data(1)
    features[:, 1] += 0.9 * features[:, 0]  # correlated: a sampler with L for L' would show
    approx = lb.laplace(line, features, y, *SD)
    draws = np.asarray(approx.sample(jax.random.key(0), (200_000,))["w"])
    scale = np.sqrt(np.diag(approx.covariance))
    error = (np.cov(draws.T) - approx.covariance) / np.outer(scale, scale)
    assert np.abs(error).max() < 5 * np.sqrt(2 / 200_000)


def test_vmap_fails_for_the_data_that_fail_alone():
    tosses = np.array([COIN, np.append(COIN[1:], np.nan)])
    approx = jax.vmap(lambda y: lb.laplace(coin, y))(tosses)
    np.testing.assert_array_equal(approx.certificate.converged, [True, False])
    np.testing.assert_array_equal(np.isnan(approx.mode["theta"]), [False, True])


def test_new_data_of_the_same_shape_costs_no_trace(capsys):
    def announced(y):
        print("traced")
        coin(y)

    def traces(y):
        lb.laplace(announced, y)
        return capsys.readouterr().out.count("traced")

    assert traces(COIN) > 0
    assert traces(1 - COIN) == 0
    assert traces(np.ones(4)) > 0


prior_scale = 1.0
settings_of_a_notebook = {"scale": 1.0}
table = np.array([1.0, 2.0])


def reads_globals():
    w = numpyro.sample("w", dist.Normal(0, prior_scale * settings_of_a_notebook["scale"]))
    numpyro.sample("y", dist.Normal(w, 1).expand([2]).to_event(1), obs=table)


def test_a_changed_global_is_not_answered_with_the_old_program(monkeypatch):
    def mode(scale, total):
        return pytest.approx(scale**2 * total / (1 + 2 * scale**2), rel=1e-10)

    assert lb.laplace(reads_globals).mode["w"] == mode(1, 3)
    monkeypatch.setitem(globals(), "prior_scale", 2.0)
    assert lb.laplace(reads_globals).mode["w"] == mode(2, 3)
    monkeypatch.setitem(settings_of_a_notebook, "scale", 3.0)
    assert lb.laplace(reads_globals).mode["w"] == mode(6, 3)
    monkeypatch.setitem(globals(), "table", np.array([1.0, 2.0]))
    table[0] = 5.0
    assert lb.laplace(reads_globals).mode["w"] == mode(6, 7)


def test_no_global_state_of_jax_changes():
    before = jax.config.jax_enable_x64
    lb.laplace(coin, COIN)
    assert jax.config.jax_enable_x64 == before


def test_the_guide_is_for_the_unconstrained_space():
    with pytest.raises(lb.UnsupportedModel, match="unconstrained"):
        _ = lb.laplace(coin, COIN, 1.0, 1.0, space="constrained").guide
