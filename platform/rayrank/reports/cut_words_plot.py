"""Attention between word pieces as a picture: without STRM on the left, with STRM on the right."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.text import Text

from rayrank.reports.cut_words import WITH, WITHOUT, Attention, Case, CutWordsReport
from rayrank.reports.palette import BLUE, GREY, ORANGE, png

SHADES = LinearSegmentedColormap.from_list("shades", ["#FFFFFF", BLUE, "#00213A"])
"""From no attention to much; one hue that darkens, which colour-blind readers and printers can show."""


def attention_pngs(report: CutWordsReport) -> list[bytes]:
    """Draw the attention of each case that has one."""
    return [png(attention_figure(case, found)) for case, found in zip(report.lowered, report.attention, strict=False)]


def attention_figure(case: Case, attention: Attention) -> Figure:
    """Draw the attention of one pair without and with STRM, on one colour scale."""
    weights = [np.array(each) for each in (attention.plain_weights, attention.weights)]
    rows, columns = weights[0].shape
    figure = Figure(figsize=(2.6 + 0.42 * columns, 2.0 + 0.26 * rows), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    highest = max(float(each.max()) for each in weights)
    titles = (
        f"{WITHOUT}: rank {case.plain_rank:,}, probability {case.plain_probability:.2f}",
        f"{WITH}: rank {case.rank:,}, probability {case.probability:.2f}",
    )
    for axes, values, title in zip(panels, weights, titles, strict=True):
        image = axes.imshow(values, cmap=SHADES, vmin=0, vmax=highest, aspect="auto")
        axes.set_title(title, fontsize=10, loc="left", parse_math=False)
        _label(axes, attention)
    panels[0].set_yticks(range(rows), attention.query_pieces, fontsize=9, parse_math=False)
    _mark(panels[0].get_yticklabels(), attention.marked_query)
    panels[0].set_ylabel("query", color=GREY)
    figure.colorbar(image, ax=panels, label="attention", pad=0.01, fraction=0.02)
    return figure


def _label(axes: Axes, attention: Attention) -> None:
    """Name the passage's pieces under a panel, and say which part of the passage they are."""
    count = len(attention.passage_pieces)
    axes.set_xticks(range(count), attention.passage_pieces, fontsize=9, rotation=90, parse_math=False)
    _mark(axes.get_xticklabels(), attention.marked_passage)
    first = attention.starts + 1
    part = "" if count == attention.num_pieces else f", pieces {first} to {first + count - 1} of {attention.num_pieces}"
    axes.set_xlabel(f"passage{part}", color=GREY)
    # Lines between cells, since neighbours may have the same colour.
    axes.set_xticks(np.arange(-0.5, count), minor=True)
    axes.set_yticks(np.arange(-0.5, len(attention.query_pieces)), minor=True)
    axes.grid(which="minor", color="#E5E5E5", linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)


def _mark(labels: Sequence[Text], places: Sequence[int]) -> None:
    for place in places:
        labels[place].set(color=ORANGE, fontweight="bold")
