"""What a run found, as text, as Markdown and as JSON."""

import datetime
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.runner import Result, Row

PACKAGES = ("laplacebook", "jax", "numpyro", "numpy", "scikit-learn", "statsmodels")
COLUMNS = ("what", "against", "ours", "peer", "ours/peer", "modes apart [sd]")
FIGURE = 12  # characters of a figure that is not measured yet, with its unit


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

    def shown(figure: float | None, digits: str, unit: str = "") -> str:
        return "" if figure is None else f"{figure:{digits}}{unit}"

    figures = [shown(x, ".3g", f" {result.unit}") for x in (result.ours, result.peer)]
    ratio, apart = shown(result.ratio, ".3g"), shown(result.apart, ".0e")
    return result.what, result.against, *figures, ratio, apart


def line(texts: Sequence[str], widths: Sequence[int]) -> str:
    """One line of a table in Markdown, aligned so that it reads as text too."""
    return f"| {' | '.join(c.ljust(w) for c, w in zip(texts, widths, strict=True))} |"


def beginning(title: str, widths: Sequence[int]) -> str:
    """The heading of a table and its first two lines."""
    rule = line(["-" * width for width in widths], widths)
    return "\n".join([f"## {title}", "", line(COLUMNS, widths), rule])


def widths_ahead(rows: list[Row]) -> list[int]:
    """How wide the columns of a table are whose figures are not measured yet."""
    texts = [COLUMNS[:2], *((row.what, row.against) for row in rows)]
    names = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [*names, *(max(FIGURE, len(column)) for column in COLUMNS[2:])]


def markdown(title: str, results: list[Result]) -> str:
    """A heading and a table."""
    lines = [cells(result) for result in results]
    widths = [max(map(len, column)) for column in zip(COLUMNS, *lines, strict=True)]
    return "\n".join([beginning(title, widths), *(line(texts, widths) for texts in lines), ""])


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
