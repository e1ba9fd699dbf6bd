"""A figure that a slider moves, as SVG: on a static page and in Jupyter, without a kernel or a network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np
from jaxtyping import Array, Float

from laplacebook.base.style import STYLES

__all__ = ["Axis", "Curve", "Slider"]

Values = Float[np.ndarray | Array, "..."]
Ticks = Sequence[int] | Sequence[float]

_WIDE, _HIGH = 360, 200  # of the plot, in units of the drawing
_DASHES = {"-": "none", "--": "7 4", "-.": "8 3 2 3", ":": "2 3"}

_PAGE = """<div style="max-width: 32rem; margin: auto">
<svg viewBox="-42 -30 414 274" role="img" aria-label="{description}" style="width: 100%; height: auto">
<path d="M0,0 V200 H360" fill="none" stroke="{axes}"/>
<g fill="currentColor" font-size="13">
<text x="-38" y="-14">{up}</text>
<text x="180" y="238" text-anchor="middle">{across}</text>
{ticks}
</g>
<svg width="360" height="200">
{curves}
</svg>
</svg>
<div style="display: flex; flex-wrap: wrap; gap: 0 1rem; justify-content: center">
{legend}
</div>
<label style="display: block">{name}
<input type="range" min="0" max="{last}" value="{start}" autocomplete="off" style="width: 100%"
aria-valuetext="{position}" data-positions="{positions}"
oninput="for (const e of this.closest('div').querySelectorAll('[data-position]'))
e.style.display = e.dataset.position === this.value ? '' : 'none';
this.setAttribute('aria-valuetext', this.dataset.positions.split('|')[this.value])">
</label>
<p aria-live="polite" style="min-height: 3em">
{captions}
</p>
</div>"""


@dataclass(frozen=True)
class Axis:
    """A linear axis.

    Args:
        label: what it shows, and its unit if it has one.
        ticks: the numbers on it, rising; it ends at the first and at the last.
    """

    label: str
    ticks: Ticks

    def place(self, values: Values | Ticks, length: int) -> np.ndarray:
        """Where values lie on the axis when it has that length."""
        first, last = self.ticks[0], self.ticks[-1]
        return length * (np.asarray(values) - first) / (last - first)


@dataclass(frozen=True)
class Curve:
    """What a figure shows in one role: a line, a line in a band, or points.

    Args:
        name: for the legend.
        role: of `laplacebook.plotting.STYLES`; it gives the color, and the dashes or points.
        x: abscissae, shape (n,).
        y: ordinates, shape (n,) if they stay as they are, or (positions, n).
        half_width: of a band around the line, of the shape of `y`.

    Raises:
        ValueError: there is no such role, or the shapes do not fit.
    """

    name: str
    role: str
    x: Values = field(repr=False)
    y: Values = field(repr=False)
    half_width: Values | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse a role without a style, and shapes that do not fit."""
        if self.role not in STYLES:
            raise ValueError(
                f"curve {self.name!r} has the role {self.role!r}; there are {', '.join(STYLES)}"
            )
        x, y = np.shape(self.x), np.shape(self.y)
        band = y if self.half_width is None else np.shape(self.half_width)
        if len(y) not in (1, 2) or y[-1:] != x or band != y:
            raise ValueError(
                f"curve {self.name!r} has x of shape {x}, y of {y} and half_width of {band}: they "
                "are (n,), (n,) or (positions, n), and that of y"
            )


@dataclass(frozen=True)
class Slider:
    """Curves of which a slider shows one position at a time, with a caption for each.

    The last value of a notebook cell is shown as SVG with a few lines of JavaScript. Without
    JavaScript it stays at `start`.

    Args:
        name: what the slider moves.
        description: what the figure shows, for those who cannot see it.
        captions: for each position, what it is called, and what to say of it below the figure.
        curves: what is drawn, from the back to the front.
        across: the horizontal axis.
        up: the vertical axis.
        start: number, from 0, of the position that is shown first.

    Raises:
        ValueError: a curve has another number of positions than there are captions, there is no
            position `start`, or what a position is called contains "|".
    """

    name: str
    description: str = field(repr=False)
    captions: Mapping[str, str] = field(repr=False)
    curves: Sequence[Curve] = field(repr=False)
    across: Axis = field(repr=False)
    up: Axis = field(repr=False)
    start: int = 0

    def __post_init__(self) -> None:
        """Refuse curves that have another number of positions than captions, and a wrong start."""
        for curve in self.curves:
            positions = len(curve.y)
            if np.ndim(curve.y) == 2 and positions != len(self.captions):
                message = f"curve {curve.name!r} has {positions} positions, and there are"
                raise ValueError(f"{message} {len(self.captions)} captions")
        if self.start not in range(len(self.captions)):
            raise ValueError(
                f"start is one of the {len(self.captions)} positions, from 0, not {self.start!r}"
            )
        if bars := [position for position in self.captions if "|" in position]:
            raise ValueError(f'"|" parts the positions, and cannot be in {bars[0]!r}')

    def _repr_html_(self) -> str:
        positions = [escape(position) for position in self.captions]
        captions = [
            f"<span {self._at(k)}><b>{position}</b>: {escape(text)}</span>"
            for k, (position, text) in enumerate(
                zip(positions, self.captions.values(), strict=True)
            )
        ]
        return _PAGE.format(
            name=escape(self.name),
            description=escape(self.description),
            axes=STYLES["reference"]["color"],
            across=escape(self.across.label),
            up=escape(self.up.label),
            ticks="\n".join(self._ticks()),
            curves="\n".join(shape for curve in self.curves for shape in self._shapes(curve)),
            legend="\n".join(_entry(curve) for curve in self.curves),
            captions="\n".join(captions),
            positions="|".join(positions),
            position=positions[self.start],
            start=self.start,
            last=len(positions) - 1,
        )

    def _at(self, position: int) -> str:
        hidden = "" if position == self.start else ' style="display: none"'
        return f'data-position="{position}"{hidden}'

    def _shapes(self, curve: Curve) -> list[str]:
        """SVG of a curve that stays, or one for each position."""
        if np.ndim(curve.y) == 1:
            return [self._shape(curve, curve.y, curve.half_width)]
        widths = [None] * len(curve.y) if curve.half_width is None else curve.half_width
        return [
            f"<g {self._at(k)}>{self._shape(curve, y, width)}</g>"
            for k, (y, width) in enumerate(zip(curve.y, widths, strict=True))
        ]

    def _shape(self, curve: Curve, y: Values, half_width: Values | None) -> str:
        drawn, style = self._points(curve.x, y), STYLES[curve.role]
        if style["linestyle"] == "none":
            dots = "".join(f"M{point}h0" for point in drawn)
            return _path(dots, style, 'stroke-width="6" stroke-linecap="round"')
        line = _path("M" + " ".join(drawn), style)
        if half_width is None:
            return line
        y, width = np.asarray(y), np.asarray(half_width)
        edge = self._points(curve.x, y - width) + self._points(curve.x, y + width)[::-1]
        return _band("M" + " ".join(edge) + "Z", style) + line

    def _points(self, x: Values, y: Values) -> list[str]:
        across, up = self.across.place(x, _WIDE), _HIGH - self.up.place(y, _HIGH)
        return [f"{a:z.1f},{b:z.1f}" for a, b in zip(across, up, strict=True)]

    def _ticks(self) -> list[str]:
        label = '<text x="{:.0f}" y="{:.0f}" text-anchor="{}">{}</text>'
        across = zip(self.across.place(self.across.ticks, _WIDE), self.across.ticks, strict=True)
        up = zip(self.up.place(self.up.ticks, _HIGH), self.up.ticks, strict=True)
        return [
            *(label.format(a, 216, "middle", _number(tick)) for a, tick in across),
            *(label.format(-6, 204 - b, "end", _number(tick)) for b, tick in up),
        ]


def _entry(curve: Curve) -> str:
    """A line of the legend: a sample of the curve, and its name."""
    style = STYLES[curve.role]
    if style["linestyle"] == "none":
        sample = _path("M14,6h0", style, 'stroke-width="6" stroke-linecap="round"')
    else:
        sample = _path("M0,6H28", style)
    if curve.half_width is not None:
        sample = _band("M0,0H28V12H0Z", style) + sample
    picture = f'<svg width="28" height="12" aria-hidden="true">{sample}</svg>'
    return f"<span>{picture} {escape(curve.name)}</span>"


def _path(outline: str, style: Mapping[str, str], more: str = 'stroke-width="2"') -> str:
    dashes = _DASHES.get(style["linestyle"], "none")
    look = f'fill="none" stroke="{style["color"]}" stroke-dasharray="{dashes}" {more}'
    return f'<path d="{outline}" {look}/>'


def _band(outline: str, style: Mapping[str, str]) -> str:
    return f'<path d="{outline}" fill="{style["color"]}" fill-opacity="0.25"/>'


def _number(value: int | float) -> str:
    return f"{value:g}".replace("-", "−")
