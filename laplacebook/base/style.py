"""The colours and line styles of the book's figures, by what is drawn with them."""

from typing import Any

COLORS = {
    "exact": "#0072b2",  # blue
    "approximation": "#d55e00",  # vermillion
    "data": "#009e73",  # bluish green
    "accent": "#c46f9f",  # reddish purple
    "text": "#797979",  # the grey of text, ticks and axes
}

STYLES: dict[str, dict[str, Any]] = {
    "exact": {"color": COLORS["exact"], "linestyle": "-"},
    "approximation": {"color": COLORS["approximation"], "linestyle": "--"},
    "data": {"color": COLORS["data"], "linestyle": "none", "marker": "o"},
    "accent": {"color": COLORS["accent"], "linestyle": "-."},
    "reference": {"color": COLORS["text"], "linestyle": ":"},
}
