"""The report on first stages as two pictures for each split: recall by cutoff, and where first answers are ranked."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from rayrank.measure.places import DRAWN, TOP
from rayrank.reports.first_stages import SplitReport
from rayrank.reports.palette import AMBER, BLUE, GREY, MARKERS, SERIES, SKY, png, tidy

PLACES = {
    "first": ("rank 1", BLUE, "white"),
    "in_top": (f"rank 2 to {TOP}", SKY, "black"),
    "below_top": (f"within reach, below rank {TOP}", AMBER, "black"),
    "out_of_reach": ("out of reach: lost by retrieval", GREY, "white"),
}
LABELLED = 0.04
"""Segments of a bar that are narrower have no room for their share."""


def recall_png(part: SplitReport) -> bytes:
    """Draw mean recall against the number of candidates, a line for each first stage down to its depth."""
    figure = Figure(figsize=(8.6, 4.8), layout="constrained")
    axes = figure.subplots()
    for number, stage in enumerate(part.first_stages):
        axes.plot(
            list(stage.recall),
            list(stage.recall.values()),
            color=SERIES[number % len(SERIES)],
            linestyle="--" if number // len(SERIES) % 2 else "-",
            marker=MARKERS[number % len(MARKERS)],
            markersize=6,
            linewidth=1.8,
            label=stage.title,
        )
    deepest = max((stage.depth for stage in part.first_stages), default=1)
    ticks = [cutoff for cutoff in DRAWN if cutoff <= deepest]
    axes.set_xscale("log")
    axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("candidates of a query (log scale)")
    axes.set_ylabel("recall: relevant passages found, mean over queries")
    axes.set_title(f"{part.split}, {part.num_queries:,} queries", color=GREY, fontsize=9, loc="right")
    tidy(axes)
    if part.first_stages:
        figure.legend(loc="outside right upper", frameon=False)
    return png(figure)


def ranking_png(part: SplitReport) -> bytes:
    """Draw for each order of candidates the shares of queries by the rank of their first relevant passage."""
    figure = Figure(figsize=(8.6, 1.9 + 0.42 * max(1, len(part.ranked))), layout="constrained")
    axes = figure.subplots()
    for line, row in enumerate(part.ranked):
        _draw_bar(axes, line, [(getattr(row.shares, place), *colours) for place, (_, *colours) in PLACES.items()])
        axes.annotate(f"{row.mrr:.3f}", (1.01, line), va="center", fontsize=9, color=GREY, annotation_clip=False)
    axes.annotate(f"MRR@{TOP}", (1.01, -0.75), va="center", fontsize=9, color=GREY, annotation_clip=False)
    names = [
        row.candidates if row.ranked_by == row.candidates else f"{row.candidates}, ranked by {row.ranked_by}"
        for row in part.ranked
    ]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(max(1, len(names)) - 0.4, -0.6)  # the first row at the top
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(f"share of {part.num_queries:,} {part.split} queries, by the rank of their first relevant passage")
    tidy(axes)
    axes.grid(visible=False, axis="y")
    handles = [axes.barh(0, 0, color=colour, label=label) for label, colour, _ in PLACES.values()]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, frameon=False, fontsize=9)
    return png(figure)


def _draw_bar(axes: Axes, line: int, segments: list[tuple[float, str, str]]) -> None:
    left = 0.0
    for share, colour, text in segments:
        axes.barh(line, share, left=left, height=0.7, color=colour, edgecolor="white", linewidth=0.8)
        if share >= LABELLED:
            axes.annotate(f"{share:.0%}", (left + share / 2, line), ha="center", va="center", fontsize=9, color=text)
        left += share
