"""What is known by draws: moments, quantiles and tables of it, and draws on the scale of the model."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Key

from laplacebook.base.checks import require_key, require_numbers, require_sample_shape
from laplacebook.base.pytrees import own_copy
from laplacebook.base.quick import in_full_precision, is_eager
from laplacebook.base.table import Table, percentages, tails
from laplacebook.fit.approximation import Approximation
from laplacebook.fit.functions import (
    Of,
    functions_table,
    number_of_draws,
    require_levels,
    weighted_deviation,
    weighted_mean,
    weighted_quantiles,
)
from laplacebook.fit.summary import element_names, summary_table, values_at

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROWS = 10  # of a printed approximation


class ByDraws(Approximation):
    """An approximation whose moments and quantiles are those of weighted draws.

    Who inherits says what it is (``title``), which draws stand for it (``_joint``), how more are made
    (``_draw``), and what is told below its table (``_lines``).
    """

    _asked: ClassVar[bool] = False  # whether a diagnosis was made, be it open

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is, in words."""

    @property
    @abstractmethod
    def doubt_at_a_glance(self) -> str | None:
        """What :attr:`doubt` says where no diagnosis was asked, or one said usable."""

    @cached_property
    @abstractmethod
    def _joint(self) -> tuple[np.ndarray, np.ndarray]:
        """Draws of all coordinates together, shape (S, D), and their weights, which sum to 1."""

    @abstractmethod
    def _draw(self, key: Key[Array, ""], number: int) -> Float[np.ndarray, "S D"]:
        """So many draws in the coordinates of the fit."""

    @cached_property
    def _weighted(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """By site, in the order of the model: draws on its scale, shape (S, ...), and their weights."""
        u, weights = self._joint
        return {name: (values, weights) for name, values in self._values(u).items()}

    @property
    def _told_by_draws(self) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Those whose moments and quantiles are of the draws."""
        return self._weighted

    @abstractmethod
    def _lines(self) -> Sequence[str]:
        """What is told below the table."""

    @property
    def moment_error(self) -> float:
        """The standard error of its means, in standard deviations, by the number of draws that stand for it."""
        return number_of_draws(self.density.dimension) ** -0.5

    @property
    def mean(self) -> dict[str, Array]:
        """Posterior means by site, on the scale on which the user wrote the model.

        NaN where a few draws carry it, as in a very long tail.
        """
        return self._each(weighted_mean)

    @property
    def standard_deviation(self) -> dict[str, Array]:
        """Posterior standard deviations by site, on the scale on which the user wrote the model.

        NaN where a few draws carry it, as in a long tail.
        """
        return self._each(weighted_deviation)

    def quantiles(self, probabilities: ArrayLike | Sequence[float]) -> dict[str, Array]:
        """Marginal quantiles by site, on the scale on which the user wrote the model.

        Args:
            probabilities: numbers between 0 and 1, shape (P,).

        Returns:
            A dict of site -> array of shape ``(P, *site shape)``.

        Raises:
            ValueError: a probability is not between 0 and 1, or beyond the draws; they are not a vector.
        """
        levels = np.asarray(probabilities, float)
        if levels.ndim != 1 or not np.all((levels > 0) & (levels < 1)):
            raise ValueError(
                f"probabilities must be a vector of numbers between 0 and 1, not {levels}"
            )
        self._require_levels(levels)
        return self._each(lambda values, weights: weighted_quantiles(values, weights, levels))

    def _require_levels(self, levels: Float[np.ndarray, " P"]) -> None:
        require_levels(levels, self._joint[1])

    def summary(self, probability: float = 0.9, of: Of | None = None) -> Table:
        """Mean, standard deviation and a central interval of each number of each latent site.

        Args:
            probability: of the interval.
            of: what else to look at in place of the sites: a name, or several, of ``numpyro.deterministic``
                sites, or functions of the dict of sites by the names of their rows, such as
                ``{"contrast": lambda sites: sites["a"][1] - sites["a"][0]}``.

        Returns:
            A :class:`~laplacebook.Table` with the columns ``site``, ``mean``, ``sd`` and two quantiles,
            ``5 %`` and ``95 %`` by default.

        Raises:
            ValueError: ``probability`` is not between 0 and 1, or too close to one of them; there is no such site.
            UnsupportedModel: a function returns no numbers.
        """
        ends = tails(probability)
        if of is not None:
            return functions_table(self.density, *self._joint, of, probability)
        columns: dict[str, dict] = {"mean": self.mean, "sd": self.standard_deviation}
        quantiles = jax.device_get(self.quantiles(ends))
        for i, end in enumerate(percentages(ends)):
            columns[end] = {name: values[i] for name, values in quantiles.items()}
        title = f"{self.title} of {self.density.name}, D = {self.density.dimension}"
        return replace(summary_table(self.density, columns), title=title)

    def plot(self, site: str, probability: float = 0.9) -> "Figure":
        """A histogram of the draws of each number of a site, beside a normal density; or a band along its index.

        The normal has the mean and the standard deviation of the draws. A site whose value is a vector of more than
        six numbers is drawn as :meth:`LaplaceApproximation.plot` does, with its mean in the place of the mode.

        Args:
            site: its name.
            probability: of the interval of a band.

        Returns:
            The Matplotlib figure: the last value of a notebook's cell shows it, and its ``savefig``
            writes it to a file.

        Raises:
            ValueError: there is no such site, it has more than six numbers and is no vector, or ``probability`` is not
                between 0 and 1.
        """
        from laplacebook.beyond.draws_picture import FEW, plot_draws
        from laplacebook.fit.by_site import plot_along_index

        ends = tails(probability)
        sites = {one.name: one for one in self.density.sites}
        shape = sites[site].value_shape if site in sites else None
        if shape is None or (np.prod(shape) > FEW and len(shape) != 1):
            listed = ", ".join(
                f"{name!r} of shape {one.value_shape}" for name, one in sites.items()
            )
            raise ValueError(
                f"site is the name of a latent site of up to {FEW} numbers, or of a vector, not {site!r}; there are "
                f"{listed}."
            )
        if np.prod(shape) <= FEW:
            values, weights = self._weighted[site]
            return plot_draws(element_names(sites[site]), values.reshape(len(values), -1), weights)
        low, high = np.asarray(self.quantiles(ends)[site])
        level = " to ".join(percentages(ends))
        return plot_along_index(site, np.asarray(self.mean[site]), low, high, level, "mean")

    @in_full_precision
    def sample_vector(
        self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()
    ) -> Float[Array, "*S D"]:
        """Draws in the coordinates of the fit, shape ``sample_shape + (D,)``.

        Args:
            key: a JAX random key.
            sample_shape: leading shape of the draws.

        Raises:
            TypeError: ``key`` is no random key.
            LaplaceError: at a draw of the hyperparameters of :func:`~laplacebook.nested` the effects have
                no mode.
        """
        require_sample_shape(sample_shape)
        require_key(key)
        require_numbers("sample", key)
        u = self._draw(key, int(np.prod(sample_shape)))
        return jnp.asarray(u.reshape((*sample_shape, u.shape[1])), float)

    def sample(self, key: Key[Array, ""], sample_shape: tuple[int, ...] = ()) -> dict[str, Array]:
        """Draws of all sites together, on the scale on which the user wrote the model.

        Args:
            key: a JAX random key.
            sample_shape: leading shape of the draws.

        Returns:
            A dict of site -> array of shape ``sample_shape + site shape``.

        Raises:
            LaplaceError: at a draw of the hyperparameters of :func:`~laplacebook.nested` the effects have
                no mode.
        """
        u = self.sample_vector(key, sample_shape)
        draws = self._values(np.asarray(u).reshape(-1, u.shape[-1]))
        return {
            name: jnp.asarray(v.reshape((*sample_shape, *v.shape[1:])), v.dtype)
            for name, v in draws.items()
        }

    def remember(self, verdict: str | None, unseen: str | None = None) -> None:
        """Keep the verdict of a diagnosis, for whatever is made of this fit.

        Args:
            verdict: empty if good, None if open.
            unseen: what of it is bad about modes elsewhere.
        """
        kept = {"_diagnosed": verdict, "_unseen": unseen, "_asked": True}
        vars(self).update(kept)  # around the frozen dataclass

    @property
    def _judged(self) -> dict[str, list[str | None]]:
        """The verdict of a diagnosis for the header of a file; nothing where none was asked for."""
        return {"judged": [self._diagnosed, self._unseen]} if self._asked else {}

    def _recall(self, header: Mapping[str, Any]) -> None:
        """Keep the verdict that is in the header of a file, if there is one."""
        if "judged" in header:
            self.remember(*header["judged"])

    @property
    def inherited(self) -> str | None:
        """A verdict on what it is made of, which holds until it is diagnosed itself; or None."""
        return None

    @property
    def known_doubt(self) -> str | None:
        """What is known against it without another look, the verdict of a diagnosis or modes elsewhere, or None."""
        if not is_eager():
            return None
        return super().known_doubt or (None if self._asked else self.inherited)

    @property
    def doubt(self) -> str | None:
        """Why to doubt the approximation, or None; it is printed below it, and below a comparison.

        The verdict of :func:`~laplacebook.diagnose`, if that was asked and said bad, of it or of what it is made of;
        where it was not asked, or said usable, what is seen at a glance. None is no proof.
        """
        known = self.known_doubt
        if known is not None or self._diagnosed is not None:
            return known
        return self.doubt_at_a_glance

    def __repr__(self) -> str:
        return repr(self._report())

    def _repr_html_(self) -> str:
        return self._report()._repr_html_()

    def _report(self) -> Table:
        table, doubt = self.summary().head(_ROWS), self.doubt
        lines = (*self._lines(), *([] if doubt is None else [f"doubtful: {doubt}"]))
        return replace(table, footer=table.footer + lines)

    def _values(self, u: Float[np.ndarray, "S D"]) -> dict[str, np.ndarray]:
        return jax.device_get(values_at(self.density, own_copy(u, float)))

    def _each(
        self,
        function: Callable[[np.ndarray, np.ndarray], np.ndarray],
    ) -> dict[str, Array]:
        found = {}
        for name, (values, weights) in self._told_by_draws.items():
            flat = values.reshape(len(values), -1)
            numbers = function(flat, weights)
            shaped = numbers.reshape((*numbers.shape[:-1], *values.shape[1:]))
            found[name] = own_copy(shaped, float)
        return found
