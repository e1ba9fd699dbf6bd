"""Predictions of a mixture of networks: each component linearised at its own mode, and no draws of weights."""

import jax
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

import laplacebook as lb
from laplacebook.models import bayesian_mlp

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 1))
Y = np.sin(2 * X[:, 0]) + 0.2 * RNG.normal(size=40)
NEW = np.linspace(-1.5, 1.5, 3)[:, None]
NETWORK = {"widths": (4,), "prior_precision": 1.0, "noise_precision": 25.0}
CLASSES = {"widths": (2,), "prior_precision": 0.5, "likelihood": "bernoulli"}


def ensemble(y, **options):
    (width,) = options["widths"]
    shapes = {"w1": (1, width), "b1": (width,), "w2": (width, 1), "b2": (1,)}
    fits = []
    for seed in (0, 2):
        rng = np.random.default_rng(seed)
        start = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        options |= {"start": start, "curvature": "gauss_newton"}
        fits.append(lb.laplace(bayesian_mlp, X, y, **options))
    return lb.mixture(fits)


@pytest.fixture(scope="module")
def of_numbers():
    return ensemble(Y, **NETWORK)


def test_moments_are_those_of_the_mixture_of_normals(of_numbers):
    shares, each = of_numbers.shares, [lb.predict(q, NEW, **NETWORK) for q in of_numbers.components]
    assert len(shares) == 2 and np.max(np.abs(each[0].mean - each[1].mean)) > 1e-3
    found = lb.predict(of_numbers, NEW, **NETWORK)
    for i in range(3):
        normals = [norm(float(p.mean[i]), float(p.standard_deviation[i])) for p in each]

        def moment(power, centre, normals=normals):
            def density(x):
                return sum(w * n.pdf(x) for w, n in zip(shares, normals, strict=True))

            return quad(lambda x: (x - centre) ** power * density(x), -12, 12, points=[-1, 0, 1])[0]

        assert found.mean[i] == pytest.approx(moment(1, 0.0), abs=1e-7)
        assert found.variance[i] == pytest.approx(moment(2, float(found.mean[i])), rel=1e-6)
    np.testing.assert_allclose(found.noise, 1 / 25)


def test_draws_of_its_weights_are_doubted(of_numbers):
    """At them the networks, which are not linear, are no fits to the data."""
    how = {"method": "monte_carlo", "key": jax.random.key(0), **NETWORK}
    with pytest.warns(lb.DoubtfulFit, match="linearised at the mode, over which the other methods"):
        drawn = lb.predict(of_numbers, NEW, **how)
    assert np.all(drawn.epistemic > 5 * lb.predict(of_numbers, NEW, **NETWORK).epistemic)
    with pytest.warns(lb.DoubtfulFit, match="64 draws from it are worth 1 "):
        lb.predict(of_numbers.components[0], NEW, **how)


def test_draws_of_a_model_that_is_its_linearisation_are_not_doubted():
    """Gauss-Newton curvature of a linear predictor is the Hessian."""
    line = {"widths": (), "prior_precision": 1.0, "noise_precision": 25.0}
    q = lb.laplace(bayesian_mlp, X, Y, curvature="gauss_newton", **line)
    drawn = lb.predict(q, NEW, method="monte_carlo", key=jax.random.key(0), **line)
    np.testing.assert_allclose(drawn.mean, lb.predict(q, NEW, **line).mean, atol=0.02)


def test_probabilities_and_their_spread():
    q = ensemble((Y > 0).astype(int), **CLASSES)
    found, one = (
        lb.predict(q, NEW, **CLASSES),
        [lb.predict(c, NEW, **CLASSES) for c in q.components],
    )
    np.testing.assert_allclose(found, q.shares @ np.array(one), rtol=1e-12)
    how = {"method": "output_monte_carlo", "key": jax.random.key(0), "num_samples": 4000, **CLASSES}
    drawn = lb.predict(q, NEW, **how)
    assert np.all(np.abs(drawn.value - found) < 5 * drawn.standard_error)
    spread = lb.predict(q, NEW, with_spread=True, **how)
    assert np.all(np.abs(spread.mean - found) < 5 * spread.standard_error)
    np.testing.assert_allclose(spread.variance, spread.mean * (1 - spread.mean), atol=2e-3)


def test_of_hessians_draws_are_the_default_and_the_rest_is_asked_for():
    """Two modes of a sign, whose predictions by plug-in are the logistic function at each."""

    def signs(x, y=None):
        w = numpyro.sample("w", dist.Normal(0, 2))
        with numpyro.plate("rows", len(x)):
            numpyro.sample("y", dist.Bernoulli(logits=w**2 * x), obs=y)

    x = np.array([-1.0, 0.5, 2.0, 1.0])
    q = lb.mixture(
        [lb.laplace(signs, x, np.array([0, 1, 1, 1]), start={"w": w}) for w in (-1.0, 1.0)]
    )
    known = lb.predict(q, x, method="plug_in")
    np.testing.assert_allclose(known, expit(float(q.components[0].mode["w"]) ** 2 * x), rtol=1e-6)
    compiled = jax.jit(lambda x: lb.predict(q, x, method="plug_in"))(x)
    np.testing.assert_allclose(compiled, known, rtol=1e-12)
    with pytest.raises(ValueError, match="needs a random key"):
        lb.predict(q, x)
