"""The logo, the favicon and the picture of shared links are what tools/draw_logo.py draws."""

import io

import numpy as np
import pytest
from PIL import Image

from tools import draw_logo


@pytest.mark.parametrize("name", ["logo", "favicon"])
def test_committed_svg_is_what_is_drawn(name):
    assert (draw_logo.STATIC / f"{name}.svg").read_text() == getattr(draw_logo, name)()


def test_committed_card_is_what_is_drawn():
    drawn = io.BytesIO()
    draw_logo.card().savefig(drawn)
    new, old = (
        np.asarray(Image.open(png).convert("RGB"), float)
        for png in (drawn, draw_logo.STATIC / "card.png")
    )
    assert old.shape == new.shape == (630, 1200, 3)
    assert np.mean(abs(new - old) > 64) < 1e-3  # another FreeType moves the edges of letters


@pytest.mark.parametrize("curve", [draw_logo.density, draw_logo.approximation])
def test_curves_share_peak_and_curvature(curve):
    h = 1e-3
    left, top, right = curve(draw_logo.PEAK + np.array([-h, 0, h]))
    assert top == pytest.approx(1)
    assert (right - left) / (2 * h) == pytest.approx(0, abs=1e-6)
    assert (right - 2 * top + left) / h**2 == pytest.approx(-1 / draw_logo.SD**2, rel=1e-5)
