"""The linear-Gaussian theorem, beside the same written by hand in NumPy and SciPy."""

import numpy as np

from benchmarks.clock import repeated, timed
from benchmarks.runner import Call, Row

TITLE = "The linear-Gaussian theorem"


def problem(N: int, M: int) -> tuple:
    """Mean and covariance of x, the matrix, the offset, the covariance of the noise, and y."""
    rng = np.random.default_rng(0)
    half = rng.normal(size=(N, N + 50))
    R = np.diag(rng.uniform(0.5, 1, size=M)) + 0.1
    shapes = N, (M, N), M, M
    m, A, b, y = (rng.normal(size=shape) for shape in shapes)
    return m, half @ half.T / N, A, b, R, y


def theorem(N: int, M: int) -> dict[str, float]:
    """Joint, marginal of y and posterior for one y, by this package in float64."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    from laplacebook.gaussian.normal import linear_gaussian

    numpyro.enable_x64()
    m, S, A, b, R, y = map(jnp.asarray, problem(N, M))
    prior, noise = dist.MultivariateNormal(m, S), dist.MultivariateNormal(jnp.zeros(M), R)

    def found():
        all_three = linear_gaussian(prior, A, b, noise)
        joint, of_y, posterior = all_three.joint, all_three.marginal, all_three.posterior(y)
        return joint.loc, joint.scale_tril, of_y.scale_tril, posterior.mean, posterior.scale_tril

    first, parts = timed(found)
    return {"first": first, "next": repeated(found), "value": value(*parts[2:])}


def theorem_by_hand(N: int, M: int) -> dict[str, float]:
    """The same from covariances, each factored once."""
    from scipy.linalg import cho_solve, cholesky

    m, S, A, b, R, y = problem(N, M)

    def found():
        AS, mean = A @ S, A @ m + b
        joint = np.block([[S, AS.T], [AS, AS @ A.T + R]])
        factor = cholesky(joint[N:, N:], lower=True)
        gain = cho_solve((factor, True), AS).T
        posterior = cholesky(S - gain @ AS, lower=True)
        return np.concatenate([m, mean]), joint, factor, m + gain @ (y - mean), posterior

    parts = found()
    return {"next": repeated(found), "value": value(*parts[2:])}


def value(factor, mean, posterior_factor) -> float:
    """One number that depends on all parts."""
    logs = (np.log(np.diagonal(np.asarray(part))).sum() for part in (factor, posterior_factor))
    return float(sum(logs) + np.linalg.norm(mean))


def rows(quick: bool) -> list[Row]:
    """The comparison."""
    size = (100, 200) if quick else (1000, 2000)
    return [
        Row(
            f"{size[0]:,} inputs, {size[1]:,} outputs: joint, marginal, posterior",
            Call(theorem, size),
            Call(theorem_by_hand, size),
            "the same by hand in SciPy",
            "next",
        )
    ]
