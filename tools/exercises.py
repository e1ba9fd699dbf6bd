"""Record the answer to an exercise for lb.exercises.check: digests, hints and known mistakes, no answer.

python tools/exercises.py taylor-1 7 --hint "Try one degree after the other." --mistake 8 "A smaller one will do."

An answer is a Python expression with NumPy's names: "[1, -log(2)]", "(-sqrt(2) / 3)". What was recorded
under the name is replaced. Then end the solution's code with lb.exercises.check(name, its answer), and
execute the chapter: make test fails when the two differ.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from laplacebook.exercises import digests

TABLE = Path(__file__).parent.parent / "laplacebook" / "data" / "exercises.json"


def record(name: str, answer: str, decimals: int, hint: str, mistakes: list[list[str]]) -> dict:
    """The entry of the table.

    Raises:
        ValueError: an answer is not finite, or a mistake has another shape, or counts as right.
    """
    values = evaluate(answer)
    known = digests(name, values, decimals)
    entry = {"decimals": decimals, "shape": list(values.shape), "digests": known, "hint": hint}
    entry["mistakes"] = []
    for wrong, said in mistakes:
        slip = evaluate(wrong)
        if slip.shape != values.shape or np.all(abs(slip - values) < 1.5 * 10.0**-decimals):
            raise ValueError(f"{wrong} has another shape than the answer, or is too near to it")
        entry["mistakes"].append({"digests": digests(name, slip, decimals), "hint": said})
    return entry


def evaluate(expression: str) -> np.ndarray:
    values = np.asarray(eval(expression, vars(np).copy()), float)
    if not np.isfinite(values).all():
        raise ValueError(f"{expression} is not finite")
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="file of the chapter without its ending, and number: taylor-1")
    parser.add_argument("answer", help="a Python expression")
    parser.add_argument("--decimals", type=int, default=3, help="that the exercise asks for")
    parser.add_argument("--hint", required=True, help="for a wrong answer that nothing explains")
    parser.add_argument(
        "--mistake", nargs=2, action="append", default=[], metavar=("ANSWER", "HINT")
    )
    given = parser.parse_args()
    table = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    table[given.name] = record(given.name, given.answer, given.decimals, given.hint, given.mistake)
    TABLE.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
