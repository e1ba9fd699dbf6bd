"""What a diagnosis says to do next: lines that run, and that help."""

from functools import partial

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import laplacebook as lb
from laplacebook.beyond.hyperparameters import hyperparameters_of
from laplacebook.model.density import ModelDensity
from laplacebook.trust.remedies import _call_of_nested

KEY = jax.random.key(0)
Y = jnp.array([2.0, -1.0, 0.5, -3.0])


def coin(y):
    theta = numpyro.sample("theta", dist.Beta(2, 2))
    numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)


def root(y):
    x = numpyro.sample("x", dist.Normal(0, 3))
    numpyro.sample("y", dist.Normal(x**2, 1), obs=y)


def groups(y):
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", y.size):
        z = numpyro.sample("z", dist.Normal(0, tau))
        numpyro.sample("y", dist.Normal(z, 1), obs=y)


#: a model with its data; the remedies, by their verbs; and the levels of those that are tried
CASES = {
    "skew": (
        lambda: lb.laplace(coin, jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0])),
        ["lb.skewed", "lb.resampled", "lb.nuts"],
        None,
    ),
    "two modes": (
        lambda: lb.laplace(root, 9.0),
        ["lb.mixture", "lb.resampled(lb.mixture", "lb.nuts(lb.mixture"],
        ["good", "good", "not tried"],
    ),
    "effects": (
        lambda: lb.laplace(groups, Y),
        ["lb.resampled", "lb.nested(groups, y)", "lb.nuts"],
        None,
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    make, verbs, levels = CASES[request.param]
    approx = make()
    return approx, lb.diagnose(approx, KEY, remedies=levels is not None), verbs, levels


def test_what_applies_is_told_by_what_it_costs(case):
    _, diagnosis, verbs, _ = case
    assert diagnosis.level != "good"
    found = [one.line for one in diagnosis.remedies]
    assert len([line for line in found if line.startswith("lb.")]) == len(found)
    for verb in verbs:
        assert any(line.startswith(verb) for line in found), found
    places = [next(i for i, line in enumerate(found) if line.startswith(v)) for v in verbs]
    assert places == sorted(places)
    assert f"next: {found[-1]}" in repr(diagnosis)


def test_the_lines_run(case):
    approx, diagnosis, *_ = case
    names = {"lb": lb, "approx": approx, "diagnosis": diagnosis, "key": KEY}
    names |= {"groups": groups, "y": approx.density.arguments[0][0]}
    for one in diagnosis.remedies:
        if one.make is not None and "resampled" not in one.line:
            assert isinstance(eval(one.line, names), lb.Approximation)


def test_what_would_not_serve_is_not_told(case):
    """Of the effects the cubic term is 1.2 nats; the coin has no effects."""
    approx, diagnosis, verbs, _ = case
    lines = [one.line for one in diagnosis.remedies]
    for verb in ("lb.skewed(approx)", "lb.nested"):
        is_told = any(line.startswith(verb) for line in lines)
        assert is_told == any(verb.startswith(one) or one.startswith(verb) for one in verbs)


def test_what_is_tried_is_told(case):
    _, diagnosis, _, levels = case
    if levels is None:
        assert diagnosis.tried is None
        return
    rows = diagnosis.tried.rows()
    assert [row["verdict"].split(":")[0] for row in rows] == levels
    assert [row["remedy"] for row in rows] == [one.line for one in diagnosis.remedies]
    assert "Remedies" in repr(diagnosis)


def test_of_a_bad_joint_mode_the_print_says_what_to_integrate_out(case):
    approx, diagnosis, *_ = case
    told = "lb.laplace(lb.marginalize(groups, ['z']), y)" in repr(diagnosis)
    assert told == (diagnosis.level == "bad" and approx.density.name == "groups")


def test_a_remedy_that_is_refused_says_why():
    """Of a Student-t distribution with a tenth of a degree of freedom no weights are to be trusted."""
    fit = lb.laplace_of_density(lambda x: -0.55 * jnp.log1p(x**2), jnp.array(0.1))
    found = lb.diagnose(fit, KEY, 2_000, remedies=True)
    verdicts = [row["verdict"] for row in found.tried.rows()]
    assert any(verdict.startswith("refused: The draws from") for verdict in verdicts), verdicts


def other_form(y):
    """The effects in units of their scale, as a non-centred hierarchy is written."""
    tau = numpyro.sample("tau", dist.HalfNormal(2))
    with numpyro.plate("groups", y.size):
        z = numpyro.sample("z", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(tau * z, 1), obs=y)


def noisy(y, *noise, prior=2.0):
    tau = numpyro.sample("tau", dist.HalfNormal(prior))
    with numpyro.plate("groups", y.size):
        z = numpyro.sample("z", dist.Normal(0, tau))
        numpyro.sample("y", dist.Normal(z, noise[0] if noise else 1.0), obs=y)


def means(heights, errors):
    mu = numpyro.sample("mu", dist.Normal(0, 3))
    tau = numpyro.sample("tau", dist.HalfCauchy(1))
    z = numpyro.sample("z", dist.Normal(mu, tau).expand([heights.size]).to_event(1))
    numpyro.sample("y", dist.Normal(z, errors).to_event(1), obs=heights)


def test_nested_takes_the_scale_in_whatever_form_effects_are_written():
    """And of a marginal model, whose effects are integrated out."""
    marginal = ModelDensity.of(lb.marginalize(means, "z"), (Y, jnp.ones(4)))
    for density in (ModelDensity.of(other_form, (Y,)), marginal):
        assert hyperparameters_of(density, None) == ("tau",)


@pytest.mark.parametrize(
    ("model", "args", "kwargs", "line"),
    [
        (noisy, (Y,), {}, "lb.nested(noisy, y)"),
        (noisy, (Y,), {"prior": 3.0}, "lb.nested(noisy, y, prior=prior)"),
        (noisy, (), {"y": Y}, "lb.nested(noisy, y=y)"),
        (noisy, (Y, 1.0), {"prior": 3.0}, "lb.nested(noisy, y, ..., prior=prior)"),
        (partial(noisy, Y), (), {}, "lb.nested(approx.density.model)"),
        (lambda data: noisy(data), (Y,), {}, "lb.nested(approx.density.model, data)"),
        (handlers.reparam(noisy, config={}), (Y,), {}, "lb.nested(noisy, y)"),
        (
            lb.marginalize(means, "z"),
            (Y, jnp.ones(4)),
            {},
            "lb.nested(approx.density.model, heights, errors)",
        ),
    ],
)
def test_the_line_of_nested_names_the_arguments(model, args, kwargs, line):
    """Of ``*noise`` the signature has no names, and of a lambda no name says which it is."""
    assert _call_of_nested(ModelDensity.of(model, args, kwargs), None) == line
