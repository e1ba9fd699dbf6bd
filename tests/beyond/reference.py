"""Long runs of NUTS on the models of practice: `python -m tests.beyond.reference NAME...`.

Writes to `practice.json`, for every site that a model names and every number of it, mean, sd and
quantiles, the effective sample sizes of the bulk and of the tails, and the Monte Carlo error of the mean;
and the seconds that a user waits for a thousand draws of the model as it is written.
"""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro
from arviz_stats.base import array_stats
from numpyro.handlers import seed, substitute, trace
from numpyro.infer import MCMC, NUTS, init_to_uniform

from tests.beyond.practice import MODELS, Case

FILE = Path(__file__).parent / "practice.json"
# Around both ends of a 90 % interval, so that the share of draws within another one can be read off.
LEVELS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.5)
LEVELS += tuple(round(1 - level, 2) for level in LEVELS[-2::-1])
DRAWS = {"eight_schools": 40_000, "horseshoe": 20_000}


def named(case: Case) -> list[str]:
    """The latent and the deterministic sites of the model as it is written."""
    started = substitute(seed(case.model, 0), substitute_fn=init_to_uniform)
    return [
        name
        for name, site in trace(started).get_trace(*case.args).items()
        if site["type"] == "deterministic" or (site["type"] == "sample" and not site["is_observed"])
    ]


def seconds(case: Case) -> float:
    """Of 1,000 + 1,000 draws of one chain with the settings that NumPyro has by itself."""
    start = time.perf_counter()
    mcmc = MCMC(NUTS(case.model), num_warmup=1000, num_samples=1000, progress_bar=False)
    mcmc.run(jax.random.key(0), *case.args)
    jax.block_until_ready(mcmc.get_samples())
    return time.perf_counter() - start


def digits(x: np.ndarray) -> Any:
    """Five digits; None where there are none."""
    if x.ndim:
        return [digits(row) for row in x]
    return float(f"{x:.5g}") if np.isfinite(x) else None


def table(draws: np.ndarray) -> dict[str, Any]:
    """What is kept of the draws, of shape (chains, draws, ...), of one site."""
    axes = {"chain_axis": 0, "draw_axis": 1}
    return {
        "mean": digits(draws.mean((0, 1))),
        "sd": digits(draws.std((0, 1))),
        "quantiles": {f"{q}": digits(np.quantile(draws, q, (0, 1))) for q in LEVELS},
        "ess": digits(np.asarray(array_stats.ess(draws, method="bulk", **axes))),
        "ess_tail": digits(
            np.asarray(array_stats.ess(draws, method="tail", prob=(0.05, 0.95), **axes))
        ),
        "error": digits(np.asarray(array_stats.mcse(draws, method="mean", **axes))),
        "r_hat": digits(np.asarray(array_stats.rhat(draws, **axes))),
    }


def reference(name: str) -> dict[str, Any]:
    case, count = MODELS[name], DRAWS.get(name, 10_000)
    waited = seconds(case)
    kernel = NUTS(case.for_nuts or case.model, target_accept_prob=0.98)
    mcmc = MCMC(
        kernel,
        num_warmup=2000,
        num_samples=count,
        num_chains=4,
        chain_method="sequential",
        progress_bar=False,
    )
    start = time.perf_counter()
    mcmc.run(jax.random.key(1), *case.args)
    draws = {key: np.asarray(x) for key, x in mcmc.get_samples(group_by_chain=True).items()}
    sites = {key: table(draws[key]) for key in named(case)}
    divergences = int(mcmc.get_extra_fields()["diverging"].sum())
    known = lambda key: [x for site in sites.values() for x in flat(site[key]) if x is not None]  # noqa: E731
    print(
        f"{name}: {divergences} divergences, r_hat {max(known('r_hat'))}, ess {min(known('ess'))}"
    )
    print(f"  of hyperparameters {[sites[key]['ess'] for key in case.over]}")
    print(f"  {waited:.1f} s a thousand draws, {time.perf_counter() - start:.0f} s all", flush=True)
    return {
        "seconds": round(waited, 2),
        "draws": 4 * count,
        "divergences": divergences,
        "r_hat": max(known("r_hat")),
        "sites": sites,
    }


def flat(x: Any) -> list[float | None]:
    return [y for row in x for y in flat(row)] if isinstance(x, list) else [x]


def write(results: dict[str, Any]) -> None:
    """A list of numbers on one line."""
    text = json.dumps(results, indent=1)
    FILE.write_text(re.sub(r"\[[^\[\]]*\]", lambda row: " ".join(row[0].split()), text) + "\n")


def main() -> None:
    numpyro.enable_x64()
    for name in sys.argv[1:] or MODELS:
        result = reference(name)
        kept = json.loads(FILE.read_text()) if FILE.exists() else {}
        write({key: {**kept, name: result}[key] for key in MODELS if key in {**kept, name: result}})


if __name__ == "__main__":
    main()
