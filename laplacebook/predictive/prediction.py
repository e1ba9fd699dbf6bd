"""What a prediction is made of: the mean, and two uncertainties."""

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from laplacebook.base.pytrees import STATIC, register_dataclass


@register_dataclass
@dataclass(frozen=True)
class Prediction:
    """Mean and variance of outcomes to come.

    An angle y (a VonMises outcome) has a direction, and no mean on the line. Its ``mean`` is the
    direction of E exp(i y), in radians from -pi to pi, with its standard error. With R the modulus of
    E exp(i y), ``variance`` is the circular one, 1 - R, between 0 and 1; ``noise`` is the mean of
    1 - R given the parameters, over these, and ``epistemic`` the rest. Nothing of it is to be added
    to a variance in radians; ``standard_deviation`` is the circular one, (-2 log R)^(1/2).

    Of an outcome that is 0 or 1, or a class, ``mean`` are probabilities, ``epistemic`` is the variance of
    each over the parameters, and ``noise`` the mean of p (1 - p).

    In the book: :prf:ref:`neural-network-predictive` of :doc:`/book/neural-network`.

    Attributes:
        mean: of the outcomes, shape (N,), or that of the observed site; of C classes (N, C).
        epistemic: the part of the variance that comes from not knowing the parameters, and that
            more data would reduce; of the same shape. One draw alone does not tell it: NaN.
        noise: the part that stays if they are known; NaN where an average over draws of it is not to
            be trusted, by the same k-hat as that of the mean.
        standard_error: of ``mean``, if it was computed from draws; else zero.
        epistemic_covariance: between the outputs of a row, shape (N, C, C), with ``epistemic`` on
            its diagonal; by ``"linearized"`` for 2 to 100 outputs, else None.
        angle: whether the outcomes are angles.
    """

    mean: Any
    epistemic: Any
    noise: Any
    standard_error: Any
    epistemic_covariance: Any = None
    angle: bool = field(default=False, repr=False, metadata=STATIC)

    @property
    def variance(self) -> Array:
        """Both parts together."""
        return self.epistemic + self.noise

    @property
    def standard_deviation(self) -> Array:
        """The square root of the variance; of angles the circular one, in radians."""
        return jnp.sqrt(-2 * jnp.log1p(-self.variance) if self.angle else self.variance)
