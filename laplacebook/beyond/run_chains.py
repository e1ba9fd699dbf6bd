"""The No-U-Turn sampler on the log marginal of the hyperparameters: its chains, and what is made of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

from laplacebook.base.errors import LaplaceError, NotConverged
from laplacebook.base.progress import progress
from laplacebook.beyond.chains import Chains
from laplacebook.beyond.conditional import Effects
from laplacebook.beyond.known_points import KnownPoints
from laplacebook.beyond.no_u_turn import Moved, Place, settled, transitions
from laplacebook.beyond.outer_mode import OuterMode
from laplacebook.beyond.slopes import followed
from laplacebook.evidence.bridge import bridge

CHAINS = 8
_SETTLING = (
    50  # transitions with the curvature at the mode as metric, and as many with that of the chains
)
_ROUND = 125  # transitions of each chain, after which they are looked at
_ROUNDS = 8  # at most
R_HAT, _ENOUGH, FEWEST = 1.01, 1000, 400  # effective draws: where to stop, and where to refuse
_KNOWN = 5.0  # of a scale matrix, the draws that it is worth for each coordinate
_NODES = 2048
_NUMBERS = 2**26  # of the Cholesky factors at the nodes, 512 MiB; and half as many of modes
_FEWEST_NODES = 128
_HALVINGS = 12  # of the way from a mode to where a chain begins
_STEP = 0.5  # standard deviations: the first of the leapfrog


@dataclass(frozen=True)
class Run:
    """What chains have seen on their way.

    Attributes:
        draws: h, shape (C, N, H).
        heights: shape (C, N).
        kept: of the draws of each chain, those whose modes were kept, shape (n,).
        modes: of the effects there, shape (C, n, d).
        divergences: of transitions.
        points: at which the log marginal was computed.
        failed: those of them at which the effects have no mode, shape (F, H).
    """

    draws: np.ndarray
    heights: np.ndarray
    kept: np.ndarray
    modes: np.ndarray
    divergences: int
    points: int
    failed: np.ndarray

    @cached_property
    def r_hat(self) -> Float[np.ndarray, " H"]:
        """Split R-hat of each coordinate."""
        return np.asarray(split_gelman_rubin(self.draws))

    @cached_property
    def effective(self) -> Float[np.ndarray, " H"]:
        """The effective sample size of each coordinate."""
        return np.asarray(effective_sample_size(self.draws))

    @property
    def is_enough(self) -> bool:
        """Whether no more draws are needed."""
        return bool(self.r_hat.max() <= R_HAT and self.effective.min() >= _ENOUGH)

    @property
    def is_sound(self) -> bool:
        """Whether the chains agree, and are worth enough independent draws to tell."""
        return bool(self.r_hat.max() <= R_HAT and self.effective.min() >= FEWEST)


class _Memory(NamedTuple):
    """The mode of the effects at h, and how it moves with h if that is known."""

    hyper: np.ndarray
    mode: np.ndarray
    turn: np.ndarray | None = None

    def towards(self, hyper: Float[np.ndarray, " H"]) -> Float[np.ndarray, " d"]:
        """Where the mode is at another h, to first order."""
        return self.mode if self.turn is None else self.mode + self.turn @ (hyper - self.hyper)


@dataclass
class _Posterior:
    """The log marginal in coordinates in which it is about a standard normal one."""

    effects: Effects
    start: np.ndarray
    centre: np.ndarray
    root: np.ndarray

    def hyper(self, x: Float[np.ndarray, "*K H"]) -> Float[np.ndarray, "*K H"]:
        """h at these points."""
        return self.centre + x @ self.root.T

    def follow(self, x: np.ndarray, memories: Sequence[_Memory]) -> list[Place]:
        """The log marginal, from searches that begin where the modes before them lead; else at the start."""
        hyper = self.hyper(x)
        begin = np.stack([one.towards(to) for one, to in zip(memories, hyper, strict=True)])
        found = followed(self.effects, hyper, begin)
        lost = np.flatnonzero(np.isnan(found.heights))
        if lost.size:
            middle = np.broadcast_to(self.start, (lost.size, self.start.size))
            again = followed(self.effects, hyper[lost], middle)
            for old, new in zip(found, again, strict=True):
                if old is not None:
                    old[lost] = new
        heights, slopes, modes, turns = found
        ahead = [None] * len(x) if turns is None else turns
        kept = map(_Memory, hyper, modes, ahead)
        return list(map(Place, x, heights.tolist(), slopes @ self.root, kept))

    def at(self, hyper: Float[np.ndarray, "C H"], memories: Sequence[_Memory]) -> list[Place]:
        """Where chains are that stand at h."""
        return self.follow(np.linalg.solve(self.root, (hyper - self.centre).T).T, memories)


def run_chains(known: KnownPoints, modes: Sequence[OuterMode]) -> Run:
    """Chains of NUTS from draws about the modes, until they agree and are worth a thousand draws, or for long enough.

    The metric is the curvature at the first mode, and from the middle of the warm-up the covariance of all chains.

    Args:
        known: the log marginal where the search for the modes has seen it.
        modes: the highest first; chains begin at each in turn.
    """
    effects, first = known.effects, modes[0]
    generators = [np.random.default_rng([0, k]) for k in range(CHAINS)]
    posterior = _Posterior(effects, known.start, first.point, first.axes)
    with progress(CHAINS * (2 * _SETTLING + _ROUND), None, desc="NUTS", unit="draw") as bar:
        more = generators, bar.update
        places = posterior.at(*_starts(known, modes, generators))
        moved, step = settled(posterior.follow, places, _STEP, _SETTLING, *more)
        posterior, places = _rescaled(posterior, moved)
        moved, step = settled(posterior.follow, places, step, _SETTLING, *more)
        every = -(-CHAINS * _ROUND * _ROUNDS * known.start.size * 2 // _NUMBERS)
        rounds: list[list[list[Moved]]] = []
        while True:
            places = [chain[-1].place for chain in moved]
            moved = transitions(posterior.follow, places, step, _ROUND, *more)
            rounds.append([_forgotten(chain, every) for chain in moved])
            run = _run(posterior, rounds, every)
            if run.is_enough or len(rounds) == _ROUNDS:
                return run
            bar.total += CHAINS * _ROUND


def _starts(
    known: KnownPoints, modes: Sequence[OuterMode], generators: Sequence[np.random.Generator]
) -> tuple[Float[np.ndarray, "C H"], list[_Memory]]:
    """Draws about the modes, nearer to them where the effects have no mode there; and the modes of the effects."""
    about = [modes[k % len(modes)] for k in range(CHAINS)]
    middle = np.stack([one.point for one in about])
    away = np.stack(
        [
            one.axes @ rng.standard_normal(middle.shape[1])
            for one, rng in zip(about, generators, strict=True)
        ]
    )
    scale = np.linalg.norm(modes[0].axes, axis=1)
    for _ in range(_HALVINGS):
        found = known.conditional(middle + away, scale)
        lost = np.isnan(found.log_marginal)
        if not lost.any():
            break
        away = np.where(lost[:, None], away / 2, away)
    return middle + away, list(map(_Memory, middle + away, found.mode))


def _rescaled(
    posterior: _Posterior, moved: Sequence[Sequence[Moved]]
) -> tuple[_Posterior, list[Place]]:
    """The same with the mean and the covariance of what the chains have seen on the later half of their way."""
    x = np.stack([one.place.x for chain in moved for one in chain[len(chain) // 2 :]])
    number, size = x.shape
    weight = number / (number + _KNOWN * size)
    covariance = weight * np.atleast_2d(np.cov(x.T)) + (1 - weight) * np.eye(size)
    root = posterior.root @ np.linalg.cholesky(covariance)
    new = _Posterior(posterior.effects, posterior.start, posterior.hyper(x.mean(axis=0)), root)
    places = [chain[-1].place for chain in moved]
    hyper = np.stack([posterior.hyper(place.x) for place in places])
    return new, new.at(hyper, [place.memory for place in places])


def _forgotten(moved: Sequence[Moved], every: int) -> list[Moved]:
    """What is to be known later: the modes of the effects, of many not at each draw."""

    def memory(i: int, place: Place) -> np.ndarray | None:
        return None if i % every else place.memory.mode

    return [
        one._replace(place=one.place._replace(memory=memory(i, one.place)))
        for i, one in enumerate(moved)
    ]


def _run(posterior: _Posterior, rounds: list[list[list[Moved]]], every: int) -> Run:
    chains = [[one for part in chain for one in part] for chain in zip(*rounds, strict=True)]
    x = np.array([[one.place.x for one in chain] for chain in chains])
    heights = np.array([[one.place.height for one in chain] for chain in chains])
    kept = np.flatnonzero(np.arange(x.shape[1]) % _ROUND % every == 0)
    modes = np.array([[chain[i].place.memory for i in kept] for chain in chains], float)
    each = [one for chain in chains for one in chain]
    failed = np.array([one.failed for one in each if one.failed is not None])
    return Run(
        posterior.hyper(x),
        heights,
        kept,
        modes,
        sum(one.diverged for one in each),
        sum(one.points for one in each),
        posterior.hyper(failed.reshape(-1, x.shape[2])),
    )


def chains_of(known: KnownPoints, run: Run, mode: OuterMode) -> Chains:
    """The effects at as many of the draws as memory allows, and the integral over the hyperparameters.

    Args:
        known: the log marginal.
        run: the chains.
        mode: the highest.

    Raises:
        LaplaceError: at a draw the effects have no mode, beginning at that which the chain has found.
    """
    chains, number, size = run.draws.shape
    most = int(np.clip(_NUMBERS // known.effects.held, _FEWEST_NODES, _NODES))
    index = (np.arange(chains)[:, None] * number + run.kept).ravel()
    modes = run.modes.reshape(len(index), -1)
    thinned = np.unique(np.linspace(0, len(index) - 1, min(most, len(index))).astype(int))
    hyper = run.draws.reshape(-1, size)[index[thinned]]
    conditional = known.effects.given(hyper, modes[thinned])
    if np.isnan(conditional.log_marginal).any():
        raise LaplaceError(
            f"At {np.isnan(conditional.log_marginal).sum()} of {len(hyper)} draws of "
            f"{', '.join(known.effects.over)} the effects have no mode, where a chain had found one.",
            remedy="sample the posterior with NumPyro's NUTS.",
        )
    nodes = KnownPoints(known.effects, known.start)
    nodes.hyper, nodes.mode = hyper, conditional.mode
    heights = partial(nodes.heights, scale=run.draws.std(axis=(0, 1)))
    log_integral, error = _integral(heights, run)
    return Chains(
        run.draws,
        run.heights,
        conditional,
        index[thinned],
        mode,
        run.divergences,
        log_integral,
        error,
        np.zeros_like(run.heights),
    )


def _integral(heights: Callable[[np.ndarray], np.ndarray], run: Run) -> tuple[float, float]:
    """The log of the integral of the marginal by bridge sampling, and its standard error; NaN if it does not settle.

    Half of the draws tell the normal law that is on the other side, and the others how it overlaps (Gronau et al.
    2017, Journal of Mathematical Psychology 81, 80-97).
    """
    half = run.draws.shape[1] // 2
    first = run.draws[:, :half].reshape(-1, run.draws.shape[2])
    mean, root = first.mean(axis=0), np.linalg.cholesky(np.atleast_2d(np.cov(first.T)))

    def log_normal(hyper: np.ndarray) -> np.ndarray:
        x = np.linalg.solve(root, (hyper - mean).T).T
        log_volume = np.log(np.diagonal(root)).sum() + mean.size / 2 * np.log(2 * np.pi)
        return -np.sum(x**2, axis=1) / 2 - log_volume

    later = run.draws[:, half:]
    normal = np.random.default_rng(3).standard_normal((later.shape[0] * later.shape[1], mean.size))
    proposed = mean + normal @ root.T
    drawn = run.heights[:, half:] - log_normal(later.reshape(-1, mean.size)).reshape(len(later), -1)
    try:
        found: Any = bridge(drawn, heights(proposed) - log_normal(proposed))
    except NotConverged:
        return np.nan, np.inf
    return float(found.value), float(found.standard_error)
