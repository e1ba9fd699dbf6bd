"""Weights of the rows of a network, and targets that are missing: against rows that are repeated or left out."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers

import laplacebook as lb
from laplacebook.curvature.gauss_newton import dense
from laplacebook.model.density import ModelDensity
from laplacebook.predictive.predict import predict

RNG = np.random.default_rng(0)
N = 8
X = RNG.normal(size=(N, 2))
WEIGHTS = np.array([1, 2, 0, 3, 1, 0, 1, 2])
REPEATED = np.repeat(np.arange(N), WEIGHTS)
REAL = np.tanh(X) + 0.3 * RNG.normal(size=(N, 2))
LIKELIHOODS = {
    "normal": (1, REAL[:, 0]),
    "two outputs": (2, REAL),
    "bernoulli": (1, (REAL[:, 0] > 0).astype(int)),
    "categorical": (3, np.arange(N) % 3),
    "poisson": (1, np.arange(N) % 4),
}
STRUCTURES = {
    "dense Hessian": {},
    "dense": {"curvature": "gauss_newton"},
    "diagonal": {"curvature": "gauss_newton", "structure": "diagonal"},
    "kronecker": {"curvature": "gauss_newton", "structure": "kronecker"},
    "low rank": {"curvature": "gauss_newton", "structure": "low_rank", "rank": 2},
    "last layer": {"curvature": "gauss_newton", "structure": "last_layer"},
}


def apply(p, x):
    return jnp.tanh(x @ p["a"]) @ p["b"]


def started(outputs):
    rng = np.random.default_rng(1)
    return {"a": rng.normal(size=(2, 2)), "b": rng.normal(size=(2, outputs))}


def network(name):
    outputs, targets = LIKELIHOODS[name]
    likelihood = "normal" if name == "two outputs" else name
    return lb.network(apply, started(outputs), likelihood=likelihood), targets


def options(model, structure):
    exact = not STRUCTURES[structure]
    return STRUCTURES[structure] | {"start": model.start} | ({} if exact else {"tolerance": 1e-3})


def same(one, other):
    np.testing.assert_allclose(one.log_evidence, other.log_evidence, rtol=1e-9)
    for name, value in one.standard_deviation.items():
        np.testing.assert_allclose(value, other.standard_deviation[name], rtol=1e-7)


def mean(prediction):
    return prediction.mean if isinstance(prediction, lb.Prediction) else prediction


CASES = [(name, "kronecker") for name in LIKELIHOODS] + [
    ("normal", s) for s in STRUCTURES if s != "kronecker"
]
CASES += [("categorical", "dense"), ("bernoulli", "dense Hessian")]


@pytest.mark.parametrize(("name", "structure"), CASES)
def test_a_row_of_weight_2_counts_as_two_rows(name, structure):
    model, t = network(name)
    by_weights = lb.laplace(model, X, t, weights=WEIGHTS, **options(model, structure))
    same(by_weights, lb.laplace(model, X[REPEATED], t[REPEATED], **options(model, structure)))


@pytest.mark.parametrize(
    ("name", "structure"),
    [("normal", "dense Hessian"), ("two outputs", "kronecker"), ("categorical", "kronecker")],
)
def test_the_weights_are_those_of_a_model_by_hand(name, structure):
    model, t = network(name)
    w = 0.5 + WEIGHTS / 3

    def by_hand(x, t, w):
        p = {
            n: numpyro.sample(n, dist.Normal(0, 1).expand(v.shape).to_event(2))
            for n, v in started(LIKELIHOODS[name][0]).items()
        }
        f = apply(p, x)
        laws = {"normal": dist.Normal(f[:, 0], 1), "two outputs": dist.Normal(f, 1).to_event(1)}
        law = laws.get(name, dist.Categorical(logits=f))
        with numpyro.plate("rows", len(x)), handlers.scale(scale=w):
            numpyro.sample("t", law, obs=t)

    own = options(model, structure)
    same(lb.laplace(model, X, t, weights=w, **own), lb.laplace(by_hand, X, t, w, **own))


@pytest.mark.parametrize("structure", ["dense Hessian", "dense", "diagonal", "kronecker"])
def test_one_output_of_a_row_may_be_missing(structure):
    model, t = network("two outputs")
    seen = np.ones((N, 2), bool)
    seen[0, 1] = seen[3, 0] = seen[4] = False

    def by_hand(x, t, seen):
        p = {
            n: numpyro.sample(n, dist.Normal(0, 1).expand(v.shape).to_event(2))
            for n, v in started(2).items()
        }
        with numpyro.plate("rows", len(x)):
            law = dist.Normal(apply(p, x), 1).mask(seen).to_event(1)
            numpyro.sample("t", law, obs=t)

    own, missing = options(model, structure), np.where(seen, t, np.nan)
    fit = lb.laplace(model, X, missing, weights=np.isfinite(missing), **own)
    same(fit, lb.laplace(by_hand, X, t, seen, **own))
    assert predict(fit, X[:3], method="plug_in").mean.shape == (3, 2)


def test_what_is_missing_counts_for_nothing():
    """And the curvature is that of the entries that are left, one by one."""
    model, t = network("two outputs")
    w = np.array([[1, 0], [0, 2], [0, 0], [1, 1], [3, 1], [1, 1], [1, 1], [1, 1]])
    missing = np.where(w > 0, t, np.nan)
    one = network("normal")[0]

    def of_output(i):  # as a network of its own, whose other output has no part in it
        rows = np.repeat(np.arange(N), w[:, i])
        f = lb.network(lambda p, x: apply(p, x)[:, i], started(2), likelihood=one.likelihood)
        return ModelDensity.of(f, (X[rows], t[rows, i]))

    whole = ModelDensity.of(model, (X, missing), {"weights": w})
    u = jnp.asarray(RNG.normal(size=whole.dimension))
    parts = [of_output(0), of_output(1)]
    np.testing.assert_allclose(dense(whole, u), sum(dense(part, u) for part in parts), rtol=1e-9)
    logs = [float(part.terms(u).log_likelihood) for part in parts]
    assert float(whole.terms(u).log_likelihood) == pytest.approx(sum(logs), rel=1e-12)


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize("name", ["normal", "bernoulli", "poisson"])
def test_a_target_that_is_missing(name):
    """Left out by its weight, whatever it is; predictions have no weights."""
    model, t = network(name)
    own, t = options(model, "dense"), np.where(WEIGHTS > 0, t, np.nan)
    seen = np.isfinite(t)
    left = lb.laplace(model, X[seen], t[seen], **own)
    for weights in (seen, seen.tolist()):
        fit = lb.laplace(model, X, t, weights=weights, **own)
        same(fit, left)
        plain, other = (mean(predict(f, X[:3], method="plug_in")) for f in (fit, left))
        np.testing.assert_allclose(plain, other, rtol=1e-7)


def test_what_is_missing_is_no_power_of_a_density():
    """So that an evidence is there to compare, with that of the data that are left."""
    model, t = network("two outputs")
    seen = np.ones((N, 2), bool)
    seen[2, 1] = seen[5] = False
    t = np.where(seen, t, np.nan)
    fits = [
        lb.laplace(m, X, t, weights=seen, **options(m, "dense"))
        for m in (model, lb.network(apply, started(2), likelihood="normal", prior_precision=2.0))
    ]
    assert "log Bayes factor" in repr(lb.compare(dict(zip("ab", fits, strict=True))))


def test_a_class_that_is_missing_has_any_number():
    model, t = network("categorical")
    own, seen = options(model, "kronecker"), WEIGHTS > 0
    fit = lb.laplace(model, X, np.where(seen, t, -1), weights=seen, **own)
    same(fit, lb.laplace(model, X[seen], t[seen], **own))


def test_weights_of_a_compiled_fit_and_of_training():
    model, t = network("normal")
    own = options(model, "dense")
    expected = float(lb.laplace(model, X, t, weights=WEIGHTS, **own).log_evidence)

    @jax.jit
    def fit(w):
        return lb.laplace(model, X, jnp.where(w == 0, jnp.nan, t), weights=w, **own).log_evidence

    assert float(fit(WEIGHTS.astype(float))) == pytest.approx(expected, rel=1e-9)
    assert np.isnan(fit(np.where(WEIGHTS == 2, -0.5, 1.0)))
    key = jax.random.key(0)
    trained = lb.train(model, X, t, weights=WEIGHTS, start=model.start, key=key, batch_size=4)
    again = lb.laplace(model, X, t, weights=WEIGHTS, **own | {"start": trained})
    assert float(again.log_evidence) == pytest.approx(expected, abs=1e-3)


NAN = np.where(WEIGHTS == 0, np.nan, 1.0)
WRONG = {
    "too few": (WEIGHTS[:3], r"weights must have shape \(8,\), one for each row, not \(3,\)"),
    "a number": (2.0, r"one for each row, not \(\)"),
    "a column": (WEIGHTS[:, None], r"one for each row, not \(8, 1\)"),
    "negative": (-WEIGHTS, r"must be 0 or positive, and finite, not \[-1.0, -2.0, -3.0\]"),
    "NaN": (NAN, r"must be 0 or positive, and finite, not \[nan, nan\]"),
}


@pytest.mark.parametrize(("weights", "words"), WRONG.values(), ids=WRONG)
def test_weights_that_are_none(weights, words):
    model, t = network("normal")
    with pytest.raises(ValueError, match=words):
        lb.laplace(model, X, t, weights=weights, start=model.start)


def test_weights_of_outputs_are_of_several_normal_ones():
    model, t = network("two outputs")
    with pytest.raises(ValueError, match=r"or \(8, 2\), not \(8, 3\)"):
        lb.laplace(model, X, t, weights=np.ones((N, 3)))
    model, t = network("categorical")
    with pytest.raises(ValueError, match=r"one for each row, not \(8, 3\)"):
        lb.laplace(model, X, t, weights=np.ones((N, 3)))


@pytest.mark.parametrize("structure", ["dense Hessian", "kronecker", "last layer"])
def test_a_target_that_is_not_finite_is_refused_with_a_remedy_that_works(structure):
    model, t = network("two outputs")
    t = np.where(np.arange(2 * N).reshape(N, 2) == 3, np.nan, t)
    with pytest.raises(lb.NonFinite, match=r"1 NaN, first at \[1, 1\]") as caught:
        lb.laplace(model, X, t, **options(model, structure))
    told = " ".join(str(caught.value).split()).rpartition("weight 0: ")[2]
    weights = eval(f"dict({told.rstrip('.')})", {"np": np, "t": t})
    assert np.isfinite(lb.laplace(model, X, t, **weights, **options(model, structure)).log_evidence)


def test_that_of_another_model_is_masked_at_its_site():
    def line(x, t):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("t", dist.Normal(w * x, 1), obs=t)

    with pytest.raises(lb.NonFinite, match=r"around the site\s+'t' alone"):
        lb.laplace(line, X[:, 0], np.where(WEIGHTS == 0, np.nan, REAL[:, 0]))


@pytest.mark.parametrize("handler", ["mask", "scale"])
def test_handlers_around_the_whole_are_refused_with_the_way_there_is(handler):
    model, t = network("normal")
    w = jnp.asarray(WEIGHTS + 1.0) if handler == "scale" else jnp.asarray(WEIGHTS > 0)
    with pytest.raises(lb.UnsupportedModel, match="weights="):
        lb.laplace(getattr(handlers, handler)(model, **{handler: w}), X, t)
