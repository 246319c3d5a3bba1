"""The colours and the look of every picture: Okabe and Ito's colours, which colour-blind readers tell apart."""

import io

from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY, LIGHT = "#0072B2", "#D55E00", "#009E73", "#595959", "#D9E8F2"


def tidy(axes: Axes) -> None:
    """Take away the frame and put a light grid behind."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)


def png(figure: Figure) -> bytes:
    """Return a picture as the bytes of its file."""
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=150)
    return stream.getvalue()
