"""Data and parameters that repeat each other, (N, 1) beside (N,): refused wherever they meet."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import transforms
from scipy import stats

import laplacebook as lb
from laplacebook.model.density import ModelDensity

Y = np.array([0.3, -0.2, 1.1, 0.7])
N = len(Y)
COLUMN = np.array([[0.5], [1.0], [1.5], [2.0]])


def level():
    return numpyro.sample("m", dist.Normal(0, 1))


def observed(make):
    """A model that observes y from a distribution of a level and of what it is given beside."""

    def model(y, beside):
        numpyro.sample("y", make(level() + jnp.zeros(N), beside), obs=y)

    return model


def mixed(mean, scale):
    ways = dist.Normal(jnp.stack([mean, -mean], -1), scale[..., None])
    return dist.MixtureSameFamily(dist.Categorical(np.array([0.4, 0.6])), ways)


def moved(mean, scale):
    return dist.TransformedDistribution(dist.Normal(mean, 1), transforms.AffineTransform(0, scale))


def grown(mean, scale):
    return dist.TransformedDistribution(dist.Normal(mean, scale), transforms.ExpTransform())


def in_a_plate(y, beside):
    mean = level() + jnp.zeros(N)
    with numpyro.plate("N", N):
        numpyro.sample("y", dist.Normal(mean, beside), obs=y)


def handled(handler):
    def model(y, beside):
        mean = level() + jnp.zeros(N)
        with handler(beside):
            numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    return model


def regressed(x, y):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([1, 1]).to_event(2))
    numpyro.sample("y", dist.MultivariateNormal(x @ w, np.eye(N)), obs=y)


def normal(mean, scale):
    return dist.Normal(mean, scale)


#: how the distribution is made of a level of shape (N,) and something beside, and data that it supports
CROSSED = {
    "a scale": (observed(normal), Y),
    "a scale, in a plate": (in_a_plate, Y),
    "a scale of another": (observed(dist.Logistic), Y),
    "degrees of freedom": (observed(lambda m, b: dist.StudentT(b, m, 1.0)), Y),
    "a shape": (observed(lambda m, b: dist.Gamma(b, jnp.exp(m))), np.exp(Y)),
    "a concentration": (observed(lambda m, b: dist.NegativeBinomial2(jnp.exp(m), b)), np.arange(4)),
    "a total": (observed(lambda m, b: dist.Binomial((4 * b).astype(int), logits=m)), np.ones(4)),
    "a gate": (observed(lambda m, b: dist.ZeroInflatedPoisson(b / 4, jnp.exp(m))), np.arange(4)),
    "a mixture": (observed(mixed), Y),
    "a truncated one, its bound": (observed(lambda m, b: dist.TruncatedNormal(m, 1, low=-b)), Y),
    "a truncated one, both": (
        observed(lambda m, b: dist.TruncatedNormal(m, 1, low=-b, high=2 * b)),
        Y,
    ),
    "a truncated one, its scale": (
        observed(lambda m, b: dist.TruncatedNormal(m, b, low=-3.0)),
        Y,
    ),
    "a transformed one": (observed(grown), np.exp(Y)),
    "a transform": (observed(moved), Y),
    "a log-normal": (observed(dist.LogNormal), np.exp(Y)),
    "to_event": (observed(lambda m, b: dist.Normal(m, b).to_event(1)), Y),
    "two to_event": (observed(lambda m, b: dist.Normal(m, b).to_event(2)), Y),
    "a mask": (observed(lambda m, b: dist.Normal(m, 1).mask(b > 0.7)), Y),
    "a mask of a mask": (
        observed(lambda m, b: dist.Normal(m, 1).mask(m > -9).mask(b > 0.7)),
        Y,
    ),
    "a mask within to_event": (
        observed(lambda m, b: dist.Normal(m, 1).mask(b > 0.7).to_event(2)),
        Y,
    ),
    "handlers.mask": (handled(lambda b: handlers.mask(mask=b > 0.7)), Y),
    "handlers.scale": (handled(lambda b: handlers.scale(scale=b)), Y),
}  # fmt: skip

#: of these the data are in single precision
SINGLE = {"a scale, in a plate", "a total", "a truncated one, both", "a mask", "handlers.scale"}


@pytest.mark.parametrize("name", CROSSED)
def test_crossed(name):
    (model, y), dtype = CROSSED[name], np.float32 if name in SINGLE else float
    with pytest.raises(lb.UnsupportedModel) as caught:
        lb.laplace(model, np.asarray(y, dtype), COLUMN.astype(dtype))
    message = " ".join(str(caught.value).split())
    assert "data of site 'y', of shape (4,)" in message and "repeat each other" in message
    assert "(4, 4)" in message or "(4, 1)" in message
    assert "np.ravel(y)" in message and "numpyro.plate" in message
    with pytest.raises(lb.UnsupportedModel):
        jax.jit(functools.partial(lb.laplace, model))(y, COLUMN)


MATRICES = {"two to_event", "a mask within to_event"}  # of a vector these are none


@pytest.mark.parametrize("name", sorted(CROSSED.keys() - MATRICES))
def test_a_vector_in_its_place(name):
    """It is taken by what refuses a column, before anything is computed."""
    model, y = CROSSED[name]
    assert ModelDensity.of(model, (y, COLUMN[:, 0])).sites
    with pytest.raises(lb.UnsupportedModel):
        assert ModelDensity.of(model, (y, COLUMN)).sites
    if name in SINGLE:
        assert lb.laplace(model, y, COLUMN[:, 0]).certificate.converged


BESIDE = {
    "mask": ("its mask, of shape (4, 4)", CROSSED["handlers.mask"][0]),
    "scale": ("its scale, of shape (4, 1)", CROSSED["handlers.scale"][0]),
    "distribution": ("its distribution, of shape (4, 4)", CROSSED["a scale"][0]),
}


@pytest.mark.parametrize(("words", "model"), BESIDE.values(), ids=BESIDE)
def test_what_is_to_blame(words, model):
    with pytest.raises(lb.UnsupportedModel) as caught:
        lb.laplace(model, Y, COLUMN)
    assert words in " ".join(str(caught.value).split())


def test_a_column_of_means_of_one_event():
    with pytest.raises(lb.UnsupportedModel, match="repeat each other"):
        lb.laplace(regressed, COLUMN, Y)


def log_normal(y, mean, scale=1.0):
    return dist.Normal(mean, scale).log_prob(y)


def factor_of(term):
    def model(y, beside):
        numpyro.factor("f", term(y, level() + jnp.zeros(N), beside))

    return model


def product(y, x):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([1, 1]).to_event(2))
    numpyro.factor("f", log_normal(y, x @ w).sum())


def squares(y, x):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([1, 1]).to_event(2))
    numpyro.factor("f", -jnp.sum((y - x @ w) ** 2) / 2)


def latent_column(y, x):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([N, 1]).to_event(2))
    numpyro.factor("f", log_normal(y, w).sum())


FACTORS = {
    "pairs": factor_of(lambda y, m, b: log_normal(y, m, b)),
    "their sum": factor_of(lambda y, m, b: log_normal(y, m, b).sum()),
    "their mean": factor_of(lambda y, m, b: N * log_normal(y, m, b).mean()),
    "of another distribution": factor_of(lambda y, m, b: dist.Laplace(m, b).log_prob(y).sum()),
    "logits": factor_of(lambda y, m, b: dist.Bernoulli(logits=m * b).log_prob(1.0 * (y > 0)).sum()),
    "rates": factor_of(lambda y, m, b: dist.Poisson(jnp.exp(m + b)).log_prob(jnp.ones(N)).sum()),
    "weights": factor_of(lambda y, m, b: (b * log_normal(y, m)).sum()),
    "chosen": factor_of(lambda y, m, b: jnp.where(b > 0.7, log_normal(y, m), 0.0).sum()),
    "by hand": factor_of(lambda y, m, b: -jnp.sum((y - m) ** 2 / b) / 2),
    "a product of matrices": product,
    "squares of a product": squares,
    "a latent column": latent_column,
}


@pytest.mark.parametrize("model", FACTORS.values(), ids=FACTORS)
def test_crossed_in_a_factor(model):
    with pytest.raises(lb.UnsupportedModel) as caught:
        lb.laplace(model, Y, COLUMN)
    message = " ".join(str(caught.value).split())
    assert "factor 'f'" in message and "(4, 1)" in message and "(4,)" in message
    assert "np.ravel(y)" in message


def density(m, y, beside):
    return log_normal(y, m * jnp.ones(N), beside).sum() - m**2 / 2


SEAMS = {
    "maximum_likelihood": lambda b: lb.maximum_likelihood(in_a_plate, Y, b),
    "prior_sampling": lambda b: lb.prior_sampling(in_a_plate, Y, b, key=jax.random.key(0)),
    "train": lambda b: lb.train(in_a_plate, Y, b, key=jax.random.key(0), steps=20),
    "a density": lambda b: lb.laplace_of_density(density, 0.0, Y, b),
}


@pytest.mark.parametrize("call", SEAMS.values(), ids=SEAMS)
def test_seams(call):
    call(COLUMN[:, 0])
    with pytest.raises(lb.UnsupportedModel, match="many\\s+times"):
        call(COLUMN)


def chunked(y, beside):
    mean = level()
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(mean + jnp.zeros(len(y)), beside), obs=y)


def test_chunks():
    lb.laplace_of_chunks(chunked, lb.Chunks(Y, COLUMN[:, 0], size=2))
    with pytest.raises(lb.UnsupportedModel, match="repeat\\s+each"):
        lb.laplace_of_chunks(chunked, lb.Chunks(Y, COLUMN, size=2))


def test_a_file(tmp_path):
    lb.laplace(in_a_plate, Y, COLUMN[:, 0]).save(tmp_path / "fit.npz")
    with pytest.raises(lb.UnsupportedModel, match="repeat each"):
        lb.load(tmp_path / "fit.npz", in_a_plate, Y, COLUMN)


def exact(y, precisions):
    """log p(y) of y ~ N(m, 1 / precision) with m ~ N(0, 1)."""
    covariance = np.ones((y.size, y.size)) + np.diag(1 / np.ravel(precisions))
    return stats.multivariate_normal(np.zeros(y.size), covariance).logpdf(np.ravel(y))


def two_columns(y, scale):
    numpyro.sample("y", dist.Normal(level() + jnp.zeros((N, 1)), scale), obs=y)


def both_plates(y, scale):
    mean = level() + jnp.zeros((N, 1))
    with numpyro.plate("rows", N, dim=-2), numpyro.plate("columns", 3, dim=-1):
        numpyro.sample("y", dist.Normal(mean, scale), obs=y)


def one_scale_each(y, scale):
    numpyro.sample("y", dist.Normal(level() + jnp.zeros((N, 3)), scale), obs=y)


def weighted(y, scale):
    mean = level()
    with handlers.scale(scale=scale[:, 0] ** -2), numpyro.plate("N", N):
        numpyro.sample("y", dist.Normal(mean, 1), obs=y)


def masked_by_row(y, scale):
    seen = jnp.broadcast_to(scale > 0.7, (N, 3))
    numpyro.sample("y", dist.Normal(level(), 1).mask(seen).expand([N, 3]).to_event(2), obs=y)


def kernel(y, x):
    """A Gaussian process of noisy values; x is a vector, or a column."""
    distances = x[:, None] - x[None, :] if x.ndim == 1 else x - x.T
    covariance = jnp.exp(-(distances**2) / 2) + jnp.eye(N)
    numpyro.sample("y", dist.MultivariateNormal(level() * jnp.ones(N), covariance), obs=y)


def neighbours(y, x):
    """Squares of the differences of a latent field, in a factor of shape (N, N)."""
    f = numpyro.sample("f", dist.Normal(0, 1).expand([N]).to_event(1))
    numpyro.factor("smooth", -0.5 * (x + x.T) * (f[:, None] - f[None, :]) ** 2)
    numpyro.sample("y", dist.Normal(f, 1), obs=y)


def features(y, x):
    """Radial features of a column about as many centres, and a product with weights."""
    w = numpyro.sample("w", dist.Normal(0, 1).expand([N]).to_event(1))
    design = jnp.exp(-((x - np.arange(4.0)) ** 2))
    numpyro.factor("f", log_normal(y, design @ w).sum())


def of_one(y, x):
    numpyro.factor("f", log_normal(y, level(), 1.0))


def by_pairs(y, x):
    """A factor with a kernel of all pairs that the model itself makes."""
    v = x[:, 0]
    numpyro.factor("f", -(level() ** 2) * jnp.sum((v[:, None] - v) ** 2))


WIDE = np.column_stack([Y, Y + 1, Y - 1])
SCALES = np.broadcast_to(COLUMN, (N, 3))
LEGITIMATE = {
    "two columns": (two_columns, Y[:, None], COLUMN, exact(Y, COLUMN**-2)),
    "a scale for each row": (one_scale_each, WIDE, COLUMN, exact(WIDE, SCALES**-2)),
    "a scale for each column": (one_scale_each, WIDE, np.ones(3), exact(WIDE, np.ones((N, 3)))),
    "two plates": (both_plates, WIDE, COLUMN, exact(WIDE, SCALES**-2)),
    "one datum for all of a plate": (both_plates, WIDE[:1], 1.0, exact(np.repeat(WIDE[:1], N, 0), np.ones((N, 3)))),
    "a mask": (masked_by_row, WIDE, COLUMN, exact(WIDE[1:], np.ones((3, 3)))),
}  # fmt: skip


@pytest.mark.parametrize(("model", "y", "beside", "answer"), LEGITIMATE.values(), ids=LEGITIMATE)
def test_legitimate(model, y, beside, answer):
    np.testing.assert_allclose(lb.laplace(model, y, beside).log_evidence, answer, rtol=1e-9)


def gaussian_process(x):
    covariance = np.exp(-((x[:, None] - x) ** 2) / 2) + np.eye(N) + 1
    return stats.multivariate_normal(np.zeros(N), covariance).logpdf(Y)


@pytest.mark.parametrize("x", [COLUMN, COLUMN[:, 0]], ids=["column", "vector"])
def test_a_kernel_of_all_pairs(x):
    fit = lb.laplace(kernel, Y, x)
    np.testing.assert_allclose(fit.log_evidence, gaussian_process(COLUMN[:, 0]), rtol=1e-9)


def test_a_matrix_of_a_factor():
    """The log evidence by the determinant of the sum of all precisions."""
    weights = COLUMN + COLUMN.T
    precision = 2 * (np.diag(weights.sum(1)) - weights) + np.eye(N) * 2
    mode = np.linalg.solve(precision, Y)
    prior = dist.Normal(0, 1).log_prob(np.zeros(N)).sum() * 2
    answer = prior - Y @ Y / 2 + Y @ mode / 2 + N / 2 * np.log(2 * np.pi)
    answer -= np.linalg.slogdet(precision)[1] / 2
    np.testing.assert_allclose(lb.laplace(neighbours, Y, COLUMN).log_evidence, answer, rtol=1e-9)


def test_features_of_a_column():
    design = np.exp(-((COLUMN - np.arange(4.0)) ** 2))
    covariance = design @ design.T + np.eye(N)
    answer = dist.MultivariateNormal(np.zeros(N), covariance).log_prob(Y)
    np.testing.assert_allclose(lb.laplace(features, Y, COLUMN).log_evidence, answer, rtol=1e-9)


def test_weights_of_a_plate():
    fit = lb.laplace(weighted, Y, COLUMN)
    precision = 1 + (COLUMN**-2).sum()
    np.testing.assert_allclose(fit.mode["m"], (COLUMN[:, 0] ** -2 @ Y) / precision, rtol=1e-9)
    np.testing.assert_allclose(fit.covariance, [[1 / precision]], rtol=1e-9)


def test_pairs_that_the_model_makes():
    fit = lb.laplace(by_pairs, Y, COLUMN)
    pairs = ((COLUMN - COLUMN.T) ** 2).sum()
    np.testing.assert_allclose(fit.log_evidence, -np.log(1 + 2 * pairs) / 2, rtol=1e-9)


def test_a_factor_of_one_column():
    fit = lb.laplace(of_one, Y[:, None], COLUMN)
    np.testing.assert_allclose(fit.log_evidence, exact(Y, np.ones(N)), rtol=1e-9)
