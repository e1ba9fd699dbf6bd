"""What the host does for the integral of many effects: factors, and what is solved by them."""

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from laplacebook.base.irregular import irregular_signs
from laplacebook.base.namespace import Numbers
from laplacebook.curvature.sparse_hessian import Parts, SparseHessian
from laplacebook.gaussian.sparse import SparsePrecision
from laplacebook.search.follows_gradient import direction_of_look
from laplacebook.search.metric import probe, rounding_floor, units
from laplacebook.search.newton_step import is_straight
from laplacebook.search.sparse_metric import SparseMetric, is_definite

_OFTEN = 64  # searches, of which one begins in the middle of the prior as well
_SAME = 0.1  # standard deviations: nearer points are one mode
ENOUGH = 1e-10  # posterior standard deviations: the Newton decrement of a mode
CLOSE = 1e-3  # so near the mode the values of f say less than the slope


@dataclass(eq=False)
class SparseHost:
    """What remembers the last mode of an integral, where the next search begins, and its factor.

    Of effects with one mode that is the one which is found, whatever came before, up to rounding. Of each 64
    searches one begins in the middle of the prior as well, and where that ends at another mode, all searches
    begin there from then on, as those of a dense integral.

    Attributes:
        pattern: of the Hessian.
        start: a point of the shape of the effects, (d,).
        number: of the pattern, among those that data of the same shapes had.
        two_modes: whether a search from the last mode and one from the middle of the prior have ended apart.
    """

    pattern: SparseHessian
    start: np.ndarray
    number: int
    two_modes: bool = False
    _searches: int = 0
    _mode: np.ndarray | None = None
    _precision: SparsePrecision | None = None
    _inverse: tuple[SparsePrecision, np.ndarray] | None = None

    def forget(self) -> None:
        """Let the next search begin in the middle of the prior, whatever came before."""
        self._mode, self._searches, self.two_modes = None, 1, False

    def look_twice(self) -> None:
        """Let the next search begin in the middle of the prior as well."""
        self._searches = 0

    def beginning(self, middle: Numbers) -> tuple[Numbers, np.ndarray]:
        """Where to begin, and whether in the middle of the prior as well, which is given."""
        if self._mode is None or self.two_modes:
            return middle, np.zeros((), bool)
        twice = self._searches % _OFTEN == 0
        self._searches += 1
        return self._mode, np.asarray(twice)

    @np.errstate(all="ignore")
    def are_two(self, parts: Parts, here: Numbers, there: Numbers, sound: Numbers) -> np.ndarray:
        """Whether two modes are not one: on the host, which remembers it.

        Args:
            parts: the Hessian at the second.
            here: the first, shape (d,).
            there: the second.
            sound: whether both are modes.
        """
        here, there, parts = jax.tree.map(np.asarray, (here, there, parts))
        step = here - there
        apart = sound and step @ self.factorised(parts).matvec(step) > _SAME**2
        self.two_modes |= bool(apart)
        return np.asarray(apart, bool)

    def begin_at(self, z: Float[np.ndarray, " d"]) -> None:
        """Let the next search begin there, and no other beside it."""
        self._mode, self._precision = z, None  # the factor of another point is none for a chord
        self._searches, self.two_modes = 1, False

    def found(self) -> tuple[np.ndarray, SparsePrecision]:
        """The mode that was found last, shape (d,), and the precision there."""
        assert self._mode is not None and self._precision is not None
        return self._mode, self._precision

    @np.errstate(all="ignore")
    def newton_step(
        self, z: Numbers, gradient: Numbers, parts: Parts, moved: Numbers, chord: Numbers
    ) -> tuple[Numbers, Numbers, Numbers]:
        """The step from z, the Newton decrement and log |A|: on the host.

        Args:
            z: shape (d,).
            gradient: there.
            parts: the Hessian there.
            moved: its product with a vector of :func:`irregular_signs`, which has to be that of its parts.
            chord: whether the factor at the last mode has to do, from there; no step where there is none.
        """
        z, gradient, moved, parts = jax.tree.map(np.asarray, (z, gradient, moved, parts))
        nothing = np.full_like(z, np.nan), np.array(np.nan), np.array(np.nan)
        if not np.isfinite(gradient).all():
            return nothing
        if chord:
            return self._chord(z, gradient)
        precision = self.factorised(parts)
        if self.pattern.differs(precision, irregular_signs(2, z.size), moved):
            return nothing
        if not is_definite(precision):
            step = self._metric(precision).step(gradient, 0.0)
            return step, np.array(np.inf), np.array(np.nan)
        step = -precision.solve(gradient)
        decrement = np.sqrt(-step @ gradient)
        if decrement < CLOSE:
            self._mode = z
        return step, decrement, np.asarray(precision.log_determinant())

    def _chord(self, z: np.ndarray, gradient: np.ndarray) -> tuple[Numbers, Numbers, Numbers]:
        last, mode, unknown = self._precision, self._mode, np.array(np.nan)
        if last is None or mode is None or not (is_definite(last) and np.array_equal(z, mode)):
            return np.zeros_like(z), np.zeros_like(unknown), unknown
        step = -last.solve(gradient)
        decrement = np.sqrt(-step @ gradient)
        # The same question twice: the mode stays where it is, to the last digit.
        return step if decrement > ENOUGH else np.zeros_like(z), decrement, unknown

    @np.errstate(all="ignore")
    def ways(self, parts: Parts) -> tuple[np.ndarray, np.ndarray]:
        """A short step in all directions and a long one in some, at which a mode is looked at: on the host."""
        precision = self.factorised(jax.tree.map(np.asarray, parts))
        room = np.full_like(self.start, np.inf)
        return precision.whitened(probe(self.start)), direction_of_look(self.start, precision, room)

    @np.errstate(all="ignore")
    def bends(self, parts: Parts, ahead: Numbers, behind: Numbers) -> np.ndarray:
        """Whether f bends by its Hessian, which is positive definite beyond rounding: on the host.

        Args:
            parts: the Hessian at the mode.
            ahead: the gradient after the short step.
            behind: after the step to the other side.
        """
        ahead, behind, parts = jax.tree.map(np.asarray, (ahead, behind, parts))
        precision = self.factorised(parts)
        if not is_definite(precision):
            return np.zeros((), bool)
        regular = self._is_far_from_singular(precision) or self._metric(precision).regular
        one, other = precision.half_solve(ahead), precision.half_solve(behind)
        return np.asarray(
            regular & is_straight(one, other, float(np.sqrt(np.finfo(ahead.dtype).eps)))
        )

    @np.errstate(all="ignore")
    def inverse(self, parts: Parts) -> tuple[np.ndarray, np.ndarray]:
        """The entries of A^-1 where A has some, and A^-1 W: on the host."""
        precision = self.factorised(jax.tree.map(np.asarray, parts))
        return self._inverse_of(precision), precision.solve(precision.left)

    @np.errstate(all="ignore")
    def solve(self, parts: Parts, v: Numbers) -> Float[np.ndarray, " d"]:
        """A^-1 v, on the host."""
        return self.factorised(jax.tree.map(np.asarray, parts)).solve(np.asarray(v))

    def _metric(self, precision: SparsePrecision) -> SparseMetric:
        return SparseMetric.of(units(precision), precision, self._floor())

    def _floor(self) -> float:
        return float(rounding_floor(self.start.size, self.start.dtype))

    def _is_far_from_singular(self, precision: SparsePrecision) -> bool:
        """Whether the trace of the inverse, which a gradient needs, says that it is regular: no second factor."""
        variances = self._inverse_of(precision)[precision.layout.diagonal]
        trace = variances @ precision.diagonal_of_matrix()
        return bool((variances > 0).all() and 2 * trace * self._floor() < 1)

    def _inverse_of(self, precision: SparsePrecision) -> np.ndarray:
        if self._inverse is None or self._inverse[0] is not precision:
            self._inverse = precision, np.asarray(precision.inverse_at_entries())
        return self._inverse[1]

    def factorised(self, parts: Parts) -> SparsePrecision:
        """The precision, with the factor of the call before, if that was the same matrix: on the host."""
        last = self._precision
        same = last is not None and all(
            np.array_equal(*pair)
            for pair in zip((last.entries, last.left, last.middle), parts, strict=True)
        )
        if last is None or not same:
            last = self._precision = self.pattern.precision(Parts(*map(np.array, parts)))
        return last
