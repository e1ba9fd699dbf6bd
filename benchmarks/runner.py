"""Measurements in processes of their own, and what is compared with what."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
ENOUGH = 15  # seconds: a measurement that has taken as long is not repeated

Sample = dict[str, Any]


class Call(NamedTuple):
    """A function of a module of this folder, and its arguments: one measurement."""

    function: Callable[..., Sample]
    arguments: tuple = ()


class Row(NamedTuple):
    """One comparison: a figure of ours and the same figure of a peer."""

    what: str
    ours: Call
    peer: Call | None  # None where it is not installed
    against: str
    key: str = "seconds"
    peer_key: str = ""  # where it is not the same
    unit: str = "s"


class Result(NamedTuple):
    """Medians over the rounds; ``apart`` is how far the two modes are from each other."""

    what: str
    against: str
    unit: str
    ours: float
    peer: float | None  # None where it is not installed, as are those that need it
    ratio: float | None
    apart: float | None  # posterior standard deviations; None where a side reports no mode
    ours_rounds: list[float]
    peer_rounds: list[float]


def results(
    rows: list[Row], rounds: int, run: Callable[[Call], Sample] | None = None
) -> Iterator[Result]:
    """One :class:`Result` a row, as soon as it is measured; rows may share a measurement."""
    samples: dict[Call, list[Sample]] = {}
    for row in rows:
        calls = [call for call in (row.ours, row.peer) if call and call not in samples]
        samples |= sampled(calls, rounds, run or run_alone)
        yield result(row, samples[row.ours], samples[row.peer] if row.peer else [])


def run_alone(call: Call) -> Sample:
    """What a measurement reports from a fresh interpreter."""
    module, name = call.function.__module__, call.function.__name__
    code = f"import json; from {module} import {name}; print(json.dumps({name}(*{call.arguments})))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout.splitlines()[-1])


def sampled(
    calls: Iterable[Call], rounds: int, run: Callable[[Call], Sample]
) -> dict[Call, list[Sample]]:
    """Each measurement in turn, round after round; a long one less often."""
    samples: dict[Call, list[Sample]] = {call: [] for call in calls}
    spent = dict.fromkeys(samples, 0.0)
    for _ in range(rounds):
        for call in samples:
            if spent[call] < ENOUGH:
                start = time.perf_counter()
                samples[call].append(run(call))
                spent[call] += time.perf_counter() - start
    return samples


def result(row: Row, ours: list[Sample], peer: list[Sample]) -> Result:
    """Compare the samples of two measurements."""
    mine = [sample[row.key] for sample in ours]
    theirs = [sample[row.peer_key or row.key] for sample in peer]
    what, one = (row.what, row.against, row.unit), statistics.median(mine)
    if not peer:
        return Result(*what, one, None, None, None, mine, theirs)
    other = statistics.median(theirs)
    return Result(*what, one, other, one / other, distance(ours[0], peer[0]), mine, theirs)


def distance(ours: Sample, peer: Sample) -> float | None:
    """The largest difference of two modes in posterior standard deviations, if both report one."""
    if "sd" not in ours or "mode" not in peer:
        return None
    triples = zip(ours["mode"], peer["mode"], ours["sd"], strict=True)
    return max(abs(one - other) / sd for one, other, sd in triples)
