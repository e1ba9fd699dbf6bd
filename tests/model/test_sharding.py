"""Data on eight devices and in two processes: each in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import two_hosts

ROOT = Path(__file__).parents[2]


def test_eight_devices():
    environment = os.environ | {
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8",
        "JAX_PLATFORMS": "cpu",
    }
    options = ["-q", "-o", "addopts=", "-p", "no:nbval", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", *options, "tests/model/eight_devices.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-8000:]


def test_two_hosts_find_what_one_finds():
    *hosts, alone = two_hosts.main(400)
    assert [found["devices"] for found in hosts] == [2, 2]
    for found in hosts:
        for number in ("log_evidence", "mode", "sd"):
            assert found[number] == pytest.approx(alone[number], rel=1e-10)
