"""Searches for the modes of networks: by which metric they step, and why they fail."""

import re
from contextlib import nullcontext
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.linalg import eigh

import laplacebook as lb
from laplacebook.curvature import precision_at
from laplacebook.curvature.settings import Settings
from laplacebook.gaussian.kronecker import KroneckerPrecision
from laplacebook.gaussian.precision import DensePrecision, DiagonalPrecision
from laplacebook.model.density import ModelDensity
from laplacebook.model.not_finite import print_point
from laplacebook.model.sites import Site
from laplacebook.models import bayesian_mlp
from laplacebook.search import curvatures, driven_rounds, rounds, search
from laplacebook.search.certificate import Certificate
from laplacebook.search.no_mode_gauss_newton import explain_shortfall
from tests.models import single_precision
from tests.test_next_calls import COMPILED, compiled

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(80, 6))
LABELS = np.argmax(X @ RNG.normal(size=(6, 3)) + RNG.gumbel(size=(80, 3)) / 3, 1)


def bilinear(x, y):
    """A matrix that is the weight of no layer."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([6, 6]).to_event(2))
    numpyro.sample("y", dist.Normal(jnp.sum((x @ (w + w**3)) * x, 1), 1).to_event(1), obs=y)


NETWORK = partial(bayesian_mlp, widths=(5,), likelihood="categorical", outputs=3)


@pytest.mark.parametrize(
    ("model", "y", "metric"),
    [(NETWORK, LABELS, KroneckerPrecision), (bilinear, LABELS / 2, type(None))],
    ids=["layers", "no layers"],
)
def test_a_diagonal_fit_steps_in_the_metric_of_kronecker_factors(model, y, metric, monkeypatch):
    """In that of its own diagonal a network of digits does not arrive in single precision."""
    start = lb.train(model, X, y, key=jax.random.key(0), steps=100)
    monkeypatch.setattr(precision_at, "FEW", 0)
    metrics, one_round = [], driven_rounds.round_from
    monkeypatch.setattr(
        driven_rounds,
        "round_from",
        lambda *args: metrics.append(type(args[-1])) or one_round(*args),
    )
    before = len(COMPILED)
    fit = lb.laplace(model, X, y, start=start, curvature="gauss_newton", structure="diagonal")
    assert fit.certificate.converged
    assert isinstance(fit.precision, DiagonalPrecision)
    names = COMPILED[before:]
    assert not [name for name in names if "slope" in name]  # training has looked
    assert len([name for name in names if "entries" in name]) == 1  # of both
    assert set(metrics) == {metric}


def test_a_costly_dense_fit_looks_at_its_precision_where_the_rounds_by_kronecker_factors_end(
    monkeypatch,
):
    """A look at the matrix of thousands of weights takes seconds, and a step by its factor ten gradients."""
    start = lb.train(NETWORK, X, LABELS, key=jax.random.key(0), steps=100)
    looks, one_look = [], curvatures.precision_seen
    monkeypatch.setattr(precision_at, "COSTLY", 1)
    monkeypatch.setattr(
        curvatures, "precision_seen", lambda *args: looks.append(one_look(*args)) or looks[-1]
    )
    fit = lb.laplace(NETWORK, X, LABELS, start=start, curvature="gauss_newton")
    assert fit.certificate.converged
    assert fit.certificate.iterations > 10
    assert isinstance(fit.precision, DensePrecision)
    assert sum(isinstance(look, KroneckerPrecision) for look in looks) > 1
    assert sum(isinstance(look, DensePrecision) for look in looks) == 1


@pytest.mark.parametrize(
    ("model", "y", "structures"),
    [(NETWORK, LABELS, {"kronecker"}), (bilinear, LABELS / 2, {"kronecker", "diagonal"})],
    ids=["layers", "no layers"],
)
def test_before_a_low_rank_of_many_weights_layers_need_no_other_curvature(
    model, y, structures, monkeypatch
):
    start = lb.train(model, X, y, key=jax.random.key(0), steps=100)
    looks, one_look = [], curvatures.precision_seen
    monkeypatch.setattr("laplacebook.fit.laplace.MANY", 0)
    monkeypatch.setattr(precision_at, "FEW", 0)
    monkeypatch.setattr(
        curvatures,
        "precision_seen",
        lambda *args: looks.append(args[-1].structure) or one_look(*args),
    )
    options = {"curvature": "gauss_newton", "structure": "low_rank", "rank": 2}
    fit = lb.laplace(model, X, y, start=start, **options)
    assert fit.certificate.converged
    assert fit.precision.shape == (fit.mode_vector.size,)
    assert set(looks) == structures


RIDGE = RNG.normal(size=(200, 2))
SINE = np.sin(RIDGE[:, 0]) + RNG.normal(size=200) / 10
MORE_UNITS = partial(bayesian_mlp, widths=(8,), noise_precision=100.0)


@pytest.fixture(scope="module")
def on_ridge():
    """Weights after training of a network with more units than a sine needs: sds from the mode, along a ridge."""
    return lb.train(MORE_UNITS, RIDGE, SINE, key=jax.random.key(2), steps=3000)


def fit_to_sine(structure, start, **options):
    return lb.laplace(
        MORE_UNITS,
        RIDGE,
        SINE,
        start=start,
        curvature="gauss_newton",
        structure=structure,
        **options,
    )


def off_by(fit, whole):
    """Standard deviations by the whole matrix."""
    moved = whole.mode_vector - fit.mode_vector
    return np.sqrt(moved @ whole.precision.matvec(moved))


@pytest.mark.parametrize(
    ("structure", "few"),
    [
        *((structure, precision_at.FEW) for structure in ("kronecker", "block", "diagonal")),
        ("block", 0),  # a search by the part comes first
    ],
)
def test_a_part_of_the_curvature_finds_the_mode_along_a_ridge(
    structure, few, on_ridge, monkeypatch
):
    """By the part alone the search stood three sds from the mode, and was refused."""
    monkeypatch.setattr(precision_at, "FEW", few)
    fit = fit_to_sine(structure, on_ridge)
    assert off_by(fit, fit_to_sine("dense", fit.mode)) < 1e-6


@pytest.mark.parametrize("patience", [search.PATIENCE, -1], ids=["driven", "compiled"])
def test_a_start_on_a_ridge_that_a_part_takes_for_the_mode_is_none(patience, on_ridge, monkeypatch):
    """The decrement there is .02 by the diagonal, and .16 by the whole."""
    monkeypatch.setattr(search, "PATIENCE", patience)
    whole = fit_to_sine("dense", on_ridge)
    part = fit_to_sine("diagonal", whole.mode)
    values, ways = eigh(whole.precision.matrix, np.diag(part.precision.diagonal_of_matrix()))
    way = ways[:, 0] / np.sqrt(values[0])
    start = whole.density.values(whole.mode_vector + 0.05 * way)
    fit = fit_to_sine("diagonal", start, tolerance=0.05)
    assert fit.certificate.iterations > 0
    assert off_by(fit, whole) < 0.04


@pytest.mark.parametrize("bits", [32, 64])
def test_rounding_is_not_small_where_the_log_joint_is(bits):
    """A log joint near 0 is a difference of sums of hundreds, whose rounding the line search took for a rise."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(300, 2))
    y = np.sin(2 * x[:, 0]) * x[:, 1] + 0.2 * rng.normal(size=300)
    model = partial(bayesian_mlp, widths=(12,), noise_precision=25.0)
    with single_precision() if bits == 32 else nullcontext():
        start = lb.train(model, x, y, key=jax.random.key(2), steps=2000)
        fit = lb.laplace(model, x, y, start=start, curvature="gauss_newton")
    assert fit.certificate.converged
    assert abs(fit.log_likelihood + fit.log_prior) < 30


def test_a_search_along_a_ridge_is_waited_for():
    """For twenty rounds the decrement stays near one, and then it falls to nothing in two."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(546, 3))
    f = np.sin(2 * x @ rng.normal(size=3)) + 0.3 * x @ rng.normal(size=3)
    y = f + rng.normal(size=546) / 2.1**0.5
    model = partial(bayesian_mlp, widths=(50,), noise_precision=2.1, prior_precision=0.15)
    start = lb.train(model, x, y, key=jax.random.key(1), steps=2000)
    fit = lb.laplace(model, x, y, start=start, curvature="gauss_newton")
    assert fit.certificate.iterations > rounds.STEPS * rounds.EARLY


def test_digits_in_single_precision_arrive_in_six_rounds(monkeypatch):
    """In the metric of a diagonal they took ten; and more pixels and hidden units were refused."""
    images, labels = lb.datasets.digits()
    model = partial(
        bayesian_mlp, widths=(16,), likelihood="categorical", outputs=10, prior_precision=0.03
    )
    data = np.float32(images[:600] / 16), labels[:600]
    monkeypatch.setattr(rounds, "ROUNDS", 6)
    with single_precision():
        start = lb.train(model, *data, key=jax.random.key(0), steps=1000)
        approx = lb.laplace(
            model, *data, start=start, curvature="gauss_newton", structure="diagonal"
        )
    assert approx.certificate.converged


def test_a_search_that_is_too_slow_ends_early_and_says_at_which_pace(monkeypatch):
    """With one step of L-BFGS a round the log joint goes on to rise, and the mode does not come nearer in time."""
    monkeypatch.setattr(rounds, "STEPS", 1)
    for bound in ("FEW", "MANY"):
        monkeypatch.setattr(precision_at, bound, 0)
    model = partial(NETWORK, prior_precision=1e-4)
    start = lb.train(model, X, LABELS, key=jax.random.key(0), steps=100)
    with pytest.raises(lb.NotConverged) as refused:
        lb.laplace(model, X, LABELS, start=start, curvature="gauss_newton", structure="diagonal")
    told = " ".join(str(refused.value).split())
    steps = re.search(r"No mode after (\d+) iterations", told)
    assert rounds.EARLY <= int(steps[1]) < rounds.ROUNDS / 2
    pace = re.search(
        r"by its curvature \(float64\); it is to be within 1e-08\. It began at (\S+): at that "
        r"pace (\S+) more iterations would do\.",
        told,
    )
    assert float(pace[2]) > rounds.ROUNDS
    assert "a tighter prior" in told
    assert "enable_x64" not in told


def test_a_search_that_goes_on_by_the_whole_matrix_tells_no_pace(monkeypatch):
    """Along a ridge the distance stays as it is, and then falls to nothing in two rounds."""
    monkeypatch.setattr(rounds, "STEPS", 1)
    monkeypatch.setattr(rounds, "ROUNDS", 2)
    start = lb.train(NETWORK, X, LABELS, key=jax.random.key(0), steps=100)
    with pytest.raises(lb.NotConverged) as refused:
        lb.laplace(NETWORK, X, LABELS, start=start, curvature="gauss_newton")
    told = " ".join(str(refused.value).split())
    assert re.search(r"It began at [\d.e-]+\. Likely", told)


def wide(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([400, 400]).to_event(2))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(x @ w, 1).to_event(1), obs=y)


def test_a_failure_of_kronecker_factors_is_explained_without_a_block_of_many_weights():
    """A block of the site would take 190 GiB."""
    density = ModelDensity.of(wide, (np.ones((3, 400)), np.ones((3, 400))))
    u = jnp.linspace(-0.1, 0.1, density.dimension)
    certificate = Certificate(False, np.inf, 0, np.inf)
    error = explain_shortfall(density, u, certificate, False, Settings("gauss_newton", "kronecker"))
    assert isinstance(error, lb.NotPositiveDefinite)


def test_a_refusal_takes_the_programs_of_the_search(monkeypatch):
    """With hundreds of its own, that of a million weights took longer to explain than to search for."""
    monkeypatch.setattr(rounds, "ROUNDS", 1)
    monkeypatch.setattr(rounds, "STEPS", 1)
    model = partial(NETWORK, prior_precision=4.0)
    start = lb.train(model, X, LABELS, key=jax.random.key(0), steps=1)
    options = {"start": start, "curvature": "gauss_newton", "structure": "kronecker"}
    lb.laplace(model, X, LABELS, throw=False, **options)

    def refused():
        with pytest.raises(lb.NotConverged, match="No mode after"):
            lb.laplace(model, X, LABELS, **options)

    assert len(compiled(refused)) <= 3  # to read the coordinates that are printed


def test_a_point_is_named_by_a_few_of_its_coordinates():
    """All names of so many weights would not fit into memory."""
    assert Site("w", (10**6, 10**6), ()).coordinate_names(2) == ["w[0, 0]", "w[0, 1]"]
    density = ModelDensity.of(NETWORK, (X, LABELS))
    told = print_point(density, jnp.arange(float(density.dimension)))
    assert told == "w1[0, 0] = 0, w1[0, 1] = 1, w1[0, 2] = 2, w1[0, 3] = 3, ... (unconstrained)"
