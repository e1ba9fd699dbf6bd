"""Logistic regression: mode, covariance and evidence, against the mode alone and against products.

The prior is standard normal, as in scikit-learn with C = 1; statsmodels has none.
"""

from benchmarks.clock import repeated
from benchmarks.fits import measure
from benchmarks.problems import data, model
from benchmarks.runner import Call, Row

TITLE = "Logistic regression"


def product(n: int, d: int) -> dict[str, float]:
    """Seconds of X'X in float64 by NumPy: the arithmetic that one Hessian cannot do without."""
    features, _ = data("logistic", n, d)
    return {"seconds": repeated(lambda: features.T @ features)}


def derivatives(n: int, d: int) -> dict[str, float]:
    """Seconds of the gradient and of the Hessian of NumPyro's log joint, by JAX."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer.util import log_density

    regression, arrays = model("logistic"), tuple(map(jnp.asarray, data("logistic", n, d)))

    def log_joint(w, *arrays):
        return log_density(regression, arrays, {}, {"w": w})[0]

    def seconds(derivative):
        compiled, at = jax.jit(derivative(log_joint)), jnp.zeros(d)
        jax.block_until_ready(compiled(at, *arrays))
        return repeated(lambda: compiled(at, *arrays))

    return {"gradient": seconds(jax.grad), "Hessian": seconds(jax.hessian)}


def rows(quick: bool) -> list[Row]:
    """The comparisons."""
    n, d = (10_000, 50) if quick else (100_000, 100)

    def by(way):
        return Call(measure, (way, "logistic", n, d))

    ours, size = by("laplacebook"), f"n = {n:,}, d = {d}"
    peers = {"scikit_learn": "scikit-learn newton-cholesky, mode alone"}
    peers |= {"statsmodels": "statsmodels Logit, no prior"}
    peers |= {} if quick else {"numpyro_adam": "NumPyro SVI, 2,000 Adam steps"}
    fits = [
        Row(f"{which} fit, {size}", ours, by(way), against, which)
        for way, against in peers.items()
        for which in ("first", "next")
    ]
    if not quick:
        many = "logistic", 1_000_000, 20
        fits.append(
            Row(
                "next fit, n = 1,000,000, d = 20",
                Call(measure, ("laplacebook", *many)),
                Call(measure, ("scikit_learn", *many)),
                peers["scikit_learn"],
                "next",
            )
        )
    one, parts, against = Call(product, (n, d)), Call(derivatives, (n, d)), "one X'X by NumPy"
    return fits + [
        Row(f"next fit, {size}", ours, one, against, "next", "seconds"),
        Row(f"gradient by JAX, {size}", parts, one, against, "gradient", "seconds"),
        Row(f"Hessian by JAX, {size}", parts, one, against, "Hessian", "seconds"),
    ]
