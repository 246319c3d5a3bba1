"""Plots of `benchmarks.serve` and `benchmarks.autoscaling`, from the figures in their JSON files."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from rayrank.reports.palette import BLUE, GREEN, GREY, LIGHT, ORANGE, png, tidy


def load_png(facts: dict[str, Any]) -> bytes:
    """Draw p50 and p95 of both servers against the load."""
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    for side, colour in zip(facts["sides"], (BLUE, ORANGE), strict=True):
        points = sorted(side["points"], key=lambda point: point["offered"])
        loads = [point["offered"] for point in points]
        for name, style in (("p95", "o-"), ("p50", ".--")):
            values = [1000 * point[name] for point in points]
            axes.plot(loads, values, style, color=colour, linewidth=1.6, markersize=5, label=f"{side['name']}: {name}")
        axes.axvline(side["saturation"], color=colour, linewidth=1.2, linestyle=":")
    ceiling = sum(facts["in_process"]) / len(facts["in_process"])
    axes.axvline(ceiling, color=GREEN, linewidth=1.4, linestyle="-.", label="the scorer in one process")
    axes.axhline(1000 * facts["bound"], color=GREY, linewidth=1.2, linestyle="--", label="bound on p95")
    _set_ms_scale(axes)
    axes.set_xlim(left=0)
    axes.set_xlabel("offered load in pairs per second (dotted: saturation of a server)")
    axes.set_ylabel("latency in ms, from the scheduled time of a request")
    tidy(axes)
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    return png(figure)


def autoscaling_png(facts: dict[str, Any]) -> bytes:
    """Draw load, replicas and latency over time."""
    figure = Figure(figsize=(8, 7), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True)
    _loads(panels[0], facts)
    _replicas(panels[1], facts["replicas"])
    _latencies(panels[2], facts["seconds"])
    for axes in panels:
        tidy(axes)
        # Above the panel, so that the legend covers no data.
        axes.legend(frameon=False, fontsize=9, ncols=2, loc="lower right", bbox_to_anchor=(1, 0.98), borderpad=0)
    return png(figure)


def _loads(axes: Axes, facts: dict[str, Any]) -> None:
    rates, width = facts["rates"], facts["settings"]["seconds"]
    axes.stairs(rates, [width * step for step in range(len(rates) + 1)], color=GREY, linewidth=1.8, label="offered")
    times, answered = ([second[name] for second in facts["seconds"]] for name in ("time", "answered"))
    axes.step(times, answered, where="post", color=BLUE, label="answered")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("requests per second")
    axes.set_title(f"{sum(facts['failures'].values())} failures", color=GREY, fontsize=9, loc="left")


def _replicas(axes: Axes, samples: Sequence[dict[str, Any]]) -> None:
    times, running, asked = ([sample[name] for sample in samples] for name in ("time", "running", "asked"))
    axes.fill_between(times, running, step="post", color=LIGHT)
    axes.step(times, running, where="post", color=BLUE, linewidth=1.8, label="running")
    axes.step(times, asked, where="post", color=ORANGE, linestyle="--", label="running and starting")
    axes.set_ylim(0, max(asked) + 0.3)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel("replicas")


def _latencies(axes: Axes, seconds: Sequence[dict[str, Any]]) -> None:
    known = [second for second in seconds if second["p50"] is not None]
    for name, colour in (("p95", ORANGE), ("p50", BLUE)):
        values = [1000 * second[name] for second in known]
        axes.plot([second["time"] for second in known], values, color=colour, linewidth=1.6, label=name)
    _set_ms_scale(axes)
    axes.set_ylabel("latency in ms")
    axes.set_xlabel("seconds (latencies: scheduled time of the request)")


def _set_ms_scale(axes: Axes) -> None:
    """Set a logarithmic scale with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
