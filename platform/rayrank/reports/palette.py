"""Colours and style of every plot: the palette of Okabe and Ito, which colour-blind readers can distinguish."""

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a page takes its colours from here without the seconds that importing matplotlib takes
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY, LIGHT = "#0072B2", "#D55E00", "#009E73", "#595959", "#D9E8F2"
SKY, AMBER, PURPLE = "#56B4E9", "#E69F00", "#CC79A7"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY, "#000000")
"""Colours for any number of lines, which also differ by their markers."""
MARKERS = "osD^vPX<"


def tidy(axes: "Axes") -> None:
    """Remove the frame and draw a light grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)


def png(figure: "Figure") -> bytes:
    """Return a figure as the bytes of a PNG file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150)
    return stream.getvalue()
