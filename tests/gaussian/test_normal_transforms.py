"""The Gaussian toolbox in batches, compiled, differentiated, and at extreme scales."""

from functools import partial

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.test_util import check_grads

from laplacebook.gaussian.normal import (
    condition,
    expected_quadratic_form,
    kl_divergence,
    linear_gaussian,
    marginal,
)
from tests.gaussian.test_normal import D, M, answers, check, made, problem


def numbers(*pieces):
    """Every answer as a flat list of arrays, from means, factors and arrays."""
    p, q, noise = (dist.MultivariateNormal(mean, scale_tril=factor) for mean, factor in pieces[:3])
    return [part for parts in answers(p, q, noise, *pieces[3:]).values() for part in parts]


compiled = jax.jit(numbers)


def near(found, wanted, rtol=1e-12):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol)


def stacked(problems):
    return jax.tree.map(lambda *arrays: jnp.stack(arrays), *problems)


def test_a_batch_is_a_loop_and_a_vmap_and_compiles():
    problems = [problem(seed) for seed in (0, 1, 2)]
    near(compiled(*problems[0]), numbers(*problems[0]))
    loop = stacked([compiled(*one) for one in problems])
    near(compiled(*stacked(problems)), loop)
    near(jax.jit(jax.vmap(numbers))(*stacked(problems)), loop)


@pytest.mark.parametrize("which", [[0], [2, 3], [1, 4, 5, 6]])
def test_a_batch_of_some_arguments_meets_all_the_others(which):
    one, two = problem(0), problem(1)
    mixed = [stacked([one[i], two[i]]) if i in which else part for i, part in enumerate(one)]
    other = [two[i] if i in which else part for i, part in enumerate(one)]
    loop = stacked([compiled(*one), compiled(*other)])
    for found, wanted in zip(compiled(*mixed), loop, strict=True):
        np.testing.assert_allclose(jnp.broadcast_to(found, wanted.shape), wanted, atol=1e-12)


def test_batches_of_two_arguments_broadcast():
    p, _, noise, A, b, y, _ = problem(0)
    priors = dist.MultivariateNormal(jnp.stack([p[0], 2 * p[0]])[:, None], scale_tril=p[1])
    theorem = linear_gaussian(priors, jnp.stack([A, 2 * A, 3 * A]), b, made(*noise))
    found = theorem.posterior(y)
    assert found.batch_shape == theorem.joint.batch_shape == (2, 3)
    one = linear_gaussian(made(2 * p[0], p[1]), 3 * A, b, made(*noise)).posterior(y)
    near([found.mean[1, 2]], [one.mean])
    theirs = jnp.broadcast_to(found.scale_tril, (2, 3, D, D))[1, 2]
    near([theirs], [one.scale_tril])


def test_distributions_pass_in_and_out_of_compiled_code():
    p, q, noise, A, b, y, _ = problem(0)
    both = jax.jit(lambda p, noise: linear_gaussian(p, A, b, noise))
    back, eager = both(made(*p), made(*noise)), linear_gaussian(made(*p), A, b, made(*noise))
    near([back.posterior(y).mean], [eager.posterior(y).mean])
    near([marginal(back.joint, [0]).scale_tril], [marginal(eager.joint, [0]).scale_tril])
    many = jax.vmap(lambda m: made(m, p[1]))(jnp.stack([p[0], q[0]]))
    near([kl_divergence(many, made(*q))[0]], [kl_divergence(made(*p), made(*q))])


def test_which_matrix_made_it_is_known_after_others_were_asked_for():
    flat = dist.MultivariateNormal(0.0, scale_tril=jnp.array([[1.0, 0], [1, 1e-9]]))
    assert flat.covariance_matrix.shape == flat.precision_matrix.shape  # NumPyro keeps them
    near([condition(flat, [0], [1.0]).scale_tril], [[[1e-9]]])
    passed = jax.tree.map(lambda leaf: leaf, flat)
    near([condition(passed, [0], [1.0]).scale_tril], [[[1e-9]]])


def test_derivatives_are_those_of_finite_differences():
    """With little noise too, where the square roots come from another branch."""
    rng = np.random.default_rng(0)

    @jax.jit
    def values(mean, one, other, A, x, size):
        p = dist.MultivariateNormal(mean, covariance_matrix=one @ one.T + jnp.eye(3))
        q = dist.MultivariateNormal(-mean, covariance_matrix=other @ other.T + jnp.eye(3))
        noise = dist.MultivariateNormal(mean, scale_tril=size * q.scale_tril)
        theorem = linear_gaussian(p, A, 0.0, noise)
        parts = [
            *(marginal(p, [2, 0]).scale_tril, condition(p, [2, 0], x[:2]).mean),
            *(condition(p, [2, 0], x[:2]).scale_tril, kl_divergence(p, q)),
            *(expected_quadratic_form(p, A), theorem.joint.scale_tril, theorem.joint.mean),
            *(theorem.marginal.scale_tril, theorem.posterior(x).mean),
            theorem.posterior(x).scale_tril / size,
        ]
        return jnp.concatenate([jnp.ravel(part) for part in parts])

    arrays = [rng.normal(size=shape) for shape in (3, (3, 3), (3, 3), (3, 3), 3)]
    for size in (1.0, 1e-4):
        of_size = partial(values, size=size)
        check_grads(of_size, arrays, order=1, modes=["rev"], rtol=1e-5, atol=1e-5)


def test_derivatives_of_a_batch_with_one_of_another_branch():
    """Under vmap both branches are computed: the one not taken must not give NaN."""

    def evidence(sd):
        noise = dist.MultivariateNormal(jnp.zeros(3), scale_tril=sd * jnp.eye(3))
        prior = dist.MultivariateNormal(jnp.zeros(2), scale_tril=jnp.eye(2))
        theorem = linear_gaussian(prior, jnp.ones((3, 2)), 0.0, noise)
        at = jnp.array([1.0, 2.0, 3.0])
        return jnp.log(theorem.posterior(at).scale_tril[1, 1]) + theorem.posterior(at).mean[0]

    sds = jnp.array([1.0, *np.geomspace(1e-8, 1e-12, 20)])
    both = jax.jit(jax.vmap(jax.grad(evidence)))(sds)
    assert jnp.isfinite(both).all()
    near([both[0]], [jax.jit(jax.grad(evidence))(sds[0])], 1e-9)


def test_the_second_derivative_of_the_divergence_at_equality_is_the_fisher_information():
    def divergence(x):
        q = dist.MultivariateNormal(x[:1], scale_tril=x[1:, None])
        return kl_divergence(dist.MultivariateNormal(jnp.ones(1), scale_tril=2 * jnp.eye(1)), q)

    at = jnp.array([1.0, 2.0])
    near([jax.jit(jax.grad(divergence))(at)], [[0.0, 0.0]])
    near([jax.jit(jax.hessian(divergence))(at)], [np.diag([1 / 4, 2 / 4])])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("ratio", [1e-30, 1e-4, 0.5, 1.0, 1e9])
def test_divergence_of_very_unlike_spreads(ratio, dtype):
    p, q = (made([0.0], np.array([[sd]]), dtype=dtype) for sd in (ratio, 1.0))
    sd = np.float64(p.scale_tril[0, 0])
    exact = float((mp.mpf(sd) ** 2 - 1) / 2 - mp.log(sd))
    assert kl_divergence(p, q) == pytest.approx(exact, rel=4 * float(jnp.finfo(dtype).eps))


def test_divergence_is_never_negative_next_to_equality():
    @jax.jit
    def divergence(steps):
        p = dist.MultivariateNormal(jnp.zeros((1, 1), steps.dtype), scale_tril=steps)
        return kl_divergence(p, dist.MultivariateNormal(jnp.zeros(1, steps.dtype), jnp.eye(1)))

    for dtype in ("float32", "float64"):
        eps = float(jnp.finfo(dtype).eps)
        steps = (1 + eps / 2 * np.arange(-200, 400)).astype(dtype)[:, None, None]
        value = np.asarray(divergence(steps))
        assert ((value >= 0) & ((value == 0) == (steps[:, 0, 0] == 1))).all()


@pytest.mark.parametrize("scale", [1e-160, 1e160])
def test_units_do_not_matter(scale):
    p, q, noise, A, b, y, values = problem(3)
    units = [(scale * mean, scale * factor) for mean, factor in (p, q, noise)]
    in_units = answers(*(made(*pair) for pair in units), A, *(scale * x for x in (b, y, values)))
    wanted = answers(*(made(*pair) for pair in (p, q, noise)), A, b, y, values)
    near(in_units["divergence"], wanted["divergence"])
    of_outputs = linear_gaussian(made(*units[0]), A, scale * b, made(*units[2])).marginal
    for found, other in [
        (marginal(made(*units[0]), [0, 2]), marginal(made(*p), [0, 2])),
        (condition(made(*units[0]), [3, 1], scale * values), condition(made(*p), [3, 1], values)),
        (of_outputs, linear_gaussian(made(*p), A, b, made(*noise)).marginal),
    ]:
        near([found.mean / scale, found.scale_tril / scale], [other.mean, other.scale_tril])
    near([in_units["posterior"][0] / scale], [wanted["posterior"][0]])


@pytest.mark.parametrize("sd", [1e-3, 1e-12])
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_little_noise_leaves_the_answer_exact(outputs, sd):
    """More outputs than directions, or fewer: I + W'W, or A S A' + R, rounds to a singular one."""
    A, y = np.array([[1.0, 1.0], [1.0, -1.0], [2.0, 1.0]])[:outputs], np.array([3.0, 1.0, 5.0])
    prior = dist.MultivariateNormal(jnp.zeros(2), scale_tril=jnp.array([[1.0, 0.0], [0.5, 1.0]]))
    noise = dist.MultivariateNormal(0.0, scale_tril=sd * jnp.eye(outputs))
    theorem = linear_gaussian(prior, A, 0.0, noise)
    with mp.workdps(80):
        S, B = mp.matrix([[1, 0.5], [0.5, 1.25]]), mp.matrix(A.tolist())
        R = mp.mpf(sd) ** 2 * mp.eye(outputs)
        of_y = mp.cholesky(B * S * B.T + R)
        of_x = (S**-1 + B.T * R**-1 * B) ** -1
        mean = of_x * B.T * R**-1 * mp.matrix(y[:outputs].tolist())
        of_x = mp.cholesky(of_x)
        wanted = [np.array(part.tolist(), float) for part in (of_y, mean, of_x)]
    posterior = theorem.posterior(y[:outputs])
    np.testing.assert_allclose(theorem.marginal.scale_tril, wanted[0], rtol=1e-14 / sd, atol=1e-15)
    np.testing.assert_allclose(posterior.mean, wanted[1][:, 0], rtol=1e-9 + 1e-15 / sd)
    np.testing.assert_allclose(posterior.scale_tril, wanted[2], rtol=1e-9 + 1e-14 / sd, atol=1e-15)


def test_one_variable_scalar_mean_integers_and_nothing_known():
    p = dist.MultivariateNormal(1, jnp.array([[4, 2], [2, 5]]), validate_args=False)
    near([marginal(p, 1).mean, marginal(p, -1).scale_tril], [[1.0], [[5**0.5]]])
    nothing = condition(p, [], [])
    near([nothing.mean, nothing.covariance_matrix], [[1, 1], [[4, 2], [2, 5]]])
    one = dist.MultivariateNormal(0, scale_tril=jnp.array([[2]]))
    theorem = linear_gaussian(one, [[3]], 1, one)
    near([theorem.marginal.covariance_matrix, theorem.posterior(41).mean], [[[40.0]], [12.0]])
    assert expected_quadratic_form(p, jnp.array([[1, 0], [0, 1]])) == pytest.approx(11)


def test_checks_can_fail():
    """The comparison of the other tests is not blind."""
    wrong = {"marginal": (np.ones(M), np.eye(M))}
    with pytest.raises(AssertionError):
        check(wrong, {"marginal": (np.ones(M), 1.001 * np.eye(M))}, 1e-6)
