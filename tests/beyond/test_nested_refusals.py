"""What ``nested`` refuses, and in which words."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy import stats

import laplacebook as lb
from tests.beyond import simulated
from tests.beyond.practice import MODELS
from tests.models import single_precision

FLAT = dist.ImproperUniform(dist.constraints.real, (), ())
Y = np.array([0.3, -0.5, 1.3, 0.2, -1.1, 0.7])


def effects(y, scale=None, of_effect=lambda z: z, likelihood=None):
    tau = numpyro.sample("tau", dist.HalfNormal(2)) if scale is None else scale
    with numpyro.plate("groups", len(y)):
        z = of_effect(numpyro.sample("z", dist.Normal(0, tau)))
        numpyro.sample("y", dist.Normal(z, 1) if likelihood is None else likelihood(z), obs=y)


def flat_logarithm(y):
    effects(y, jnp.exp(numpyro.sample("log_tau", FLAT)))


def flat_scale(y):
    effects(y, numpyro.sample("tau", dist.ImproperUniform(dist.constraints.positive, (), ())))


def scale_that_may_be_negative(y):
    effects(y, numpyro.sample("tau", dist.Normal(0, 1)))


def flat_effect_in_part(y, edge):
    """Below the edge nothing says what w is."""
    s = numpyro.sample("s", dist.Normal(0, 1))
    w = numpyro.sample("w", FLAT)
    numpyro.factor("w has a prior", jnp.where(s > edge, -(w**2) / 2, 0))
    numpyro.sample("y", dist.Normal(s, 1), obs=y)


def labelled(g, y):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    z = numpyro.sample("z", dist.Normal(0, tau).expand([3]).to_event(1))
    numpyro.sample("y", dist.Normal(z[g], 1).to_event(1), obs=y)


def discrete(y):
    numpyro.sample("k", dist.Bernoulli(0.5))
    effects(y)


def no_hyperparameter(y):
    b = numpyro.sample("b", dist.Normal(0, 1))
    numpyro.sample("y", dist.Normal(b, 1).expand([len(y)]).to_event(1), obs=y)


def rounded(y):
    effects(y, of_effect=jnp.round)


def counts(y):
    effects(y, likelihood=lambda z: dist.Poisson(jnp.exp(z)))


def contradicted(y):
    tau = numpyro.sample("tau", dist.HalfNormal(1))
    with numpyro.plate("groups", 5):
        z = numpyro.sample("z", dist.Normal(0, tau))
        with numpyro.plate("twice", 2, dim=-2):
            numpyro.sample("y", dist.Cauchy(z, 0.2), obs=y)


@jax.custom_vjp
def exponential(z):
    return jnp.exp(z)


exponential.defvjp(lambda z: (jnp.exp(z),) * 2, lambda value, slope: (value * slope,))


def root(tau):
    return jax.pure_callback(np.sqrt, jax.ShapeDtypeStruct((), np.float64), tau)


def no_counts(y):
    tau, a = numpyro.sample("tau", dist.HalfNormal(1)), numpyro.sample("a", FLAT)
    z = numpyro.sample("z", dist.Normal(0, tau).expand([6]).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(a + z)).to_event(1), obs=y)


NAN = np.where(np.arange(6) == 2, np.nan, Y)
HERE = "cannot be integrated out where"
REFUSED = {
    "no effect": (effects, (Y,), ["tau", "z"], ValueError, "none would be left as an effect"),
    "no such site": (effects, (Y,), "sigma", ValueError, "'sigma'. is none of them"),
    "no name": (effects, (Y,), [], ValueError, "over is the name, or names"),
    "an effect": (effects, (Y,), "z", lb.UnsupportedModel, "name 'tau' in over as well"),
    "no hyperparameter": (no_hyperparameter, (Y,), None, lb.UnsupportedModel, "no hyperparameter"),
    "discrete": (discrete, (Y,), None, lb.UnsupportedModel, "'k' is discrete"),
    "NaN": (effects, (NAN,), None, lb.NonFinite, "argument 'y' has 1 NaN, first at .2."),
    "labels": (labelled, (np.arange(1, 4), Y[:3]), None, lb.NonFinite, "'g' has the label 3"),
    "support": (counts, (Y,), None, lb.NonFinite, f"{HERE}.* outside the support"),
    "a jump": (rounded, (Y,), "tau", lb.NotConverged, f"{HERE} tau.* follow its own gradient"),
    "half of no effects": (
        flat_effect_in_part,
        (0.3, np.float64(0.0)),
        "s",
        lb.NotPositiveDefinite,
        f"w {HERE} s = -.* flat along .1 w",
    ),
    "a tail of no effects": (
        flat_effect_in_part,
        (0.3, np.float64(-2.5)),
        "s",
        lb.NotPositiveDefinite,
        f"w {HERE} s = -2.5",
    ),
    "flat logarithm": (flat_logarithm, (Y,), None, lb.NotConverged, "does not fall along log_tau"),
    "flat logarithm, far from zero": (
        flat_logarithm,
        (100 * Y,),
        None,
        lb.NotConverged,
        "does not fall along log_tau",
    ),
    "flat scale of one group": (
        flat_scale,
        (Y[:1],),
        None,
        lb.NotConverged,
        "does not fall along tau",
    ),
    "counts of zero": (no_counts, (0 * Y,), None, lb.NotConverged, f"a and z {HERE}.* levels off"),
    "two modes of an effect": (
        lambda y: effects(y, likelihood=lambda z: dist.Normal(abs(z), 0.5)),
        (1 + 0 * Y,),
        "tau",
        lb.NotConverged,
        r"falls along z\[\d\]\. .*a second mode",
    ),
    "modes that end": (
        contradicted,
        (np.array([[1.0, 2.0, 0.5, -1.0, -4.0], [1.1, -2.0, 0.4, -1.0, 4.0]]),),
        None,
        lb.NotConverged,
        r"breaks off at tau = 1\.\d+: .*two modes of the effects, one of which ends there"
        if jax.__version_info__ < (0, 12)  # whose rounding leaves that mode a little earlier
        else r"cannot be integrated out where tau = 1\.01\d+: Newton's method found no mode",
    ),
    "a slope of its own": (
        lambda y: effects(y, likelihood=lambda z: dist.Normal(exponential(z), 1)),
        (Y,),
        None,
        lb.UnsupportedModel,
        "in forward mode, which tells the hyperparameters if over= does not",
    ),
    "a callback": (
        lambda y: effects(y, root(numpyro.sample("tau", dist.HalfNormal(2)))),
        (Y,),
        "tau",
        lb.UnsupportedModel,
        "in forward mode. Pure callbacks",
    ),
    "not a scale": (scale_that_may_be_negative, (Y,), None, lb.NonFinite, "is not a scale"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    model, args, over, error, words = REFUSED[case]
    with pytest.raises(error) as refused:
        lb.nested(model, *args, over=over)
    assert re.search(words, " ".join(str(refused.value).split()))


def test_what_has_a_slope_of_its_own_is_an_effect_where_the_hyperparameters_are_named():
    model, peer = (
        lambda y, link=link: effects(y, likelihood=lambda z: dist.Normal(link(z), 1))
        for link in (exponential, jnp.exp)
    )
    fit, exact = (lb.nested(one, Y, over="tau") for one in (model, peer))
    assert fit.log_evidence == pytest.approx(exact.log_evidence, rel=1e-9)


def test_a_smooth_kernel_in_single_precision():
    case, (x, y) = MODELS["gp_classification"], simulated.classes()
    with single_precision(), pytest.raises(lb.NotConverged) as refused:
        lb.nested(case.model, x[::2], y[::2])
    words = " ".join(str(refused.value).split())
    assert re.search("lost in rounding .* singular .* single precision.*enable_x64", words)


@pytest.mark.parametrize("within", [jax.jit, jax.vmap, jax.grad])
def test_within_a_program(within):
    evidence = within(lambda y: lb.nested(effects, y).log_evidence)
    with pytest.raises(ValueError, match="marginalize does"):
        evidence(jnp.stack([Y, Y]))


def test_an_improper_prior_with_a_proper_posterior():
    """Flat in tau, of six groups: the tail falls as tau^-5."""
    fit = lb.nested(flat_scale, 2 * Y)
    tau = np.exp(u := np.linspace(-15, 12, 2001))
    heights = stats.norm(0, np.sqrt(1 + tau**2)).logpdf(2 * Y[:, None]).sum(axis=0) + u
    weights = np.exp(heights)
    assert fit.log_evidence == pytest.approx(np.log(weights.sum() * (u[1] - u[0])), abs=5e-3)
    assert float(fit.mean["tau"]) == pytest.approx(np.average(tau, weights=weights), rel=0.02)
    assert "the prior of 'tau' is improper" in repr(fit)
