"""The posterior predictive, against SciPy, closed forms and draws."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.integrate import quad
from scipy.special import expit, softmax
from scipy.stats import norm

import laplacebook as lb
from laplacebook.base.jaxprs import array_sizes
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.models import logistic_regression
from laplacebook.predictive import linearized

KEY = jax.random.key(0)
N, D, C = 40, 3, 3
RNG = np.random.default_rng(0)
FEATURES = np.column_stack([np.ones(N), RNG.normal(size=(N, D - 1))])
LOGITS = FEATURES @ [0.3, 1.0, -0.5]
TARGETS = (RNG.random(N) < expit(LOGITS)).astype(float)
NEW = np.column_stack([np.ones(6), RNG.normal(size=(6, D - 1)) * 3])


def weights(*shape):
    return numpyro.sample("w", dist.Normal(0, 1).expand(shape).to_event(len(shape)))


def line(features, y=None):
    w = weights(D)
    with numpyro.plate("N", len(features)):
        numpyro.sample("y", dist.Normal(features @ w, 0.5), obs=y)


def counts(features, y=None):
    numpyro.sample("y", dist.Poisson(jnp.exp(features @ weights(D))), obs=y)


def classes(features, y=None):
    numpyro.sample("y", dist.Categorical(logits=features @ weights(D, C)), obs=y)


def weighted(features, y=None, scale=None):
    w = weights(D)
    with numpyro.handlers.scale(scale=1.0 if scale is None else scale):
        numpyro.sample("y", dist.Bernoulli(logits=features @ w), obs=y)


def both(features, y=None, z=None):
    """Two observed sites, and a predictor whose curvature cancels along a regular step."""
    w = weights(D)
    numpyro.sample("y", dist.Bernoulli(logits=features @ w), obs=y)
    numpyro.sample("z", dist.Bernoulli(logits=(w[1] ** 2 - w[2] ** 2) * jnp.ones(2)), obs=z)


def changing(features, y=None):
    """Latent sites that depend on the rows."""
    noise = numpyro.sample("noise", dist.Normal(0, 1).expand([1 if y is None else len(y)]))
    if len(features) == 1:
        noise = noise + numpyro.sample("extra", dist.Normal(0, 1))
    numpyro.sample("y", dist.Bernoulli(logits=features @ weights(D) + noise), obs=y)


@pytest.fixture(scope="module")
def fitted():
    return lb.laplace(logistic_regression, FEATURES, TARGETS)


def logit_moments(approx, rows=NEW):
    S = np.asarray(approx.covariance)
    return rows @ np.asarray(approx.mode_vector), np.einsum("nd,de,ne->n", rows, S, rows)


def test_quadrature_is_the_integral_of_scipy(fitted):
    truth = [
        quad(
            lambda a, m=m, s=v**0.5: expit(a) * norm.pdf(a, m, s), m - 12 * v**0.5, m + 12 * v**0.5
        )
        for m, v in zip(*logit_moments(fitted), strict=True)
    ]
    np.testing.assert_allclose(lb.predict(fitted, NEW), [value for value, _ in truth], atol=1e-8)


def test_probit_and_plug_in_are_their_formulas(fitted):
    mean, variance = logit_moments(fitted)
    probit = expit(mean / np.sqrt(1 + np.pi / 8 * variance))
    np.testing.assert_allclose(lb.predict(fitted, NEW, method="probit"), probit, rtol=1e-12)
    np.testing.assert_allclose(lb.predict(fitted, NEW, method="plug_in"), expit(mean), rtol=1e-12)


def test_monte_carlo_is_within_its_error_of_quadrature(fitted):
    few = lb.predict(fitted, NEW, method="monte_carlo", key=KEY, num_samples=4000)
    away = (few.value - lb.predict(fitted, NEW)) / few.standard_error
    assert np.abs(away).max() < 4
    draws = fitted.sample_vector(KEY, (4000,))
    by_hand = expit(np.asarray(draws @ NEW.T))
    np.testing.assert_allclose(few.value, by_hand.mean(axis=0), rtol=1e-10)
    error = by_hand.std(axis=0, ddof=1) / 4000**0.5
    np.testing.assert_allclose(few.standard_error, error, rtol=1e-8)


def test_jit_and_vmap_change_nothing(fitted):
    here = lb.predict(fitted, NEW)
    np.testing.assert_allclose(jax.jit(lb.predict)(fitted, NEW), here, rtol=1e-12)
    by_row = jax.vmap(lambda row: lb.predict(fitted, row[None])[0])(NEW)
    np.testing.assert_allclose(by_row, here, rtol=1e-12)


def test_columns_in_many_blocks_change_nothing(fitted, monkeypatch):
    here = lb.predict(fitted, NEW)
    monkeypatch.setattr(linearized, "_AT_ONCE", 1)
    monkeypatch.setattr(linearized, "_COLUMNS", 2)
    jax.clear_caches()
    np.testing.assert_allclose(lb.predict(fitted, NEW), here, rtol=1e-12)


def test_a_linear_model_is_exact_and_parts_its_variance():
    y = LOGITS + 0.5 * RNG.normal(size=N)
    found = lb.predict(lb.laplace(line, FEATURES, y), NEW)
    covariance = np.linalg.inv(np.eye(D) + FEATURES.T @ FEATURES / 0.25)
    epistemic = np.einsum("nd,de,ne->n", NEW, covariance, NEW)
    np.testing.assert_allclose(found.mean, NEW @ covariance @ FEATURES.T @ y / 0.25, atol=1e-8)
    np.testing.assert_allclose(found.epistemic, epistemic, rtol=1e-10)
    np.testing.assert_array_equal(found.noise, 0.25)
    np.testing.assert_allclose(found.standard_deviation**2, epistemic + 0.25, rtol=1e-10)
    assert not np.any(found.standard_error)


def test_counts_by_monte_carlo_have_the_moments_of_a_log_normal():
    rows = NEW / 3
    approx = lb.laplace(counts, FEATURES, RNG.poisson(np.exp(LOGITS)).astype(float))
    found = lb.predict(approx, rows, method="monte_carlo", key=KEY, num_samples=4000)
    mean, variance = logit_moments(approx, rows)
    truth = np.exp(mean + variance / 2)
    assert np.abs((found.mean - truth) / found.standard_error).max() < 4
    np.testing.assert_allclose(found.epistemic, truth**2 * np.expm1(variance), rtol=0.2)
    np.testing.assert_allclose(found.noise, found.mean, rtol=1e-12)
    one = lb.predict(approx, rows, key=KEY, num_samples=1)
    assert np.isnan(one.epistemic).all() and np.isinf(one.standard_error).all()
    with pytest.raises(ValueError, match=r'"monte_carlo" needs a random key: .*"plug_in"'):
        lb.predict(approx, rows)
    plug_in = lb.predict(approx, rows, method="plug_in")
    np.testing.assert_allclose(plug_in.noise, np.exp(mean), rtol=1e-12)
    assert not np.any(plug_in.epistemic)


def test_classes_by_probit_and_by_draws():
    approx = lb.laplace(classes, FEATURES, RNG.integers(0, C, N))
    W, S = approx.mode["w"], np.reshape(approx.covariance, (D, C, D, C))
    variance = np.einsum("nd,dcec,ne->nc", NEW, S, NEW)
    by_formula = softmax(NEW @ W / np.sqrt(1 + np.pi / 8 * variance), axis=1)
    np.testing.assert_allclose(lb.predict(approx, NEW), by_formula, rtol=1e-10)
    drawn = lb.predict(approx, NEW, method="monte_carlo", key=KEY, num_samples=1000)
    np.testing.assert_allclose(drawn.value.sum(axis=1), 1)
    assert np.abs(drawn.value - by_formula).max() < 0.1


def test_weights_count_as_repeated_observations():
    approx = lb.laplace(weighted, FEATURES, TARGETS, 2.0)
    y = expit(FEATURES @ approx.mode["w"])
    np.testing.assert_allclose(approx.mode["w"], 2 * (TARGETS - y) @ FEATURES, atol=1e-7)
    mean, variance = logit_moments(approx)
    probit = expit(mean / np.sqrt(1 + np.pi / 8 * variance))
    np.testing.assert_allclose(lb.predict(approx, NEW, method="probit"), probit, rtol=1e-12)


def test_rows_times_parameters_is_never_in_memory():
    """No array of N D numbers but the features: the largest is a block of columns."""
    n, d = 100_000, 100
    shape = jax.ShapeDtypeStruct((n, d), float)
    fit = ModelDensity.of(logistic_regression, (np.ones((2, d)), np.array([0.0, 1.0])), {})

    def variances(rows):
        new = Call.of(logistic_regression, (rows,), {})
        precision = lb.DensePrecision.of(jnp.eye(d))
        return linearized.linearize(fit, new, jnp.zeros(d), precision)

    found = max(array_sizes(jax.make_jaxpr(variances)(shape).jaxpr))
    assert 10 * n < found <= n * d / 2  # that is, a block of columns was seen


@pytest.mark.parametrize(
    ("method", "bad"),
    [("quadrature", np.nan), ("quadrature", np.inf), ("plug_in", np.nan)],
)
def test_features_that_are_not_finite(fitted, method, bad):
    """But for the plug-in of an infinite logit, which is 0 or 1."""
    rows = NEW.copy()
    rows[2, 1] = bad
    with pytest.raises(lb.NonFinite, match=r"(?s)'features' has 1 .*first at \[2, 1\]"):
        lb.predict(fitted, rows, method=method)
    found = jax.jit(lambda x: lb.predict(fitted, x, method=method))(rows)
    assert np.isnan(found).tolist() == [False, False, True, False, False, False]


def test_features_whose_squares_overflow(fitted):
    mean, variance = logit_moments(fitted)
    with pytest.raises(lb.UnsupportedModel, match="overflow"):
        lb.predict(fitted, NEW * 1e200)
    np.testing.assert_allclose(
        lb.predict(fitted, NEW * 1e100), norm.cdf(mean / np.sqrt(variance)), atol=1e-8
    )


DRAW = {"method": "monte_carlo"}


@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        ((NEW[:, :2],), {}, r"(?s)shapes \[\(6, 2\)\].*number of rows"),
        ((NEW[0],), {}, r"shape \(N, D\), not \(3,\)"),
        ((NEW[:0],), {}, r"(?s)shapes \[\(0, 3\)\].*positive"),
        ((), {}, "missing.*'features'"),
        ((NEW,), {"method": "linearized"}, "quadrature, probit, plug_in, monte_carlo"),
        ((NEW,), DRAW, "key=jax.random.key"),
        ((NEW,), DRAW | {"key": KEY, "num_samples": 0}, "num_samples must be a whole number"),
        ((NEW,), DRAW | {"key": KEY, "num_samples": -1}, "num_samples must be a whole number"),
        ((NEW,), {"site": "u"}, r"there are \['t'\], and 'u' is none"),
    ],
)
def test_arguments_that_cannot_serve(fitted, args, options, words):
    with pytest.raises(ValueError, match=words):
        lb.predict(fitted, *args, **options)


def test_approximations_that_cannot_predict(fitted):
    failed = lb.laplace(logistic_regression, FEATURES * np.nan, TARGETS, throw=False)
    with pytest.raises(lb.LaplaceError, match="The fit failed"):
        lb.predict(failed, NEW)
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), fitted)
    with pytest.raises(ValueError, match="(?s)batch.*vmap"):
        lb.predict(batch, NEW)
    plain = lb.laplace_of_density(lambda x: -x @ x, jnp.ones(2))
    with pytest.raises(lb.UnsupportedModel, match="no observed site"):
        lb.predict(plain, NEW)


def test_several_sites_need_a_name_and_a_curved_predictor_needs_draws():
    approx = lb.laplace(both, 0 * FEATURES, TARGETS, np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match=r"site=: there are \['y', 'z'\]"):
        lb.predict(approx, NEW)
    assert lb.predict(approx, NEW, site="y").shape == (6,)
    with pytest.raises(lb.UnsupportedModel, match="(?s)linear.*monte_carlo"):
        lb.predict(approx, NEW, site="z")
    assert np.isnan(jax.jit(lambda x: lb.predict(approx, x, site="z"))(NEW)).all()


def test_factors_are_no_outcomes():
    def model(x, y=None, outcome=True):
        b = numpyro.sample("b", dist.Normal(0, 1))
        for i in range(2):
            numpyro.factor(f"f{i}", -(b**2) / 2)
        if outcome:
            numpyro.sample("y", dist.Normal(b * x, 1), obs=y)

    x = np.ones(3)
    predicted = lb.predict(lb.laplace(model, x, x), x)
    np.testing.assert_allclose(predicted.mean, 3 / 6)
    alone = lb.laplace(model, x, outcome=False)
    with pytest.raises(lb.UnsupportedModel, match=r"(?s)numpyro\.factor"):
        lb.predict(alone, x, outcome=False)


def test_latent_sites_that_depend_on_the_rows_are_refused():
    approx = lb.laplace(changing, FEATURES[:5], TARGETS[:5])
    with pytest.raises(lb.UnsupportedModel, match=r"(?s)'noise' has shape \(5,\).*\(1,\)"):
        lb.predict(approx, FEATURES[:5])
    with pytest.raises(lb.UnsupportedModel, match=r"'(noise|extra)'"):
        lb.predict(approx, NEW[:1])


def test_fewer_groups_than_the_fit_has_are_to_be_kept():
    def groups(g, number, y=None):
        with numpyro.plate("groups", number):
            u = numpyro.sample("u", dist.Normal(0, 1))
        with numpyro.plate("N", len(g)):
            numpyro.sample("y", dist.Normal(u[g], 1), obs=y)

    g = np.arange(6) % 3
    approx = lb.laplace(groups, g, 3, np.arange(6.0))
    with pytest.raises(lb.UnsupportedModel, match=r"keep\s+all\s+groups"):
        lb.predict(approx, g[:2], 2)
    np.testing.assert_allclose(lb.predict(approx, g[:2], 3).mean, [1.0, 5 / 3])


def test_a_model_must_do_without_what_it_observes():
    def model(features, y):
        numpyro.sample("y", dist.Bernoulli(logits=features @ weights(D)), obs=y)

    with pytest.raises(ValueError, match="(?s)missing.*default None"):
        lb.predict(lb.laplace(model, FEATURES, TARGETS), NEW)


@pytest.mark.parametrize("space", ["unconstrained", "constrained"])
def test_a_coin_is_linear_in_its_logit_alone(space):
    def coin(number, y=None):
        p = numpyro.sample("p", dist.Beta(2, 2))
        numpyro.sample("y", dist.Bernoulli(p).expand([9]), obs=y)

    approx = lb.laplace(coin, 9, np.repeat([1.0, 0.0], [5, 4]), space=space)
    if space == "unconstrained":
        assert np.abs(lb.predict(approx, 9) - 7 / 13).max() < 0.02
    else:
        with pytest.raises(lb.UnsupportedModel, match="linear"):
            lb.predict(approx, 9)
