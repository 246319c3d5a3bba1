"""The table and the plot of `benchmarks.scale`: growth that is fitted, and what MS MARCO would take."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PASSAGES, QUERIES, DEPTH = 8_800_000, 500_000, 1_000
"""The size that is extrapolated to: MS MARCO's passages and training queries, with all candidates."""

ROWS = QUERIES * DEPTH
UNITS = {
    "corpus": ("passages", PASSAGES),
    "index": ("passages", PASSAGES),
    "candidates": ("rows", ROWS),
    "noise filter": ("rows", ROWS),
    "lists": ("rows", ROWS),
    "batches": ("pairs", ROWS),
}


class Growth(NamedTuple):
    """How a stage grows with its corpus."""

    stage: str
    exponent: float
    """Of the CPU seconds, if passages, queries and rows grow together; 1 is linear."""
    core_hours: float
    stored_gb: float


def growth(stage: str, rows: list[dict[str, Any]]) -> Growth:
    """Fit the CPU seconds of a unit to a power of the number of passages, and take storage as linear."""
    passages, units, seconds = (
        np.array([row[name] for row in rows], float) for name in ("passages", "units", "cpu_seconds")
    )
    power = float(np.polyfit(np.log(passages), np.log(seconds / units), 1)[0]) if len(rows) > 1 else 0.0
    # Fixed costs make small corpora look dear; a unit does not become cheaper than in the largest one.
    each = seconds[-1] / units[-1] * (PASSAGES / passages[-1]) ** max(0.0, power)
    amount = UNITS[stage][1]

    return Growth(stage, 1 + power, each * amount / 3600, rows[-1]["stored_mb"] / units[-1] * amount / 1e3)


def report(found: list[dict[str, Any]], folder: Path) -> None:
    """Write the figures as `scale.json`, the table as `scale.md` and the plot as `scale.png`."""
    folder.mkdir(parents=True, exist_ok=True)
    stages = [stage for stage in UNITS if any(row["stage"] == stage for row in found)]
    by_stage = {stage: [row for row in found if row["stage"] == stage] for stage in stages}
    fitted = [growth(stage, rows) for stage, rows in by_stage.items()]
    text = "\n".join([*_measured(found), "", *_extrapolated(fitted), ""])
    (folder / "scale.md").write_text(text)
    (folder / "scale.json").write_text(json.dumps({"measured": found, "fitted": [each._asdict() for each in fitted]}))
    _plot(by_stage, folder / "scale.png")
    print(text)


def _measured(found: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| passages | stage | units | seconds | CPU seconds | units per CPU second | peak memory, MB | stored, MB |",
        "|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for passages, rows in groupby(found, lambda row: row["passages"]):
        for row in rows:
            cells = [
                f"{passages:,}",
                row["stage"],
                f"{row['units']:,} {UNITS[row['stage']][0]}",
                f"{row['seconds']:,.1f}",
                f"{row['cpu_seconds']:,.1f}",
                f"{row['units'] / row['cpu_seconds']:,.0f}",
                f"{row['peak_mb']:,.0f}",
                f"{row['stored_mb']:,.0f}" if row["stored_mb"] else "",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def _extrapolated(fitted: list[Growth]) -> list[str]:
    lines = [
        "| stage | growth exponent of the time | core hours | stored, GB |",
        "|---|---:|---:|---:|",
    ]
    for each in fitted:
        stored = f"{each.stored_gb:,.1f}" if each.stored_gb else ""
        lines.append(f"| {each.stage} | {each.exponent:.2f} | {each.core_hours:,.1f} | {stored} |")
    slowest, hours = max(fitted, key=lambda each: each.core_hours), sum(each.core_hours for each in fitted)
    return [
        *lines,
        "",
        f"Of these stages **{slowest.stage}** is the slowest, with {slowest.core_hours / hours:.0%} of the core hours.",
    ]


def _plot(by_stage: dict[str, list[dict[str, Any]]], file: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, name, label, scale in (
        (axes[0], "cpu_seconds", "CPU seconds", 1),
        (axes[1], "peak_mb", "peak memory, GB", 1e3),
    ):
        for marker, (stage, rows) in zip("osD^vP", by_stage.items(), strict=False):
            sizes, values = [row["passages"] for row in rows], [row[name] / scale for row in rows]
            axis.plot(sizes, values, marker=marker, label=stage)
        axis.set(xscale="log", xlabel="passages in the corpus", ylabel=label)
        axis.grid(alpha=0.3)
    axes[0].set_yscale("log")
    axes[1].set_ylim(0, 1.1 * axes[1].get_ylim()[1])
    axes[0].legend()
    figure.savefig(file, dpi=120)
