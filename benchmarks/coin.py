"""One coin: the first call of a process, the next one, ten thousand at once, and the import."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

PEERS = ("numpyro_minimize", "numpyro_adam")

#: what is compared, our figure, the peer, its figure
ROWS = [
    ("import, against import numpyro", "import", "numpyro_minimize", "import"),
    ("first call, against SVI with Minimize", "first", "numpyro_minimize", "first"),
    ("next call, against SVI with Minimize", "next", "numpyro_minimize", "next"),
    ("first call, against SVI with 2,000 Adam steps", "first", "numpyro_adam", "first"),
    ("next call, against SVI with 2,000 Adam steps", "next", "numpyro_adam", "next"),
    ("10,000 coins, against one next call (Adam)", "vmap", "numpyro_adam", "next"),
]

TOSSES = np.repeat([1.0, 0.0], [8, 1])


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that an action takes until its arrays are there, and what it returns."""
    import jax

    start = time.perf_counter()
    result = jax.block_until_ready(action())
    return time.perf_counter() - start, result


def coin(y):
    import numpyro
    import numpyro.distributions as dist

    theta = numpyro.sample("theta", dist.Beta(2, 2))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Bernoulli(theta), obs=y)


def ours() -> dict[str, float]:
    """Mode, covariance and evidence, with laplacebook."""
    start = time.perf_counter()
    import laplacebook as lb

    imported = time.perf_counter() - start
    import jax
    import numpyro

    numpyro.enable_x64()
    first, _ = timed(lambda: lb.laplace(coin, TOSSES))
    following = min(timed(lambda: lb.laplace(coin, 1 - TOSSES))[0] for _ in range(20))
    many = (np.random.default_rng(0).random((10_000, 9)) < 0.7).astype(float)
    fit_all = jax.vmap(lambda y: lb.laplace(coin, y).log_evidence)
    fit_all(many)
    together = min(timed(lambda: fit_all(many))[0] for _ in range(5))
    return {"import": imported, "first": first, "next": following, "vmap": together}


def numpyro_minimize() -> dict[str, float]:
    """NumPyro's guide with ``optim.Minimize`` (BFGS): mode and covariance."""
    import numpyro

    return svi(lambda: numpyro.optim.Minimize(), 1)


def numpyro_adam() -> dict[str, float]:
    """NumPyro's guide with 2,000 steps of Adam: mode and covariance."""
    import numpyro

    return svi(lambda: numpyro.optim.Adam(0.01), 2000)


def svi(optimizer: Callable[[], Any], steps: int) -> dict[str, float]:
    """Seconds of a first and of a next fit of NumPyro's AutoLaplaceApproximation."""
    import jax
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoLaplaceApproximation

    numpyro.enable_x64()

    def fit(y):
        guide = AutoLaplaceApproximation(coin)
        fitter = SVI(coin, guide, optimizer(), Trace_ELBO())
        params = fitter.run(jax.random.key(0), steps, y, progress_bar=False).params
        return guide.get_posterior(params).covariance_matrix

    first, _ = timed(lambda: fit(TOSSES))
    following = min(timed(lambda: fit(1 - TOSSES))[0] for _ in range(3))
    return {"import": import_seconds(), "first": first, "next": following}


def import_seconds() -> float:
    """Seconds of ``import numpyro`` in a fresh interpreter."""
    import subprocess
    import sys

    code = "import time; t = time.perf_counter(); import numpyro; print(time.perf_counter() - t)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(done.stdout)
