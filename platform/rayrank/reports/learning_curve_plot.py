"""The learning curve as a picture: a metric against the number of training queries, a line for each run."""

from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from rayrank.reports.learning_curve import CHOSEN, LearningCurve
from rayrank.reports.palette import GREY, LIGHT, MARKERS, SERIES, SKY, png, tidy


def learning_curve_png(curve: LearningCurve) -> bytes:
    """Draw each run's mean over seeds, with the seeds as dashes and the chosen runs' interval as a band."""
    figure = Figure(figsize=(8.6, 4.8), layout="constrained")
    axes = figure.subplots()
    sizes = [point.num_queries for point in curve.points]
    for number, name in enumerate(row.name for row in curve.points[0].table.rows):
        found = [curve.figure(point, row) for point in curve.points for row in point.table.rows if row.name == name]
        means = [each.interval.mean for each in found]
        if name == CHOSEN:
            # Wide and behind the others, since it runs along one of them.
            lows, highs = [each.interval.low for each in found], [each.interval.high for each in found]
            axes.fill_between(sizes, lows, highs, color=LIGHT, zorder=0)
            axes.plot(sizes, means, color=SKY, linewidth=9, zorder=1, label=f"{name} (band: 95% interval)")
            continue
        colour = SERIES[number % len(SERIES)]
        for size, each in zip(sizes, found, strict=True):
            axes.plot([size] * len(each.seed_means), each.seed_means, "_", color=colour, markersize=9, zorder=3)
        axes.plot(
            sizes, means, color=colour, marker=MARKERS[number % len(MARKERS)], markersize=6, linewidth=1.8, zorder=3,
            label=name,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("judged training queries (log scale)")
    axes.set_ylabel(f"{curve.split} {curve.metric}")
    axes.set_title("dashes: single seeds", color=GREY, fontsize=9, loc="right")
    tidy(axes)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)
    return png(figure)
