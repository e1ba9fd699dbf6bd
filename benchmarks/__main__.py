"""Time this package beside its peers, in one run: ``make bench``, or ``python -m benchmarks coin``.

Prints each row of a subject's table as it is measured, and writes all tables to ``_build/bench/``.
"""

import argparse
from pathlib import Path

from benchmarks import (
    coin,
    cost,
    digits,
    evidence,
    first_calls,
    gaussian,
    latent,
    logistic,
    memory,
    networks,
    predictive,
    regression,
    report,
    runner,
    scaling,
)

SUBJECTS = {
    "coin": coin,
    "first_calls": first_calls,
    "logistic": logistic,
    "regression": regression,
    "cost": cost,
    "evidence": evidence,
    "gaussian": gaussian,
    "latent": latent,
    "predictive": predictive,
    "memory": memory,
    "networks": networks,
    "digits": digits,
    "scaling": scaling,
}


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "subjects", nargs="*", help=f"of {', '.join(SUBJECTS)}; all, if none is named"
    )
    parser.add_argument("--rounds", type=int, default=3, help="processes a measurement, at most")
    parser.add_argument("--quick", action="store_true", help="one round of smaller problems")
    parser.add_argument("--output", type=Path, default=runner.ROOT / "_build" / "bench")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.subjects) - SUBJECTS.keys():
        parser.error(f"no subject {', '.join(sorted(unknown))}; there are {', '.join(SUBJECTS)}")
    return asked


def main(arguments: list[str] | None = None) -> None:
    """Run the subjects that were asked for."""
    asked, tables = options(arguments), {}
    where = report.setting()
    print(report.head(where))
    for subject in asked.subjects or SUBJECTS:
        module = SUBJECTS[subject]
        rows = module.rows(asked.quick)
        measured = tables[module.TITLE] = []
        widths = report.widths_ahead(rows)
        print(report.beginning(module.TITLE, widths), flush=True)
        for result in runner.results(rows, 1 if asked.quick else asked.rounds):
            measured.append(result)
            print(report.line(report.cells(result), widths), flush=True)
            report.write(asked.output, where, tables)
        print()


if __name__ == "__main__":
    main()
