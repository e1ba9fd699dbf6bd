"""What the Gaussian toolbox refuses, in words; compiled, it gives NaN."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import laplacebook as lb
from laplacebook.gaussian.normal import (
    condition,
    expected_quadratic_form,
    kl_divergence,
    linear_gaussian,
    marginal,
)

SKEW = np.array([[2.0, 1.0], [0.0, 2.0]])
INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])
FLAT = np.array([[1.0, 1.0], [1.0, 1.0 + 4e-16]])
GOOD, THREE = (dist.MultivariateNormal(np.zeros(d), scale_tril=np.eye(d)) for d in (2, 3))


def unchecked(loc=0.0, **matrix):
    return dist.MultivariateNormal(loc, **matrix, validate_args=False)


MATRICES = {
    "asymmetric covariance": (
        {"covariance_matrix": SKEW},
        r"covariance_matrix of `.*` is not symmetric: element \[0, 1\] is 1, and \[1, 0\] is 0",
    ),
    "asymmetric precision": ({"precision_matrix": SKEW}, "precision_matrix of `.*` is not symm"),
    "indefinite covariance": ({"covariance_matrix": INDEFINITE}, "not positive definite"),
    "indefinite precision": ({"precision_matrix": INDEFINITE}, "not positive definite"),
    "flat covariance": ({"covariance_matrix": FLAT}, r"singular in float64: .*\s+.*variable 1"),
    "flat precision": (
        {"precision_matrix": FLAT[::-1, ::-1]},
        r"singular in float64: .*\s+.*variable 0",
    ),
    "upper factor": ({"scale_tril": SKEW}, r"lower triangular: element\s+\[0, 1\] is 1"),
    "negative factor": ({"scale_tril": -np.eye(2)}, "not positive definite"),
    "zero": ({"scale_tril": np.zeros((2, 2))}, "not positive definite"),
    "NaN": ({"covariance_matrix": np.full((2, 2), np.nan)}, "not positive definite"),
    "infinite mean": ({"loc": np.array([0, np.inf]), "scale_tril": np.eye(2)}, r"inf at \[1\]"),
}
USES = {
    "marginal": lambda p: marginal(p, [0]).scale_tril,
    "condition": lambda p: condition(p, [0], [1.0]).mean,
    "prior": lambda p: linear_gaussian(p, jnp.eye(2), 0.0, GOOD).posterior([0.0, 1.0]).mean,
    "noise": lambda p: linear_gaussian(GOOD, jnp.eye(2), 0.0, p).marginal.log_prob(jnp.zeros(2)),
    "kl_divergence": lambda p: kl_divergence(GOOD, p),
    "expected_quadratic_form": lambda p: expected_quadratic_form(p, jnp.eye(2)),
}


@pytest.mark.parametrize("matrix", MATRICES)
def test_a_bad_matrix_is_refused_by_every_function(matrix):
    given, message = MATRICES[matrix]
    kind = lb.NotPositiveDefinite if "definite" in message or "singular" in message else ValueError
    for name, use in USES.items():
        with pytest.raises(kind, match=message) as caught:
            use(unchecked(**given))
        who = {"prior": "prior", "noise": "noise", "kl_divergence": "q"}.get(name, "p")
        assert "mean" in matrix or f"`{who}`" in str(caught.value)


def test_compiled_a_bad_matrix_gives_nan():
    @jax.jit
    def everything(given):
        return [use(unchecked(**given)) for name, use in USES.items()]

    for matrix, (given, _) in MATRICES.items():
        marginal_factor, *others = everything(given)
        assert matrix == "infinite mean" or jnp.isnan(marginal_factor).all(), matrix
        assert all(jnp.isnan(part).any() for part in others), matrix


def test_compiled_an_infinite_number_gives_nan():
    @jax.jit
    def everything(bad):
        theorem = linear_gaussian(GOOD, jnp.eye(2), 0.0, GOOD)
        return [
            condition(GOOD, [0], bad[:1]).mean * jnp.eye(2)[0, 0] + bad[0] * 0,
            theorem.posterior(bad).mean,
            expected_quadratic_form(GOOD, bad * jnp.eye(2)),
            linear_gaussian(GOOD, jnp.eye(2), bad, GOOD).posterior([0.0, 1.0]).mean,
        ]

    assert all(jnp.isnan(part).any() for part in everything(jnp.array([jnp.inf, 1.0])))


def test_which_of_a_batch_is_named():
    batch = np.stack([np.eye(2), INDEFINITE])[None]
    with pytest.raises(lb.NotPositiveDefinite, match=r"`p`, number 0, 1 of the batch, is not"):
        marginal(unchecked(covariance_matrix=batch), [0])
    with pytest.raises(ValueError, match=r"number 1 of the batch, is not symmetric"):
        marginal(unchecked(covariance_matrix=np.stack([np.eye(2), SKEW])), [0])


INDICES = [
    ([0, 2], IndexError, "Index 2 is out of range: there are 2 variables, 0 to 1"),
    ([-3], IndexError, "Index -3 is out of range"),
    ([1, -1], ValueError, "Index -?1 is given more than once"),
    ([True, False], TypeError, "must be integers in one list"),
    ([0.0], TypeError, "must be integers in one list"),
    ([[0], [1]], TypeError, "must be integers in one list"),
    ("0", TypeError, "must be integers in one list"),
    (None, TypeError, "must be integers in one list"),
]


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize(("indices", "kind", "message"), INDICES)
def test_indices_that_name_no_variables(indices, kind, message):
    with pytest.raises(kind, match=message):
        marginal(GOOD, indices)


def theorem(A=None, b=0.0, y=(0.0, 0.0)):
    return linear_gaussian(GOOD, np.eye(2) if A is None else A, b, GOOD).posterior(y)


ONE = {"scale_tril": np.eye(2)}
BATCH = unchecked(np.zeros((4, 2)), **ONE)
REFUSED = {
    "no index": (lambda: marginal(GOOD, []), "No index is given"),
    "all known": (lambda: condition(GOOD, [1, 0], [1.0, 2.0]), "All 2 coordinates are given"),
    "too few values": (lambda: condition(THREE, [0, 1], [1.0]), r"`values` has shape \(1,\)"),
    "too many": (lambda: condition(GOOD, [0], [1.0, 2.0]), r"must have \(1,\).*each index"),
    "NaN value": (lambda: condition(GOOD, [0], [np.nan]), r"`values` must be finite, and has nan"),
    "shape of A": (lambda: theorem(A=np.ones((3, 2))), r"`A` has shape \(3, 2\).*\(2, 2\)"),
    "A of one axis": (lambda: theorem(A=np.ones(2)), r"`A` has shape \(2,\)"),
    "infinite A": (lambda: theorem(A=np.diag([1, np.inf])), r"`A` must be finite.*\[1, 1\]"),
    "complex A": (lambda: theorem(A=np.eye(2) * 1j), "`A` must be real, and is complex128"),
    "shape of b": (lambda: theorem(b=np.zeros(3)), r"`b` has shape \(3,\).*each output"),
    "infinite b": (lambda: theorem(b=np.inf), "`b` must be finite, and has inf."),
    "shape of y": (lambda: theorem(y=np.zeros(3)), r"`y` has shape \(3,\).*each output"),
    "NaN y": (lambda: theorem(y=np.array([0.0, np.nan])), r"`y` must be finite.*\[1\]"),
    "other sizes": (lambda: kl_divergence(GOOD, THREE), "`q` .*as many variables as `p` has"),
    "form": (lambda: expected_quadratic_form(GOOD, np.eye(3)), r"`A` has .*`p` has 2 variables"),
    "NaN form": (lambda: expected_quadratic_form(GOOD, np.eye(2) * np.nan), "`A` must be finite"),
    "batches of p and q": (lambda: kl_divergence(BATCH, unchecked(np.ones((3, 2)), **ONE)), "`q`"),
    "batch of values": (lambda: condition(BATCH, [0], np.ones((3, 1))), r"`values` has \(3,\)"),
    "batch of y": (lambda: theorem(b=np.zeros((4, 2)), y=np.ones((3, 2))), r"`joint` has \(4,\)"),
    "batch of A": (lambda: theorem(A=np.ones((4, 2, 2)), b=np.zeros((3, 2))), r"`A` has \(4,\)"),
    "batch of a form": (lambda: expected_quadratic_form(BATCH, np.ones((3, 2, 2))), "`A` has"),
    "wide factor": (
        lambda: marginal(unchecked(scale_tril=np.ones((3, 2))), [0]),
        r"scale_tril \(3, 2\): they must be \(D,\) and \(D, D\)",
    ),
    "mean and matrix": (
        lambda: marginal(unchecked(np.zeros(3), scale_tril=np.eye(1)), [0]),
        r"mean of `p` has shape \(3,\) and its scale_tril \(1, 1\)",
    ),
    "complex covariance": (
        lambda: marginal(unchecked(covariance_matrix=np.eye(2) * (1 + 0j)), [0]),
        "covariance_matrix of p` must be real",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_arguments_that_do_not_fit(case):
    call, message = REFUSED[case]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        call()


@pytest.mark.usefixtures("types_unchecked")
@pytest.mark.parametrize("other", [dist.Normal(0, 1), GOOD.expand([3]), np.eye(2)])
def test_what_is_no_multivariate_normal(other):
    with pytest.raises(TypeError, match="must be a numpyro.distributions.MultivariateNormal, not"):
        marginal(other, [0])


def test_a_covariance_too_narrow_for_single_precision_says_so():
    narrow = jnp.array([[1.0, 1.0], [1.0, 1.0 + 2e-7]], jnp.float32)
    with pytest.raises(lb.NotPositiveDefinite, match=r"(?s)singular in float32.*enable_x64"):
        marginal(unchecked(covariance_matrix=narrow), [0])
