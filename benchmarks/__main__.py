"""Time this package beside its peers, in one run: ``make bench``.

Each row is measured in processes of its own, this package and its peer in turn, and the median is
printed with the ratio. Absolute seconds belong to the machine; the ratio is the figure to compare.
"""

import json
import os
import platform
import statistics
import subprocess
import sys

import jax

from benchmarks import coin

ROUNDS = 5


def run(function: str) -> dict[str, float]:
    """The seconds that a function of ``benchmarks.coin`` reports, from a process of its own."""
    code = f"import json; from benchmarks import coin; print(json.dumps(coin.{function}()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def medians(function: str, rounds: int = ROUNDS) -> dict[str, float]:
    samples = [run(function) for _ in range(rounds)]
    return {key: statistics.median(s[key] for s in samples) for key in samples[0]}


def main() -> None:
    """Print one line a comparison."""
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, jax {jax.__version__}, {jax.devices()[0]}"
    )
    print(f"{'':<44}{'ours':>11}{'peer':>11}{'ratio':>8}")
    ours, peers = medians("ours"), {name: medians(name) for name in coin.PEERS}
    for label, key, peer, peer_key in coin.ROWS:
        mine, theirs = ours[key], peers[peer][peer_key]
        print(f"{label:<44}{mine:>10.5f}s{theirs:>10.5f}s{mine / theirs:>8.4f}")


if __name__ == "__main__":
    main()
