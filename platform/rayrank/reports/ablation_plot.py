"""The ablation as one picture: every row's mean and interval, the full model's interval as a band."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rayrank.reports.ablation import Ablation, Measured
from rayrank.reports.ablation_table import SIGNIFICANT
from rayrank.reports.palette import BLUE, GREY, LIGHT, ORANGE, png, tidy


def ablation_png(ablation: Ablation, split: str = "dev") -> bytes:
    """Draw the main metric of a split; filled dots differ significantly from the reference."""
    metric = ablation.metrics[0]
    found = {row.name: value for row in ablation.rows if (value := row.figure(split, metric)) is not None}
    figure = Figure(figsize=(8.0, 1.6 + 0.42 * len(found)), layout="constrained")
    axes = figure.subplots()
    for line, (name, value) in enumerate(found.items()):
        _draw(axes, line, value, full=name == ablation.reference)
    axes.set_yticks(range(len(found)), list(found))
    axes.set_ylim(len(found) - 0.4, -0.6)  # the first row at the top
    axes.set_xlabel(f"{split} {metric}, mean and {ablation.procedure.level:.0%} interval over queries")
    tidy(axes)
    axes.grid(visible=False, axis="y")
    handles = _legend(ablation.reference, seeds=any(len(value.seed_means) > 1 for value in found.values()))
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), frameon=False, fontsize=9)
    return png(figure)


def _draw(axes: Axes, line: int, value: Measured, full: bool) -> None:
    interval, colour = value.interval, BLUE if full else ORANGE
    if full:
        axes.axvspan(interval.low, interval.high, color=LIGHT, zorder=0)
    axes.plot([interval.low, interval.high], [line, line], color=colour, linewidth=2, zorder=2)
    if len(value.seed_means) > 1:
        axes.plot(value.seed_means, [line] * len(value.seed_means), "|", color=GREY, markersize=13, zorder=3)
    solid = full or (value.p_holm is not None and value.p_holm < SIGNIFICANT)
    face = colour if solid else "white"
    marker = "D" if full else "o"
    axes.plot(interval.mean, line, marker, color=colour, markerfacecolor=face, markeredgewidth=1.6, zorder=4)
    difference = f" ({value.comparison.difference:+.3f})" if value.comparison else ""
    text, right_of_axes = f"{interval.mean:.3f}{difference}", ("axes fraction", "data")
    axes.annotate(text, (1.01, line), xycoords=right_of_axes, va="center", fontsize=9, color=GREY)


def _legend(reference: str, seeds: bool) -> list[Line2D]:
    handles = [
        Line2D([], [], color=BLUE, marker="D", label=f"{reference} (band: its interval)"),
        Line2D([], [], color=ORANGE, marker="o", label=f"differs from it, p < {SIGNIFICANT} (Holm)"),
        Line2D([], [], color=ORANGE, marker="o", markerfacecolor="white", label="may not differ"),
    ]
    if seeds:
        handles.append(Line2D([], [], color=GREY, marker="|", linestyle="", markersize=11, label="one seed"))
    return handles
