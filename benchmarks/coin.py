"""One coin: the first fit of a process, the next one, ten thousand at once, and the import."""

import numpy as np

from benchmarks.clock import import_seconds, repeated, timed
from benchmarks.fits import ADAM_STEPS, svi
from benchmarks.runner import Call, Row

TITLE = "One coin"
TOSSES = np.repeat([1.0, 0.0], [8, 1])


def coin(y):
    import numpyro
    import numpyro.distributions as dist

    theta = numpyro.sample("theta", dist.Beta(2, 2))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Bernoulli(theta), obs=y)


def laplacebook() -> dict[str, float]:
    """Mode, covariance and evidence, by this package."""
    import jax
    import numpyro

    import laplacebook as lb

    numpyro.enable_x64()
    first, _ = timed(lambda: lb.laplace(coin, TOSSES))
    following = repeated(lambda: lb.laplace(coin, 1 - TOSSES), times=20)
    many = (np.random.default_rng(0).random((10_000, 9)) < 0.7).astype(float)
    fit_all = jax.vmap(lambda y: lb.laplace(coin, y).log_evidence)
    fit_all(many)
    return {"first": first, "next": following, "vmap": repeated(lambda: fit_all(many))}


def numpyro_svi(optimizer: str) -> dict[str, float]:
    """Mode and covariance, by NumPyro's guide with ``Minimize`` (BFGS) or with Adam."""
    import numpyro

    numpyro.enable_x64()

    def fit(y):
        if optimizer == "Minimize":
            return svi(coin, numpyro.optim.Minimize(), 1, y)
        return svi(coin, numpyro.optim.Adam(0.01), ADAM_STEPS, y)

    first, _ = timed(lambda: fit(TOSSES))
    return {"first": first, "next": repeated(lambda: fit(1 - TOSSES))}


def rows(quick: bool) -> list[Row]:
    """The comparisons."""
    ours, imports = Call(laplacebook), Call(import_seconds, ("laplacebook", "numpyro"))
    minimize, adam = Call(numpyro_svi, ("Minimize",)), Call(numpyro_svi, ("Adam",))
    slow, quicker = "NumPyro SVI, Minimize", "NumPyro SVI, 2,000 Adam steps"
    return [
        Row(
            "import, NumPyro being there",
            imports,
            Call(import_seconds, ("numpyro",)),
            "import numpyro",
        ),
        Row("first fit", ours, minimize, slow, "first"),
        Row("next fit", ours, minimize, slow, "next"),
        Row("first fit", ours, adam, quicker, "first"),
        Row("next fit", ours, adam, quicker, "next"),
        Row("10,000 under vmap", ours, adam, "one next fit of the same", "vmap", "next"),
    ]
