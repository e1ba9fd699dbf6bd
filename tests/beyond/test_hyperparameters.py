"""Which latent sites are hyperparameters: those of many models, those that are named, and errors."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.beyond.hyperparameters import hyperparameters_of
from laplacebook.model.density import ModelDensity
from tests.beyond.hierarchies import (
    BINARY,
    EIGHT,
    GROUPS,
    MODELS,
    REAL,
    G,
    N,
    X,
    half,
    missing_covariates,
    normal,
    schools,
    schools_not_centred,
    site,
)
from tests.models import single_precision


@pytest.mark.parametrize("case", MODELS)
def test_found(case):
    model, args, expected = MODELS[case]
    assert hyperparameters_of(ModelDensity.of(model, args), None) == tuple(expected)


def logistic(y):
    w, level = normal("w", 2), normal("level")
    with numpyro.plate("rows", N):
        numpyro.sample("y", dist.Bernoulli(logits=X @ w + level), obs=y)


def unrelated(y):
    m, sd = site("m", dist.Cauchy(0, 1)), site("sd", dist.LogNormal(0, 1))
    with numpyro.plate("rows", N):
        numpyro.sample("y", dist.Normal(m, sd), obs=y)


def labels(g, y):
    tau = half("tau")
    z = site("z", dist.Normal(0, tau).expand([GROUPS]).to_event(1))
    numpyro.sample("y", dist.Normal(z[g], 1).to_event(1), obs=y)


def log_scale(y):
    """Were it not for the prior of the rates, the logarithm of their scale would be an effect."""
    b = normal("b")
    with numpyro.plate("rows", N):
        rate = site("rate", dist.Gamma(2, jnp.exp(b)))
        numpyro.sample("y", dist.Poisson(rate), obs=y)


def product(y):
    """Of two as large, the effects are those whose prior depends on another site."""
    b, tau = normal("b", GROUPS), half("tau")
    z = site("z", dist.Normal(0, tau).expand([GROUPS]).to_event(1))
    numpyro.sample("y", dist.Normal(b[G] * z[G], 1).to_event(1), obs=y)


def test_priors_of_others():
    assert hyperparameters_of(ModelDensity.of(log_scale, (BINARY,)), None) == ("b",)
    assert hyperparameters_of(ModelDensity.of(product, (REAL,)), None) == ("b", "tau")


def of_schools(over):
    return hyperparameters_of(ModelDensity.of(schools, EIGHT), over)


def test_named():
    assert of_schools("tau") == of_schools(["tau"]) == ("tau",)
    assert of_schools(["tau", "mu"]) == ("mu", "tau")  # the order of the model


WRONG = {
    "unknown": (["tau", "a"], ValueError, r"are \['mu', 'tau', 'theta'\]: \['a'\] is none of them"),
    "none": ([], ValueError, r"over is the name, or names, of latent sites, not \[\]"),
    "no names": ([3], TypeError, r"over is the name, or names, of latent sites, not \[3\]"),
    "a number": (3, TypeError, "over is the name, or names, of latent sites, not 3"),
    "all": (["mu", "tau", "theta"], ValueError, "none would be left as an effect"),
    "an effect": (
        "theta",
        lb.UnsupportedModel,
        "prior of 'theta' depends on 'mu'.*name 'mu' in over",
    ),
    "tau is missing": (["mu", "theta"], lb.UnsupportedModel, "prior of 'theta' depends on 'tau'"),
}


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_choice_is_refused(case):
    over, error, words = WRONG[case]
    with pytest.raises(error) as refused:
        of_schools(over)
    assert re.search(words, " ".join(str(refused.value).split()))


UNTOLD = {
    "no hyperparameter": (
        logistic,
        (BINARY,),
        r"\['w', 'level'\]: there is no hyper.* use laplace\(logistic, ",
    ),
    "no predictor that is known": (
        missing_covariates,
        (np.nan * REAL, REAL),
        r"\['z', 'noise'\], none is a Gaussian",
    ),
    "no effect": (
        unrelated,
        (REAL,),
        r"\['m', 'sd'\], none is a Gaussian.* name with over= the sites",
    ),
}


@pytest.mark.parametrize("case", UNTOLD)
def test_what_the_program_does_not_tell_is_asked_for(case):
    model, args, words = UNTOLD[case]
    with pytest.raises(lb.UnsupportedModel) as refused:
        hyperparameters_of(ModelDensity.of(model, args), None)
    assert re.search(words, " ".join(str(refused.value).split()))
    first = ModelDensity.of(model, args).sites[0].name
    assert hyperparameters_of(ModelDensity.of(model, args), first) == (first,)


def test_labels_beside_their_groups_are_told_before():
    density = ModelDensity.of(labels, (G + 1, REAL))
    with pytest.raises(lb.NonFinite, match="Argument 'g' has the label 6"):
        hyperparameters_of(density, None)


def test_the_data_decide_what_is_affine():
    """Where a curved term is zero for all rows, it does not keep its coefficient out."""

    def curved(x, y):
        b, tau = normal("b"), half("tau")
        z = site("z", dist.Normal(0, tau).expand([GROUPS]).to_event(1))
        numpyro.sample("y", dist.Normal(z[G] * (1 + b * x) + b, 1).to_event(1), obs=y)

    for x, expected in ((0 * REAL, ("tau",)), (REAL, ("b", "tau"))):
        assert hyperparameters_of(ModelDensity.of(curved, (x, REAL)), None) == expected


def test_the_next_call_runs_no_model(monkeypatch):
    """Nor with other data."""

    def once(y, s):
        schools_not_centred(y, s)

    def found(by, over):
        return hyperparameters_of(ModelDensity.of(once, (EIGHT[0] + by, EIGHT[1])), over)

    runs, trace = [], ModelDensity.trace
    monkeypatch.setattr(ModelDensity, "trace", lambda *args: runs.append(1) or trace(*args))
    assert found(0, None) == ("tau",)
    first = len(runs)
    assert found(1, None) == found(2, "tau") == ("tau",)
    assert len(runs) == first > 0


@pytest.mark.parametrize(
    ("groups", "expected"),
    [(3, ("scale_v", "scale_k", "noise", "k")), (8, ("scale_v", "scale_k", "noise"))],
)
def test_curves_of_groups_are_effects_where_they_are_too_many_for_a_grid(groups, expected):
    """The asymptote joins the predictor of an enzyme's curve; what bends it has a law of groups, too."""
    concentration = np.array([0.1, 1.0, 10.0])

    def enzyme(y):
        scale_v, scale_k, noise = half("scale_v"), half("scale_k"), half("noise")
        with numpyro.plate("subjects", groups, dim=-2):
            v = numpyro.sample("v", dist.Normal(0, scale_v))
            k = numpyro.sample("k", dist.Normal(0, scale_k))
            mean = v - jnp.log(jnp.exp(k) + concentration)
            with numpyro.plate("measurements", 3, dim=-1):
                numpyro.sample("y", dist.Normal(mean, noise), obs=y)

    density = ModelDensity.of(enzyme, (np.zeros((groups, 3)),))
    assert hyperparameters_of(density, None) == expected


def test_local_scales_of_effects_are_none_of_groups():
    """Those of a horseshoe, however many, are hyperparameters of other sites."""

    def horseshoe(y):
        overall = half("overall")
        with numpyro.plate("coefficients", 9):
            local = numpyro.sample("local", dist.HalfCauchy(overall))
            w = numpyro.sample("w", dist.Normal(0, local))
        with numpyro.plate("rows", 9):
            numpyro.sample("y", dist.Normal(w, 1), obs=y)

    found = hyperparameters_of(ModelDensity.of(horseshoe, (np.zeros(9),)), None)
    assert found == ("overall", "local")


@pytest.fixture(scope="module")
def _no_constants_in_double_precision():
    """Of NumPy's arrays, which JAX keeps as the first program that met them took them: so the last test here."""
    jax.clear_caches()


@pytest.mark.usefixtures("_no_constants_in_double_precision")
@pytest.mark.parametrize(
    "case", ["schools, normal scale", "volatility", "process", "large covariates"]
)
def test_found_in_single_precision(case):
    model, args, expected = MODELS[case]
    narrow = tuple(np.float32(x) if isinstance(x, np.ndarray) else x for x in args)
    with single_precision():
        found = hyperparameters_of(ModelDensity.of(model, narrow), None)
    assert found == tuple(expected)


def test_a_prior_far_from_zero_is_seen_to_be_quadratic():
    """In single precision a step of 1e-4 from 1000 is rounding."""
    centre = 1000.0

    def groups(y):
        mean, tau = site("mean", dist.Normal(centre, 2)), half("tau")
        with numpyro.plate("groups", y.size):
            z = numpyro.sample("z", dist.Normal(mean, tau))
            numpyro.sample("y", dist.Normal(z, 1), obs=y)

    with single_precision():
        y = np.float32(centre + np.array([4.1, 5.2, 6.3, 3.9]))
        assert hyperparameters_of(ModelDensity.of(groups, (y,)), None) == ("tau",)
