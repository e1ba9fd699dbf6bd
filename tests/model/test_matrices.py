"""A matrix of which half would go unread is refused: not symmetric, or a factor that is not lower."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import laplacebook as lb

COVARIANCE = np.array([[2.0, 0.6, 0.2], [0.6, 1.5, 0.1], [0.2, 0.1, 1.0]])
LOWER = np.linalg.cholesky(COVARIANCE)
HALF = np.triu(COVARIANCE)
Y = np.array([0.5, 1.0, -0.3])


def likelihood(distribution):
    def model(matrix):
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", distribution(w * jnp.ones(3), matrix), obs=Y)

    return model


def prior(distribution):
    def model(matrix):
        w = numpyro.sample("w", distribution(jnp.zeros(3), matrix))
        numpyro.sample("y", dist.Normal(w, 1.0).to_event(1), obs=Y)

    return model


def normal(name):
    return lambda mean, matrix: dist.MultivariateNormal(mean, **{name: matrix}, validate_args=False)


def student(mean, matrix):
    return dist.MultivariateStudentT(4.0, mean, matrix, validate_args=False)


def mixture(mean, matrix):
    parts = dist.MultivariateNormal(jnp.stack([mean, mean + 1]), matrix, validate_args=False)
    return dist.MixtureSameFamily(dist.Categorical(probs=jnp.array([0.3, 0.7])), parts)


def matrix_normal(mean, matrix):
    both = matrix, jnp.eye(1)
    return dist.MatrixNormal(mean[:, None], *both, validate_args=False).mask(True)


def table(mean, matrix):
    return numpyro.sample("table", matrix_normal(mean, matrix), obs=Y[:, None])


#: what is wrong, the model of it, the wrong matrix, the right one, what the message says
WRONG = {
    "half a covariance": (normal("covariance_matrix"), HALF, COVARIANCE, "(0, 1) is 0.6"),
    "a factor as covariance": (normal("covariance_matrix"), LOWER, COVARIANCE, "is not symmetric"),
    "half a precision": (normal("precision_matrix"), HALF, COVARIANCE, "The precision_matrix of"),
    "a factor as precision": (normal("precision_matrix"), LOWER, COVARIANCE, "is not symmetric"),
    "an upper factor": (normal("scale_tril"), LOWER.T, LOWER, "not lower triangular"),
    "a covariance as factor": (normal("scale_tril"), COVARIANCE, LOWER, "not lower triangular"),
    "an upper factor of a Student-t": (student, LOWER.T, LOWER, "MultivariateStudentT"),
    "half a covariance in a mixture": (mixture, HALF, COVARIANCE, "is not symmetric"),
}


@pytest.mark.parametrize(
    ("name", "where", "dtype"),
    [
        *((name, likelihood, float) for name in WRONG),
        ("half a covariance", prior, np.float32),
        ("an upper factor", prior, np.float32),
    ],
)
def test_it_is_refused_and_the_right_one_is_not(name, where, dtype):
    distribution, wrong, right, says = WRONG[name]
    model = where(distribution)
    with pytest.raises(lb.NonFinite) as caught:
        lb.laplace(model, wrong.astype(dtype))
    message = " ".join(str(caught.value).split())
    assert says in message and "scale_tril=L" in message
    assert lb.laplace(model, right.astype(dtype)).certificate.converged


def test_a_narrow_matrix_in_the_model_itself_is_seen_too():
    model = likelihood(lambda mean, _: normal("covariance_matrix")(mean, HALF.astype(np.float32)))
    with pytest.raises(lb.NonFinite, match="is not symmetric"):
        lb.laplace(model, None)


def test_in_a_compiled_program_there_is_no_answer():
    model = likelihood(normal("covariance_matrix"))
    approx = jax.jit(lambda matrix: lb.laplace(model, matrix))(HALF)
    assert not approx.certificate.converged and np.isnan(approx.log_evidence)


def rows(matrices):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("N", 2):
        numpyro.sample("y", normal("covariance_matrix")(w * jnp.ones(3), matrices), obs=ROWS)


ROWS = np.stack([Y, Y + 1])


def test_one_of_many_is_named():
    with pytest.raises(lb.NonFinite, match=r"entry \(0, 1\) is 0.6, and \(1, 0\) is 0"):
        lb.laplace(rows, np.stack([COVARIANCE, HALF]))
    assert lb.laplace(rows, np.stack([COVARIANCE, COVARIANCE])).certificate.converged


def test_factors_of_rows_and_of_columns():
    def model(matrix):
        w = numpyro.sample("w", dist.Normal(0, 1))
        table(w * jnp.ones(3), matrix)

    with pytest.raises(lb.NonFinite, match="scale_tril_row"):
        lb.laplace(model, LOWER.T)
    assert lb.laplace(model, LOWER).certificate.converged


def asymmetric(apart):
    return COVARIANCE + apart * np.sqrt(2 * 1.5) * np.eye(3)[[0]].T * np.eye(3)[1]


def test_what_rounding_leaves_passes_and_no_more():
    """Within the cube root of the precision, of what the two variances allow."""
    model, edge = likelihood(normal("covariance_matrix")), np.finfo(float).eps ** (1 / 3)
    assert lb.laplace(model, asymmetric(0.9 * edge)).certificate.converged
    with pytest.raises(lb.NonFinite, match="is not symmetric"):
        lb.laplace(model, asymmetric(1.1 * edge))


def test_so_of_a_factor():
    model, edge = likelihood(normal("scale_tril")), np.finfo(float).eps ** (1 / 3)
    above = LOWER.max() * np.triu(np.ones((3, 3)), 1)
    assert lb.laplace(model, LOWER + 0.9 * edge * above).certificate.converged
    with pytest.raises(lb.NonFinite, match="not lower triangular"):
        lb.laplace(model, LOWER + 1.1 * edge * above)


def test_an_ill_conditioned_inverse_is_no_false_alarm():
    x = np.linspace(0, 1, 40)
    kernel = np.exp(-((x[:, None] - x) ** 2) / 0.1) + 1e-6 * np.eye(40)
    inverse = np.linalg.inv(kernel)
    assert abs(inverse - inverse.T).max() > 0

    def model():
        w = numpyro.sample("w", dist.Normal(0, 1))
        numpyro.sample("y", normal("precision_matrix")(w * jnp.ones(40), inverse), obs=np.sin(x))

    assert lb.laplace(model).certificate.converged


def test_a_covariance_without_a_factor_is_blamed_on_the_density():
    with pytest.raises(lb.NonFinite, match="The log density of site 'y' is nan"):
        lb.laplace(likelihood(normal("covariance_matrix")), COVARIANCE - 3 * np.eye(3))
