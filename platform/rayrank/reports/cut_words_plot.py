"""Attention between word pieces as a picture: without and with STRM, side by side or one above the other."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.text import Text

from rayrank.reports.cut_words import WITH, WITHOUT, Attention, Case, CutWordsReport
from rayrank.reports.palette import BLUE, GREY, ORANGE, png
from rayrank.reports.table import p_text

BESIDE = 16
"""Panels with more columns are drawn one above the other, so that their labels stay readable."""
SHADES = LinearSegmentedColormap.from_list("shades", ["#FFFFFF", BLUE, "#00213A"])
"""From no attention to much; one hue that darkens, which colour-blind readers and printers can show."""


def attention_pngs(report: CutWordsReport) -> list[bytes]:
    """Draw the attention of each case that has one."""
    cases = [*report.lowered, *report.raised]
    return [png(attention_figure(case, found)) for case, found in zip(cases, report.attention, strict=False)]


def attention_figure(case: Case, attention: Attention) -> Figure:
    """Draw the attention of one pair without and with STRM, on one colour scale."""
    weights = [np.array(each) for each in (attention.plain_weights, attention.weights)]
    rows, columns = weights[0].shape
    down, across = (1, 2) if columns <= BESIDE else (2, 1)
    size = (max(8.0, 2.4 + 0.24 * across * columns), 1.4 + down * (0.4 + 0.24 * rows))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(down, across)
    highest = max(float(each.max()) for each in weights)
    titles = (
        f"{WITHOUT}: rank {case.plain_rank:,}, probability {p_text(case.plain_probability)}",
        f"{WITH}: rank {case.rank:,}, probability {p_text(case.probability)}",
    )
    for axes, values, title in zip(panels, weights, titles, strict=True):
        image = axes.imshow(values, cmap=SHADES, vmin=0, vmax=highest, aspect="auto")
        axes.set_title(title, fontsize=10, loc="left", parse_math=False)
        _label(axes, attention, beside=axes is panels[0] or across == 1, below=axes is panels[1] or down == 1)
    figure.supylabel("query", color=GREY, fontsize=10)
    first = attention.starts + 1
    is_part = columns < attention.num_pieces
    part = f", pieces {first} to {first + columns - 1} of {attention.num_pieces}" if is_part else ""
    figure.supxlabel(f"passage{part}", color=GREY, fontsize=10)
    figure.colorbar(image, ax=panels, label="attention", pad=0.01, fraction=0.03)
    return figure


def _label(axes: Axes, attention: Attention, beside: bool, below: bool) -> None:
    """Name the query's pieces beside a panel and the passage's below it; the other panel's names need no repeating."""
    rows, columns = attention.query_pieces, attention.passage_pieces
    axes.set_xticks(range(len(columns)), columns if below else [""] * len(columns), fontsize=9, rotation=90)
    axes.set_yticks(range(len(rows)), rows if beside else [""] * len(rows), fontsize=9)
    _mark(axes.get_xticklabels(), attention.marked_passage)
    _mark(axes.get_yticklabels(), attention.marked_query)
    # Lines between cells, since neighbours may have the same colour.
    axes.set_xticks(np.arange(-0.5, len(columns)), minor=True)
    axes.set_yticks(np.arange(-0.5, len(rows)), minor=True)
    axes.grid(which="minor", color="#E5E5E5", linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)


def _mark(labels: Sequence[Text], places: Sequence[int]) -> None:
    for label in labels:
        label.set_parse_math(False)  # a piece may be a dollar sign
    for place in places:
        labels[place].set(color=ORANGE, fontweight="bold")
