"""Why there is no nested approximation, in words, and what to do then."""

import jax
import jax.numpy as jnp
import numpy as np

from laplacebook.base.errors import LaplaceError, NotConverged
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.grid import Grid
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.beyond.marginalize import MarginalModel
from laplacebook.beyond.outer_mode import OuterMode
from laplacebook.beyond.run_chains import FEWEST, R_HAT, Run
from laplacebook.curvature.hessian import factorises
from laplacebook.fit.summary import values_at
from laplacebook.model.density import ModelDensity

_ENDLESS = 30.0  # units of the unconstrained space from the start: 13 digits of a scale
_BESIDE = (1e-4, 1e-6)  # of them, over the shorter of which a log marginal is straight
_NOISE = 0.03  # nats: one that bends by so much there, too, is rounding
_BREAK = 1.0  # nats: one that falls by so much there, too, has an end
_ON_THE_WAY = np.array([0.2, 0.4])  # there, where the log marginal is the same, it does not fall


class Refusals:
    """The errors of one call, and what they need to know."""

    density: ModelDensity
    structure: str
    effects: Effects
    start: np.ndarray
    known: KnownPoints

    @property
    def _effect_names(self) -> list[str]:
        return [site.name for site in self.density.sites if site.name not in self.effects.over]

    @property
    def _hyper_names(self) -> list[str]:
        sites = [site for site in self.density.sites if site.name in self.effects.over]
        return [name for site in sites for name in site.coordinate_names()]

    @property
    def _over(self) -> str:
        return " and ".join(map(repr, self.effects.over))

    @property
    def _sampler(self) -> str:
        return (
            f"sample {self._over} with the effects integrated out: "
            f"NUTS(marginalize({self.density.name}, {self._effect_names})); or sample everything."
        )

    def _not_held(self, modes: list[OuterMode]) -> LaplaceError:
        places = "; ".join(_listed(self._values(one.point)) for one in modes)
        return NotConverged(
            f"The posterior of {self._over} has {len(modes)} modes, whose widths are so different that no grid "
            f"of equal distances holds them: {places}.",
            causes=[
                "a mixture of regimes, one much narrower than the other",
                "ridges in other directions",
            ],
            remedy=self._sampler,
        )

    def _values(self, hyper: np.ndarray) -> dict[str, np.ndarray]:
        """The hyperparameters on the scale of the model."""
        u = self.effects.joined(hyper, self.known.start)
        values = jax.device_get(values_at(self.density, jnp.asarray(u, float)[None]))
        return {name: np.asarray(values[name][0]) for name in self.effects.over}

    def _no_effects(self, hyper: np.ndarray) -> LaplaceError:
        """Why the effects have no mode there, in the words of a fit of them alone."""
        way = hyper - self.start
        on_it = self.start + np.multiply.outer(_ON_THE_WAY, way)
        if abs(way).max() > _ENDLESS and abs(np.diff(self.known.heights(on_it, 1 + abs(way)))) < 1:
            return self._no_mode(on_it[-1], way)
        marginal = MarginalModel(self.density.model, tuple(self._effect_names), self.structure)
        args, kwargs = self.density.arguments
        values = self._values(hyper)
        try:
            found = marginal.given(values, *args, **kwargs)
        except LaplaceError as refused:
            return marginal.refusal(values, refused)
        there = self.effects.given(hyper[None], np.asarray(found.mode_vector, float)[None])
        where, names = "to all sides", found.density.coordinate_names()
        if np.isfinite(there.log_marginal[0]) and (level := self.effects.level(there)) is not None:
            where = f"along {names[level]}"
        words = f"Newton's method found no mode beside which the log joint falls {where}."
        causes = ["a second mode", "a log joint that levels off"]
        failed = NotConverged(words, causes=causes, remedy=self._sampler)
        return marginal.refusal(values, failed)

    def _not_found(self, mode: OuterMode) -> LaplaceError:
        """Why the search stands at what is no mode."""
        point = mode.point
        return self._rounding(point) or self._break(point) or self._no_mode(point, mode.way)

    def _noise(self, point: np.ndarray) -> float:
        """By how much the log marginal bends within a distance over which it is straight, but for rounding.

        As much within a hundredth of it: so does no density of a small scale. Infinite where it has no value.
        """
        found = []
        for beside in _BESIDE:
            ways = beside * np.eye(point.size)
            points = point + np.concatenate([np.zeros((1, point.size)), ways, -ways])
            heights = self.known.heights(points, np.ones(point.size))
            middle, up, down = np.split(heights, [1, 1 + point.size])
            with np.errstate(invalid="ignore"):
                bends = np.nan_to_num(abs(up + down - 2 * middle), nan=np.inf)
            found.append(float(bends.max()))
        return min(found)

    def _rounding(self, point: np.ndarray) -> LaplaceError | None:
        """The error of a log marginal that is rounding there in single precision, if it is.

        In double precision what looks like it are effects with other modes, as a rule.
        """
        if jnp.result_type(float) != np.float32 or self._noise(point) < _NOISE:
            return None
        causes, remedy = ["single precision, which has 7 digits"], ""
        if factorises(self.density):
            causes.insert(
                0,
                "a covariance so near to a singular one that its Cholesky factor has few digits, or fails, such as "
                "that of a smooth kernel with little added to its diagonal",
            )
            remedy = ", or add more to the diagonal of the covariance"
        return NotConverged(
            f"The posterior of {self._over}, with the effects integrated out, is lost in rounding about "
            f"{_listed(self._values(point))}: within {_BESIDE[0]:g} units of the unconstrained space it rises "
            "and falls, or has no value.",
            causes=causes,
            remedy=f"call numpyro.enable_x64() at the top of the program{remedy}.",
        )

    def _break(self, point: np.ndarray) -> LaplaceError | None:
        """The error of a log marginal that ends there, if it does: it rises to where a mode of the effects is lost."""
        ways = _BESIDE[1] * np.eye(point.size)
        heights = self.known.heights(
            np.concatenate([point[None], point + ways, point - ways]), np.ones(point.size)
        )
        if heights[0] - heights.min() < _BREAK:
            return None
        return NotConverged(
            f"The posterior of {self._over}, with the effects integrated out, breaks off at "
            f"{_listed(self._values(point))}: {_BESIDE[1]:g} units of the unconstrained space beside it the effects "
            "have another mode, or none.",
            causes=[
                "two modes of the effects, one of which ends there, as where data with long tails contradict each "
                "other",
                "a jump in the model",
            ],
            remedy="sample everything with NumPyro's NUTS.",
        )

    def _no_mode(self, point: np.ndarray, way: np.ndarray) -> LaplaceError:
        names = self._hyper_names
        farthest = int(np.argmax(abs(way)))
        return NotConverged(
            f"The posterior of {self._over}, with the effects integrated out, has no mode: it does not fall "
            f"along {names[farthest]} beyond {_listed(self._values(point))}.",
            causes=[
                "an improper or very vague prior of a scale, under which the posterior is improper, too",
                "a prior of a scale on which the data say nothing",
            ],
            remedy="give the hyperparameters proper priors, such as HalfNormal of a scale that is plausible.",
        )

    def _does_not_fall(self, grid: Grid) -> LaplaceError:
        heights = grid.conditional.log_marginal
        far = int(np.argmax(abs(grid.place).max(axis=1) * (heights > heights.max() - 8)))
        fallen = heights.max() - heights[far]
        return self._rounding(grid.mode.point) or NotConverged(
            f"The posterior of {self._over} does not fall on all sides: at "
            f"{_listed(self._values(grid.conditional.hyper[far]))} its logarithm is only {fallen:.1f} below the "
            "highest, so that a grid does not hold its mass.",
            causes=[
                "an improper prior of a hyperparameter, under which the posterior is improper, too",
                "a prior with a very long tail, on which the data say nothing",
            ],
            remedy="give the hyperparameters proper priors, such as HalfNormal of a scale that is plausible.",
        )

    def _no_agreement(self, run: Run) -> LaplaceError:
        """Of chains that disagree, that move too slowly, or that diverge."""
        names = self._hyper_names
        worst, slowest = int(np.argmax(run.r_hat)), int(np.argmin(run.effective))
        chains, number, _ = run.draws.shape
        return NotConverged(
            f"NUTS on the posterior of {self._over}, with the effects integrated out, has not converged: of {chains} "
            f"chains of {number:,} draws r-hat of {names[worst]} is {run.r_hat[worst]:.3g} (up to {R_HAT} is good), "
            f"the effective sample size of {names[slowest]} {run.effective[slowest]:.0f} (from {FEWEST} on), and "
            f"{run.divergences:,} have diverged.",
            causes=[
                "several modes, between which the chains do not pass, as of the loadings of a factor, whose signs may "
                "all change: give one of them a HalfNormal prior",
                "a hyperparameter of which neither data nor prior say much, so that its tail is long",
                "a posterior that is improper",
            ],
            remedy="give the hyperparameters proper priors, such as HalfNormal of a scale that is plausible; name "
            "fewer as over=; or sample everything with NumPyro's NUTS.",
        )


def _listed(values: dict[str, np.ndarray]) -> str:
    return ", ".join(f"{k} = {np.array2string(v, precision=3)}" for k, v in values.items())
