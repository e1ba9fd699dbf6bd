"""The Laplace approximation of any NumPyro model, right or loud."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from laplacebook.base.compiler import mend_compiler
from laplacebook.base.errors import (
    DoubtfulFit,
    LaplaceError,
    NonFinite,
    NotConverged,
    NotPositiveDefinite,
    UnsupportedModel,
)
from laplacebook.base.table import Table
from laplacebook.base.version import __version__ as __version__
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.laplace import laplace
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.gaussian.kronecker import KroneckerBlock, KroneckerPrecision
from laplacebook.gaussian.low_rank import LowRankPrecision
from laplacebook.gaussian.precision import (
    BlockPrecision,
    DensePrecision,
    DiagonalPrecision,
    Precision,
)
from laplacebook.model.sharding import shard
from laplacebook.search.certificate import Certificate

if TYPE_CHECKING:
    from laplacebook import datasets, exercises, gallery, models, plotting
    from laplacebook.base.corrected import Corrected
    from laplacebook.base.estimate import Estimate
    from laplacebook.base.weights import pareto_k
    from laplacebook.beyond.expectation import Expectation, expectation
    from laplacebook.beyond.load import load
    from laplacebook.beyond.marginalize import MarginalModel, marginalize
    from laplacebook.beyond.mixture import MixtureApproximation, mixture
    from laplacebook.beyond.nested import nested
    from laplacebook.beyond.nested_approximation import NestedApproximation
    from laplacebook.beyond.nuts import nuts
    from laplacebook.beyond.resampled import ResampledApproximation, resampled
    from laplacebook.beyond.skewed import SkewedApproximation, skewed
    from laplacebook.evidence.bic import bic
    from laplacebook.evidence.bridge import bridge_sampling
    from laplacebook.evidence.comparison import compare
    from laplacebook.evidence.corrected_evidence import corrected_evidence
    from laplacebook.evidence.importance import importance_sampling
    from laplacebook.evidence.maximize_evidence import EvidenceMaximum, maximize_evidence
    from laplacebook.evidence.prior_sampling import prior_sampling
    from laplacebook.evidence.quadrature import gauss_hermite
    from laplacebook.fit.chunked_density import Chunks
    from laplacebook.fit.laplace_of_chunks import laplace_of_chunks
    from laplacebook.fit.laplace_of_density import laplace_of_density
    from laplacebook.fit.maximum_likelihood import maximum_likelihood
    from laplacebook.gaussian.normal import (
        LinearGaussian,
        condition,
        expected_quadratic_form,
        kl_divergence,
        linear_gaussian,
        marginal,
    )
    from laplacebook.gaussian.sparse import SparsePrecision
    from laplacebook.model.network import Network, network
    from laplacebook.predictive.averages import probit_approximation, sigmoid_mean
    from laplacebook.predictive.calibration import (
        brier_score,
        expected_calibration_error,
        mutual_information,
        predictive_entropy,
        reliability_curve,
    )
    from laplacebook.predictive.predict import predict
    from laplacebook.predictive.prediction import Prediction
    from laplacebook.search.train import train
    from laplacebook.taylor import taylor_coefficients, taylor_polynomial
    from laplacebook.trust.diagnose import diagnose
    from laplacebook.trust.diagnosis import Diagnosis
    from laplacebook.trust.moments_diagnosis import MomentsDiagnosis, NestedDiagnosis
else:
    #: public name -> the module that has it: what a fit does not need is imported when it is first used
    _LATER = {
        "bic": "evidence.bic",
        "bridge_sampling": "evidence.bridge",
        "brier_score": "predictive.calibration",
        "Chunks": "fit.chunked_density",
        "compare": "evidence.comparison",
        "condition": "gaussian.normal",
        "Corrected": "base.corrected",
        "corrected_evidence": "evidence.corrected_evidence",
        "diagnose": "trust.diagnose",
        "Diagnosis": "trust.diagnosis",
        "Estimate": "base.estimate",
        "EvidenceMaximum": "evidence.maximize_evidence",
        "Expectation": "beyond.expectation",
        "expected_calibration_error": "predictive.calibration",
        "expectation": "beyond.expectation",
        "expected_quadratic_form": "gaussian.normal",
        "gauss_hermite": "evidence.quadrature",
        "importance_sampling": "evidence.importance",
        "kl_divergence": "gaussian.normal",
        "laplace_of_chunks": "fit.laplace_of_chunks",
        "laplace_of_density": "fit.laplace_of_density",
        "linear_gaussian": "gaussian.normal",
        "LinearGaussian": "gaussian.normal",
        "load": "beyond.load",
        "marginal": "gaussian.normal",
        "marginalize": "beyond.marginalize",
        "MarginalModel": "beyond.marginalize",
        "mixture": "beyond.mixture",
        "MixtureApproximation": "beyond.mixture",
        "nested": "beyond.nested",
        "network": "model.network",
        "Network": "model.network",
        "nuts": "beyond.nuts",
        "resampled": "beyond.resampled",
        "ResampledApproximation": "beyond.resampled",
        "skewed": "beyond.skewed",
        "SkewedApproximation": "beyond.skewed",
        "NestedApproximation": "beyond.nested_approximation",
        "NestedDiagnosis": "trust.moments_diagnosis",
        "MomentsDiagnosis": "trust.moments_diagnosis",
        "maximize_evidence": "evidence.maximize_evidence",
        "maximum_likelihood": "fit.maximum_likelihood",
        "mutual_information": "predictive.calibration",
        "pareto_k": "base.weights",
        "predict": "predictive.predict",
        "Prediction": "predictive.prediction",
        "predictive_entropy": "predictive.calibration",
        "prior_sampling": "evidence.prior_sampling",
        "probit_approximation": "predictive.averages",
        "reliability_curve": "predictive.calibration",
        "sigmoid_mean": "predictive.averages",
        "SparsePrecision": "gaussian.sparse",
        "taylor_coefficients": "taylor",
        "taylor_polynomial": "taylor",
        "train": "search.train",
    }
    _MODULES = ("datasets", "exercises", "gallery", "models", "plotting")

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"laplacebook.{name}")
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"laplacebook.{_LATER[name]}"), name)
        globals()[name] = found
        return found


mend_compiler()


def __dir__() -> list[str]:
    return sorted(globals().keys() | set(__all__))


__all__ = [
    "Approximation",
    "BlockPrecision",
    "Certificate",
    "Chunks",
    "Corrected",
    "DensePrecision",
    "Diagnosis",
    "DiagonalPrecision",
    "DoubtfulFit",
    "Estimate",
    "EvidenceMaximum",
    "Expectation",
    "KroneckerBlock",
    "KroneckerPrecision",
    "LaplaceApproximation",
    "LaplaceError",
    "LinearGaussian",
    "LowRankPrecision",
    "MarginalModel",
    "MixtureApproximation",
    "MomentsDiagnosis",
    "NestedApproximation",
    "NestedDiagnosis",
    "Network",
    "NonFinite",
    "NotConverged",
    "NotPositiveDefinite",
    "Precision",
    "Prediction",
    "ResampledApproximation",
    "SkewedApproximation",
    "SparsePrecision",
    "Table",
    "UnsupportedModel",
    "bic",
    "bridge_sampling",
    "brier_score",
    "compare",
    "condition",
    "corrected_evidence",
    "datasets",
    "diagnose",
    "exercises",
    "gallery",
    "expectation",
    "expected_calibration_error",
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
    "marginalize",
    "maximize_evidence",
    "maximum_likelihood",
    "mixture",
    "models",
    "mutual_information",
    "nested",
    "network",
    "nuts",
    "pareto_k",
    "plotting",
    "predict",
    "predictive_entropy",
    "prior_sampling",
    "probit_approximation",
    "reliability_curve",
    "resampled",
    "shard",
    "sigmoid_mean",
    "skewed",
    "taylor_coefficients",
    "taylor_polynomial",
    "train",
]
