"""What a fitted model says of new data: the posterior predictive, with its two uncertainties."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from laplacebook.base.checks import require_key, require_number
from laplacebook.base.errors import NonFinite, UnsupportedModel
from laplacebook.base.estimate import Estimate
from laplacebook.base.keys import split, split_into
from laplacebook.base.namespace import namespace
from laplacebook.base.pytrees import from_host, is_traced, on_host
from laplacebook.base.quick import jit_quickly
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.require_fit import require_approximation
from laplacebook.fit.result import LaplaceApproximation
from laplacebook.model.arguments import Call
from laplacebook.model.density import ModelDensity
from laplacebook.model.hierarchy import is_marginal
from laplacebook.model.not_finite import no_entry
from laplacebook.model.plain_function import is_plain
from laplacebook.predictive.averages import (
    Averages,
    are_told,
    outcome_over_draws,
    outputs_over_draws,
    probit_approximation,
    probit_of_classes,
    sigmoid_mean,
    standard_error,
    tail_over_draws,
    told_below,
)
from laplacebook.predictive.doubts import warn_of_doubt
from laplacebook.predictive.linearized import Linearized, linearize, require_linear
from laplacebook.predictive.of_components import components_to_ask, joined
from laplacebook.predictive.outcomes import (
    labels_given,
    latent_values,
    outcome_at,
    refuse_crossed_arguments,
    refuse_unknown_outcomes,
    with_new_entries,
)
from laplacebook.predictive.prediction import Prediction
from laplacebook.predictive.rows_together import warn_of_rows_together
from laplacebook.predictive.settings_of_fit import with_settings_of

_DRAWS = 1000
METHODS = {
    "bernoulli": ("quadrature", "probit", "plug_in", "monte_carlo", "output_monte_carlo"),
    "categorical": ("probit", "plug_in", "monte_carlo", "output_monte_carlo"),
    "normal": ("linearized", "plug_in", "monte_carlo"),
    "angle": ("monte_carlo", "plug_in"),
    "other": ("monte_carlo", "plug_in"),
}
_CLASSES = ("bernoulli", "categorical")
_WITH_SPREAD = ("output_monte_carlo", "monte_carlo", "plug_in")
_OF_LOGITS = ("quadrature", "probit", "output_monte_carlo")
_PLUG_IN = ' Without one there is method="plug_in", which takes the parameters as known.'
_JOINT = 100  # outputs of a row, up to which a prediction has their covariance


def predict(
    approx: Approximation,
    *args: Any,
    method: str | None = None,
    key: Key[Array, ""] | None = None,
    num_samples: int = _DRAWS,
    site: str | None = None,
    with_spread: bool = False,
    **kwargs: Any,
) -> Array | Estimate | Prediction:
    """The posterior predictive of the model's observed site, for new arguments.

    The parameters are averaged over q. The predictor f, such as a logit or the mean of a normal, is
    replaced by f(u_MAP) + g'(u - u_MAP), where g is its gradient; then it is normal under q, with
    variance g' A^-1 g (Bishop 2006, section 5.7.1). That is exact for a predictor linear in u, and
    where it is not, what Gauss-Newton or Fisher curvature stands for: they are the curvature of
    the model so linearised (Khan et al. 2019; Immer, Korzepa and Bauer 2021). Memory grows with the
    number of rows, and not with rows times parameters. Under a JAX transformation, where no number
    can raise an error, the rows concerned are NaN.

    For what :func:`~laplacebook.nested` returns, ``"monte_carlo"`` is the one method: over joint draws
    of hyperparameters and effects. A plate that is larger than in the fit has new effects: the first
    entries of its sites are those of the fit, and the further ones are drawn from their own prior, given
    the hyperparameters and whatever else it depends on, anew for each draw. So a group that the fit has
    not seen is predicted where the number of groups is an argument of the model, or the length of one. An
    effect of each row, in the plate of the rows, is that of the fit's: new rows count as the same ones first.

    In the book: :prf:ref:`neural-network-predictive` of :doc:`/book/neural-network`; and
    :eq:`logistic-regression-one-dimension` of :doc:`/book/logistic-regression`.

    For a :func:`~laplacebook.mixture` the other methods are those of its components, each linearised at its own
    mode, joined by their shares: the default where the curvature is not the Hessian (an ensemble of networks).

    Args:
        approx: the fit, of :func:`~laplacebook.laplace` or one of its sisters, or of
            :func:`~laplacebook.nested`.
        args: the model's positional arguments, as for the fit but with other rows; what it observes
            is left out, and its argument has the default None. A setting that is left out (an
            argument with another default or without a place, and no array with a number for each row) is that
            of the fit.
        method: of the average; the first named of an outcome is its default. Of classes it is ``"monte_carlo"`` where
            the predictor is not linear in u, as where the scale of a coefficient is a parameter, and ``key`` is given.

            For a normal outcome ``"linearized"``: N(f(u_MAP), noise + g' A^-1 g), exact if f is
            linear in u and the noise is known.

            For a Bernoulli one ``"quadrature"``: the integral of sigma(a) N(a | f, g' A^-1 g) to
            rounding; ``"probit"``: MacKay's approximation of it, wrong by less than 0.02.

            For a categorical one ``"probit"``, with one variance for each logit (Gibbs 1997). It
            leaves out their covariances, and its error has no small bound: a shift common to all
            logits, which changes no probability, draws it towards 1/C.

            For both ``"output_monte_carlo"``: the average over draws of the logits from
            N(f, g' A^-1 g), with the covariances between those of a row, right to its standard
            error.

            For any model ``"monte_carlo"``: the average over draws of u from q, without
            linearisation, the default of an outcome not named here, such as a count or an angle; and
            ``"plug_in"``, for comparison: the parameters at the mode as if they were known.
        key: a JAX random key, for the two Monte Carlo methods.
        num_samples: how many draws.
        site: the observed site; needed if there are several.
        with_spread: whether probabilities too come as a :class:`Prediction`, of which the square
            root of ``epistemic`` is the standard deviation of each over q; by
            ``"output_monte_carlo"``, the default then, ``"monte_carlo"`` or ``"plug_in"``.
        kwargs: the model's keyword arguments.

    Returns:
        For a Bernoulli or categorical outcome probabilities, shape (N,) or (N, C), which Monte
        Carlo wraps in an :class:`~laplacebook.Estimate`; else, and ``with_spread``, a
        :class:`Prediction`.

    Raises:
        ValueError: the model cannot run with the arguments, or has one that is named as an argument
            here; the method is not one for its outcome
            (the message says which are), or has no spread; or is not one for this fit; Monte Carlo
            without a key, or with no draws.
        TypeError: ``key`` is no random key.
        UnsupportedModel: quadrature, probit or output Monte Carlo for a predictor that is not
            linear in u, where the curvature is the Hessian; a plain density, which has no
            outcome; a model of :func:`~laplacebook.marginalize`; a latent site that with the new
            arguments has another shape, unless of a nested fit its plate is larger, its prior can be
            drawn from, and the model has no factor; an outcome that depends on another one, which
            the new arguments leave out.
        NonFinite: the prediction is not finite: an argument is not, or the outcome has no mean;
            a label points beside the groups; or draws
            do not tell the mean (the Pareto k-hat of its values over them is above 0.7, or above 1 for
            fewer than 500 draws).
        LaplaceError: the fit failed.

    Warns:
        DoubtfulFit: the model computes with all rows, as with their mean to standardise them, and of these
            that is another one; a diagnosis said that the fit is bad, or modes are known that it leaves out; or, for
            ``"monte_carlo"``, the fit was not diagnosed and its :attr:`~LaplaceApproximation.doubt` says so,
            or, with another curvature than the Hessian, a look at 64 draws.
    """
    require_approximation(approx)
    if is_plain(approx.density):
        raise UnsupportedModel(
            "A plain log density has no observed site to predict.",
            remedy="write the model in NumPyro, or average over approx.sample(key, (1000,)).",
        )
    if is_marginal(approx.density):
        raise UnsupportedModel(
            f"{approx.density.name} does not have the sites that were integrated out, on which outcomes "
            "depend.",
            remedy="draw them too: samples = approx.sample(key, (1000,)), and {**samples, "
            "**marginal.sample(key, samples, ...)} with the arguments of the fit for the dots, for "
            "numpyro.infer.Predictive of the whole model.",
        )
    own = {"method": method is not None, "key": key is not None, "site": site is not None}
    own |= {"num_samples": num_samples != _DRAWS, "with_spread": with_spread}
    density, new = approx.density, with_settings_of(approx.density.call, args, kwargs, own)
    components = components_to_ask(approx, method)
    if components:
        warn_of_doubt(approx, method)
        each = [None] * len(components) if key is None else [*split(key, len(components))]
        options: Any = {"num_samples": num_samples, "site": site, "with_spread": with_spread}
        parts = [
            predict(one, *args, method=method, key=k, **options, **kwargs)
            for one, k in zip(components, each, strict=True)
        ]
        return joined(approx, parts)
    warn_of_rows_together(density, new)
    if not isinstance(approx, LaplaceApproximation):
        return _over_joint_draws(approx, new, method, key, num_samples, site, with_spread)
    shapes = jax.eval_shape(partial(_outcome, site=site), density, new, approx.mode_vector)
    kind, shape = shapes.kind, shapes.predictor.shape
    if shapes.grown:
        refuse_crossed_arguments(density, new, approx.mode_vector, site)
    if shapes.to_come:
        refuse_unknown_outcomes(density, new, approx.mode_vector, site, dict(shapes.to_come))
    as_spread = with_spread and kind in _CLASSES
    methods = _WITH_SPREAD if as_spread else METHODS[kind]
    own_choice, method = method is None, methods[0] if method is None else method
    if method not in methods:
        raise ValueError(
            f"There is no method {method!r} for the outcome of this model ({kind}"
            f"{', with_spread' * as_spread}); there are {', '.join(methods)}."
        )
    logits: Any = None
    if method in _OF_LOGITS:
        if method == "output_monte_carlo":
            _require_key(key, num_samples, method)
        joint = method == "output_monte_carlo" and kind == "categorical"
        try:
            logits = _logits(approx, new, method, site, joint)
        except UnsupportedModel:
            if key is None or not own_choice:
                raise
            method = "monte_carlo"
    warn_of_doubt(approx, method)
    if method == "monte_carlo":
        draws = approx.sample_vector(_require_key(key, num_samples, method), (num_samples,))
        found = outcome_over_draws(density, new, draws, site)
        _require_finite(density, new, approx.mode_vector, found.mean)
        return _of_averages(kind, found, float(num_samples), with_spread)
    if method == "plug_in":
        outcome = _outcome(density, new, approx.mode_vector, site=site)
        mean, nothing = outcome.mean, jnp.zeros_like(outcome.mean)
        _require_finite(density, new, approx.mode_vector, mean)
        if kind in _CLASSES and not with_spread:
            return mean
        _require_noise(outcome.variance)
        return Prediction(mean, nothing, outcome.variance, nothing, angle=kind == "angle")
    if method == "linearized":
        joint = len(shape) > 1 and 1 < shape[-1] <= _JOINT
        found = linearize(density, new, approx.mode_vector, approx.precision, site, joint)
        _require_finite(density, new, approx.mode_vector, found.mean)
        _require_finite(density, new, approx.mode_vector, found.variance)
        nothing = from_host(np.zeros(found.mean.shape, found.mean.dtype))
        return Prediction(found.mean, found.variance, found.noise, nothing, found.covariance)
    if method == "output_monte_carlo":
        keys = split(_require_key(key, num_samples, method), num_samples)
        drawn = outputs_over_draws(logits.mean, logits.variance, logits.covariance, keys)
        return _of_averages(kind, drawn, float(num_samples), with_spread)
    if kind == "categorical":
        return probit_of_classes(logits.mean, logits.variance)
    average = probit_approximation if method == "probit" else sigmoid_mean
    return average(logits.mean, logits.variance)


def _over_joint_draws(
    approx: Approximation,
    new: Call,
    method: str | None,
    key: Key[Array, ""] | None,
    num_samples: int,
    site: str | None,
    with_spread: bool,
) -> Estimate | Prediction:
    """By Monte Carlo, with new entries in larger plates."""
    if method not in (None, "monte_carlo"):
        raise ValueError(
            f'method="{method}" is of one Gaussian, at whose mode a predictor can be linearised or taken '
            f"as known, and {type(approx).__name__} is more than that, and has none; there is "
            '"monte_carlo".'
        )
    to_draw, to_new = split_into(_require_key(key, num_samples, "monte_carlo", or_else=""))
    density = approx.density
    point = jax.ShapeDtypeStruct((density.dimension,), jnp.result_type(float))
    shapes = jax.eval_shape(partial(_outcome, site=site), density, new, point, key=to_new)
    warn_of_doubt(approx, "monte_carlo", stacklevel=4)
    draws = approx.sample_vector(to_draw, (num_samples,))
    if shapes.grown:
        refuse_crossed_arguments(density, new, draws[0], site, key=to_new)
    if shapes.to_come:
        refuse_unknown_outcomes(density, new, draws[0], site, dict(shapes.to_come), key=to_new)
    found = outcome_over_draws(density, new, draws, site, to_new)
    _require_finite(density, new, draws[0], found.mean, to_new)
    worth = getattr(
        approx, "effective_sample_size", np.inf
    )  # of weighted draws that are drawn again
    number = 1 / (1 / num_samples + 1 / worth)
    return _of_averages(shapes.kind, found, number, with_spread, has_mode=False)


def _of_averages(
    kind: str, found: Averages, number: float, with_spread: bool, has_mode: bool = True
) -> Estimate | Prediction:
    error = standard_error(found.spread, number)
    if kind in _CLASSES and with_spread:
        return Prediction(found.mean, found.epistemic, found.noise, error)
    if kind in _CLASSES:
        return Estimate(found.mean, error)
    mean, noise = _require_averages(found, has_mode)
    _require_noise(found.noise)
    return Prediction(mean, found.epistemic, noise, error, angle=kind == "angle")


def _require_key(
    key: Key[Array, ""] | None, num_samples: int, method: str, or_else: str = _PLUG_IN
) -> Key[Array, ""]:
    require_number("num_samples", num_samples)
    if key is None:
        raise ValueError(f'method="{method}" needs a random key: key=jax.random.key(0).{or_else}')
    require_key(key)
    return key


def _logits(
    approx: LaplaceApproximation,
    new: Call,
    method: str,
    site: str | None,
    joint: bool,
) -> Linearized:
    """The linearised logits, refused where the approximation is not that of the linearised model."""
    found = linearize(approx.density, new, approx.mode_vector, approx.precision, site, joint)
    _require_finite(approx.density, new, approx.mode_vector, found.mean)
    if approx.settings.curvature == "hessian":
        found = found._replace(mean=require_linear(found.linear, found.mean, method))
    _require_finite(approx.density, new, approx.mode_vector, found.variance)
    return found


def _require_averages(found: Averages, has_mode: bool) -> tuple[Array, Array]:
    """Mean and noise; NaN where the draws do not tell the noise, and refused, or NaN, where not the mean."""
    seen = on_host(found.heaviest)
    limit = told_below(len(seen[0]))
    if any(is_traced(values) for values in seen):
        mean, noise = are_told(*jax.lax.stop_gradient(seen), limit=limit)
        return jnp.where(mean, found.mean, jnp.nan), jnp.where(noise, found.noise, jnp.nan)
    of_mean, of_noise = (tail_over_draws(values) for values in seen)
    if of_mean > limit:
        raise NonFinite(
            f"The mean of the outcome is not known: of its values over the draws the largest weigh too "
            f"much for an average, and another key would give another one (k-hat = {of_mean:.2f}, "
            f"above {limit}).",
            causes=[
                "the mean over the posterior does not exist, as that of a LogNormal with unknown "
                "sigma does not",
                "an exponential far from the data (the rate of a count), or a division by what may be zero",
            ],
            remedy="take quantiles of draws of the outcome, of numpyro.infer.Predictive(model, "
            "approx.sample(key, (1000,)))"
            + ('; or method="plug_in", which takes the parameters as known. ' if has_mode else ". ")
            + "Where the mean exists, more draws (num_samples=) may tell it.",
        )
    noise = jnp.full_like(found.noise, jnp.nan) if of_noise > limit else found.noise
    return found.mean, noise


def _require_noise(noise: Array) -> None:
    """Refuse a variance of the outcome that is not one: NaN stands for a negative one too."""
    seen = on_host(noise)
    if is_traced(seen) or not namespace(seen).isnan(seen).any():
        return
    raise NonFinite(
        "The variance of the outcome is not known for these new arguments.",
        causes=["NumPyro's formula for it gives a negative number, or none"],
        remedy="average over draws of the outcome: numpyro.infer.Predictive(model, "
        "approx.sample(key, (1000,))).",
    )


_outcome = jit_quickly(outcome_at, static_argnames=["site"])


def _require_finite(
    density: ModelDensity, new: Call, u: Array, result: Array, key: Key[Array, ""] | None = None
) -> None:
    """Say why, where the result is not finite and that can be seen."""
    seen = on_host(result)
    if is_traced(seen) or namespace(seen).isfinite(seen).all():
        return
    values = with_new_entries(new, latent_values(density, u)[0], key)
    beside = no_entry(new, labels_given(new, values))
    if beside is not None:
        raise beside
    raise NonFinite(
        "There is no prediction for these new arguments.",
        causes=new.not_finite()
        or [
            "with them a parameter of the outcome's distribution is not valid, such as a negative scale",
            "the outcome's distribution has no mean, as the Cauchy distribution has none, nor an angle "
            "that is uniform; or the formula for it gives one outside of its support",
            "the outcome depends on others that are not known (an autoregressive model)",
            "the mean, or a square of its gradient, overflows",
        ],
        remedy="leave out the rows concerned, or average over approx.sample(key, (1000,)).",
    )
