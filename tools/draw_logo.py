"""Draw the book's logo, its favicon and the picture that shared links show, into book/_static.

python tools/draw_logo.py
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from laplacebook.plotting import COLORS

STATIC = Path(__file__).parent.parent / "book" / "_static"
WHAT = "A skewed density and its Laplace approximation"
PEAK, SD = 2.0, np.sqrt(2.0)
TOP = PEAK**2 * np.exp(-PEAK)


def density(z: np.ndarray) -> np.ndarray:
    """The gamma density z² exp(-z) / 2, times what makes its peak, at 2, one high."""
    return np.where(z > 0, z**2 * np.exp(-z), 0) / TOP


def approximation(z: np.ndarray) -> np.ndarray:
    """The Gaussian with the peak of `density` and its curvature there: -(log p)'' = 2 / z² = 1/2."""
    return np.exp(-(((z - PEAK) / SD) ** 2) / 2)


def path(y, left: float, right: float, width: float, height: float, margin: float) -> str:
    """The curve y(z) for z from left to right, in a box of that width and height, as SVG."""
    z = np.linspace(left, right, 61)
    across = margin + (width - 2 * margin) * (z - left) / (right - left)
    down = height - margin - (height - 2 * margin) * y(z)
    return "M" + "L".join(f"{a:.1f} {d:.1f}" for a, d in zip(across, down, strict=True))


def svg(
    size: tuple[int, int], ends: tuple[float, float], stroke: float, fill: float, dash: str
) -> str:
    """The density, filled with that opacity, and the approximation, a line."""
    (width, height), box = size, (*ends, *size, stroke / 2 + 1)
    outline = COLORS["exact"] if fill < 1 else "none"
    exact, gaussian = path(density, *box), path(approximation, *box)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-label="{WHAT}">
  <g stroke-width="{stroke}" stroke-linecap="round" stroke-linejoin="round">
    <path d="{exact}" fill="{COLORS["exact"]}" fill-opacity="{fill}" stroke="{outline}"/>
    <path d="{gaussian}" fill="none" stroke="{COLORS["approximation"]}"{dash}/>
  </g>
</svg>
"""


def logo() -> str:
    """For the top of the sidebar, 56 pixels high."""
    return svg((112, 56), (-2.5, 9.0), 3, 0.25, ' stroke-dasharray="6 6"')


def favicon() -> str:
    """For a tab, 16 pixels high: no dashes, and the density in full colour."""
    return svg((32, 32), (-2.0, 7.5), 3, 1, "")


def card() -> Figure:
    """For shared links, 1200 by 630 pixels."""
    figure = Figure(figsize=(12, 6.3), dpi=100, facecolor="white")
    axes = figure.add_axes((0, 0.06, 1, 0.56))
    axes.axis("off")
    z = np.linspace(-3.5, 11, 400)
    axes.fill_between(z, density(z), color=COLORS["exact"], alpha=0.2, linewidth=0)
    axes.plot(z, density(z), color=COLORS["exact"], linewidth=7)
    axes.plot(
        z, approximation(z), color=COLORS["approximation"], linewidth=7, linestyle=(0, (3, 2))
    )
    axes.set(xlim=(-3.5, 11), ylim=(-0.03, 1.05))
    figure.text(0.07, 0.8, "The Laplace approximation", fontsize=50, color="#222222")
    figure.text(
        0.07, 0.69, "An executable book, with its package for NumPyro", fontsize=25, color="#555555"
    )
    return figure


def main() -> None:
    (STATIC / "logo.svg").write_text(logo(), encoding="utf-8")
    (STATIC / "favicon.svg").write_text(favicon(), encoding="utf-8")
    card().savefig(STATIC / "card.png", metadata={"Software": None})


if __name__ == "__main__":
    main()
