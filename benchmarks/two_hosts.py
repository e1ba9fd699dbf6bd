"""One fit by two processes, each of which holds half of the rows: ``python -m benchmarks.two_hosts``.

The processes find each other on the loopback address, as hosts of a cluster would by the address of
the first one (``jax.distributed``). Each prints what it found; then one process fits all rows.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

import jax
import numpy as np
import numpyro

import laplacebook as lb

HOSTS = 2


def rows(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and classes, the same in each process."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(number, 20))
    classes = rng.uniform(size=number) < 1 / (1 + np.exp(-features @ np.linspace(-1, 1, 20)))
    return features, classes.astype(float)


def fit(data: tuple) -> dict[str, Any]:
    """The numbers of a fit, and how long the second of two took."""
    lb.laplace(lb.models.logistic_regression, *data)
    start = time.perf_counter()
    approx = lb.laplace(lb.models.logistic_regression, *data)
    return {
        "log_evidence": float(approx.log_evidence),
        "mode": np.asarray(approx.mode_vector).tolist(),
        "sd": np.sqrt(np.diag(approx.covariance)).tolist(),
        "seconds": time.perf_counter() - start,
    }


def host(number: int, index: int, address: str) -> None:
    """One of the processes: reads its half, shards it and fits."""
    jax.distributed.initialize(address, HOSTS, index)
    numpyro.enable_x64()
    half = slice(index * number // HOSTS, (index + 1) * number // HOSTS)
    found = fit(tuple(lb.shard(array[half]) for array in rows(number)))
    print(json.dumps({"host": index, "devices": jax.device_count(), **found}), flush=True)


def main(number: int) -> list[dict[str, Any]]:
    """What each host found, and what one process alone finds."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-m", "benchmarks.two_hosts", str(number), "--address", address]
    hosts = [
        subprocess.Popen([*command, "--host", str(i)], stdout=subprocess.PIPE, env=os.environ)
        for i in range(HOSTS)
    ]
    found = [json.loads(process.communicate()[0].splitlines()[-1]) for process in hosts]
    numpyro.enable_x64()
    return [*found, {"host": "alone", "devices": 1, **fit(rows(number))}]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_hosts", description=__doc__)
    parser.add_argument("number", nargs="?", type=int, default=1_000_000, help="of rows, even")
    parser.add_argument("--host", type=int, help="be this one of the processes")
    parser.add_argument("--address", help="of the first one")
    asked = parser.parse_args()
    if asked.host is not None:
        host(asked.number, asked.host, asked.address)
    else:
        for one in main(asked.number):
            print(f"{one['host']}: log evidence {one['log_evidence']:.6f}, {one['seconds']:.3f} s")
