"""The verb and the noun: ``laplace(model, ...)`` and the ``LaplaceApproximation`` it returns."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import log, pi
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key
from numpyro.infer.autoguide import AutoLaplaceApproximation

from laplacebook.density import ModelDensity
from laplacebook.explain import explain
from laplacebook.guide import laplace_guide
from laplacebook.mode import Certificate, find_mode
from laplacebook.precision import DensePrecision, Leaf

__all__ = ["LaplaceApproximation", "laplace"]

_ROWS = 10  # of a printed approximation
EDGE = 1e-3  # standard deviations: a mode nearer than that to the end of its interval lies on it


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "mode",
        "mode_vector",
        "precision",
        "log_likelihood",
        "log_prior",
        "certificate",
        "density",
    ],
    meta_fields=[],
)
@dataclass(frozen=True, repr=False)
class LaplaceApproximation:
    """The Gaussian q(u) = N(u_MAP, A^-1) that stands for the posterior, and the evidence it implies.

    u are the latent sites through NumPyro's bijections to R^D (``space="unconstrained"``) or the
    latent sites themselves (``space="constrained"``), site by site in the order of the model.
    If no mode was found (possible only under a JAX transformation or with ``throw=False``) the
    certificate says so and every other number is NaN.

    Attributes:
        mode: the mode by site, on the scale on which the user wrote the model.
        mode_vector: u_MAP, shape (D,).
        precision: A, the Hessian of the negative log joint at u_MAP.
        log_likelihood: log p(data | mode).
        log_prior: log p(mode), with the log Jacobian in the unconstrained space.
        certificate: how far the point is from the mode, and whether that is near enough.
        density: the log joint that was approximated.
    """

    mode: dict[str, Leaf]
    mode_vector: Leaf
    precision: DensePrecision
    log_likelihood: Leaf
    log_prior: Leaf
    certificate: Certificate
    density: ModelDensity

    @property
    def covariance(self) -> Float[Array, "*B D D"]:
        """A^-1, dense, shape (D, D), in the coordinates u."""
        return self.precision.inverse()

    @property
    def log_occam_factor(self) -> Float[Array, "*B"]:
        """log p(mode) + (D/2) log 2 pi - (1/2) log |A|: the price of the parameters (Bishop 4.137)."""
        dimension = self.mode_vector.shape[-1]
        return self.log_prior + dimension / 2 * log(2 * pi) - self.precision.log_determinant() / 2

    @property
    def log_evidence(self) -> Float[Array, "*B"]:
        """The Laplace approximation of log p(data): log likelihood at the mode + log Occam factor."""
        return self.log_likelihood + self.log_occam_factor

    @property
    def space(self) -> str:
        """The space in which q is Gaussian."""
        return self.density.space

    def log_density(self, u: Float[Array, " D"]) -> Float[Array, ""]:
        """log q(u), for u of shape (D,)."""
        self._not_a_batch()
        offset = u - self.mode_vector
        quadratic = offset @ self.precision.matvec(offset)
        return (self.precision.log_determinant() - u.size * log(2 * pi) - quadratic) / 2

    def sample(self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()) -> dict[str, Array]:
        """Draws from q, on the scale on which the user wrote the model.

        Args:
            key: a JAX random key.
            sample_shape: leading shape of the draws.

        Returns:
            A dict of site -> array of shape ``sample_shape + site shape``. In the constrained
            space q is a Gaussian on the model's own scale, so draws may leave the support.
        """
        self._not_a_batch()
        u = self.mode_vector + self.precision.sample(key, sample_shape)
        draws = _values(self.density, u.reshape(-1, u.shape[-1]))
        return {name: v.reshape(*sample_shape, *v.shape[1:]) for name, v in draws.items()}

    @functools.cached_property
    def guide(self) -> AutoLaplaceApproximation:
        """The approximation as NumPyro's own guide, for ``Predictive(model, guide=..., params=...)``.

        Raises:
            UnsupportedModel: the approximation was made in the constrained space; NumPyro's guide
                is Gaussian in the unconstrained one.
        """
        self._not_a_batch()
        return laplace_guide(self.density, self.mode, self.mode_vector, self.precision.matrix)

    @property
    def params(self) -> dict[str, Array]:
        """The parameters that go with :attr:`guide`."""
        return {"auto_loc": self.mode_vector}

    def __repr__(self) -> str:
        if isinstance(self.mode_vector, jax.core.Tracer) or self.mode_vector.ndim != 1:
            return f"LaplaceApproximation(mode_vector={self.mode_vector})"
        names = self.density.coordinate_names()
        modes = self.density.print_by_coordinate(self.mode)
        deviations = jnp.sqrt(self.precision.diagonal_of_inverse())
        width = max(len("coordinate"), *(len(name) for name in names))
        rows = list(zip(names, modes, self.mode_vector, deviations, strict=True))
        lines = [
            f"Laplace approximation of {_name(self.density.model)}, "
            f"{self.space} space, D = {len(rows)}",
            f"  {'coordinate':<{width}}  {'mode':>10}  {self.space:>13} +- sd",
            *(f"  {n:<{width}}  {m:>10}  {u:>13.4g} +- {sd:.4g}" for n, m, u, sd in rows[:_ROWS]),
            *([f"  ... and {len(rows) - _ROWS} more"] if len(rows) > _ROWS else []),
            f"  log evidence {self.log_evidence:.4f} = log likelihood {self.log_likelihood:.4f} "
            f"+ log Occam factor {self.log_occam_factor:.4f}",
            f"  {self.certificate}",
        ]
        return "\n".join(lines)

    def _not_a_batch(self) -> None:
        if self.mode_vector.ndim != 1:
            raise ValueError(
                f"This is a batch of approximations (mode_vector has shape "
                f"{self.mode_vector.shape}): call the method within jax.vmap."
            )


class _Fit(NamedTuple):
    """What one compiled call computes; ``last`` is where the search stood, for an error to explain."""

    mode: dict[str, Array]
    mode_vector: Array
    precision: DensePrecision
    log_likelihood: Array
    log_prior: Array
    certificate: Certificate
    last: Array


def laplace(
    model: Callable,
    *args: Any,
    space: str = "unconstrained",
    start: Mapping[str, Any] | None = None,
    throw: bool = True,
    **kwargs: Any,
) -> LaplaceApproximation:
    """The Laplace approximation of the posterior of a NumPyro model.

    Compiled once for a model and the shapes of its arrays. Arrays among the arguments are data;
    any other value (a Python number, a string, a callable) is part of the program, and a new value
    compiles anew. A model with an argument named like an option of this function takes it through
    ``functools.partial``.

    Args:
        model: any NumPyro model with continuous latent sites, called as ``model(*args, **kwargs)``.
        args: its positional arguments.
        space: ``"unconstrained"``: Gaussian in the coordinates that NumPyro and Stan sample in;
            ``"constrained"``: Gaussian in the parameters as the model writes them.
        start: values of all latent sites from which the search for the mode begins; by default the
            prior means.
        throw: raise if there is no mode. Under ``jit``, ``vmap`` and ``grad`` nothing can be
            raised: then, as with ``throw=False``, the certificate says so and all numbers are NaN.
        kwargs: the model's keyword arguments.

    Returns:
        A :class:`LaplaceApproximation`.

    Raises:
        UnsupportedModel: no latent site, a discrete one, a plate that subsamples, random numbers.
        NonFinite: the log joint is not finite where the search begins, a distribution's parameters
            are not valid at the mode, or data lie outside the support of their distribution.
        ValueError: ``start`` does not fit the latent sites.
        NotConverged: the search found no mode, or one at the edge of the support or at infinity.
        NotPositiveDefinite: the log joint is flat, or curves upwards, at the point found.

    >>> import jax.numpy as jnp, numpyro, numpyro.distributions as dist
    >>> def coin(y):
    ...     theta = numpyro.sample("theta", dist.Beta(2, 2))
    ...     numpyro.sample("y", dist.Bernoulli(theta).expand([9]).to_event(1), obs=y)
    >>> approx = laplace(coin, jnp.array([1, 1, 1, 1, 1, 1, 1, 1, 0]))
    >>> print(f"{approx.mode['theta']:.4f}")  # 10/13
    0.7692
    >>> print(f"{jnp.exp(-approx.log_evidence):.1f}")  # the exact value is 110
    113.3
    """
    density = ModelDensity(model, args, kwargs, space)
    fit = _fit(density, None if start is None else density.start(start))
    traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(fit))
    if throw and not traced and not fit.certificate.converged:
        raise explain(density, fit.last, fit.certificate)
    return LaplaceApproximation(
        fit.mode,
        fit.mode_vector,
        fit.precision,
        fit.log_likelihood,
        fit.log_prior,
        fit.certificate,
        density,
    )


@jax.jit
def _fit(density: ModelDensity, start: Array | None) -> _Fit:
    start = density.start() if start is None else start
    found = find_mode(lambda u, density: density.loss(u), start, density)
    precision = DensePrecision.of(found.hessian)
    interior = jnp.all(found.beside.room > EDGE * jnp.sqrt(precision.diagonal_of_inverse()))
    sound = found.certificate.converged & interior & density.valid(found.point)
    certificate = replace(found.certificate, converged=sound)
    # A factor, not a selection, so that derivatives of a failed fit are NaN too.
    loud = jnp.where(certificate.converged, 1, jnp.nan).astype(start.dtype)
    terms = jax.tree.map(lambda x: x * loud, found.beside)
    return _Fit(
        mode=terms.values,
        mode_vector=found.point * loud,
        precision=jax.tree.map(lambda x: x * loud, precision),
        log_likelihood=terms.log_likelihood,
        log_prior=terms.log_prior,
        certificate=certificate,
        last=found.point,
    )


@jax.jit
def _values(density: ModelDensity, u: Float[Array, "S D"]) -> dict[str, Array]:
    return jax.vmap(lambda v: density.terms(v).values)(u)


def _name(model: Callable) -> str:
    return getattr(model, "__name__", type(model).__name__)
