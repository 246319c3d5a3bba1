"""The plots of a sweep; Optuna draws the parallel coordinates and the Pareto front. `dev` names the dev metric."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.study import Study
from optuna.visualization import matplotlib as optuna_plots
from scipy import stats

from rayrank.reports.palette import BLUE, GREY, LIGHT, ORANGE, png, tidy
from rayrank.tune.study import COST, Record

MIN_TRIALS = 4
"""Finished trials that importances need to be meaningful."""


def best_so_far(found: Sequence[Record], dev: str) -> bytes:
    """Draw the dev metric of every trial, and the best one so far."""
    figure, axes = _figure()
    kinds = {"finished": ("o", BLUE, "finished"), "stopped early": ("x", GREY, "stopped early (last epoch)")}
    for state, (marker, colour, label) in kinds.items():
        points = [(record.number, record.dev) for record in found if record.state == state and record.dev is not None]
        if points:
            axes.plot(*zip(*points, strict=True), marker, color=colour, label=label, markersize=6)
    done = [(record.number, record.dev) for record in found if record.finished and record.dev is not None]
    numbers, values = zip(*done, strict=True)
    axes.step(numbers, np.maximum.accumulate(values), where="post", color=ORANGE, linewidth=1.8, label="best so far")
    failed = [record.number for record in found if record.state == "failed"]
    if failed:
        low = axes.get_ylim()[0]
        axes.plot(failed, [low] * len(failed), "v", color=ORANGE, label="failed", clip_on=False)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("trial (0: unchanged settings)")
    return _finished(figure, axes, dev)


def importances(study: Study, keys: Sequence[str], dev: str) -> bytes:
    """Draw the share of the variance between trials that each setting explains."""
    found = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0), params=list(keys))
    figure, axes = _figure(height=1.2 + 0.5 * len(found))
    names = list(reversed(found))
    axes.barh(names, [found[name] for name in names], color=BLUE, height=0.6)
    for place, name in enumerate(names):
        axes.annotate(f" {found[name]:.0%}", (found[name], place), va="center", fontsize=9, color=GREY)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(f"share of the variance in {dev} that the setting explains (fANOVA)")
    tidy(axes)
    return png(figure)


def negatives(done: Sequence[Record], key: str, dev: str, pairwise: bool) -> bytes:
    """Draw the dev metric against N-, as in the paper's Figure 5: every training, and means with 95 % intervals."""
    figure, axes = _figure()
    groups: dict[int, list[float]] = {}
    for record in done:
        if record.dev is not None:
            groups.setdefault(record.changes[key], []).append(record.dev)
    places = sorted(groups)
    means = [float(np.mean(groups[place])) for place in places]
    axes.plot(places, means, "o-", color=BLUE, linewidth=1.8, markersize=4, label="mean")
    halves = half_intervals([groups[place] for place in places])
    if halves:
        axes.errorbar(places, means, halves, fmt="none", color=BLUE, capsize=3, label="95 % interval")
    for place in places:
        axes.plot([place] * len(groups[place]), groups[place], ".", color=GREY, markersize=6, zorder=4)
    if pairwise and 1 in groups:
        axes.axvline(1, color=ORANGE, linestyle="--", linewidth=1.2, label="pairwise: one negative")
    axes.plot([], [], ".", color=GREY, label="one training")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("N-: negatives per list")
    return _finished(figure, axes, dev)


def half_intervals(groups: Sequence[Sequence[float]]) -> list[float]:
    """Return half the width of the 95 % interval of each group's mean (Student's t); empty if no group has two values.

    Three trainings are too few to estimate a variance, so it is pooled over all groups.
    """
    freedom = sum(len(values) - 1 for values in groups)
    if not freedom:
        return []
    spread = np.sqrt(sum(np.var(values) * len(values) for values in groups) / freedom)
    return [float(stats.t.ppf(0.975, freedom) * spread / np.sqrt(len(values))) for values in groups]


def threshold(done: Sequence[Record], key: str, dev: str, report: dict[str, Any] | None) -> bytes:
    """Draw the share of negatives that each threshold removes, and the dev metric of each trial."""
    figure = Figure(figsize=(8.0, 6.0 if report else 4.2), layout="constrained")
    panels = figure.subplots(2 if report else 1, 1, sharex=True, squeeze=False)[:, 0]
    if report:
        edges, shares = removed_shares(report["histogram"])
        panels[0].plot(edges, shares, color=BLUE, linewidth=1.8)
        panels[0].fill_between(edges, shares, color=LIGHT)
        panels[0].set_yscale("symlog", linthresh=0.01)
        panels[0].set_ylim(0, 1)
        panels[0].yaxis.set_major_formatter(PercentFormatter(1.0))
        panels[0].set_ylabel("negatives removed")
        tidy(panels[0])
    axes = panels[-1]
    axes.plot([record.changes[key] for record in done], [record.dev for record in done], "o", color=BLUE)
    axes.set_xlabel("noise threshold (1 removes nothing)")
    axes.set_ylabel(dev)
    tidy(axes)
    return png(figure)


def removed_shares(histogram: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Return the thresholds, which are the edges of the histogram, and the share of negatives that score above each."""
    counts = np.asarray(histogram["negatives"], float)
    above = np.append(np.cumsum(counts[::-1])[::-1], 0.0)
    return list(histogram["edges"]), list(above / max(counts.sum(), 1.0))


def coordinates(study: Study, keys: Sequence[str], dev: str) -> bytes:
    """Draw every finished trial as a line through its settings (parallel coordinates)."""
    return _optuna_png(optuna_plots.plot_parallel_coordinate(study, params=list(keys), target_name=dev))


def pareto(study: Study, dev: str) -> bytes:
    """Draw both objectives of every trial, and mark the Pareto front."""
    return _optuna_png(optuna_plots.plot_pareto_front(study, target_names=[dev, COST.replace("_", " ")]))


def _optuna_png(drawn: Any) -> bytes:
    from matplotlib import pyplot

    axes = drawn.flat[0] if isinstance(drawn, np.ndarray) else drawn
    figure = axes.figure
    figure.set_size_inches(8.0, 4.6)
    stream = io.BytesIO()
    # Optuna's long, slanted labels reach beyond the figure.
    figure.savefig(stream, format="png", dpi=150, bbox_inches="tight")
    pyplot.close(figure)  # pyplot keeps every figure that is not closed
    return stream.getvalue()


def _figure(height: float = 4.2) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(8.0, height), layout="constrained")
    return figure, figure.subplots()


def _finished(figure: Figure, axes: Axes, dev: str) -> bytes:
    axes.set_ylabel(dev)
    tidy(axes)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False, fontsize=9)
    return png(figure)
