"""A comparison of two runs as two pictures: the difference query by query, and by groups of queries."""

import numpy as np
from matplotlib.figure import Figure

from rayrank.reports.comparison import ComparisonReport
from rayrank.reports.palette import BLUE, GREY, ORANGE, png, tidy

MOST_POINTS = 4000
"""More queries are thinned out, evenly, before they are drawn."""


def differences_png(report: ComparisonReport) -> bytes:
    """Draw the difference of every query, the largest gain on the left."""
    figure = Figure(figsize=(8.6, 4.2), layout="constrained")
    axes = figure.subplots()
    places = np.unique(np.linspace(0, len(report.differences) - 1, MOST_POINTS).astype(int))
    values = np.array(report.differences)[places]
    edges = np.append(places, len(report.differences)) + 0.5
    axes.stairs(np.clip(values, 0, None), edges, fill=True, color=BLUE)
    axes.stairs(np.clip(values, None, 0), edges, fill=True, color=ORANGE)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set_ylim(-1.05, 1.05)
    axes.set_xlim(0.5, len(report.differences) + 0.5)
    axes.set_xlabel(f"{report.split} queries, by difference")
    axes.set_ylabel(f"{report.metric} of {report.run}\nminus that of {report.baseline}")
    found = report.overall
    axes.set_title(
        f"better: {found.wins:,}   equal: {found.ties:,}   worse: {found.losses:,}",
        color=GREY,
        fontsize=10,
        loc="right",
    )
    tidy(axes)
    return png(figure)


def groups_png(report: ComparisonReport) -> bytes:
    """Draw the mean difference of every group of queries with its interval, a panel for each kind of group."""
    heights = [len(rows) + 1.5 for rows in report.tables.values()]
    figure = Figure(figsize=(8.6, 1.2 + 0.3 * sum(heights)), layout="constrained")
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    for axes, (heading, rows) in zip(panels, report.tables.items(), strict=True):
        lines = np.arange(len(rows))
        means = np.array([row.comparison.difference for row in rows])
        ends = np.array([[row.comparison.low, row.comparison.high] for row in rows]).T
        colours = [BLUE if mean >= 0 else ORANGE for mean in means]
        axes.barh(lines, means, height=0.6, color=colours, alpha=0.75)
        axes.hlines(lines, ends[0], ends[1], color=GREY, linewidth=1.4)
        axes.axvline(0, color=GREY, linewidth=0.8)
        axes.set_yticks(lines, [f"{row.name}  ({row.num_queries:,})" for row in rows], parse_math=False)
        axes.set_ylim(len(rows) - 0.4, -0.6)  # the first group at the top
        axes.set_title(heading, fontsize=10, loc="left")
        tidy(axes)
    panels[-1].set_xlabel(
        f"{report.metric} of {report.run} minus that of {report.baseline}, mean and {report.procedure.level:.0%} "
        f"interval; number of queries in brackets"
    )
    return png(figure)
