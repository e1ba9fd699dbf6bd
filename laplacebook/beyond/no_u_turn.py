"""The No-U-Turn sampler, for a density that is computed at the next points of all chains together."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

_DEEPEST = 10  # doublings of a trajectory
_DIVERGED = 1000.0  # nats, by which the energy has risen
# Of dual averaging: Hoffman and Gelman (2014), section 3.2.
_ACCEPTANCE, _SHRINKAGE, _SETTLING, _FORGETTING = 0.8, 0.05, 10, 0.75


class Place(NamedTuple):
    """A point, and what the density is there.

    Attributes:
        x: the point, shape (H,).
        height: the log density; NaN where there is none.
        slope: its gradient, shape (H,).
        memory: what whoever computes it keeps of the point, for the points after it.
    """

    x: np.ndarray
    height: float
    slope: np.ndarray
    memory: Any


class Moved(NamedTuple):
    """A transition of a chain.

    Attributes:
        place: where it ended.
        acceptance: the mean probability of acceptance along the trajectory.
        points: of the trajectory, at which the density was computed.
        diverged: whether the energy rose too far, or there was no density.
        failed: the first point at which there was none.
    """

    place: Place
    acceptance: float
    points: int
    diverged: bool
    failed: np.ndarray | None


Asked = tuple[np.ndarray, Any]  # a point, and the memory of the one before it
Follow = Callable[[np.ndarray, Sequence[Any]], list[Place]]


class _State(NamedTuple):
    place: Place
    momentum: np.ndarray

    @property
    def energy(self) -> float:
        return float(self.momentum @ self.momentum / 2 - self.place.height)


class _Tree(NamedTuple):
    """A trajectory: its ends, the place that was drawn from it, and sums over its points."""

    first: _State
    last: _State
    drawn: Place
    momentum: np.ndarray
    log_weight: float
    acceptance: float
    points: int
    diverged: bool
    turns: bool
    failed: np.ndarray | None

    @property
    def stops(self) -> bool:
        return self.diverged or self.turns


class StepSize:
    """The size of a step, adapted by dual averaging until the mean acceptance along trajectories is 0.8."""

    def __init__(self, first: float) -> None:
        self._towards = np.log(10 * first)
        self._error, self._number = 0.0, 0
        self._mean = np.log(first)
        self.now = first

    def take(self, acceptance: float) -> None:
        """What the mean acceptance was with the present one."""
        self._number += 1
        share = 1 / (self._number + _SETTLING)
        self._error += share * (_ACCEPTANCE - acceptance - self._error)
        now = self._towards - np.sqrt(self._number) / _SHRINKAGE * self._error
        weight = self._number**-_FORGETTING
        self._mean += weight * (now - self._mean)
        self.now = float(np.exp(now))

    @property
    def settled(self) -> float:
        """The mean of the logarithms, the later ones with more weight."""
        return float(np.exp(self._mean))


def transitions(
    follow: Follow,
    places: Sequence[Place],
    step: float,
    number: int,
    generators: Sequence[np.random.Generator],
    each: Callable[[], object],
) -> list[list[Moved]]:
    """So many transitions of each chain, with a unit metric.

    The sampler of Hoffman and Gelman (2014, Journal of Machine Learning Research 15, 1593-1623), with multinomial
    draws from a trajectory and the criterion for a turn of Betancourt (2017, arXiv:1701.02434, appendix A). No chain
    waits for another one to end its trajectory.

    Args:
        follow: the density at points of shape (K, H), with the memories of the points before them.
        places: where the chains are.
        step: the size of a step of the leapfrog.
        number: of transitions.
        generators: of random numbers, one for each chain.
        each: is called after each transition.
    """
    chains = [
        _chain(place, rng, step, number, each)
        for place, rng in zip(places, generators, strict=True)
    ]
    asked = {k: next(chain) for k, chain in enumerate(chains)}
    ended: dict[int, list[Moved]] = {}
    while asked:
        points, memories = zip(*asked.values(), strict=True)
        answers = dict(zip(asked, follow(np.stack(points), memories), strict=True))
        asked = {}
        for k, answer in answers.items():
            try:
                asked[k] = chains[k].send(answer)
            except StopIteration as end:
                ended[k] = end.value
    return [ended[k] for k in range(len(chains))]


def _chain(
    place: Place,
    rng: np.random.Generator,
    step: float,
    number: int,
    each: Callable[[], object],
) -> Generator[Asked, Place, list[Moved]]:
    moved: list[Moved] = []
    for _ in range(number):
        moved.append((yield from _transition(place, rng, step)))
        place = moved[-1].place
        each()
    return moved


def _transition(
    place: Place, rng: np.random.Generator, step: float
) -> Generator[Asked, Place, Moved]:
    start = _State(place, rng.standard_normal(place.x.size))
    tree = _Tree(start, start, place, start.momentum, 0.0, 0.0, 0, False, False, None)
    for depth in range(_DEEPEST):
        way = 1.0 if rng.random() < 0.5 else -1.0
        end = tree.last if way > 0 else tree.first
        more = yield from _grown(end, way * step, depth, start.energy, rng)
        chance = 0.0 if more.stops else min(1.0, np.exp(more.log_weight - tree.log_weight))
        tree = _joined(tree, more, way, bool(rng.random() < chance))
        if tree.stops:
            break
    return Moved(tree.drawn, tree.acceptance / tree.points, tree.points, tree.diverged, tree.failed)


def _grown(
    end: _State, step: float, depth: int, energy: float, rng: np.random.Generator
) -> Generator[Asked, Place, _Tree]:
    """A trajectory of 2^depth points that goes on from one end of another."""
    if depth == 0:
        return (yield from _leap(end, step, energy))
    tree = yield from _grown(end, step, depth - 1, energy, rng)
    if tree.stops:
        return tree
    end = tree.last if step > 0 else tree.first
    more = yield from _grown(end, step, depth - 1, energy, rng)
    share = np.exp(more.log_weight - np.logaddexp(tree.log_weight, more.log_weight))
    return _joined(tree, more, step, bool(rng.random() < share))


def _leap(before: _State, step: float, energy: float) -> Generator[Asked, Place, _Tree]:
    """One step of the leapfrog."""
    half = before.momentum + step / 2 * before.place.slope
    place = yield before.place.x + step * half, before.place.memory
    state = _State(place, half + step / 2 * place.slope)
    gain = energy - state.energy
    diverged = not gain > -_DIVERGED
    failed = None if np.isfinite(place.height) else place.x
    gain = -np.inf if np.isnan(gain) else gain
    chance = float(np.exp(min(0.0, gain)))
    return _Tree(state, state, place, state.momentum, gain, chance, 1, diverged, False, failed)


def _joined(tree: _Tree, more: _Tree, way: float, takes: bool) -> _Tree:
    """Both as one, with the place of the second one if that is taken."""
    one, two = (tree, more) if way > 0 else (more, tree)
    momentum = tree.momentum + more.momentum
    turns = more.turns or any(
        _turns(*part)
        for part in (
            (momentum, one.first, two.last),
            (one.momentum + two.first.momentum, one.first, two.first),
            (two.momentum + one.last.momentum, one.last, two.last),
        )
    )
    return _Tree(
        one.first,
        two.last,
        more.drawn if takes else tree.drawn,
        momentum,
        float(np.logaddexp(tree.log_weight, more.log_weight)),
        tree.acceptance + more.acceptance,
        tree.points + more.points,
        more.diverged,
        turns,
        more.failed,
    )


def _turns(momentum: np.ndarray, first: _State, last: _State) -> bool:
    return bool(min(momentum @ first.momentum, momentum @ last.momentum) <= 0)


def settled(
    follow: Follow,
    places: Sequence[Place],
    first: float,
    number: int,
    generators: Sequence[np.random.Generator],
    each: Callable[[], object],
) -> tuple[list[list[Moved]], float]:
    """So many transitions of each chain, by which a step size for all is adapted; and that.

    Args:
        follow: as :func:`transitions` takes it.
        places: where the chains are.
        first: the step size to begin with.
        number: of transitions.
        generators: of random numbers, one for each chain.
        each: is called after each transition.
    """
    step, rounds = StepSize(first), []
    for _ in range(number):
        moved = [one for (one,) in transitions(follow, places, step.now, 1, generators, each)]
        places = [one.place for one in moved]
        step.take(float(np.mean([one.acceptance for one in moved])))
        rounds.append(moved)
    return [list(chain) for chain in zip(*rounds, strict=True)], step.settled
