"""Models of many kinds as one log joint: the parts, the order of sites, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from scipy import stats

import laplacebook as lb
from laplacebook.model.density import ModelDensity
from tests.models import coin


def scale_model(y):
    s = numpyro.sample("s", dist.HalfNormal(2.0))
    numpyro.sample("y", dist.Normal(0, s).expand([3]).to_event(1), obs=y)


Y = np.array([1.0, 2.0, -1.0])


def test_the_parts_are_the_same_within_a_scope():
    plain, scoped = lb.laplace(scale_model, Y), lb.laplace(handlers.scope(scale_model, "pre"), Y)
    s = float(plain.mode["s"])
    assert plain.log_likelihood == pytest.approx(stats.norm(0, s).logpdf(Y).sum(), rel=1e-10)
    assert scoped.log_likelihood == pytest.approx(float(plain.log_likelihood), rel=1e-10)
    assert scoped.log_prior == pytest.approx(float(plain.log_prior), rel=1e-10)


def test_handlers_around_the_call_are_refused():
    with handlers.scale(scale=10.0), pytest.raises(lb.UnsupportedModel, match="within NumPyro"):
        lb.laplace(scale_model, Y)
    scaled = lb.laplace(handlers.scale(scale_model, scale=10.0), Y)
    assert scaled.log_likelihood != pytest.approx(float(lb.laplace(scale_model, Y).log_likelihood))


def test_dict_arguments_keep_their_order():
    def regression(columns, y):
        features = jnp.stack(list(columns.values()), axis=1)
        w = numpyro.sample("w", dist.Normal(0, 10).expand([2]).to_event(1))
        numpyro.sample("y", dist.Normal(features @ w, 1.0).to_event(1), obs=y)

    rng = np.random.default_rng(0)
    columns = {"z": rng.normal(size=100), "a": rng.normal(size=100)}
    approx = lb.laplace(regression, columns, 2 * columns["z"] - columns["a"])
    np.testing.assert_allclose(approx.mode["w"], [2, -1], atol=0.01)


def test_integer_data_and_sizes():
    def counts(y, n, prior):
        rate = numpyro.sample("rate", dist.Gamma(prior, 1.0))
        with numpyro.plate("N", n):
            numpyro.sample("y", dist.Poisson(rate), obs=y)

    y = np.array([1, 2, 3, 4])
    approx = lb.laplace(counts, y, np.int64(4), 2.0)
    assert approx.mode["rate"] == pytest.approx(12 / 5, rel=1e-8)  # (2 + 10)/(1 + 4) in log rate


def test_data_outside_the_support_are_refused():
    def classes(y):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", dist.Bernoulli(logits=w).expand([3]).to_event(1), obs=y)

    for y in (np.array([1.0, 2.0, 2.0]), np.array([-1.0, 1.0, 1.0])):
        with pytest.raises(lb.NonFinite, match="outside the support of its"):
            lb.laplace(classes, y)
    assert np.isnan(jax.jit(lambda y: lb.laplace(classes, y).log_evidence)(y))


def test_masked_data_may_be_anything():
    def masked(y):
        w = numpyro.sample("w", dist.Normal(0, 1))
        with numpyro.plate("N", 3), handlers.mask(mask=jnp.array([True, True, False])):
            numpyro.sample("y", dist.Bernoulli(logits=w), obs=y)

    sentinel = lb.laplace(masked, np.array([1.0, 0.0, -9.0]))
    assert sentinel.mode["w"] == pytest.approx(0, abs=1e-8)


@pytest.mark.parametrize("y", [0.0, 1.0])
def test_a_mode_on_the_edge_is_no_mode(y):
    """Even where the log joint is level at the edge, as it is at every mode."""

    def uniform(y):
        t = numpyro.sample("t", dist.Uniform(0, 1))
        numpyro.sample("y", dist.Normal(t, 0.1), obs=y)

    with pytest.raises(lb.NotConverged, match="edge of the"):
        lb.laplace(uniform, y, space="constrained")
    assert lb.laplace(uniform, y + 0.5 - y, space="constrained").mode["t"] == pytest.approx(0.5)


def test_a_batch_is_right_or_refused():
    tosses = np.array([[1.0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    batch = jax.vmap(lambda y: lb.laplace(coin, y))(tosses)
    one_by_one = [lb.laplace(coin, y) for y in tosses]
    np.testing.assert_allclose(batch.log_evidence, [a.log_evidence for a in one_by_one])
    np.testing.assert_allclose(batch.covariance, [a.covariance for a in one_by_one])
    for refused in (lambda: batch.sample(jax.random.key(0)), lambda: batch.guide):
        with pytest.raises(ValueError, match="within jax.vmap"):
            refused()
    with pytest.raises(ValueError, match="within jax.vmap"):
        batch.log_density(batch.mode_vector[0])


def gaussian(y, scale=1.0):
    m = numpyro.sample("m", dist.Normal(0, scale))
    numpyro.sample("y", dist.Normal(m, 1).expand([3]).to_event(1), obs=y)


def branches(y):
    gaussian(y if y.sum() > 0 else -y)


def selects(y):
    gaussian(y[y > -5])


def counts_up(n):
    gaussian(Y[: int(n)])


def uses_numpy(y):
    gaussian(np.sort(y))


def direction(y):
    numpyro.sample("x", dist.ProjectedNormal(jnp.ones(2)))
    gaussian(y)


def counted(y=None):
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Poisson(rate), obs=y)


def has_parameter(y):
    gaussian(y, numpyro.param("scale", 1.0))


def hierarchical(y):
    gaussian(y, numpyro.sample("s", dist.LogNormal(0, 0.1)))


#: a model, its arguments, what the message says
REFUSED = [
    (branches, (Y,), "jnp.where or jax.lax.cond"),
    (selects, (Y,), "an index or a size taken from an array"),
    (selects, (Y,), "as labels of two groups they are integers, g.astype(int)"),
    (counts_up, (np.array(3.0),), "float() or int() of an array"),
    (uses_numpy, (Y,), "asks for the numbers in an array"),
    (uses_numpy, (Y,), "What to do: within the model write jnp for np"),
    (direction, (Y,), "'x', Sphere(). Continuous inference cannot handle spherical"),
    (counted, (None,), "what was passed to it is None"),
    (handlers.block(hierarchical, hide=["s"]), (Y,), "numpyro.handlers.block hides"),
    (handlers.substitute(hierarchical, data={"s": 1.0}), (Y,), "numpyro.handlers.condition"),
    (has_parameter, (Y,), "'scale' is a numpyro.param"),
]


@pytest.mark.parametrize(("model", "args", "message"), REFUSED)
def test_a_model_without_one_log_joint_is_refused(model, args, message):
    with pytest.raises(lb.UnsupportedModel) as caught:
        lb.laplace(model, *args)
    assert message in " ".join(str(caught.value).split())


def test_a_parameter_with_a_value_is_a_constant():
    fixed = lb.laplace(handlers.substitute(has_parameter, data={"scale": 2.0}), Y)
    assert fixed.log_evidence == pytest.approx(float(lb.laplace(gaussian, Y, 2.0).log_evidence))


def flat_priors(y):
    flat = dist.ImproperUniform(dist.constraints.real, (), ())
    a = numpyro.sample("a", flat)
    with numpyro.plate("N", 3), handlers.mask(mask=True):
        b = numpyro.sample("b", flat)
    c = numpyro.sample("c", flat.expand([2]).to_event(1))
    d = numpyro.sample("d", Uninformed(dist.constraints.real, (), ()))
    e = numpyro.sample("e", dist.Normal(0, 1))
    f = numpyro.sample("f", dist.TransformedDistribution(flat, dist.transforms.ExpTransform()))
    g = numpyro.sample("g", dist.LogNormal(0, 1))
    numpyro.factor("bowl", -(a**2 + jnp.sum(b**2) + jnp.sum(c**2) + d**2 + e**2 + f + g))


class Uninformed(dist.ImproperUniform):
    """A density of its own, as a subclass may have."""


def masked_priors(y, seen):
    proper = dist.Normal(0, 1)
    numpyro.sample("a", proper.mask(False))
    numpyro.sample("b", proper.expand([2]).mask(np.array([True, False])).to_event(1))
    with handlers.mask(mask=False):
        numpyro.sample("c", proper)
    with numpyro.plate("N", 3), handlers.mask(mask=seen):
        numpyro.sample("d", proper)
    numpyro.sample("e", proper.mask(True))
    with handlers.mask(mask=True):
        numpyro.sample("f", proper)


@pytest.mark.parametrize(
    ("model", "args", "improper"),
    [(flat_priors, (Y,), "abcf"), (masked_priors, (Y, Y > 0), "abcd"), (coin, (Y,), "")],
)
def test_flat_priors_are_known_and_a_mask_makes_a_proper_one_flat(model, args, improper):
    assert ModelDensity.of(model, args).improper == tuple(improper)


def test_a_distribution_that_caches_within_itself_is_still_the_same():
    prior = dist.ZeroSumNormal(1.0, (3,))  # its transform remembers its inverse, weakly

    def model():
        numpyro.sample("x", prior)

    approx = lb.laplace(model)
    assert approx.sample(jax.random.key(0))["x"].sum() == pytest.approx(0, abs=1e-12)


def test_a_number_observed_beside_a_traced_bound():
    def trials(n):
        p = numpyro.sample("p", dist.Beta(2.0, 2.0))
        numpyro.sample("y", dist.Binomial(n, p), obs=3)

    assert lb.laplace(trials, np.array(7)).mode["p"] == pytest.approx(5 / 11, rel=1e-8)
    with pytest.raises(lb.NonFinite, match="outside the support"):
        lb.laplace(trials, np.array(2))


def several(y):
    p = numpyro.sample("p", dist.Dirichlet(jnp.array([2.0, 3.0, 4.0])))
    b = numpyro.sample("b", dist.Normal(0, 1).expand([2]).to_event(1))
    s = numpyro.sample("s", dist.LogNormal(0, 1))
    numpyro.sample(
        "y", dist.Normal(p @ jnp.arange(3.0) + b.sum(), s).expand([3]).to_event(1), obs=y
    )


def test_the_guide_agrees_with_sample_on_sites_of_all_shapes():
    approx = lb.laplace(several, Y)
    sites = ["p", "b", "s"]
    theirs = approx.guide.sample_posterior(
        jax.random.key(0), approx.params, Y, sample_shape=(8000,)
    )
    ours = approx.sample(jax.random.key(1), (8000,))
    for name in sites:
        assert theirs[name].shape == ours[name].shape
        error = np.std(ours[name], axis=0) * np.sqrt(2 / 8000)
        assert np.all(np.abs(theirs[name].mean(0) - ours[name].mean(0)) < 5 * error)
    assert "b[1]" in repr(approx)


def test_a_support_that_moves_is_no_matter_for_sample_and_refused_as_a_guide():
    def dynamic(y):
        x = numpyro.sample("x", dist.Gamma(5, 1))
        t = numpyro.sample("t", dist.Uniform(0, x))
        numpyro.sample("y", dist.Normal(t, 0.5).expand([3]).to_event(1), obs=y)

    approx = lb.laplace(dynamic, np.array([2.8, 3.0, 3.3]))
    draws = approx.sample(jax.random.key(0), (500,))
    assert np.all(draws["t"] < draws["x"])
    with pytest.raises(lb.UnsupportedModel, match="support of 't' depends"):
        _ = approx.guide
