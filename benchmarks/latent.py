"""Thousands of latent states integrated out, beside TMB (R) with its own tape and sparse Cholesky factor."""

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.clock import timed
from benchmarks.runner import Call, Row

TITLE = "Latent states by the thousand"
FOLDER = Path(__file__).parent / "tmb"


def counts(T: int) -> np.ndarray:
    """Poisson counts over a latent AR(1)."""
    rng = np.random.default_rng(0)
    z = np.zeros(T)
    z[0] = rng.normal(0, 0.3 / np.sqrt(1 - 0.9**2))
    for t in range(1, T):
        z[t] = 0.9 * z[t - 1] + rng.normal(0, 0.3)
    return rng.poisson(np.exp(1 + z))


def ar1(y):
    """With flat priors, so that the mode is the estimate of TMB."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    flat = dist.ImproperUniform(dist.constraints.real, (), ())
    b, log_s, p = (numpyro.sample(name, flat) for name in ("b", "log_s", "p"))
    s, phi = jnp.exp(log_s), 2 / (1 + jnp.exp(-p)) - 1
    states = dist.ImproperUniform(dist.constraints.real, (), (y.size,))
    z = numpyro.sample("z", states)
    first = dist.Normal(0, s / jnp.sqrt(1 - phi**2)).log_prob(z[0])
    numpyro.factor("series", first + dist.Normal(phi * z[:-1], s).log_prob(z[1:]).sum())
    numpyro.sample("y", dist.Poisson(jnp.exp(b + z)).to_event(1), obs=y)


def series(T: int) -> dict:
    """Mode and standard errors of the three hyperparameters, by this package."""
    import numpyro

    import laplacebook as lb

    numpyro.enable_x64()
    y, marginal = counts(T), lb.marginalize(ar1, "z", structure="sparse")

    def fit():
        return lb.laplace(marginal, y)

    (first, approx), (following, _) = timed(fit), timed(fit)
    sd = np.sqrt(np.diag(approx.covariance))
    return {
        "first": first,
        "next": following,
        "mode": approx.mode_vector.tolist(),
        "sd": sd.tolist(),
        "value": -float(approx.log_likelihood + approx.log_prior),
    }


def series_by_tmb(T: int) -> dict:
    """The same by TMB; the seconds are without those of its C++ compiler."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "y.txt"
        np.savetxt(data, counts(T), "%d")
        command = ["Rscript", FOLDER / "ar1.R", folder, data]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def has_tmb() -> bool:
    """Whether R is installed, with its package TMB."""
    if shutil.which("Rscript") is None:
        return False
    return (
        subprocess.run(["Rscript", "-e", "loadNamespace('TMB')"], capture_output=True).returncode
        == 0
    )


def rows(quick: bool) -> list[Row]:
    """The comparisons."""
    peer = "TMB" if has_tmb() else "TMB: R with its package TMB is not installed"
    found = []
    for T in (2_000,) if quick else (2_000, 20_000, 100_000):
        theirs = Call(series_by_tmb, (T,)) if has_tmb() else None
        for key in ("first", "next"):
            what = f"Poisson counts over a latent AR(1), T = {T:,}, {key} call"
            found.append(Row(what, Call(series, (T,)), theirs, peer, key))
    return found
