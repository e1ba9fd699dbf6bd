"""Thousands of latent states or crossed effects integrated out, beside TMB, glmmTMB and lme4 (R)."""

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


def crossed(one, other, x, y, sizes):
    """Two crossed random effects, with flat priors, so that the mode is the estimate of glmmTMB and lme4."""
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist

    flat = dist.ImproperUniform(dist.constraints.real, (), ())
    a, log_s, log_t = (numpyro.sample(name, flat) for name in ("a", "log_s", "log_t"))
    w = numpyro.sample("w", flat.expand([x.shape[1]]).to_event(1))
    with numpyro.plate("ones", sizes[0]):
        u = numpyro.sample("u", dist.Normal(0, jnp.exp(log_s)))
    with numpyro.plate("others", sizes[1]):
        v = numpyro.sample("v", dist.Normal(0, jnp.exp(log_t)))
    with numpyro.plate("rows", y.size):
        numpyro.sample("y", dist.Bernoulli(logits=a + x @ w + u[one] + v[other]), obs=y)


def crossed_rows(n: int, sizes: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """Binary rows, each with one effect of either kind, and three covariates."""
    rng = np.random.default_rng(0)
    one, other, x = (*(rng.integers(0, size, n) for size in sizes), rng.normal(size=(n, 3)))
    u, v = rng.normal(0, 1, sizes[0]), rng.normal(0, 0.5, sizes[1])
    logits = 0.3 + x @ [0.5, -0.2, 0] + u[one] + v[other]
    return one, other, x, (rng.random(n) < 1 / (1 + np.exp(-logits))).astype(int)


def effects(n: int, sizes: tuple[int, int]) -> dict:
    """Intercept and slopes with their standard errors, by this package."""
    import numpyro

    import laplacebook as lb

    numpyro.enable_x64()
    data = crossed_rows(n, sizes)
    marginal = lb.marginalize(crossed, ["u", "v"], structure="sparse")

    def fit():
        return lb.maximum_likelihood(marginal, *data, sizes)

    (first, approx), (following, _) = timed(fit), timed(fit)
    names = "a", "w"
    return {
        "first": first,
        "next": following,
        "mode": np.hstack([approx.mode[name] for name in names]).tolist(),
        "sd": np.hstack([approx.standard_deviation[name] for name in names]).tolist(),
        "value": -float(approx.log_likelihood),
    }


def effects_in_r(package: str, n: int, sizes: tuple[int, int]) -> dict:
    """The same by glmmTMB or lme4."""
    one, other, x, y = crossed_rows(n, sizes)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "rows.csv"
        table = np.column_stack([y, one, other, x])
        np.savetxt(data, table, "%.17g", ",", header="y,i,j,x0,x1,x2", comments="")
        command = ["Rscript", FOLDER / "crossed.R", package, data]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def has_r(package: str) -> bool:
    """Whether R is installed, with a package of it."""
    if shutil.which("Rscript") is None:
        return False
    command = ["Rscript", "-e", f"loadNamespace('{package}')"]
    return subprocess.run(command, capture_output=True).returncode == 0


def rows(quick: bool) -> list[Row]:
    """The comparisons."""
    found = []
    for T in (2_000,) if quick else (2_000, 20_000, 100_000):
        theirs, peer = _peer("TMB", Call(series_by_tmb, (T,)))
        for key in ("first", "next"):
            what = f"Poisson counts over a latent AR(1), T = {T:,}, {key} call"
            found.append(Row(what, Call(series, (T,)), theirs, peer, key))
    size = (5_000, (300, 60)) if quick else (50_000, (2_000, 500))
    for package in ("glmmTMB", "lme4"):
        theirs, peer = _peer(package, Call(effects_in_r, (package, *size)))
        for key in ("first", "next"):
            what = f"{size[0]:,} binary rows, {size[1][0]:,} + {size[1][1]} crossed effects, {key} call"
            found.append(Row(what, Call(effects, size), theirs, peer, key, "seconds"))
    return found


def _peer(package: str, call: Call) -> tuple[Call | None, str]:
    """A measurement of a package of R, None where that is missing, and what the row says of it."""
    if has_r(package):
        return call, package
    return None, f"{package}: R with its package {package} is not installed"
