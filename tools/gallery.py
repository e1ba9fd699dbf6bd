"""What the gallery of the chapter on trust holds beside its models and data: NUTS, verdicts and remedies.

python -m tools.gallery nuts [NAME ...]      long chains of NUTS, of which quantiles are kept: data/gallery_nuts.json
python -m tools.gallery verdicts [NAME ...]  what diagnose says and remedies give: data/gallery_verdicts.json
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from arviz_stats.base import array_stats
from numpyro.handlers import reparam, seed, substitute, trace
from numpyro.infer import MCMC, NUTS, init_to_median
from numpyro.infer.reparam import LocScaleReparam

from laplacebook import gallery
from laplacebook.base.version import __version__
from laplacebook.fit.laplace import laplace
from laplacebook.trust.diagnose import diagnose

DATA = Path(gallery.__file__).parent / "data"
CHAINS, WARMUP, DRAWS, SEED = 4, 2000, 5000, 1
KEYS = 5
ACCEPT = {"mileage": 0.998}  # of a horseshoe, whose scales make a funnel each
#: effects that NUTS explores as functions of standard normal numbers
NOT_CENTRED = {
    "eight_schools": "theta",
    "seeds": "plate",
    "baseball": "ability",
    "mileage": "slope",
}


def walk_of_steps(explosions):
    """``coal`` in the steps of its walk."""
    sigma = numpyro.sample("sigma", dist.HalfNormal(0.5))
    start = numpyro.sample("start", dist.Normal(0, 2))
    steps = numpyro.sample("steps", dist.Normal(0, 1).expand([len(explosions)]).to_event(1))
    walk = numpyro.deterministic("walk", sigma * jnp.cumsum(steps))
    numpyro.sample("explosions", dist.Poisson(jnp.exp(start + walk)).to_event(1), obs=explosions)


def for_nuts(name: str) -> Any:
    """The same law of the same sites, in a form that NUTS explores well."""
    model = gallery.example(name).model
    if name == "coal":
        return walk_of_steps
    if name in NOT_CENTRED:
        return reparam(model, config={NOT_CENTRED[name]: LocScaleReparam(0)})
    return model


def sites(name: str) -> list[str]:
    """The latent sites of the model as it is written."""
    example = gallery.example(name)
    started = substitute(seed(example.model, 0), substitute_fn=init_to_median)
    found = trace(started).get_trace(**example.data)
    return [
        key for key, site in found.items() if site["type"] == "sample" and not site["is_observed"]
    ]


def of_nuts(name: str) -> dict[str, Any]:
    """Quantiles, means and standard deviations of all sites, and what tells whether the chains may be trusted."""
    example = gallery.example(name)
    # Where it searches long for a step at first, no other start helps: the median of some draws of the prior.
    kernel = NUTS(
        for_nuts(name), target_accept_prob=ACCEPT.get(name, 0.98), init_strategy=init_to_median
    )
    settings = {"num_warmup": WARMUP, "num_samples": DRAWS, "num_chains": CHAINS}
    mcmc = MCMC(kernel, **settings, chain_method="sequential", progress_bar=False)
    mcmc.run(jax.random.key(SEED), **example.data)
    drawn = {key: np.asarray(x) for key, x in mcmc.get_samples(group_by_chain=True).items()}
    draws = {key: drawn[key] for key in sites(name)}
    draws = {key: np.asarray(x) for key, x in gallery.told(name, draws).items()}
    axes = {"chain_axis": 0, "draw_axis": 1}
    r_hat, ess = (
        np.concatenate([np.ravel(of(x, **axes)) for x in draws.values()])
        for of in (array_stats.rhat, array_stats.ess)
    )
    return {
        "chains": CHAINS,
        "draws": DRAWS,
        "seed": SEED,
        "numpyro": numpyro.__version__,
        "divergences": int(mcmc.get_extra_fields()["diverging"].sum()),
        "r_hat": round(float(r_hat.max()), 3),
        "ess": int(ess.min()),
        "quantiles": {
            key: digits(np.quantile(x.reshape(-1, *x.shape[2:]), gallery.LEVELS, 0))
            for key, x in draws.items()
        },
        "sd": {key: digits(x.std((0, 1))) for key, x in draws.items()},
    }


def first_verdicts(name: str) -> list[str]:
    """Of the first fit, with several random keys."""
    model, data, _ = gallery.example(name)
    approx = laplace(model, *data.values())
    return [diagnose(approx, jax.random.key(SEED + i)).level for i in range(KEYS)]


def digits(x: np.ndarray) -> Any:
    """Five digits."""
    return [digits(row) for row in x] if np.ndim(x) else float(f"{x:.5g}")


def write(file: str, results: dict[str, Any]) -> None:
    """A list of numbers on one line, the models in the order of the gallery."""
    path = DATA / file
    kept = (json.loads(path.read_text()) if path.exists() else {}) | results
    text = json.dumps({key: kept[key] for key in gallery.names() if key in kept}, indent=1)
    path.write_text(re.sub(r"\[[^\[\]]*\]", lambda row: " ".join(row[0].split()), text) + "\n")


def main() -> None:
    numpyro.enable_x64()
    what, *chosen = sys.argv[1:]
    for name in chosen or gallery.names():
        if what == "nuts":
            found = of_nuts(name)
            print(name, {key: found[key] for key in ("divergences", "r_hat", "ess")}, flush=True)
            write("gallery_nuts.json", {name: found})
        else:
            found = gallery.path(name, jax.random.key(SEED))
            for step in found:
                print(name, *step.values(), flush=True)
            first = first_verdicts(name) if "median" in found[0] else []
            kept = {"laplacebook": __version__, "key": SEED, "first": first, "tried": found}
            write("gallery_verdicts.json", {name: kept})


if __name__ == "__main__":
    main()
