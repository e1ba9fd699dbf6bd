"""The Laplace approximation of any NumPyro model, right or loud."""

from importlib import import_module
from types import ModuleType

from laplacebook import datasets, exercises, models
from laplacebook.approximation import laplace
from laplacebook.block import BlockPrecision
from laplacebook.bridge import bridge_sampling
from laplacebook.chunks import laplace_of_chunks
from laplacebook.comparison import compare
from laplacebook.criteria import bic
from laplacebook.diagnosis import Diagnosis
from laplacebook.diagnostics import diagnose
from laplacebook.errors import (
    LaplaceError,
    NonFinite,
    NotConverged,
    NotPositiveDefinite,
    UnsupportedModel,
)
from laplacebook.estimate import Estimate
from laplacebook.gaussian import (
    LinearGaussian,
    condition,
    expected_quadratic_form,
    kl_divergence,
    linear_gaussian,
    marginal,
)
from laplacebook.importance import importance_sampling
from laplacebook.kronecker import KroneckerBlock, KroneckerPrecision
from laplacebook.low_rank import LowRankPrecision
from laplacebook.maximize_evidence import EvidenceMaximum, maximize_evidence
from laplacebook.maximum_likelihood import maximum_likelihood
from laplacebook.mode import Certificate
from laplacebook.passes import Chunks
from laplacebook.plain import laplace_of_density
from laplacebook.precision import DensePrecision, DiagonalPrecision, Precision
from laplacebook.predictive import Prediction, predict
from laplacebook.prior_sampling import prior_sampling
from laplacebook.quadrature import gauss_hermite
from laplacebook.result import LaplaceApproximation
from laplacebook.sharding import shard
from laplacebook.storage import load
from laplacebook.table import Table
from laplacebook.taylor import taylor_coefficients, taylor_polynomial
from laplacebook.train import train
from laplacebook.version import __version__ as __version__

__all__ = [
    "BlockPrecision",
    "Certificate",
    "Chunks",
    "DensePrecision",
    "Diagnosis",
    "DiagonalPrecision",
    "Estimate",
    "EvidenceMaximum",
    "KroneckerBlock",
    "KroneckerPrecision",
    "LaplaceApproximation",
    "LaplaceError",
    "LinearGaussian",
    "LowRankPrecision",
    "NonFinite",
    "NotConverged",
    "NotPositiveDefinite",
    "Precision",
    "Prediction",
    "Table",
    "UnsupportedModel",
    "bic",
    "bridge_sampling",
    "compare",
    "condition",
    "datasets",
    "diagnose",
    "exercises",
    "expected_quadratic_form",
    "gauss_hermite",
    "importance_sampling",
    "kl_divergence",
    "laplace",
    "laplace_of_chunks",
    "laplace_of_density",
    "linear_gaussian",
    "load",
    "marginal",
    "maximize_evidence",
    "maximum_likelihood",
    "models",
    "plotting",
    "predict",
    "prior_sampling",
    "shard",
    "taylor_coefficients",
    "taylor_polynomial",
    "train",
]


def __getattr__(name: str) -> ModuleType:
    """Import :mod:`laplacebook.plotting` when it is used: Matplotlib is slow to import."""
    if name == "plotting":
        return import_module("laplacebook.plotting")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
