"""What a fitted model says of new data: the posterior predictive, with its two uncertainties."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from laplacebook.checks import require_number
from laplacebook.density import ModelDensity
from laplacebook.errors import NonFinite, UnsupportedModel
from laplacebook.estimate import Estimate
from laplacebook.logistic_normal import probit_approximation, sigmoid_mean
from laplacebook.outcomes import Outcome, outcome_at
from laplacebook.plain import is_plain
from laplacebook.precision import Precision
from laplacebook.requirements import require_fit
from laplacebook.result import LaplaceApproximation

__all__ = ["Prediction", "predict"]

METHODS = {
    "bernoulli": ("quadrature", "probit", "plug_in", "monte_carlo"),
    "categorical": ("probit", "plug_in", "monte_carlo"),
    "normal": ("linearized", "plug_in", "monte_carlo"),
    "other": ("plug_in", "monte_carlo"),
}
_AT_ONCE = 2**22  # numbers of R'^-1 or J R'^-1 in memory, or _COLUMNS columns if these are more
_COLUMNS = 16
_STEADY = 1e-6  # of the size of a predictor's change: how far from linear it may be


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["mean", "epistemic", "noise", "standard_error"],
    meta_fields=[],
)
@dataclass(frozen=True)
class Prediction:
    """Mean and variance of outcomes to come.

    Attributes:
        mean: of the outcomes, shape (N,), or that of the observed site.
        epistemic: the part of the variance that comes from not knowing the parameters, and that
            more data would reduce; of the same shape.
        noise: the part that stays if they are known.
        standard_error: of ``mean``, if it was computed from draws; else zero.
    """

    mean: Any
    epistemic: Any
    noise: Any
    standard_error: Any

    @property
    def variance(self) -> Array:
        """Both parts together."""
        return self.epistemic + self.noise

    @property
    def standard_deviation(self) -> Array:
        """The square root of the variance."""
        return jnp.sqrt(self.variance)


def predict(
    approx: LaplaceApproximation,
    *args: Any,
    method: str | None = None,
    key: Key[Array, ""] | None = None,
    num_samples: int = 1000,
    site: str | None = None,
    **kwargs: Any,
) -> Array | Estimate | Prediction:
    """The posterior predictive of the model's observed site, for new arguments.

    The parameters are averaged over q. With a linear predictor a(u), such as the logit of a
    logistic regression, a is normal under q, with mean a(u_MAP) and variance g' A^-1 g, where g is
    its gradient. Memory grows with the number of rows, and not with rows times parameters. Under a
    JAX transformation, where no number can raise an error, the rows concerned are NaN.

    Args:
        approx: the fit.
        args: the model's positional arguments, as for the fit but with other rows; what it observes
            is left out, and its argument has the default None.
        method: of the average. For a Bernoulli outcome ``"quadrature"`` (the default): the integral
            of sigma(a) N(a | mean, variance) to rounding; ``"probit"``: MacKay's approximation of
            it; for a categorical one ``"probit"`` (the default), with one variance for each logit
            (Gibbs 1997). For a normal one ``"linearized"`` (the default): N(f(u_MAP), noise +
            g' A^-1 g), exact if the mean is linear in u and the noise is known. For any model
            ``"monte_carlo"``: the average over draws from q; and ``"plug_in"``, for comparison:
            the parameters at the mode as if they were known.
        key: a JAX random key, for ``"monte_carlo"``.
        num_samples: how many draws.
        site: the observed site; needed if there are several.
        kwargs: the model's keyword arguments.

    Returns:
        For a Bernoulli or categorical outcome probabilities, shape (N,) or (N, C), which Monte
        Carlo wraps in an :class:`~laplacebook.Estimate`; else a :class:`Prediction`.

    Raises:
        ValueError: the model cannot run with the arguments; the method is not one for its outcome
            (the message says which are); Monte Carlo without a key, or with no draws.
        UnsupportedModel: quadrature or probit for a predictor that is not linear in u; a plain
            density, which has no outcome.
        NonFinite: the prediction is not finite: an argument is not, the outcome has no mean, or it
            depends on other outcomes that are not known.
        LaplaceError: the fit failed.
    """
    require_fit(approx)
    if is_plain(approx.density):
        raise UnsupportedModel(
            "A plain log density has no observed site to predict.",
            remedy="write the model in NumPyro, or average over approx.sample(key, (1000,)).",
        )
    density = approx.density
    new = ModelDensity(density.model, args, kwargs, density.space)
    kind = jax.eval_shape(_outcome, density, new, approx.mode_vector, site=site).kind
    method = METHODS[kind][0] if method is None else method
    if method not in METHODS[kind]:
        raise ValueError(
            f"There is no method {method!r} for the outcome of this model ({kind}); there are "
            f"{', '.join(METHODS[kind])}."
        )
    if method == "monte_carlo":
        require_number("num_samples", num_samples)
        if key is None:
            raise ValueError('method="monte_carlo" needs a random key: key=jax.random.key(0).')
        draws = approx.sample_vector(key, (num_samples,))
        mean, spread, noise = _average(density, new, draws, site)
        _require_finite(new, mean)
        return _by_draws(kind, mean, spread, noise, num_samples)
    if method == "plug_in":
        outcome = _outcome(density, new, approx.mode_vector, site=site)
        _require_finite(new, outcome.mean)
        nothing = jnp.zeros_like(outcome.mean)
        known = Prediction(outcome.mean, nothing, outcome.variance, nothing)
        return outcome.mean if kind in ("bernoulli", "categorical") else known
    mean, variance, noise, linear = _linearize(
        density, new, approx.mode_vector, approx.precision, site
    )
    _require_finite(new, mean + variance if kind == "normal" else mean)
    if kind == "normal":
        return Prediction(mean, variance, noise, jnp.zeros_like(mean))
    mean = _require_linear(linear, mean, method)
    if kind == "categorical":
        return jax.nn.softmax(mean / jnp.sqrt(1 + jnp.pi / 8 * variance))
    if method == "probit":
        return probit_approximation(mean, variance)
    return sigmoid_mean(mean, variance)


_outcome = jax.jit(outcome_at, static_argnames=["site"])


@partial(jax.jit, static_argnames=["site"])
def _average(
    density: ModelDensity, new: ModelDensity, draws: Float[Array, "S D"], site: str | None
) -> tuple[Array, Array, Array]:
    """Mean and variance over draws of the outcome's mean, and the mean of its variance (Welford)."""

    def add(sums: tuple, numbered: tuple) -> tuple:
        mean, squares, noise = sums
        number, u = numbered
        outcome = outcome_at(density, new, u, site)
        away = outcome.mean - mean
        mean = mean + away / number
        noise = noise + (outcome.variance - noise) / number
        return (mean, squares + away * (outcome.mean - mean), noise), None

    numbers = jnp.arange(1, len(draws) + 1)
    shape = jax.eval_shape(lambda u: outcome_at(density, new, u, site).mean, draws[0])
    start = (jnp.zeros(shape.shape, shape.dtype),) * 3
    (mean, squares, noise), _ = jax.lax.scan(add, start, (numbers, draws))
    return mean, squares / jnp.maximum(len(draws) - 1, 1), noise


def _by_draws(
    kind: str, mean: Array, spread: Array, noise: Array, number: int
) -> Estimate | Prediction:
    error = jnp.sqrt(spread / number) if number > 1 else jnp.full_like(mean, jnp.inf)
    if kind in ("bernoulli", "categorical"):
        return Estimate(mean, error)
    return Prediction(mean, spread, noise, error)


@partial(jax.jit, static_argnames=["site"])
def _linearize(
    density: ModelDensity,
    new: ModelDensity,
    mode: Float[Array, " D"],
    precision: Precision,
    site: str | None,
) -> tuple[Array, Array, Array, Bool[Array, "*N"]]:
    """Predictor at the mode, its variance g' A^-1 g, the noise, and where the predictor is linear.

    The variance is the sum of squares of the rows of J R'^-1, A = R R', some columns at a time.
    """

    def predictor(u: Array) -> tuple[Array, Array]:
        outcome: Outcome = outcome_at(density, new, u, site)
        return outcome.predictor, outcome.variance

    mean, along, noise = jax.linearize(predictor, mode, has_aux=True)
    D = mode.size
    blocks = -(-D // max(_AT_ONCE // max(mean.size, D), _COLUMNS))
    columns = -(-D // blocks)

    def add(total: Array, some: Array) -> tuple[Array, None]:
        unit = jax.nn.one_hot(some, D, axis=0, dtype=mode.dtype)  # zero beyond the last coordinate
        root = precision.whitened(unit)
        return total + jnp.sum(jax.vmap(along, 1, -1)(root) ** 2, axis=-1), None

    numbers = jnp.arange(blocks * columns).reshape(blocks, columns)
    variance, _ = jax.lax.scan(add, jnp.zeros_like(mean), numbers)
    variance = jnp.where(jnp.isinf(variance), jnp.nan, variance)  # of squares that overflow
    # Irregular, for along a regular step the curvature of w1^2 - w2^2 can cancel.
    step = precision.whitened(jnp.cos(jnp.arange(1, D + 1, dtype=mode.dtype) ** 2))
    there, _ = predictor(mode + step)
    away = jnp.abs(there - mean - along(step))
    size = jnp.sqrt(variance * D) + jnp.finfo(mean.dtype).eps ** 0.5 * (1 + jnp.abs(mean))
    return mean, variance, noise, away <= _allowed(mean.dtype) * size


def _allowed(dtype: Any) -> float:
    return max(_STEADY, float(jnp.finfo(dtype).eps) ** 0.5)


def _require_finite(new: ModelDensity, result: Array) -> None:
    """Say why, where the result is not finite and that can be seen."""
    if isinstance(result, jax.core.Tracer) or jnp.all(jnp.isfinite(result)):
        return
    raise NonFinite(
        "There is no prediction for these new arguments.",
        causes=new.not_finite()
        or [
            "the outcome's distribution has no mean, as the Cauchy distribution has none",
            "the outcome depends on others that are not known (an autoregressive model)",
            "the mean overflows",
        ],
        remedy="leave out the rows concerned, or average over approx.sample(key, (1000,)).",
    )


def _require_linear(linear: Bool[Array, "*N"], mean: Array, method: str) -> Array:
    """The predictor; NaN where it is not linear and nothing can be raised."""
    if isinstance(linear, jax.core.Tracer):
        return jnp.where(linear, mean, jnp.nan)
    if not jnp.all(linear):
        raise UnsupportedModel(
            f'method="{method}" needs a predictor that is linear in the parameters u, and that of '
            "this model is not.",
            causes=[
                "the scale of a coefficient is itself a parameter (a hierarchical model)",
                "the predictor is a network, or a product of parameters",
                "squares of the predictor overflow",
            ],
            remedy='use method="monte_carlo", which needs no linearity, or smaller units.',
        )
    return mean
