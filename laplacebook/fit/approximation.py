"""What stands for a posterior, as far as functions that take it ask."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import jax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from laplacebook.base.checks import require_number
from laplacebook.base.quick import in_full_precision
from laplacebook.base.table import Table
from laplacebook.fit.numpyro_and_arviz import to_arviz
from laplacebook.model.density import ModelDensity


class Approximation(ABC):
    """What stands for a posterior: draws, marginals and a log evidence, all on the scale of the model.

    :func:`~laplacebook.laplace` returns one, :func:`~laplacebook.nested` and the others of this family
    too. :func:`~laplacebook.predict`, :func:`~laplacebook.compare` and :func:`~laplacebook.diagnose` take any of
    them; a function that needs one Gaussian, with a mode and a precision, refuses the others by name.

    In the book: :doc:`/book/intro`.
    """

    #: what a diagnosis of this very fit found, empty if it was not bad: no part of a pytree
    _diagnosed: ClassVar[str | None] = None
    #: what of it neither draws nor derivatives at its modes can see
    _unseen: ClassVar[str | None] = None

    if TYPE_CHECKING:  # at run time a field or a property of who inherits

        @property
        def density(self) -> ModelDensity:
            """The log joint that is approximated."""

    @property
    def gaussians(self) -> tuple[Any, ...]:
        """The Laplace approximations whose sum it is, each weighted by its evidence; none where it is no such sum."""
        return ()

    @property
    @abstractmethod
    def log_evidence(self) -> Any:
        """log p(D), or the approximation of it."""

    @property
    @abstractmethod
    def doubt(self) -> str | None:
        """Why to doubt the approximation, or None."""

    @property
    def known_doubt(self) -> str | None:
        """What is known against it without another look, the verdict of a diagnosis or modes elsewhere, or None."""
        return f"diagnosed {self._diagnosed}" if self._diagnosed else self.unseen

    @property
    def unseen(self) -> str | None:
        """What is known against it that draws and derivatives at its modes cannot see, which is modes elsewhere."""
        return self._unseen

    @property
    @abstractmethod
    def standard_deviation(self) -> dict[str, Array]:
        """Posterior standard deviations by site."""

    @abstractmethod
    def quantiles(self, probabilities: ArrayLike | Sequence[float]) -> dict[str, Array]:
        """Marginal quantiles by site: arrays of shape ``(P, *site shape)``."""

    @abstractmethod
    def summary(self, probability: float = 0.9) -> Table:
        """One row for each number of each latent site."""

    @abstractmethod
    def sample(self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()) -> dict[str, Array]:
        """Draws of all sites together: site -> array of shape ``sample_shape + site shape``."""

    @abstractmethod
    def sample_vector(
        self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*S D"]:
        """The same draws as vectors of all coordinates."""

    @in_full_precision
    def to_arviz(
        self,
        key: Key[Array, ""] | None = None,
        num_samples: int = 1000,
        *,
        log_likelihood: bool = False,
        posterior_predictive: bool = False,
    ) -> Any:
        """Draws, and the data, for ArviZ's plots and tables.

        Args:
            key: a JAX random key; a fixed one by default.
            num_samples: how many draws, all in one chain: they are independent.
            log_likelihood: whether to add the log likelihood of each datum at each draw, for ``arviz.loo`` and
                ``arviz.waic``; NaN where a mask hides it.
            posterior_predictive: whether to draw data at each draw, for ``arviz.plot_ppc``.

        Returns:
            ``arviz.InferenceData`` or, from ArviZ 1, ``xarray.DataTree``: ``posterior`` and, if the
            model has data, ``observed_data``; ``log_likelihood`` and ``posterior_predictive`` if asked.

        Raises:
            ImportError: ArviZ is not installed.
            ValueError: ``num_samples`` is not a number of 1 or more.
            UnsupportedModel: the last two are asked of a model that observes no data, or the first of one with
                factors or scaled likelihoods; a site is called ``chain`` or ``draw``.
        """
        require_number("num_samples", num_samples)
        to_draw = jax.random.key(0) if key is None else key
        u = self.sample_vector(to_draw, (num_samples,))
        to_data = jax.random.fold_in(to_draw, 1)
        return to_arviz(self.density, u, to_data, log_likelihood, posterior_predictive)

    @abstractmethod
    def save(self, path: str | PathLike) -> None:
        """Write the numbers to a file that :func:`~laplacebook.load` reads."""
