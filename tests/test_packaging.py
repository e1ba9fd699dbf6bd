"""pyproject.toml, the lock, the conda environment and what is installed agree."""

import re
import subprocess
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import laplacebook

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()
PIN = re.compile(r"^(?P<name>[a-z0-9._-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+?))? \\$")
PYTHONS = ("3.11", "3.12", "3.13")


def entries(lock):
    """The lock's requirements, each the lines from its name to the next one's."""
    return [
        e for e in re.split(r"^(?=[^\s#])", lock, flags=re.M) if e.strip() and not e.startswith("#")
    ]


def complaints_about_lock(lock, requirements):
    """Lines without one version and a hash, an index, and requirements that are not met."""
    complaints, pinned = [], {}
    for entry in entries(lock):
        first = entry.splitlines()[0]
        pin = PIN.match(first)
        if pin is None:
            complaints.append(f"not one version of one package: {first}")
            continue
        if "--hash=sha256:" not in entry:
            complaints.append(f"no hash: {first}")
        pinned.setdefault(pin["name"], []).append(pin)
    if re.search(r"https?://|--(extra-)?index-url|--find-links", lock):
        complaints.append("an address of an index")
    for requirement in map(Requirement, requirements):
        pins = pinned.get(canonicalize_name(requirement.name), [])
        for python in PYTHONS:
            here = [p["version"] for p in pins if applies(p["marker"], python)]
            if len(here) != 1 or here[0] not in requirement.specifier:
                complaints.append(f"{requirement} on Python {python}: {here or 'not'} locked")
    return complaints


def applies(marker, python):
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
    }
    return marker is None or Marker(marker).evaluate(environment)


def declared():
    extras = PROJECT["optional-dependencies"].values()
    return PROJECT["dependencies"] + [requirement for extra in extras for requirement in extra]


def test_lock_meets_every_requirement():
    assert complaints_about_lock(LOCK, declared()) == []


GOOD = "jax==1.0 \\\n    --hash=sha256:00\n    # via numpyro\n"
BAD = {
    "no version": ("jax \\\n    --hash=sha256:00\n", "not one version"),
    "a range": ("jax>=1.0 \\\n    --hash=sha256:00\n", "not one version"),
    "no hash": ("jax==1.0 \\\n    # via numpyro\n", "no hash"),
    "an index": ("--index-url example\n" + GOOD, "an address"),
    "too old": (GOOD.replace("1.0", "0.1"), "on Python 3.11"),
    "missing": ("", "on Python 3.13"),
    "on Windows alone": (
        GOOD.replace(" \\", " ; sys_platform == 'win32' \\", 1),
        "on Python 3.12",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_lock_check_notices(fault):
    lock, complaint = BAD[fault]
    assert complaints_about_lock(GOOD, ["jax>=0.7"]) == []
    assert any(complaint in c for c in complaints_about_lock(lock, ["jax>=0.7"]))


def test_installed_is_what_is_locked():
    locked = {p["name"]: p["version"] for e in entries(LOCK) if (p := PIN.match(e.splitlines()[0]))}
    installed = {canonicalize_name(d.name): d.version for d in distributions()}
    both = locked.keys() & installed.keys()
    differ = {
        name: (installed[name], locked[name]) for name in both if installed[name] != locked[name]
    }
    assert not differ, "installed, locked: run make"


def test_conda_environment_uses_the_lock():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    conda = [d for d in environment["dependencies"] if isinstance(d, str)]
    (pip,) = (d["pip"] for d in environment["dependencies"] if isinstance(d, dict))
    assert pip == ["-r requirements.lock"]
    assert "pip" in conda
    # Binder takes its base from a Python that is named with =, and its own default from a range.
    (python,) = (d for d in conda if d.startswith("python"))
    assert python.removeprefix("python=") in PYTHONS


def test_the_oldest_versions_are_those_of_the_requirements():
    command = ["make", "-n", "-B", ".venv-oldest/.installed"]
    recipe = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in ("jax", "numpyro"):
        (lowest,) = re.findall(rf'"{name}>=([0-9.]+)', (ROOT / "pyproject.toml").read_text())
        assert f" {name}=={lowest}.* " in recipe


def test_one_version_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changelog = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert {citation["version"], changelog[1], laplacebook.__version__} == {PROJECT["version"]}
