"""A small table that reads well in a terminal and in a notebook."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

_MOST = 100  # rows that are printed
_ENDS = 10  # of more, so many of the first and of the last


@dataclass(frozen=True, repr=False)
class Table:
    """Columns of strings or numbers, with a title above and lines of text below.

    A float prints with four significant digits, and what is missing, None, as a dash. Of more than a hundred
    rows the first and the last ten are printed.

    In the book: :doc:`/book/model-comparison`.

    Attributes:
        title: printed above the columns.
        columns: name -> values, all columns of the same length. The first one names the rows.
        footer: lines printed below the columns.
        decimals: name -> digits behind the point, for columns of large numbers whose differences
            matter.

    Raises:
        ValueError: the columns differ in length, or there is none.

    >>> table = Table("Two coins", {"coin": ["a", "b"], "heads": [8, 0.25]}, ("and no more",))
    >>> print(table)  # doctest: -NORMALIZE_WHITESPACE
    Two coins
      coin   heads
      a          8
      b     0.2500
      and no more
    >>> table["heads"]
    [8, 0.25]
    >>> table.rows()[0]
    {'coin': 'a', 'heads': 8}
    """

    title: str
    columns: Mapping[str, Sequence[Any]]
    footer: tuple[str, ...] = ()
    decimals: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len({len(values) for values in self.columns.values()}) != 1:
            raise ValueError("A table takes one column or more, all of the same length.")

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, column: str) -> list[Any]:
        return list(self.columns[column])

    def rows(self) -> list[dict[str, Any]]:
        """The rows, each a dict of column -> value."""
        return [
            dict(zip(self.columns, row, strict=True))
            for row in zip(*self.columns.values(), strict=True)
        ]

    def head(self, number: int) -> "Table":
        """The first rows; a line below says how many more there are."""
        columns = {name: values[:number] for name, values in self.columns.items()}
        more = (f"... and {len(self) - number} more",) if len(self) > number else ()
        return replace(self, columns=columns, footer=more + self.footer)

    def __repr__(self) -> str:
        if len(self) > _MOST:
            return repr(self._cut())
        columns = [
            _aligned(name, values, self._printed(name)) for name, values in self.columns.items()
        ]
        lines = ["  ".join(cells).rstrip() for cells in zip(*columns, strict=True)]
        return "\n".join([self.title, *(f"  {line}" for line in [*lines, *self.footer])])

    def _repr_html_(self) -> str:
        if len(self) > _MOST:
            return self._cut()._repr_html_()
        head = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.columns)
        body = "".join(map(_html_row, zip(*map(self._printed, self.columns), strict=True)))
        below = "".join(f"<p>{escape(line)}</p>" for line in self.footer)
        return (
            f"<table><caption>{escape(self.title)}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"
        )

    def _cut(self) -> "Table":
        columns = {
            name: [*values[:_ENDS], "...", *values[-_ENDS:]]
            for name, values in self.columns.items()
        }
        shown = f"{len(self):,} rows, of which the first {_ENDS} and the last {_ENDS} are printed"
        return replace(self, columns=columns, footer=(shown, *self.footer))

    def _printed(self, column: str) -> list[str]:
        decimals = self.decimals.get(column)
        return [_printed(value, decimals) for value in self.columns[column]]


def _aligned(name: str, values: Sequence[Any], printed: Sequence[str]) -> list[str]:
    """A column with its name on top: text to the left, numbers to the right."""
    cells = [name, *printed]
    width = max(map(len, cells))
    text = all(isinstance(value, str) for value in values)
    return [cell.ljust(width) if text else cell.rjust(width) for cell in cells]


def _html_row(row: Sequence[str]) -> str:
    name, *cells = map(escape, row)
    return f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _printed(value: Any, decimals: int | None) -> str:
    if value is None:
        return "—"
    if not isinstance(value, float):
        return str(value)
    return f"{value:#.4g}".rstrip(".") if decimals is None else f"{value:.{decimals}f}"


def tails(probability: float) -> list[float]:
    """The levels at the two ends of a central interval.

    Raises:
        ValueError: ``probability`` is not between 0 and 1.
    """
    if not 0 < probability < 1:
        raise ValueError(f"probability must be between 0 and 1, not {probability}")
    return [(1 - probability) / 2, (1 + probability) / 2]


def percentages(tails: Sequence[float]) -> list[str]:
    """Names of quantiles, such as ``"5 %"``, with so many digits that none reads 0, 50 or 100.

    Args:
        tails: two levels, below and above one half.

    Raises:
        ValueError: in double precision they are 0, 1/2 or 1.
    """
    for digits in range(6, 18):
        names = [f"{100 * tail:.{digits}g}" for tail in tails]
        if not {"0", "50", "100"}.intersection(names):
            return [f"{name} %" for name in names]
    raise ValueError(
        f"The interval from {tails[0]} to {tails[1]} has no ends that can be told apart."
    )
