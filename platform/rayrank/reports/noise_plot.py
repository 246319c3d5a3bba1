"""The noise report as one picture: the distribution of scores, and the effect of each threshold."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, PercentFormatter

from rayrank.reports.palette import BLUE, GREEN, GREY, ORANGE, png, tidy

GROUPS = {
    "negatives": ("not judged relevant", BLUE, "-"),
    "positives": ("judged relevant", ORANGE, "-"),
    "hidden": ("relevant but unjudged (hidden truth)", GREEN, "--"),
}
TICKS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)


def noise_png(report: dict[str, Any]) -> bytes:
    """Draw the histogram and the share removed by threshold; with a hidden truth also precision and recall."""
    panels = 3 if report["hidden"] else 2
    figure = Figure(figsize=(5.2 * panels, 4.2), layout="constrained")
    axes = figure.subplots(1, panels)
    _histogram(axes[0], report)
    _against_threshold(axes[1], report, {"share_removed": ("negatives removed", BLUE, "o-")})
    axes[1].set_ylabel("share of the negatives removed")
    if report["hidden"]:
        lines = {"precision": ("precision", ORANGE, "s-"), "recall": ("recall", GREEN, "^--")}
        _against_threshold(axes[2], report, lines)
        base = report["hidden"]["base_rate"]
        if base is not None:
            axes[2].axhline(base, color=BLUE, linewidth=1.2, linestyle=":", label=f"chance ({base:.2%})")
        axes[2].set_ylim(0, 1.03)
        axes[2].set_ylabel("against the hidden truth")
        axes[2].legend(frameon=False)
    return png(figure)


def _histogram(axes: Axes, report: dict[str, Any]) -> None:
    histogram = report["histogram"]
    for name, (label, colour, style) in GROUPS.items():
        if name in histogram:
            total = sum(histogram[name])
            axes.stairs(
                histogram[name],
                histogram["edges"],
                baseline=None,
                color=colour,
                linestyle=style,
                linewidth=1.8,
                label=f"{label} ({total:,})",
            )
    # Linear below one, so that empty bins can be drawn on a log scale.
    axes.set_yscale("symlog", linthresh=1)
    largest = max(max(histogram[name]) for name in GROUPS if name in histogram)
    # Leaves room for the legend above the highest bin.
    axes.set_ylim(0, max(10, largest) ** 1.35)
    axes.set_xlim(0, 1)
    axes.set_xlabel("probability of relevance (pointwise model)")
    axes.set_ylabel("candidates (log scale)")
    _mark(axes, report["threshold"])
    tidy(axes)
    axes.legend(frameon=False, loc="upper center", fontsize=9)


def _against_threshold(axes: Axes, report: dict[str, Any], lines: dict[str, tuple[str, str, str]]) -> None:
    # A logit scale cannot show 1, which removes nothing.
    points = [point for point in report["grid"] if point["threshold"] < 1]
    for name, (label, colour, style) in lines.items():
        known = [point for point in points if point[name] is not None]
        thresholds, values = ([point[key] for point in known] for key in ("threshold", name))
        axes.plot(thresholds, values, style, color=colour, markersize=5, linewidth=1.8, label=label)
    axes.set_xscale("logit")
    low = min([0.45, *(0.9 * point["threshold"] for point in points)])
    axes.set_xlim(low, max([0.9993, *(point["threshold"] for point in points)]))
    axes.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS], rotation=45)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("threshold")
    _mark(axes, report["threshold"])
    tidy(axes)


def _mark(axes: Axes, threshold: float) -> None:
    """Mark the configured threshold: a line below 1, and in the title in any case."""
    if threshold < 1:
        axes.axvline(threshold, color=GREY, linewidth=1.2, linestyle="-.")
    axes.set_title(f"configured threshold: {threshold:g}", color=GREY, fontsize=9, loc="right")
