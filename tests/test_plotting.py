"""The style's colours on both themes."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from laplacebook.plotting import COLORS, STYLES, use_style


def luminance(color):
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(a, b):
    low, high = sorted(map(luminance, (a, b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("page", ["#ffffff", "#121212"])
@pytest.mark.parametrize("role", COLORS)
def test_colors_are_seen_on_both_themes(role, page):
    assert contrast(COLORS[role], page) >= (4.25 if role == "text" else 3)


def test_roles_differ_in_more_than_color():
    looks = {(style["linestyle"], style.get("marker")) for style in STYLES.values()}
    assert len(looks) == len(STYLES)


def test_figures_have_no_background():
    with plt.rc_context():
        use_style()
        figure, axes = plt.subplots()
        axes.plot([0, 1])
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba())
        plt.close(figure)
    assert pixels[0, 0, 3] == 0
    assert (pixels.shape[1], pixels.shape[0]) == (1200, 680)
