"""Hyperparameters at which the evidence of a model is largest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from laplacebook.base.checks import require_number, require_numbers
from laplacebook.base.pytrees import STATIC, register_dataclass
from laplacebook.base.table import Table
from laplacebook.curvature.settings import Settings
from laplacebook.evidence.ascent import Objective, ascend, explain_no_maximum
from laplacebook.evidence.evidence_at_fixed_mode import at_fixed_mode
from laplacebook.evidence.hyperparameters import Hyperparameters
from laplacebook.fit.chunked_density import ChunkedDensity
from laplacebook.fit.laplace import approximate
from laplacebook.fit.require_fit import require_fit, require_posterior
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.model.density import ModelDensity
from laplacebook.search.search import search


@dataclass(frozen=True, repr=False)
class EvidenceMaximum:
    """Where :func:`maximize_evidence` ended; all numbers but the history are NaN if at no maximum.

    In the book: :eq:`neural-network-evidence` of :doc:`/book/neural-network`.

    Attributes:
        hyperparameters: name -> value at the maximum.
        log_evidence: the maximum; without ``refit``, of the evidence at the mode held fixed.
        history: the log evidence at the start and after each step, shape (steps + 1,).
        approx: the model fitted again at the maximum.
        gradient: name -> derivative of the log evidence with respect to the logarithm.
        distance: the largest Newton step in a logarithm that is left.
        converged: whether it is a maximum, as :func:`maximize_evidence` has it.
        refit: whether the mode was found again at every step.
        doubt_at_start: what was known against the fit that it began at, a verdict of bad or modes elsewhere; or None.
    """

    hyperparameters: dict[str, Array]
    log_evidence: float
    history: np.ndarray
    approx: LaplaceApproximation
    gradient: dict[str, Array]
    distance: float
    converged: bool
    refit: bool
    doubt_at_start: str | None = None

    @property
    def doubt(self) -> str | None:
        """What is known against the model fitted again or, before that is diagnosed, the fit that it began at; or None.

        It is printed.
        """
        if self.approx._diagnosed is not None or self.doubt_at_start is None:
            return self.approx.known_doubt
        return f"the fit that it began at: {self.doubt_at_start}"

    @property
    def steps(self) -> int:
        """How many steps were taken."""
        return self.history.size - 1

    def __repr__(self) -> str:
        return repr(self._report())

    def _repr_html_(self) -> str:
        return self._report()._repr_html_()

    def _report(self) -> Table:
        shapes = tuple(value.shape for value in self.hyperparameters.values())
        names = Hyperparameters(tuple(self.hyperparameters), shapes).elements
        mode = "found again at every step" if self.refit else "held fixed"
        found = "maximum certified" if self.converged else "NO MAXIMUM"
        columns = {"value": self.hyperparameters, "slope in its log": self.gradient}
        return Table(
            f"Largest evidence of {self.approx.density.name}",
            {"hyperparameter": names} | {name: _flat(column) for name, column in columns.items()},
            (
                f"log evidence {self.log_evidence:.4f}, {self.history[0]:.4f} at the start; the mode "
                + mode,
                f"log evidence of the model fitted again {self.approx.log_evidence:.4f}",
                f"{found}: {self.distance:.0e} away in the logarithms, {self.steps} steps",
                *([] if self.doubt is None else [f"doubtful: {self.doubt}"]),
            ),
        )


def maximize_evidence(
    approx: LaplaceApproximation,
    hyperparameters: Mapping[str, ArrayLike | Sequence[float]],
    *,
    refit: bool = False,
    steps: int = 100,
    progress_bar: bool | None = None,
    throw: bool = True,
) -> EvidenceMaximum:
    """Maximise the Laplace evidence over positive arguments of a model, such as prior precisions.

    Over their logarithms, by L-BFGS-B (MacKay 1992; Immer et al. 2021).

    With ``refit=False`` the mode stays where ``approx`` has it, and only the curvature A(h) moves:
    ``log Z(h) = log p(D | u*, h) + log p(u* | h) + (D/2) log 2 pi - (1/2) log |A(h)|``. The step from
    one mode is exact in h, but not the evidence of the model at h: fit again and repeat
    (``maximize_evidence(maximum.approx, maximum.hyperparameters)``) until nothing changes. Such a
    fixed point is MacKay's: there the gradient lacks one term of that of the evidence, by which A
    changes through the mode. With ``refit=True`` the mode is found again at every step, and that
    term is there; each step costs a fit. The term is zero where A does not depend on the mode, as
    in linear regression with known noise. The evidence of a network may be some nats higher where
    ``refit=True`` ends: go on with it from the fixed point. It jumps where a search ends at another
    mode than the one before, and may then have no maximum.

    With Gauss-Newton or Fisher curvature at a mode held fixed, hyperparameters that scale the prior's
    Hessian and the likelihood's curvature cost one eigendecomposition for all steps (one for
    each site where the precision is in blocks); prior precisions that differ within a block one
    Cholesky factor a step.

    It is a maximum where the Hessian with respect to the logarithms is negative definite, beyond the
    error of its differences, and the gradient so small that the Newton step left is at most 1e-6 in
    every logarithm (0.01 in single precision): the relative error of the hyperparameters.

    In the book: :eq:`neural-network-evidence`, :eq:`neural-network-alpha` and
    :eq:`neural-network-beta` of :doc:`/book/neural-network`.

    Args:
        approx: a fit of the model.
        hyperparameters: name -> positive number, or an array of them: arguments of the model, at
            which the maximisation begins. All else of the model stays.
        refit: whether the mode is found again at every step.
        steps: of L-BFGS, at most.
        progress_bar: whether to show one if it takes longer than two seconds; by default if the
            standard error stream is a terminal.
        throw: raise if there is no maximum; else its numbers are NaN.

    Returns:
        An :class:`EvidenceMaximum`.

    Raises:
        ValueError: the model has no such argument, a value is not positive, or ``approx`` is a batch
            of fits or is within a JAX transformation; or ``refit`` is asked of a low rank.
        TypeError: ``approx`` is no fit, ``hyperparameters`` no dict, or a value in it one or no number.
        NotConverged: the evidence rises without end, does not depend on a hyperparameter, does not tell
            two of them apart, or ``steps`` were too few; or ``approx`` is no mode.
        NonFinite: the evidence is not finite at the start.
        UnsupportedModel: see :func:`laplace`; or a precision of low rank cannot follow.

    >>> import jax.numpy as jnp, laplacebook as lb
    >>> x = jnp.linspace(-1, 1, 20)[:, None]
    >>> data = (x, jnp.sin(3 * x[:, 0]))
    >>> line = lb.laplace(lb.models.bayesian_mlp, *data, widths=())
    >>> maximum = lb.maximize_evidence(line, {"prior_precision": 1.0, "noise_precision": 1.0})
    >>> print(f"{maximum.hyperparameters['noise_precision']:.1f}")
    4.5
    """
    require_number("steps", steps)
    require_numbers("maximize_evidence", approx)
    require_fit(approx, mappable=False)
    require_posterior(approx.density)
    if not isinstance(hyperparameters, Mapping):
        raise TypeError(
            "hyperparameters is a dict of name -> where the maximisation begins, such as "
            f'{{"prior_precision": 1.0}}, not a {type(hyperparameters).__name__}.'
        )
    names, start = Hyperparameters.of(approx.density, hyperparameters)
    if isinstance(approx.density, ChunkedDensity):
        raise approx.density.without_data()
    objective: Objective
    if refit:
        if approx.settings.structure == "low_rank":
            raise ValueError(
                'refit=True needs derivatives of the precision, which structure="low_rank" does not '
                "have: use refit=False and fit again until nothing changes."
            )
        objective = _Refitted(approx.density, names, approx.settings)
    else:
        objective = at_fixed_mode(approx, names, start)
    peak = ascend(objective, start, approx.mode_vector, steps, progress_bar)
    if throw and not peak.converged:
        raise explain_no_maximum(names, start, peak, steps, refit, approx.settings.curvature)
    loud = 1.0 if peak.converged else np.nan
    if peak.converged:
        density = names.put(approx.density, peak.x)
        # Of several modes the one whose evidence was followed.
        mode = density.values(peak.mode) if refit else approx.mode
        again = approximate(density, mode, throw=throw, settings=approx.settings)
    else:
        again = _without_numbers(approx)
    return EvidenceMaximum(
        names.unravel(loud * jnp.exp(peak.x)),
        loud * peak.value,
        peak.history,
        again,
        names.unravel(jnp.asarray(loud * peak.gradient)),
        loud * peak.distance,
        peak.converged,
        refit,
        approx.known_doubt,
    )


@register_dataclass
@dataclass(frozen=True)
class _Refitted(Objective):
    """The log evidence where the mode is found again."""

    density: ModelDensity
    hyperparameters: Hyperparameters = field(metadata=STATIC)
    settings: Settings = field(metadata=STATIC)

    def __call__(
        self, x: Float[Array, " H"], u: Float[Array, " D"]
    ) -> tuple[Float[Array, ""], Float[Array, " D"]]:
        """The log evidence of a fit at the logarithms x whose search begins at u, and its mode."""
        found = search(self.hyperparameters.put(self.density, x), u, self.settings)
        log_joint = found.log_likelihood + found.log_prior
        return log_joint + found.precision.log_volume(), found.mode_vector


def _without_numbers(approx: LaplaceApproximation) -> LaplaceApproximation:
    """The approximation of a fit that failed."""
    names = ("mode", "mode_vector", "precision", "log_likelihood", "log_prior")
    lost = {n: jax.tree.map(lambda x: x * jnp.nan, getattr(approx, n)) for n in names}
    certificate = replace(approx.certificate, converged=jnp.zeros((), bool))
    return replace(approx, certificate=certificate, other_modes=(), **lost)


def _flat(values: Mapping[str, Array]) -> list[float]:
    return np.concatenate([np.ravel(value) for value in values.values()]).tolist()
