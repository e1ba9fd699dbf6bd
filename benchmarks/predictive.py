"""The posterior predictive of a logistic regression, beside plug-in and variance by hand in NumPy."""

from typing import Any

import numpy as np

from benchmarks.clock import repeated, timed
from benchmarks.problems import data
from benchmarks.runner import Call, Row

TITLE = "The posterior predictive of a logistic regression"
FITTED = 2_000  # rows


def new_rows(n: int, d: int) -> np.ndarray:
    """n rows of d standard normal features, other than those of the fit."""
    return np.random.default_rng(1).standard_normal((n, d))


def quadrature(n: int, d: int) -> dict[str, float]:
    """Means of the sigmoid under q, by this package, for rows that are JAX arrays already."""
    import jax.numpy as jnp
    import numpyro

    import laplacebook as lb

    numpyro.enable_x64()
    approx = lb.laplace(lb.models.logistic_regression, *data("logistic", FITTED, d))
    rows = jnp.asarray(new_rows(n, d))
    first, found = timed(lambda: lb.predict(approx, rows))
    following = repeated(lambda: lb.predict(approx, rows))
    return {"first": first, "next": following, "value": float(found.mean())}


def _fitted(d: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """scikit-learn's fit, its mode, and the covariance from its Hessian."""
    from scipy.special import expit
    from sklearn.linear_model import LogisticRegression

    features, targets = data("logistic", FITTED, d)
    fitter = LogisticRegression(solver="newton-cholesky", C=1.0, tol=1e-6, fit_intercept=False)
    mode = fitter.fit(features, targets).coef_[0]
    y = expit(features @ mode)
    return fitter, mode, np.linalg.inv(np.eye(d) + features.T * (y * (1 - y)) @ features)


def by_hand(n: int, d: int) -> dict[str, float]:
    """The plug-in probabilities and the variances of the logits; no average of one over the other."""
    from scipy.special import expit

    _, mode, covariance = _fitted(d)
    rows = new_rows(n, d)

    def found():
        variance = np.einsum("nd,de,ne->n", rows, covariance, rows, optimize=True)
        return expit(rows @ mode), variance

    first, (plug_in, variance) = timed(found)
    value = expit(np.log(plug_in / (1 - plug_in)) / np.sqrt(1 + np.pi / 8 * variance)).mean()
    return {"first": first, "next": repeated(found), "value": float(value)}


def scikit_learn(n: int, d: int) -> dict[str, float]:
    """The plug-in probabilities alone."""
    fitter, _, _ = _fitted(d)
    rows = new_rows(n, d)
    first, found = timed(lambda: fitter.predict_proba(rows)[:, 1])
    following = repeated(lambda: fitter.predict_proba(rows))
    return {"first": first, "next": following, "value": float(found.mean())}


def rows(quick: bool) -> list[Row]:
    """The comparisons."""
    n, d = (10_000, 20) if quick else (1_000_000, 100)
    what, ours = f"n = {n:,}, d = {d}", Call(quadrature, (n, d))
    plug_in, hand = "scikit-learn, plug-in alone", "plug-in and variances by hand in NumPy"
    return [
        Row(what, ours, Call(by_hand, (n, d)), hand, "next"),
        Row(what, ours, Call(scikit_learn, (n, d)), plug_in, "next"),
    ]
