"""What a run found, as text, as Markdown and as JSON."""

import datetime
import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.runner import Result

PACKAGES = ("laplacebook", "jax", "numpyro", "numpy", "scikit-learn", "statsmodels")
COLUMNS = ("what", "against", "ours", "peer", "ours/peer", "modes apart [sd]")


def setting() -> dict[str, str | float]:
    """Where and when: date, device, cores, how many processes other work keeps busy, versions."""
    import jax

    return {
        "date": datetime.date.today().isoformat(),
        "device": f"{jax.devices()[0].device_kind}, {platform.machine()}",
        "cores": os.cpu_count() or 1,
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else "unknown",
        "python": platform.python_version(),
        **{name: installed(name) for name in PACKAGES},
    }


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def cells(result: Result) -> tuple[str, ...]:
    """One line of a table."""
    apart = "" if result.apart is None else f"{result.apart:.0e}"
    figures = [f"{x:.3g} {result.unit}" for x in (result.ours, result.peer)]
    return result.what, result.against, *figures, f"{result.ratio:.3g}", apart


def markdown(title: str, results: list[Result]) -> str:
    """A heading and a table, aligned so that it reads as text too."""
    lines = [COLUMNS, *map(cells, results)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [[c.ljust(w) for c, w in zip(line, widths, strict=True)] for line in lines]
    table.insert(1, ["-" * width for width in widths])
    return "\n".join([f"## {title}", "", *(f"| {' | '.join(line)} |" for line in table), ""])


def head(where: dict) -> str:
    """The title of a report and where it was made."""
    facts = ", ".join(f"{name} {value}" for name, value in where.items())
    return (
        "# This package beside its peers\n\nWritten by `make bench`. Medians of processes of their "
        "own, ours and the peer's in turn; seconds belong to the machine, the ratio is the figure "
        "to compare. Where the load before the run is not far below the number of cores, other work "
        f"disturbs the figures, those of products on several cores most.\n\n{facts}\n"
    )


def write(folder: Path, where: dict, tables: dict[str, list[Result]]) -> None:
    """``latest.json`` with every round, and ``latest.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = {title: [result._asdict() for result in results] for title, results in tables.items()}
    (folder / "latest.json").write_text(json.dumps({"setting": where, "tables": rows}, indent=1))
    text = [head(where), *(markdown(title, results) for title, results in tables.items())]
    (folder / "latest.md").write_text("\n".join(text))
