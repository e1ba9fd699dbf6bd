"""A classifier of 8x8 digits, 64-64-10, 1,500 rows in float32, against laplace-torch where that is installed.

``pip install laplace-torch`` brings PyTorch, which is too large for the locked environment. A first fit
includes its compilation and the search from where training ended, and is beside that training. The next
fit starts at the mode, which it certifies; that of laplace-torch is the curvature at given weights.
"""

from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.clock import repeated, timed
from benchmarks.networks import BACKENDS
from benchmarks.runner import Call, Row

TITLE = "Digits"
ROWS = 1_500  # the other 297 are predicted
HIDDEN = 64
STEPS = 3_000  # of training
NETWORK = {"widths": (HIDDEN,), "likelihood": "categorical", "outputs": 10}
#: of laplace-torch: which weights, and what is kept of their curvature
PEERS = {
    "kronecker": ("all", "kron"),
    "diagonal": ("all", "diag"),
    "last_layer": ("last_layer", "full"),
    "dense": ("all", "full"),
}


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Pixels between 0 and 1, shape (1797, 64), in float32, and digits."""
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return (pixels / 16).astype(np.float32), labels.astype(int)


def trained() -> dict[str, Any]:
    """Weights by training on all rows."""
    import jax

    import laplacebook as lb

    pixels, labels = digits()
    return lb.train(
        lb.models.bayesian_mlp,
        *(pixels[:ROWS], labels[:ROWS]),
        key=jax.random.key(0),
        steps=STEPS,
        progress_bar=False,
        **NETWORK,
    )


def laplacebook(structure: str) -> dict[str, float]:
    """Seconds of training, of the first certified fit, of the next ones and of predictions."""
    import laplacebook as lb

    pixels, labels = digits()
    training, start = timed(trained)

    def fit(start, structure=structure):
        options = NETWORK | {"curvature": "gauss_newton", "structure": structure, "start": start}
        options |= {"rank": 20} if structure == "low_rank" else {}
        return lb.laplace(lb.models.bayesian_mlp, pixels[:ROWS], labels[:ROWS], **options)

    def predicted():
        return lb.predict(approx, pixels[ROWS:], **NETWORK)

    first, approx = timed(lambda: fit(start))
    found = {"training": training, "first": first}
    # Of a last layer the mode has no other layers.
    mode = fit(start, "diagonal").mode if structure == "last_layer" else approx.mode
    found["fit"] = repeated(lambda: fit(mode), times=15)
    predicted()
    found["predictive"] = repeated(predicted, times=15)
    return found


def laplace_torch(structure: str) -> dict[str, float]:
    """Seconds of fits and predictions by laplace-torch, each by the quickest of its backends."""
    import torch
    from laplace import Laplace, curvature

    weights = trained()
    some, kept = PEERS[structure]

    def network():
        layers: list[Any] = []
        for i, (inputs, outputs) in enumerate([(64, HIDDEN), (HIDDEN, 10)], 1):
            layer = torch.nn.Linear(inputs, outputs)
            layer.weight.data = torch.tensor(np.asarray(weights[f"w{i}"]).T.copy())
            layer.bias.data = torch.tensor(np.array(weights[f"b{i}"]))
            layers += [layer, torch.nn.Tanh()]
        return torch.nn.Sequential(*layers[:-1])

    pixels, labels = map(torch.tensor, digits())
    data = torch.utils.data.TensorDataset(pixels[:ROWS], labels[:ROWS])
    seconds: dict[str, list[float]] = {"fit": [], "predictive": []}
    for backend in BACKENDS:

        def fit(backend=backend):
            approx = Laplace(
                network(),
                "classification",
                subset_of_weights=some,
                hessian_structure=kept,
                backend=getattr(curvature, backend),
            )
            approx.fit(torch.utils.data.DataLoader(data, batch_size=ROWS))
            approx.log_marginal_likelihood()
            return approx

        approx = fit()
        seconds["fit"].append(repeated(fit, times=15))

        def predicted(approx=approx):
            return approx(pixels[ROWS:], link_approx="probit")

        seconds["predictive"].append(repeated(predicted, times=15))
    return {key: min(values) for key, values in seconds.items()}


def rows(quick: bool) -> list[Row]:
    """The comparisons; a dense fit has 4,810 x 4,810 numbers and is left out where it is quick."""
    compared: list[Row] = []
    for structure in ("kronecker", "diagonal", "last_layer", "low_rank", *["dense"] * (not quick)):
        ours = Call(laplacebook, (structure,))
        compared.append(
            Row(
                f"{structure}, first fit",
                ours,
                ours,
                f"its {STEPS:,} steps of training",
                "first",
                "training",
            )
        )
        known = structure in PEERS and find_spec("laplace") is not None
        peer = Call(laplace_torch, (structure,)) if known else None
        against = "laplace-torch, best backend"
        compared += [
            Row(f"{structure}, {what}", ours, peer, against, key)
            for what, key in (("next fits", "fit"), ("297 predictions", "predictive"))
        ]
    return compared
