"""The result on the scale on which the user wrote the model: moments, quantiles, summary, export, print, copies."""

import copy
import functools
import pickle
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from scipy import integrate, stats
from scipy.special import expit

import laplacebook as lb
from laplacebook.fit.summary import _SPACING, _WIDE_SPACING, _trapezoid, rounding_told
from laplacebook.model.fingerprint import name_of
from tests.models import coin, line, normal, single_precision

COIN = np.repeat([1.0, 0.0], [8, 1])

LEVELS = np.array([0.95, 0.05, 0.5])


def flat_in(support):
    """A model whose posterior is exactly N(center, sd^2) in the coordinate of that support."""

    def model(center, sd):
        x = numpyro.sample("x", dist.ImproperUniform(support, (), ()))
        bijection = dist.biject_to(support)
        u = bijection.inv(x)
        numpyro.factor("jacobian", -bijection.log_abs_det_jacobian(u, x))
        numpyro.factor("normal", dist.Normal(center, sd).log_prob(u))

    return model


RISING, FALLING = constraints.positive, constraints.less_than(2.0)


@pytest.mark.parametrize(
    ("support", "sd"), [(RISING, 0.1), (RISING, 1.0), (RISING, 2.0), (FALLING, 1.0)], ids=str
)
def test_log_normal(support, sd):
    """Of e^u, and of 2 - e^u, whose quantiles come in the other order."""
    approx = lb.laplace(flat_in(support), np.float64(0.3), np.float64(sd))
    exact = stats.lognorm(sd, scale=np.exp(0.3))
    quantiles = exact.ppf(LEVELS) if support is RISING else 2 - exact.ppf(1 - LEVELS)
    assert approx.standard_deviation["x"] == pytest.approx(exact.std(), rel=1e-8)
    np.testing.assert_allclose(approx.quantiles(LEVELS)["x"], quantiles, rtol=1e-8)


@pytest.mark.parametrize("sd", [0.1, 1.0, 3.0])
def test_logit_normal(sd):
    def moment(power, center=0.0):
        def integrand(z):
            return (expit(0.7 + sd * z) - center) ** power * stats.norm.pdf(z)

        return integrate.quad(integrand, -12, 12, epsabs=1e-14, epsrel=1e-13, limit=200)[0]

    approx = lb.laplace(flat_in(constraints.unit_interval), np.float64(0.7), np.float64(sd))
    exact = np.sqrt(moment(2, moment(1)))
    assert approx.standard_deviation["x"] == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize("sd", [8.0, 20.0, 30.0])
def test_a_wide_logit(sd):
    z = np.linspace(-12, 12, 400_001)
    p, weights = expit(0.7 + sd * z), np.exp(-(z**2) / 2)
    exact = np.sqrt(np.cov(p, aweights=weights, ddof=0))
    approx = lb.laplace(flat_in(constraints.unit_interval), np.float64(0.7), np.float64(sd))
    assert approx.standard_deviation["x"] == pytest.approx(exact, rel=3e-6)


def test_a_logit_too_wide_for_the_nodes_is_not_told():
    approx = lb.laplace(flat_in(constraints.unit_interval), np.float64(0.7), np.float64(100.0))
    assert np.isnan(approx.standard_deviation["x"])


def test_the_nodes_of_very_many_coordinates():
    """Fewer of them, and still right where a logit is known to five standard deviations."""
    nodes, roots = _trapezoid("float64", _WIDE_SPACING)
    assert len(nodes) < 210 < len(_trapezoid("float64", _SPACING)[0])
    z = np.linspace(-12, 12, 400_001)
    for sd in (1.0, 5.0):
        exact = np.sqrt(np.cov(expit(sd * z), aweights=np.exp(-(z**2) / 2), ddof=0))
        found = np.sqrt(roots**2 @ (expit(sd * nodes) - 0.5) ** 2)
        assert found == pytest.approx(exact, rel=1e-7)


def test_float32_reaches_what_float32_can():
    with single_precision():
        approx = lb.laplace(flat_in(constraints.positive), np.float32(0), np.float32(2))
        found = approx.standard_deviation["x"]
        assert found.dtype == approx.quantiles(LEVELS)["x"].dtype == np.float32
        assert found == pytest.approx(stats.lognorm(2).std(), rel=1e-4)
        far = np.array([1e-50, 0.5, 1 - 1e-9])  # which are 0 and 1 in float32
        np.testing.assert_allclose(approx.quantiles(far)["x"], stats.lognorm(2).ppf(far), rtol=1e-4)


def test_in_the_constrained_space_q_itself_is_gaussian():
    approx = lb.laplace(normal, np.array([1.0, 2.0, 4.0]), space="constrained")
    sd = np.sqrt(np.diag(approx.covariance))
    quantiles = approx.quantiles(LEVELS)
    for i, name in enumerate(["mean", "sd"]):
        exact = stats.norm(approx.mode[name], sd[i])
        assert approx.standard_deviation[name] == pytest.approx(sd[i], rel=1e-10)
        np.testing.assert_allclose(quantiles[name], exact.ppf(LEVELS), rtol=1e-8)


def mixed(y):
    numpyro.sample("p", dist.Dirichlet(jnp.array([2.0, 3.0, 4.0])))
    ordered = dist.TransformedDistribution(
        dist.Normal(0, 1).expand([3]), dist.transforms.OrderedTransform()
    )
    numpyro.sample("ordered", ordered)
    top = numpyro.sample("top", dist.Gamma(5.0, 1.0))
    numpyro.sample("below", dist.Uniform(0, top))
    low = numpyro.sample("low", dist.Uniform(jnp.min(y), 10.0))
    numpyro.sample("many", dist.HalfNormal(1.0).expand([2, 3]).to_event(2))
    numpyro.sample("y", dist.Normal(low, 1.0).expand([2]).to_event(1), obs=y)


@functools.cache
def mixed_fit():
    return lb.laplace(mixed, np.array([3.0, 5.0]))


DRAWN = ("p", "ordered", "below")


def test_sites_that_mix_coordinates_agree_with_draws():
    approx = mixed_fit()
    draws = approx.sample(jax.random.key(9), (200_000,))
    sd = approx.standard_deviation
    quantiles, other = (approx.quantiles(LEVELS, key=jax.random.key(i)) for i in (4, 5))
    for name, x in draws.items():
        assert sd[name].shape == x.shape[1:]
        assert quantiles[name].shape == (3, *x.shape[1:])
        np.testing.assert_allclose(sd[name], x.std(axis=0), rtol=0.03)
        error = np.abs(quantiles[name] - np.quantile(x, LEVELS, axis=0)) / x.std(axis=0)
        assert np.all(error < 0.03)
        assert np.array_equal(quantiles[name], other[name]) == (name not in DRAWN)
    # Of a simplex they are not the images of quantiles, which add up to one.
    assert quantiles["p"][0].sum() > 1.3
    assert approx.mode["p"].sum() == pytest.approx(1)


@pytest.mark.parametrize("levels", [[0.0], [1.0], [np.nan], np.array([[0.5]]), 0.5, [-0.1, 0.5]])
def test_probabilities_are_checked(levels):
    with pytest.raises(ValueError, match="between 0 and 1"):
        lb.laplace(coin, COIN).quantiles(levels)


@pytest.mark.parametrize("probability", [0.0, 1.0, np.nan, 90.0])
def test_the_probability_of_an_interval_is_checked(probability):
    with pytest.raises(ValueError, match="between 0 and 1"):
        lb.laplace(coin, COIN).summary(probability)


def test_within_vmap_and_jit():
    tosses = np.array([COIN, 1 - COIN])

    def spread(y):
        approx = lb.laplace(coin, y)
        quantiles = approx.quantiles([0.05, 0.95])["theta"]
        return approx, approx.standard_deviation["theta"], quantiles

    batch, sd, quantiles = jax.jit(jax.vmap(spread))(tosses)
    alone = [spread(y) for y in tosses]
    np.testing.assert_allclose(sd, [a[1] for a in alone], rtol=1e-8)
    np.testing.assert_allclose(quantiles, [a[2] for a in alone], rtol=1e-8)
    refused = (
        lambda: batch.standard_deviation,
        batch.summary,
        batch.to_arviz,
        lambda: batch.quantiles([0.5]),
        lambda: batch.sample_vector(jax.random.key(0)),
    )
    for call in refused:
        with pytest.raises(ValueError, match="within jax.vmap"):
            call()
    with pytest.raises(ValueError, match="guide looks at numbers, so it cannot be compiled"):
        jax.jit(lambda y: lb.laplace(coin, y).guide)(tosses[0])


def test_a_failed_fit_has_no_number():
    approx = lb.laplace(coin, np.append(COIN[1:], np.nan), throw=False)
    assert np.isnan(approx.standard_deviation["theta"])
    assert np.isnan(approx.quantiles([0.5])["theta"])
    assert "NO MODE" in repr(approx)
    assert "NO MODE" in approx._repr_html_()


def test_draws_of_the_vector_are_those_of_the_sites():
    approx, key = lb.laplace(coin, COIN), jax.random.key(0)
    u = approx.sample_vector(key, (2, 5))
    assert u.shape == (2, 5, 1)
    theta = approx.sample(key, (2, 5))["theta"]
    np.testing.assert_allclose(expit(u[..., 0]), theta, rtol=1e-12)
    assert approx.sample_vector(key).shape == (1,)


def test_the_summary_has_a_row_for_each_number():
    table = mixed_fit().summary(0.5)
    assert list(table.columns) == ["site", "mode", "sd", "25 %", "75 %"]
    assert table["site"][:4] == ["p[0]", "p[1]", "p[2]", "ordered[0]"]
    assert table["site"][-1] == "many[1, 2]"
    assert len(table) == 3 + 3 + 1 + 1 + 1 + 6
    assert all(row["25 %"] < row["75 %"] for row in table.rows())
    narrow = lb.laplace(coin, COIN).summary(1e-8)
    assert list(narrow.columns)[3:] == ["49.9999995 %", "50.0000005 %"]
    wide = lb.laplace(coin, COIN).summary(0.9999999)
    assert list(wide.columns)[3:] == ["5e-06 %", "99.999995 %"]
    assert len(lb.laplace(coin, COIN).summary(1e-15).columns) == 5
    with pytest.raises(ValueError, match="no ends that can be told apart"):
        lb.laplace(coin, COIN).summary(1e-17)
    row = lb.laplace(coin, COIN).summary().rows()[0]
    theta = expit(stats.norm(1.2039728, 0.6582806).ppf([0.05, 0.95]))
    assert row == {
        "site": "theta",
        "mode": pytest.approx(10 / 13),
        "sd": pytest.approx(0.11655, abs=1e-4),
        "5 %": pytest.approx(theta[0]),
        "95 %": pytest.approx(theta[1]),
    }


@pytest.mark.filterwarnings("ignore:\nArviZ is undergoing:FutureWarning")
def test_to_arviz():
    approx = mixed_fit()
    data = approx.to_arviz(num_samples=50)
    assert data.posterior["many"].shape == (1, 50, 2, 3)
    assert set(data.posterior.data_vars) == set(approx.mode)
    draws = approx.sample(jax.random.key(0), (50,))
    np.testing.assert_array_equal(data.posterior["p"][0], draws["p"])
    assert list(data.observed_data.data_vars) == ["y"]
    np.testing.assert_array_equal(data.observed_data["y"], [3, 5])
    without = lb.laplace(flat_in(RISING), np.float64(0.0), np.float64(1.0)).to_arviz(
        jax.random.key(1), 3
    )
    assert "posterior" in without and "observed_data" not in without


def test_to_arviz_of_the_next_generation(monkeypatch):
    new = types.SimpleNamespace(from_dict=lambda data, *, dims=None: data)
    monkeypatch.setitem(sys.modules, "arviz", new)
    groups = lb.laplace(coin, COIN).to_arviz(num_samples=5)
    assert groups["posterior"]["theta"].shape == (1, 5)
    np.testing.assert_array_equal(groups["observed_data"]["y"], COIN)


def test_without_arviz_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match="pip install arviz"):
        lb.laplace(coin, COIN).to_arviz()


@pytest.mark.parametrize("log_sd", [2.0, 8.0, 9.0, 12.0])
def test_a_tail_beyond_the_quadrature_has_no_standard_deviation(log_sd):
    def long_tailed(log_sd):
        numpyro.sample("x", dist.LogNormal(0.0, log_sd))

    found = lb.laplace(long_tailed, np.float64(log_sd)).standard_deviation["x"]
    if log_sd > 8:
        assert np.isnan(found)
    else:
        exact = np.sqrt(np.expm1(log_sd**2) * np.exp(log_sd**2))
        assert found == pytest.approx(exact, rel=1e-5)


def test_repr_says_what_a_person_wants_to_know():
    approx = lb.laplace(coin, COIN)
    parts = ("coin", "unconstrained", "theta", "0.7692", "0.1166", "-4.7301", "mode certified")
    for text in (repr(approx), approx._repr_html_()):
        assert all(part in text for part in parts)
    long = lb.laplace(line, np.random.default_rng(0).normal(size=(30, 12)), np.ones(30))
    assert "w[9]" in repr(long)
    assert "w[10]" not in repr(long)
    assert "... and 2 more" in repr(long)
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), approx)  # as jax.vmap returns it
    assert repr(batch).startswith("LaplaceApproximation(")
    assert batch._repr_html_() is None
    assert "LaplaceApproximation(" in repr(jax.tree.map(lambda leaf: None, approx))


def test_repr_within_jit(capsys):
    jax.jit(lambda y: print(lb.laplace(coin, y)))(COIN)
    assert "LaplaceApproximation(" in capsys.readouterr().out


def test_an_improper_prior_is_told():
    def flat(y):
        real, positive = dist.constraints.real, dist.constraints.positive
        a = numpyro.sample("a", dist.ImproperUniform(real, (), ()))
        b = numpyro.sample("b", dist.ImproperUniform(positive, (), ()).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(a, b[0] + b[1] ** 0).expand([len(y)]).to_event(1), obs=y)
        numpyro.sample("c", dist.Normal(b, 1).to_event(1), obs=np.ones(2))

    said = repr(lb.laplace(coin, COIN))
    assert "constant" not in said and "left out" not in said
    told = repr(lb.laplace(flat, np.array([1.0, 2.0, 4.0])))
    assert "only up to a constant: the priors of 'a' and 'b' are improper" in told


def test_names_of_models_in_handlers_and_of_objects():
    class Callable:
        def __call__(self):
            pass

    assert name_of(coin) == "coin"
    assert name_of(numpyro.handlers.scale(jax.tree_util.Partial(coin), scale=2.0)) == "coin"
    assert name_of(Callable()) == "Callable"


def bowl(z):
    return -((z - 1) ** 2)


@pytest.mark.parametrize(
    "fit",
    [lambda: lb.laplace(coin, COIN), lambda: lb.laplace_of_density(bowl, 0.0)],
    ids=["of a model", "of a plain density"],
)
def test_copies(fit):
    approx, key = fit(), jax.random.key(0)
    vars(approx)["guide"] = (_ for _ in ())  # which, like a guide, cannot be pickled
    for other in (pickle.loads(pickle.dumps(approx)), copy.deepcopy(approx), copy.copy(approx)):
        assert repr(other) == repr(approx)
        assert other.sample(key) == approx.sample(key)
        assert jax.tree.structure(other) == jax.tree.structure(approx)


def means(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("y", dist.Normal(w[0] + w[1] * x, 1), obs=y)


def test_what_rounding_leaves_of_the_evidence_of_very_many_rows_is_told():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 400_000)).astype(np.float32)
    with single_precision():
        one, other = lb.laplace(means, x, y), lb.laplace(means, x[::-1], y)
    assert 5e5 < -one.log_evidence < 6e5  # of which numbers of float32 lie 1/16 apart
    for told in (repr(one), repr(lb.compare({"one": one, "other": other}))):
        assert "known to about 0.5 in single precision" in " ".join(told.split()), told
    assert rounding_told([np.float64(one.log_likelihood)]) == []
