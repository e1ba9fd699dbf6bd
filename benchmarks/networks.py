"""Networks: curvature, predictive and tuning, against laplace-torch where that is installed.

``pip install laplace-torch`` brings PyTorch, which is too large for the locked environment. Its fit is
the curvature at given weights; ours includes the certificate that they are a mode, so the curvature alone
is compared as well. Both in float32, at weights from the same training, of a network with one input and
one output.
"""

from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.clock import repeated, timed
from benchmarks.memory import peak
from benchmarks.runner import Call, Row

TITLE = "Networks"
NOISE_PRECISION = 1.0  # with more, a dense precision of many weights is not one in float32
TOLERANCE = 0.1  # posterior standard deviations: float32 and ten thousand rows allow no less
# The same for a fit that starts at the mode, so that rounding does not set off a search.
AGAIN = 0.9
BACKENDS = ("CurvlinopsGGN", "BackPackGGN", "AsdlGGN")
STEPS = 100  # of tuning
GIB = 2**30
# Prior precision of the large networks: with a vague one their search takes many minutes.
NARROW = 1e4


def problem(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of shape (n, 1) and targets of shape (n,), a noisy sine, in float32."""
    rng = np.random.default_rng(0)
    features = rng.uniform(-2, 2, size=(n, 1))
    targets = np.sin(3 * features[:, 0]) + 0.2 * rng.normal(size=n)
    return features.astype(np.float32), targets.astype(np.float32)


def network(widths: tuple[int, ...], prior_precision: float = 1.0) -> dict[str, Any]:
    """The arguments of :func:`laplacebook.models.bayesian_mlp` besides the data."""
    return {
        "widths": widths,
        "noise_precision": NOISE_PRECISION,
        "prior_precision": np.float32(prior_precision),
    }


def trained(n: int, model: dict[str, Any]) -> dict[str, Any]:
    """Weights by minibatch training."""
    import jax

    import laplacebook as lb

    return lb.train(
        lb.models.bayesian_mlp,
        *problem(n),
        key=jax.random.key(0),
        batch_size=min(n, 500),
        progress_bar=False,
        **model,
    )


def laplacebook(
    structure: str, n: int, widths: tuple[int, ...], prior_precision: float = 1.0
) -> dict[str, float]:
    """Seconds of the fit at the mode, of its curvature alone and of the predictive at 1,000 points."""
    import jax

    import laplacebook as lb
    from laplacebook.curvature.precision_at import precision_at

    model = network(widths, prior_precision)
    settings = {"curvature": "gauss_newton", "structure": structure}

    def fit(start, tolerance):
        options = settings | model | {"start": start, "tolerance": tolerance}
        return lb.laplace(lb.models.bayesian_mlp, *problem(n), **options)

    first, approx = timed(lambda: fit(trained(n, model), TOLERANCE))
    fit(approx.mode, AGAIN)
    found = {"first": first, "fit": repeated(lambda: fit(approx.mode, AGAIN))}
    at = approx.density, approx.mode_vector
    curvature = jax.jit(lambda density, u: precision_at(density, u, approx.settings))
    curvature(*at)
    found["curvature"] = repeated(lambda: curvature(*at))
    new, _ = problem(1_000)
    variance = lb.predict(approx, new, **model).epistemic
    found["predictive"] = repeated(lambda: lb.predict(approx, new, **model).epistemic)
    found["sum"] = float(variance.sum())
    return found


def laplace_torch(structure: str, n: int, widths: tuple[int, ...]) -> dict[str, float]:
    """The same by laplace-torch, each by the quickest of its backends."""
    import torch
    from laplace import Laplace, curvature

    weights = trained(n, network(widths))
    sizes = (1, *widths, 1)

    def made():
        layers: list[Any] = []
        for i, (one, other) in enumerate(zip(sizes, sizes[1:], strict=False), 1):
            layer = torch.nn.Linear(one, other)
            layer.weight.data = torch.tensor(np.asarray(weights[f"w{i}"]).T.copy())
            layer.bias.data = torch.tensor(np.array(weights[f"b{i}"]))
            layers += [layer, torch.nn.Tanh()]
        return torch.nn.Sequential(*layers[:-1])

    features, targets = map(torch.tensor, problem(n))
    data = torch.utils.data.TensorDataset(features, targets[:, None])
    batches = torch.utils.data.DataLoader(data, batch_size=min(n, 1_000))
    seconds: dict[str, list[float]] = {"fit": [], "predictive": []}
    for backend in BACKENDS:

        def fit(backend=backend, network=made()):  # noqa: B008
            approx = Laplace(
                network,
                "regression",
                subset_of_weights="all",
                hessian_structure={"dense": "full", "diagonal": "diag"}.get(structure, "kron"),
                sigma_noise=NOISE_PRECISION**-0.5,
                backend=getattr(curvature, backend),
            )
            approx.fit(batches)
            return approx

        approx = fit()
        seconds["fit"].append(repeated(fit))
        new = torch.tensor(problem(1_000)[0])
        seconds["predictive"].append(repeated(lambda approx=approx, new=new: approx(new)))
    found = {key: min(values) for key, values in seconds.items()}
    found["sum"] = float(approx(new)[1].sum())
    return found


def tuned(n: int, widths: tuple[int, ...]) -> dict[str, float]:
    """Seconds to maximise the evidence over the prior precision, the fit excluded."""
    import laplacebook as lb

    model = network(widths)
    approx = lb.laplace(
        lb.models.bayesian_mlp,
        *problem(n),
        curvature="gauss_newton",
        tolerance=TOLERANCE,
        start=trained(n, model),
        **model,
    )

    def tune():
        return lb.maximize_evidence(approx, {"prior_precision": 1.0}, steps=STEPS)

    tune()
    return {"seconds": repeated(tune)}


def tuned_by_laplace_torch(n: int, widths: tuple[int, ...]) -> dict[str, float]:
    """The same by laplace-torch, which factorises the matrix at every step."""
    import torch
    from laplace import Laplace, curvature

    sizes = (1, *widths, 1)
    pairs = zip(sizes, sizes[1:], strict=False)
    layers = [x for one, other in pairs for x in (torch.nn.Linear(one, other), torch.nn.Tanh())]
    features, targets = map(torch.tensor, problem(n))
    data = torch.utils.data.TensorDataset(features, targets[:, None])
    approx = Laplace(
        torch.nn.Sequential(*layers[:-1]),
        "regression",
        subset_of_weights="all",
        hessian_structure="full",
        sigma_noise=NOISE_PRECISION**-0.5,
        backend=curvature.AsdlGGN,
    )
    approx.fit(torch.utils.data.DataLoader(data, batch_size=min(n, 1_000)))
    return {"seconds": timed(lambda: approx.optimize_prior_precision(n_steps=STEPS))[0]}


def products(n: int, D: int) -> dict[str, float]:
    """Seconds of J'J by NumPy in float32: the arithmetic that a dense fit cannot do without."""
    jacobian = np.random.default_rng(0).normal(size=(n, D)).astype(np.float32)
    return {"seconds": repeated(lambda: jacobian.T @ jacobian)}


def large(structure: str, n: int, widths: tuple[int, ...]) -> dict[str, float]:
    """Seconds of a fit of a large network after training, and the peak of memory in GiB."""
    found = laplacebook(structure, n, widths, NARROW)
    return found | {"memory": peak() / GIB}


def limit(gib: float) -> dict[str, float]:
    """The memory that a large fit may take."""
    return {"memory": gib}


def rows(quick: bool) -> list[Row]:
    """The comparisons."""
    sizes = [(1_000, (20, 20))] if quick else [(1_000, (50, 50)), (10_000, (50, 50))]
    compared: list[Row] = []
    for n, widths in sizes:
        D = sum((a + 1) * b for a, b in zip((1, *widths), (*widths, 1), strict=True))
        dense, size = Call(laplacebook, ("dense", n, widths)), f"{D:,} weights, n = {n:,}"
        product = Call(products, (n, D))
        compared.append(
            Row(f"dense fit, {size}", dense, product, "one J'J by NumPy", "fit", "seconds")
        )
        if find_spec("laplace") is None:
            continue
        for structure in ("dense", "diagonal", "kronecker"):
            ours = Call(laplacebook, (structure, n, widths))
            peer = Call(laplace_torch, (structure, n, widths))
            against = "laplace-torch, best backend"
            compared += [
                Row(f"{structure} {key}, {size}", ours, peer, against, key, peer_key)
                for key, peer_key in (("fit", ""), ("curvature", "fit"), ("predictive", ""))
            ]
        ours, peer = Call(tuned, (n, widths)), Call(tuned_by_laplace_torch, (n, widths))
        compared.append(Row(f"{STEPS} steps of tuning, {size}", ours, peer, "laplace-torch"))
    if not quick:
        for structure in ("diagonal", "kronecker"):
            ours, most = Call(large, (structure, 10_000, (1_000, 1_000))), Call(limit, (4.0,))
            compared.append(
                Row(
                    f"{structure}, 1,004,001 weights, n = 10,000: peak",
                    *(ours, most, "the aim", "memory"),
                    unit="GiB",
                )
            )
    return compared
