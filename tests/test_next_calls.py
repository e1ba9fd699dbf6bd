"""A second call with the same shapes, of other data and with another key, compiles nothing."""

from dataclasses import replace
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from jax import monitoring

import laplacebook as lb
from laplacebook.base.pytrees import own_copy
from laplacebook.curvature.bottlenecks import bottlenecks_of
from laplacebook.gaussian.kronecker import Eigenbasis, KroneckerBlock, KroneckerPrecision
from laplacebook.gaussian.low_rank import LowRankPrecision
from laplacebook.gaussian.precision import DensePrecision
from laplacebook.model.density import ModelDensity
from laplacebook.model.hierarchy import scales_of_effects
from laplacebook.models import bayesian_mlp
from tests.models import coin, logistic

COMPILED = []
KEYS = [jax.random.key(i) for i in range(2)]
WIDTHS = {"widths": (2,)}
START = {
    "w1": np.array([[1.0, -1.5]]),
    "b1": np.array([0.5, 0.3]),
    "w2": np.array([[1.0], [-1.0]]),
    "b2": np.array([0.1]),
}
HYPERPARAMETERS = {"prior_precision": 1.0, "noise_precision": 10.0}


def _note(event, _duration, **about):
    if event == "/jax/core/compile/backend_compile_duration":
        COMPILED.append(about.get("fun_name", "a program"))


monitoring.register_event_duration_secs_listener(_note)


def compiled(call, *args):
    """The programs that a call compiles."""
    before = len(COMPILED)
    jax.block_until_ready(jax.tree.leaves(call(*args)))
    return COMPILED[before:]


def tosses(i):
    return np.array([1.0, 1, 1, 0, 1, 1, i, 1, 0])


def rows(i):
    rng = np.random.default_rng(i)
    features = rng.normal(size=(12, 1))
    return features, np.sin(2 * features[:, 0]) + 0.1 * rng.normal(size=12)


def classes(i):
    features, targets = rows(i)
    return features, (targets > 0).astype(float)


@cache
def one_coin(i):
    return lb.laplace(coin, tosses(i))


@cache
def regression(i):
    return lb.laplace(logistic, *classes(i))


def network(i, **options):
    options = {"curvature": "gauss_newton", "start": START} | options
    return lb.laplace(bayesian_mlp, *rows(i), noise_precision=10.0, **WIDTHS, **options)


@cache
def last_layer(i):
    return network(i, structure="last_layer")


def spreads(y):
    s = numpyro.sample("s", dist.HalfNormal(1).expand([y.size]).to_event(1))
    w = numpyro.sample("w", dist.Normal(0, s).to_event(1))
    numpyro.sample("y", dist.Normal(w, 1).to_event(1), obs=y)


def in_chunks(i):
    return lb.laplace_of_chunks(logistic, lb.Chunks(*classes(i), size=4))


def draws(i):
    return one_coin(i).sample(jax.random.key(7), (50,))


CALLS = {
    "laplace": one_coin.__wrapped__,
    "laplace from a start": lambda i: lb.laplace(coin, tosses(i), start={"theta": 0.4 + i / 10}),
    "laplace from several starts": lambda i: (
        lb.laplace(coin, tosses(i), starts=3, key=KEYS[i]).log_evidence
    ),
    "last layer": last_layer.__wrapped__,
    "low rank": lambda i: network(i, structure="low_rank", rank=2),
    "nearly full rank": lambda i: network(i, structure="low_rank", rank=5),
    "in chunks": in_chunks,
    "maximum likelihood": lambda i: lb.maximum_likelihood(coin, tosses(i)),
    "train": lambda i: lb.train(bayesian_mlp, *rows(i), key=KEYS[i], steps=60, **WIDTHS),
    "diagnose": lambda i: repr(lb.diagnose(one_coin(i), KEYS[i], 200, starts=2)),
    "predict": lambda i: lb.predict(regression(i), rows(i + 2)[0]),
    "predict, linearized": lambda i: lb.predict(last_layer(i), rows(i + 2)[0], **WIDTHS),
    "predict, monte carlo": lambda i: lb.predict(
        regression(i), rows(i + 2)[0], method="monte_carlo", key=KEYS[i], num_samples=50
    ),
    "predict from chunks": lambda i: lb.predict(in_chunks(i), rows(i + 2)[0]),
    "compare": lambda i: repr(lb.compare({"one": one_coin(i), "same": one_coin(i)})),
    "importance sampling": lambda i: repr(lb.importance_sampling(one_coin(i), KEYS[i], 200)),
    "bridge sampling": lambda i: repr(lb.bridge_sampling(one_coin(i), draws(i), KEYS[i])),
    "prior sampling": lambda i: repr(
        lb.prior_sampling(coin, tosses(i), key=KEYS[i], num_samples=200)
    ),
    "quadrature": lambda i: lb.gauss_hermite(one_coin(i)),
    "maximize the evidence": lambda i: repr(
        lb.maximize_evidence(last_layer(i), HYPERPARAMETERS, throw=False)
    ),
    "nested": lambda i: lb.nested(spreads, rows(i)[1][:1]).mean,
    "nested, weighted points": lambda i: lb.nested(spreads, rows(i)[1][:4]).mean,
    "sample": lambda i: one_coin(i).sample(KEYS[i], (3,)),
    "summary": lambda i: repr(one_coin(i).summary()),
    "print": lambda i: repr(one_coin(i)),
    "print a last layer": lambda i: repr(last_layer(i)),
    "print a fit in chunks": lambda i: repr(in_chunks(i)),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_next_call_compiles_nothing(name):
    call = CALLS[name]
    call(0)
    assert not compiled(call, 1)


def test_a_program_that_is_compiled_is_seen():
    assert compiled(jax.jit(lambda x: x + 1), np.zeros(3))


def test_data_of_another_shape_are_taken_over_without_a_program():
    for array in (np.zeros((7, 3)), np.arange(5), np.array(True), np.float32(2)):
        assert not compiled(own_copy, array)


def test_a_fit_with_another_tolerance_and_its_bridge_sampling():
    def call(tolerance):
        approx = network(0, tolerance=tolerance)
        return repr(lb.bridge_sampling(approx, approx.sample(KEYS[0], (50,)), KEYS[1]))

    call(None)
    assert not compiled(call, 1e-3)


def test_the_tolerance_is_the_one_that_was_asked_for():
    """And not that of the fit before, whose program it shares."""
    few, many = (network(0, tolerance=tolerance) for tolerance in (0.9, 1e-10))
    assert 1e-10 < few.certificate.newton_decrement < 0.9
    assert many.certificate.newton_decrement <= 1e-10
    assert few.certificate.iterations < many.certificate.iterations


def test_a_first_sparse_integral_compiles_few_programs():
    """Under ``ensure_compile_time_eval`` each operation of what is traced would be one: 160 there were."""

    def counts(y):
        b = numpyro.sample("b", dist.Normal(0, 3))
        z = numpyro.sample("z", dist.Normal(0, 1).expand([y.size]).to_event(1))
        numpyro.factor("walk", -jnp.sum(jnp.diff(z) ** 2))
        numpyro.sample("y", dist.Poisson(jnp.exp(b + z)).to_event(1), obs=y)

    marginal = lb.marginalize(counts, "z", structure="sparse")
    assert len(compiled(lambda: lb.laplace(marginal, np.arange(83) % 5))) < 50


def test_a_first_fit_of_many_coordinates_in_chunks_compiles_no_newton_steps():
    """NumPy makes the steps between two passes: with a program for each part of a step there were 31."""
    rng = np.random.default_rng(0)
    chunks = lb.Chunks(rng.normal(size=(64, 17)), rng.integers(0, 2, 64), size=16)
    found = compiled(lambda: lb.laplace_of_chunks(logistic, chunks))
    assert len(found) <= 16, found


def test_a_mean_by_tierney_and_kadane_compiles_one_look_and_no_search():
    def of_theta(method):
        return lb.expectation(one_coin(0), lambda sites: sites["theta"], method=method).value

    of_theta("delta")
    assert compiled(of_theta, "tierney_kadane") == ["jit(_look)"]


def test_a_first_training_and_prediction_of_a_network_compile_few_programs():
    """Of zeros, finite numbers and a standard error each operation would be one: 14 and 5 there were."""
    x, y = np.sin(np.arange(21.0)).reshape(7, 3), np.arange(7) % 3
    net = partial(bayesian_mlp, widths=(2,), likelihood="categorical", outputs=3)
    key = jax.random.key(0)
    assert len(compiled(lambda: lb.train(net, x, y, key=key, steps=2))) <= 6
    approx = lb.laplace(net, x, y, curvature="gauss_newton", start=lb.train(net, x, y, key=key))
    how = {"method": "output_monte_carlo", "key": key, "num_samples": 9}
    assert len(compiled(lambda: lb.predict(approx, x, **how))) <= 4


def test_what_is_only_looked_at_is_not_computed():
    """Each operation of a model that is run outside of a program would be one: 60 there were."""

    def effects(y):
        scale = numpyro.sample("scale", dist.HalfNormal(1))
        with numpyro.plate("groups", 59):
            z = numpyro.sample("z", dist.Normal(0, scale))
        numpyro.sample("y", dist.Poisson(jnp.exp(z)).to_event(1), obs=y)

    density = ModelDensity.of(effects, (np.arange(59) % 5,))
    assert not compiled(lambda: density.sites)
    found = []
    assert not compiled(lambda: found.append(scales_of_effects(density)))
    assert found == [{"scale": ["z"]}]


def test_a_sum_in_which_the_log_joint_is_affine_is_no_bottleneck():
    def rates(y, is_bent):
        z = numpyro.sample("z", dist.Normal(0, 1).expand([59]).to_event(1))
        numpyro.factor("sum", z.sum() ** 2 / -9 if is_bent else z.sum() / 9)
        numpyro.sample("y", dist.Poisson(jnp.exp(z)).to_event(1), obs=y)

    y, u, found = np.arange(59) % 5, 0.1 * np.ones(59), []
    straight, bent = (ModelDensity.of(rates, (y, is_bent)) for is_bent in (False, True))
    assert not compiled(lambda: found.append(bottlenecks_of(straight, u)))
    assert found == [()]
    assert len(bottlenecks_of(bent, u)) == 1


def test_a_first_draw_by_kronecker_factors_is_two_programs():
    """One for the coordinates and one for the sites, where each operation was one: 19 there were, for six sites 51."""
    weight = Eigenbasis.of(KroneckerBlock(np.diag([2.0, 3.0]), np.eye(1), 1.0))
    precision = KroneckerPrecision((DensePrecision.of_symmetric(np.eye(1)), weight))
    approx = replace(last_layer(0), precision=precision)
    for shape in ((), (11,)):
        assert len(compiled(approx.sample, KEYS[0], shape)) == 2
        assert not compiled(approx.sample, KEYS[1], shape)


def test_a_low_rank_precision_of_numpys_arrays_is_computed_by_numpy():
    p, values, v = np.array([1.0, 2, 3]), np.array([4.0, 5]), np.ones(3)
    vectors = np.eye(3)[:, 1:] + 0.5
    found = []

    def call():
        a = LowRankPrecision.of(p, vectors, values)
        found.extend([a.solve(v), a.diagonal_of_inverse(), a.diagonal_of_matrix(), a.inverse()])

    assert not compiled(call)
    matrix = np.diag(p) + vectors * values @ vectors.T
    inverse = np.linalg.inv(matrix)
    expected = inverse @ v, inverse.diagonal(), matrix.diagonal(), inverse
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert np.isnan(LowRankPrecision.of(p, vectors, -values).log_determinant())
