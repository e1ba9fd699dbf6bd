"""The same numbers as laplace-torch, for one network of 2 inputs, 3 hidden units and fixed weights.

The golden values were computed once with laplace-torch 0.3 (PyTorch 2.15, float64), with three of its
backends (curvlinops, BackPACK, ASDL), which agree to all digits given: ``Laplace(net, likelihood,
subset_of_weights, hessian_structure, prior_precision=2, sigma_noise=0.3)``, its log determinant of the
posterior precision, its log marginal likelihood, and the covariance of the outputs at new inputs.
"""

from functools import cache, partial
from math import log, pi

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from laplacebook.curvature.last_layer import last_layer_of
from laplacebook.curvature.outputs_and_loss import split_likelihood
from laplacebook.curvature.precision_at import precision_at
from laplacebook.curvature.settings import Settings
from laplacebook.model.density import ModelDensity
from laplacebook.models import bayesian_mlp

X = np.array(
    [[0.5, 1.59], [1.1, -1.1], [-0.8, 1.49], [-1.98, 1.28], [1.19, -0.13], [-0.79, -0.89]]
    + [[-0.98, -0.22], [0.02, 0.21], [1.98, 1.17], [0.49, 1.96], [-1.14, -1.36], [0.45, -1.82]]
)
REAL = np.array([1.29, 0.32, -0.22, -0.33, 0.86, -1.14, -1.09, 0.08, 1.4, 1.37, -1.48, -0.56])
LABELS = np.array([1, 0, 1, 2, 1, 0, 1, 0, 2, 2, 0, 1])
FIRST = [-1.23, 0.08, 1.36, -1.55, 0.86, 0.12, -0.64, 2.0, 0.76]
WEIGHTS = {
    "normal": jnp.array([*FIRST, -1.2, 0.07, 0.58, -0.19]),
    "categorical": jnp.array(
        [*FIRST, 0.68, -0.07, 0.67, 1.44, -0.68, 0.2, -0.46, 0.13, -1.19, -0.58, -0.2, 0.9]
    ),
}
NEW = {"normal": [[0.0, 0.0], [1.5, -1.0], [-3.0, 2.0]], "categorical": [[-3.0, 2.0]]}

#: log determinant, log marginal likelihood, covariance of the outputs at the new inputs
GOLDEN = {
    ("normal", "dense"): (
        29.3634889873,
        -41.5076926633,
        [0.0467783298, 0.0370505219, 0.1938396278],
    ),
    ("normal", "kronecker"): (
        *(39.5230445157, -46.5874704275, [0.0379224152, 0.0536533642, 0.52972653]),
    ),
    ("normal", "diagonal"): (
        *(40.1869281214, -46.9194122303, [0.0506948665, 0.0551171457, 0.3534847337]),
    ),
    ("normal", "last_layer"): (
        *(14.9009603102, -25.8829906373, [0.0100939735, 0.0145484698, 0.0357432532]),
    ),
    ("categorical", "dense"): (
        *(21.105540873, -38.4199804651),
        [3.818532439, -0.0866045189, 3.1881489486, 1.264117612, -0.0881845391, 3.7309430127],
    ),
    ("categorical", "kronecker"): (
        *(22.9550471006, -39.3447335788),
        [3.9599088816, -0.1016416348, 3.2684516668, 1.1284666863, -0.1106072259, 3.8866029281],
    ),
    ("categorical", "diagonal"): (
        *(24.216880828, -39.9756504426),
        [3.694317215, -0.3072689008, 2.9402981984, 0.9329231668, -0.3027257959, 3.6328346444],
    ),
    ("categorical", "last_layer"): (
        *(13.5726789139, -26.260111798),
        [0.9602921881, 0.1210817163, 0.4137727037, 1.2324155367, 0.141649355, 0.9397245493],
    ),
}


@cache
def network(likelihood, last_layer):
    """The density, the weights, the Jacobians of the outputs at the new inputs, and the log joint."""
    normal = likelihood == "normal"
    model = partial(
        bayesian_mlp,
        widths=(3,),
        likelihood=likelihood,
        outputs=1 if normal else 3,
        prior_precision=2.0,
        noise_precision=0.3**-2,
    )
    density = ModelDensity.of(model, (X, REAL if normal else LABELS))
    u = WEIGHTS[likelihood]
    if last_layer:
        density, u = last_layer_of(density, u), u[9:]
    new = ModelDensity.of(
        density.model, (np.array(NEW[likelihood]), np.zeros(len(NEW[likelihood]), int))
    )
    jacobian = jax.jit(jax.jacobian(split_likelihood(new, u)[0]))
    terms = jax.jit(density.terms)(u)
    jacobians = jacobian(u).reshape(len(NEW[likelihood]), -1, u.size)
    return density, u, jacobians, terms.log_likelihood + terms.log_prior


@pytest.mark.parametrize(("likelihood", "structure"), GOLDEN)
def test_as_laplace_torch(likelihood, structure):
    density, u, jacobians, log_joint = network(likelihood, structure == "last_layer")
    kind = "dense" if structure == "last_layer" else structure
    settings = Settings("gauss_newton", kind, batch_size=5)
    precision = jax.jit(lambda d, u: precision_at(d, u, settings))(density, u)
    covariance = jax.jit(jax.vmap(precision.covariance_of))(jacobians)
    evidence = log_joint + u.size / 2 * log(2 * pi) - precision.log_determinant() / 2

    golden = GOLDEN[likelihood, structure]
    upper = np.triu_indices(covariance.shape[-1])
    assert precision.log_determinant() == pytest.approx(golden[0], abs=1e-9)
    assert float(evidence) == pytest.approx(golden[1], abs=1e-9)
    assert np.ravel(covariance[:, *upper]) == pytest.approx(golden[2], abs=2e-10)
