"""The first call of a process, compilation included, beside NumPyro's routes and SciPy by hand.

What comes before the call is not timed: imports, data, and the fit that is diagnosed or predicts.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks import coin
from benchmarks.clock import timed
from benchmarks.fits import ADAM_STEPS, answer, nuts, scipy_by_hand, svi
from benchmarks.predictive import new_rows
from benchmarks.problems import data
from benchmarks.runner import Call, Row

TITLE = "First calls"
OBSERVATIONS = 500  # of the regressions
CLASSES, HIDDEN = 10, 64
STEPS = 1_000  # of training, which ends less than AGAIN from the mode
AGAIN, OTHER = 0.9, 0.85  # tolerances of networks
TREATED = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def eight_schools(errors, effects):
    """Rubin (1981), with effects in units of their spread: ten coordinates."""
    import numpyro
    import numpyro.distributions as dist

    mean = numpyro.sample("mean", dist.Normal(0, 5))
    spread = numpyro.sample("spread", dist.LogNormal(1, 1))
    with numpyro.plate("J", len(effects)):
        unit = numpyro.sample("unit", dist.Normal(0, 1))
        numpyro.sample("effect", dist.Normal(mean + spread * unit, errors), obs=effects)


def problem(name: str) -> tuple[Callable, tuple]:
    """A model and its data, in double precision."""
    import numpyro

    import laplacebook as lb

    numpyro.enable_x64()
    regression = lb.models.logistic_regression
    return {
        "coin": (coin.coin, (coin.TOSSES,)),
        "five": (regression, data("logistic", OBSERVATIONS, 5)),
        "four": (regression, data("logistic", OBSERVATIONS, 4)),
        "schools": (eight_schools, (ERRORS, TREATED)),
    }[name]


def laplacebook(model: Callable, *data: Any) -> tuple[Any, Any, Any]:
    """Mode, covariance and evidence, by this package."""
    import laplacebook as lb

    approx = lb.laplace(model, *data)
    return approx.mode_vector, approx.covariance, approx.log_evidence


def minimize(model: Callable, *data: Any) -> tuple[Any, Any]:
    """NumPyro's guide with its ``Minimize`` (BFGS)."""
    import numpyro

    return svi(model, numpyro.optim.Minimize(), 1, *data)


def adam(model: Callable, *data: Any) -> tuple[Any, Any]:
    """NumPyro's guide after 2,000 steps of Adam."""
    import numpyro

    return svi(model, numpyro.optim.Adam(0.01), ADAM_STEPS, *data)


WAYS = {way.__name__: way for way in (laplacebook, minimize, adam, scipy_by_hand, nuts)}
PEERS = {
    "minimize": "NumPyro SVI, Minimize",
    "adam": "NumPyro SVI, 2,000 Adam steps",
    "scipy_by_hand": "SciPy and JAX by hand",
    "nuts": "NUTS, 1,000 + 1,000 draws",
}


def fit(way: str, name: str) -> dict[str, Any]:
    """Seconds of the first fit, and its mode where the way has one."""
    model, arrays = problem(name)
    first, found = timed(lambda: WAYS[way](model, *arrays))
    return {"first": first, **(answer(*found) if isinstance(found, tuple) else {})}


def after_a_fit(function: str) -> dict[str, float]:
    """Seconds of the first and of the next call of a function of a fit of four coefficients."""
    import jax

    import laplacebook as lb

    model, (features, y) = problem("four")
    approx = lb.laplace(model, features, y)
    fewer = lb.laplace(model, features[:, :3], y)
    calls = {
        "diagnose": lambda seed: lb.diagnose(approx, jax.random.key(seed)),
        "predict": lambda seed: lb.predict(approx, new_rows(1_000, 4)).mean,
        "compare": lambda seed: lb.compare({"four": approx, "three": fewer}),
        "importance_sampling": lambda seed: lb.importance_sampling(approx, jax.random.key(seed)),
    }
    first, following = (timed(lambda seed=seed: calls[function](seed))[0] for seed in (0, 1))
    return {"first": first, "next": following}


def tolerances() -> dict[str, float]:
    """Seconds of a Gauss-Newton fit: the first, the next one, and that with another tolerance."""
    import laplacebook as lb

    model, arrays = problem("five")

    def seconds(tolerance):
        return timed(
            lambda: lb.laplace(model, *arrays, curvature="gauss_newton", tolerance=tolerance)
        )[0]

    first, following, other = map(seconds, (1e-6, 1e-6, 1e-5))
    return {"first": first, "next": following, "tolerance": other}


def digits(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Images of 8 by 8 pixels in the rows, in single precision, and their digits."""
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    return (pixels[:n] / 16).astype(np.float32), classes[:n]


def trained(n: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the network, and its weights after training."""
    import jax

    import laplacebook as lb

    options = {"widths": (HIDDEN,), "likelihood": "categorical", "outputs": CLASSES}
    weights = lb.train(
        lb.models.bayesian_mlp,
        *digits(n),
        key=jax.random.key(0),
        steps=STEPS,
        progress_bar=False,
        **options,
    )
    return options, jax.block_until_ready(weights)


def network(structure: str, n: int) -> dict[str, float]:
    """Seconds of the first fit at the mode, of the next one, and of one with another tolerance."""
    import laplacebook as lb

    options, weights = trained(n)

    def seconds(tolerance):
        settings = options | {"curvature": "gauss_newton", "structure": structure}
        return timed(
            lambda: lb.laplace(
                lb.models.bayesian_mlp,
                *digits(n),
                start=weights,
                tolerance=tolerance,
                **settings,
            )
        )[0]

    first, following, other = map(seconds, (AGAIN, AGAIN, OTHER))
    return {"first": first, "next": following, "tolerance": other}


def laplace_torch(structure: str, n: int) -> dict[str, float]:
    """The first and the next fit of the same network by laplace-torch."""
    import torch
    from laplace import Laplace

    _, weights = trained(n)
    layers = [torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.Linear(HIDDEN, CLASSES)]
    for i, layer in enumerate(layers, 1):
        layer.weight.data = torch.tensor(np.asarray(weights[f"w{i}"]).T.copy())
        layer.bias.data = torch.tensor(np.array(weights[f"b{i}"]))
    network = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1])
    images = torch.utils.data.TensorDataset(*map(torch.tensor, digits(n)))
    subset, kept = {"kronecker": ("all", "kron"), "last_layer": ("last_layer", "full")}[structure]

    def seconds():
        approx = Laplace(
            network, "classification", subset_of_weights=subset, hessian_structure=kept
        )
        batches = torch.utils.data.DataLoader(images, batch_size=1_000)
        return timed(lambda: approx.fit(batches))[0]

    return {"first": seconds(), "next": seconds()}


def rows(quick: bool) -> list[Row]:
    """The comparisons; where laplace-torch is not installed a row says so."""
    fitted = {
        "coin": "a coin",
        "five": "logistic regression, d = 5",
        "schools": "hierarchical model, D = 10",
    }
    fits = [
        Row(what, Call(fit, ("laplacebook", name)), Call(fit, (way, name)), against, "first")
        for name, what in fitted.items()
        for way, against in PEERS.items()
    ]
    functions = "diagnose", "predict", "compare", "importance_sampling"
    after = [
        Row(
            f"{function}, D = 4",
            Call(after_a_fit, (function,)),
            Call(fit, ("nuts", "four")),
            PEERS["nuts"],
            "first",
        )
        for function in functions
    ]
    n, there = 400 if quick else 1_797, find_spec("laplace") is not None
    against = "laplace-torch" if there else "laplace-torch (not installed)"
    weights = (HIDDEN + 1) * HIDDEN + (HIDDEN + 1) * CLASSES
    networks = [
        Row(
            f"{which} {structure} fit, {weights:,} weights at the mode",
            Call(network, (structure, n)),
            Call(laplace_torch, (structure, n)) if there else None,
            against,
            which,
        )
        for structure in ("kronecker", "last_layer")
        for which in ("first", "next")
    ]
    new = [
        Row(
            f"a new tolerance=, {what}",
            call,
            call,
            "the next fit with the same one",
            "tolerance",
            "next",
        )
        for what, call in {
            "logistic regression, d = 5": Call(tolerances),
            f"{weights:,} weights, kronecker": Call(network, ("kronecker", n)),
        }.items()
    ]
    return fits + after + networks + new
