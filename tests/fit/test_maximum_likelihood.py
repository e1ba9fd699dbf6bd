"""Maximum likelihood against statsmodels, and what it says where there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import statsmodels.api as sm

import laplacebook as lb
from laplacebook.fit import laplace as laplace_module
from laplacebook.fit import maximum_likelihood as maximum_likelihood_module
from laplacebook.fit.maximum_likelihood import maximum_log_likelihood
from laplacebook.model.density import LikelihoodDensity
from tests.models import coin, normal, redundant, single_precision

COIN = np.repeat([1.0, 0.0], [8, 1])
HEADS = np.ones(9)
RNG = np.random.default_rng(0)
X = sm.add_constant(RNG.normal(size=(60, 2)))
ETA = X @ [0.3, -0.8, 0.5]
REAL = ETA + 0.7 * RNG.normal(size=60)
BINARY = (RNG.uniform(size=60) < 1 / (1 + np.exp(-ETA))).astype(float)


def weights(features):
    """A prior that would move the estimate, if it were not left out."""
    return numpyro.sample("w", dist.Normal(1, 0.1).expand([features.shape[1]]).to_event(1))


def linear(features, y):
    mean = features @ weights(features)
    sd = numpyro.sample("sd", dist.HalfNormal(0.1))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(mean, sd), obs=y)


def logistic(features, y):
    logits = features @ weights(features)
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Bernoulli(logits=logits), obs=y)


def hierarchical(y):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    mean = numpyro.sample("mean", dist.Normal(0, scale).expand([len(y)]).to_event(1))
    numpyro.sample("y", dist.Normal(mean, 1.0).to_event(1), obs=y)


@pytest.fixture(scope="module")
def of_classes():
    return lb.maximum_likelihood(logistic, X, BINARY)


def test_a_generalised_linear_model_equals_statsmodels(of_classes):
    fit, exact = of_classes, sm.Logit(BINARY, X).fit(disp=0, tol=1e-12)
    np.testing.assert_allclose(fit.mode["w"], exact.params, rtol=1e-6)
    np.testing.assert_allclose(fit.standard_deviation["w"], exact.bse, rtol=1e-6)
    np.testing.assert_allclose(fit.covariance, exact.cov_params(), rtol=1e-6)
    np.testing.assert_allclose(fit.log_likelihood, exact.llf, rtol=1e-9)
    assert fit.log_prior == 0


@pytest.mark.parametrize("space", ["unconstrained", "constrained"])
def test_least_squares_with_unknown_noise(space):
    """Neither the priors matter, which are far away, nor the Jacobian."""
    fit, exact = lb.maximum_likelihood(linear, X, REAL, space=space), sm.OLS(REAL, X).fit()
    variance = exact.ssr / len(REAL)  # statsmodels' own scale divides by N - 3
    np.testing.assert_allclose(fit.mode["w"], exact.params, rtol=1e-6)
    np.testing.assert_allclose(fit.mode["sd"], np.sqrt(variance), rtol=1e-6)
    errors = exact.bse * np.sqrt(variance / exact.scale)
    np.testing.assert_allclose(fit.standard_deviation["w"], errors, rtol=1e-6)
    np.testing.assert_allclose(fit.log_likelihood, exact.llf, rtol=1e-9)
    if space == "constrained":  # the inverse of the information, 2 N / variance
        np.testing.assert_allclose(fit.standard_deviation["sd"], np.sqrt(variance / 120), rtol=1e-6)


def test_it_prints_what_it_is():
    text = repr(lb.maximum_likelihood(normal, REAL, start={"mean": 0.0, "sd": 1.0}))
    assert text.startswith("Maximum likelihood fit of normal, unconstrained space, D = 2")
    assert "constant: the priors of 'mean' and 'sd' are left out" in text
    assert "mode certified" in text


#: model, arguments, what is said, and in which space
NO_MAXIMUM = [
    (coin, HEADS, ("theta", "(all heads)|infinity"), "unconstrained"),
    (coin, HEADS, ("edge of the support of 'theta'", "(all heads)"), "constrained"),
    (redundant, HEADS, ("is flat along -1 a", "collinear"), "unconstrained"),
    (
        normal,
        HEADS,
        ("curves upwards along|edge of the support", "sd", "observation|at zero"),
        "unconstrained",
    ),
    (
        hierarchical,
        REAL[:3],
        ("is flat along", "scale", "(a hierarchical model)"),
        "unconstrained",
    ),
]


@pytest.mark.parametrize(("model", "y", "phrases", "space"), NO_MAXIMUM)
def test_no_maximum_is_refused_and_no_prior_is_blamed(model, y, phrases, space):
    with pytest.raises((lb.NotConverged, lb.NotPositiveDefinite)) as caught:
        lb.maximum_likelihood(model, y, space=space)
    text = " ".join(str(caught.value).split())
    for phrase in (*phrases, "log likelihood", "use laplace", "Likely causes:"):
        assert any(part in text for part in phrase.split("|"))
    assert "proper prior" not in text
    assert "log joint" not in text
    quiet = lb.maximum_likelihood(model, y, space=space, throw=False)
    assert not quiet.certificate.converged
    assert np.isnan(quiet.log_likelihood)


def test_what_laplace_refuses_is_refused():
    with pytest.raises(ValueError, match="space is"):
        lb.maximum_likelihood(coin, COIN, space="other")
    with pytest.raises(ValueError, match="start must name"):
        lb.maximum_likelihood(coin, COIN, start={"p": 0.5})
    with pytest.raises(lb.UnsupportedModel, match="no latent site"):
        lb.maximum_likelihood(lambda: numpyro.sample("y", dist.Normal(0, 1), obs=0.0))


def test_within_vmap_and_grad():
    """Together: the derivatives of the estimates from two data sets."""

    def estimate(y):
        fit = lb.maximum_likelihood(coin, y)
        return fit.mode["theta"], fit

    tosses = np.array([COIN, 1 - COIN])
    slopes, fits = jax.jit(jax.vmap(jax.grad(estimate, has_aux=True)))(tosses)
    np.testing.assert_allclose(fits.mode["theta"], [8 / 9, 1 / 9], rtol=1e-9)
    assert isinstance(fits.density, LikelihoodDensity)
    np.testing.assert_allclose(slopes, np.full((2, 9), 1 / 9), rtol=1e-6)


def test_a_file_knows_that_it_has_no_prior(of_classes, tmp_path):
    fit, path = of_classes, tmp_path / "fit.npz"
    fit.save(path)
    loaded = lb.load(path, logistic, X, BINARY)
    assert repr(loaded) == repr(fit)
    assert loaded.density.improper == ("w",)
    with pytest.raises(lb.LaplaceError, match="other data"):
        lb.load(path, logistic, X, 1 - BINARY)


def test_the_highest_log_likelihood_from_a_posterior_mode(of_classes):
    approx = lb.laplace(logistic, X, BINARY)
    highest = maximum_log_likelihood(approx)
    assert highest.certificate.converged
    np.testing.assert_allclose(highest.log_likelihood, of_classes.log_likelihood, rtol=1e-9)
    assert highest.log_likelihood > approx.log_likelihood + 1


@pytest.mark.parametrize(
    ("model", "y", "supremum"), [(coin, HEADS, 0), (hierarchical, REAL[:3] + 3, -2.756816)]
)
def test_a_maximum_that_is_not_attained_is_not_certified(model, y, supremum):
    highest = maximum_log_likelihood(lb.laplace(model, y))
    assert not highest.certificate.converged
    assert highest.log_likelihood == pytest.approx(supremum, abs=1e-4)


def test_the_highest_log_likelihood_of_a_failed_fit_is_no_number():
    highest = maximum_log_likelihood(lb.laplace(coin, np.append(COIN[1:], np.nan), throw=False))
    assert np.isnan(highest.log_likelihood)
    assert not highest.certificate.converged


def bounded(y):
    mean = numpyro.sample("mean", dist.Uniform(0, 1))
    numpyro.sample("y", dist.Normal(mean, 1.0).expand([len(y)]).to_event(1), obs=y)


def test_the_support_of_a_prior_remains():
    inside = lb.maximum_likelihood(bounded, REAL)
    assert inside.mode["mean"] == pytest.approx(REAL.mean(), rel=1e-6)
    with pytest.raises((lb.NotConverged, lb.NotPositiveDefinite), match="log likelihood"):
        lb.maximum_likelihood(bounded, REAL + 3)


def test_outside_of_the_support_there_is_no_likelihood():
    """By the density itself: a search that comes to the edge is refused without it."""
    density = LikelihoodDensity.of(bounded, (REAL + 3,), space="constrained")
    terms = jax.jit(density.terms)
    inside, outside = (terms(jnp.array([x])) for x in (0.5, 1.5))
    assert inside.log_prior == 0
    assert outside.log_prior == -np.inf
    assert outside.log_likelihood > inside.log_likelihood


def grouped(y, group):
    mu = numpyro.sample("mu", dist.Normal(0, 10))
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2))
    with numpyro.plate("groups", 4):
        u = numpyro.sample("u", dist.Normal(mu, tau))
    numpyro.sample("y", dist.Normal(u[group], sigma).to_event(1), obs=y)


GROUP, WITHIN = np.repeat(np.arange(4), 3), np.tile([-1.0, 0.0, 1.5], 4)


@pytest.mark.parametrize("means", [0 * np.ones(4), [0.01, -0.01, 0.02, 0], [0.3, -0.3, 0.2, 0]])
def test_groups_that_differ_no_more_than_chance_have_a_scale_of_zero(means):
    """By the analysis of variance: between them is less than within them."""
    y = WITHIN + np.repeat(means, 3)
    assert 3 * np.var(np.asarray(means), ddof=1) < np.var(WITHIN[:3], ddof=1)
    with pytest.raises(lb.NotConverged, match=r"highest where 'tau' is zero: from .*e-0\d down"):
        lb.maximum_likelihood(lb.marginalize(grouped, "u"), y, GROUP)


def test_what_is_refused_is_searched_once(monkeypatch):
    """Where the search ended is looked at for a scale of zero."""
    begun, search = [], laplace_module.search

    def counted(density, *args, **kwargs):
        begun.append(density)
        return search(density, *args, **kwargs)

    for module in (laplace_module, maximum_likelihood_module):
        monkeypatch.setattr(module, "search", counted)
    with pytest.raises(lb.NotConverged, match="'tau' is zero") as refused:
        lb.maximum_likelihood(lb.marginalize(grouped, "u"), WITHIN, GROUP)
    assert len(begun) == 1 and refused.value.last is None
    assert refused.value.__cause__.last.shape == (3,)


def test_where_they_differ_more_there_is_an_estimate():
    """That of the analysis of variance, with the divisor of maximum likelihood."""
    means = np.array([1.3, -1.3, 0.6, 0.0])
    fit = lb.maximum_likelihood(lb.marginalize(grouped, "u"), WITHIN + np.repeat(means, 3), GROUP)
    within = np.sum((WITHIN[:3] - WITHIN[:3].mean()) ** 2) / 2
    assert fit.mode["sigma"] ** 2 == pytest.approx(within, rel=1e-6)
    assert fit.mode["tau"] ** 2 == pytest.approx(np.var(means) - within / 3, rel=1e-6)


def test_a_mean_near_zero_is_no_scale():
    """In single precision a number that a step of six takes to zero is no logarithm that goes there."""

    def real(y):
        mu = numpyro.sample("mu", dist.Normal(0, 1000.0))
        numpyro.sample("y", dist.Normal(mu, 100.0).expand([4]).to_event(1), obs=y)

    y = np.array([-43.97, 56.03, 36.03, -23.97], np.float32)
    with single_precision():
        fit = lb.maximum_likelihood(real, y)
    assert fit.mode["mu"] == pytest.approx(6.03, abs=1e-3)


def test_a_rate_without_counts_is_zero():
    def counts(y):
        rate = numpyro.sample("rate", dist.Gamma(1.0, 1.0))
        numpyro.sample("y", dist.Poisson(rate).expand([4]).to_event(1), obs=y)

    with pytest.raises(lb.NotConverged, match="highest where 'rate' is zero"):
        lb.maximum_likelihood(counts, np.zeros(4, int))
    one = lb.maximum_likelihood(counts, np.array([0, 1, 0, 0]))
    assert one.mode["rate"] == pytest.approx(0.25)
