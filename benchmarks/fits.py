"""Ways to fit a regression, each timed in a process of its own.

A way is made for a kind of regression and returns a function of the data that gives the mode and,
where the way has one, the covariance.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.clock import repeated, timed
from benchmarks.problems import data, model

ADAM_STEPS = 2000


def laplacebook(kind: str) -> Callable:
    """This package: mode, covariance and evidence."""
    import laplacebook as lb

    regression = model(kind)

    def fit(features, y):
        approx = lb.laplace(regression, features, y)
        return approx.mode_vector, approx.covariance, approx.log_evidence

    return fit


def scikit_learn(kind: str) -> Callable:
    """The mode alone, so tightly that it agrees."""
    from sklearn.linear_model import LogisticRegression

    def fit(features, y):
        fitter = LogisticRegression(
            solver="newton-cholesky", C=1.0, tol=1e-6, fit_intercept=False, max_iter=1000
        )
        return (fitter.fit(features, y).coef_[0],)

    return fit


def statsmodels(kind: str) -> Callable:
    """Maximum likelihood and its covariance."""
    import statsmodels.api as sm

    def fitted(features, y):
        if kind == "logistic":
            return sm.Logit(y, features).fit(disp=False)
        if kind == "linear":
            return sm.OLS(y, features).fit()
        return sm.GLM(y, features, sm.families.Poisson()).fit()

    def fit(features, y):
        results = fitted(features, y)
        return results.params, results.cov_params()

    return fit


def numpyro_adam(kind: str) -> Callable:
    """NumPyro's AutoLaplaceApproximation after 2,000 steps of Adam."""
    import numpyro

    regression = model(kind)
    return lambda *data: svi(regression, numpyro.optim.Adam(0.01), ADAM_STEPS, *data)


def svi(model: Callable, optimizer: Any, steps: int, *data: Any) -> tuple[Any, Any]:
    """Mode and covariance by NumPyro's AutoLaplaceApproximation."""
    import jax
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoLaplaceApproximation

    guide = AutoLaplaceApproximation(model)
    fitter = SVI(model, guide, optimizer, Trace_ELBO())
    params = fitter.run(jax.random.key(0), steps, *data, progress_bar=False).params
    posterior = guide.get_posterior(params)
    return posterior.loc, posterior.covariance_matrix


def scipy_by_hand(model: Callable, *data: Any) -> tuple[Any, Any]:
    """Mode and covariance as one would write them: NumPyro's potential, SciPy's BFGS, JAX's Hessian."""
    import jax
    from jax.flatten_util import ravel_pytree
    from numpyro.infer.util import initialize_model
    from scipy.optimize import minimize

    ready = initialize_model(jax.random.key(0), model, model_args=data)
    start, unravel = ravel_pytree(ready.param_info.z)

    def potential(u):
        return ready.potential_fn(unravel(u))

    slope = jax.jit(jax.value_and_grad(potential))
    end = minimize(slope, np.asarray(start), method="BFGS", jac=True, options={"gtol": 1e-6})
    return end.x, np.linalg.inv(jax.jit(jax.hessian(potential))(end.x))


def nuts(model: Callable, *data: Any) -> dict[str, Any]:
    """A thousand draws from the posterior after a thousand of warm-up, by NumPyro."""
    import jax
    from numpyro.infer import MCMC, NUTS

    sampler = MCMC(NUTS(model), num_warmup=1_000, num_samples=1_000, progress_bar=False)
    sampler.run(jax.random.key(0), *data)
    return sampler.get_samples()


WAYS = {way.__name__: way for way in (laplacebook, scikit_learn, statsmodels, numpyro_adam)}


def answer(mode: Any, covariance: Any = None, *_: Any) -> dict[str, list[float]]:
    """What a fit found, for the comparison of modes."""
    found = {"mode": np.asarray(mode).tolist()}
    if covariance is not None:
        found["sd"] = np.sqrt(np.diagonal(covariance)).tolist()
    return found


def measure(way: str, kind: str, n: int, d: int) -> dict[str, Any]:
    """Seconds of the first fit of a process and of the next one, and what it found."""
    fit, (features, y) = WAYS[way](kind), data(kind, n, d)
    first, found = timed(lambda: fit(features, y))
    return {"first": first, "next": repeated(lambda: fit(features, y)), **answer(*found)}
