"""The noise report as sentences and tables, for a terminal or as Markdown."""

from typing import Any

import rich.console
from rich.text import Text

from rayrank.reports.table import MetricsTable

EMPTY_CELL = "-"
LEGEND = (
    "* configured threshold. left: negatives left per query; halved, emptied: queries that lose more than half, or "
    "all, of their negatives; positives: share of the judged positives above it; rank: mean first-stage rank of "
    "the removed negatives."
)
MARGIN_LEGEND = (
    "* configured margin. A negative is removed if it scores above the best positive of its query, or at most this "
    "much below it; positives: share of the judged positives that do."
)


def sentences(report: dict[str, Any]) -> list[str]:
    """Return the effect of the configured threshold in sentences."""
    at = report["at_threshold"]
    text = [
        f"{report['num_candidates']:,} candidates of {report['num_queries']:,} training queries: "
        f"{report['num_positives']:,} judged relevant, {report['num_negatives']:,} negatives.",
        f"A probability above {report['threshold']:g} removes {at['num_removed']:,} negatives "
        f"({_percent(at['share_removed'])}, mean first-stage rank {_number(at['mean_rank_removed'])}) and leaves "
        f"{_number(at['mean_negatives_left'])} a query; {at['num_queries_halved']:,} queries lose more than half, "
        f"{at['num_queries_without_negatives']:,} lose all.",
        f"{_percent(at['share_positives_above'])} of the judged positives score above it; they are never removed.",
        f"{at['num_judged_irrelevant_kept']:,} candidates that were judged irrelevant score above it and are kept: "
        f"only unjudged ones are removed.",
    ]
    if report["hidden"]:
        text.append(
            f"Against the hidden truth: precision {_percent(at['precision'])}, recall {_percent(at['recall'])}; "
            f"chance precision is {_percent(report['hidden']['base_rate'])}, so this is "
            f"{_times(at['times_chance'])} chance."
        )
    return [*text, *_other_rules(report)]


def _other_rules(report: dict[str, Any]) -> list[str]:
    """Return what the margin and the relabelling do, if they are used."""
    text = []
    if near := report["at_margin"]:
        text.append(
            f"noise.margin={report['margin']:g} removes {near['num_removed']:,} negatives "
            f"({_percent(near['share_removed'])}){_against_truth(near)}."
        )
    if sure := report["at_relabel"]:
        text.append(
            f"noise.relabel={report['relabel']:g} makes {sure['num_removed']:,} unjudged candidates positives"
            f"{_against_truth(sure)}."
        )
    return text


def _against_truth(point: dict[str, Any]) -> str:
    if "precision" not in point:
        return ""
    return f": precision {_percent(point['precision'])}, recall {_percent(point['recall'])} against the hidden truth"


def threshold_table(report: dict[str, Any]) -> MetricsTable:
    """Return the grid of thresholds, one line each; the configured one is marked."""
    return _rules_table(report, "threshold", "above", report["grid"])


def margin_table(report: dict[str, Any]) -> MetricsTable:
    """Return the grid of margins, one line each; the configured one is marked."""
    return _rules_table(report, "margin", "margin", report["margins"])


def _rules_table(report: dict[str, Any], rule: str, title: str, points: list[dict[str, Any]]) -> MetricsTable:
    header = [title, "removed", "share", "left", "halved", "emptied", "positives", "rank"]
    has_truth = report["hidden"] is not None
    if has_truth:
        header += ["precision", "recall", "x chance"]
    lines = []
    for point in points:
        mark = " *" if point[rule] == report[rule] else ""
        line = [
            f"{point[rule]:g}{mark}",
            f"{point['num_removed']:,}",
            _percent(point["share_removed"]),
            _number(point["mean_negatives_left"]),
            f"{point['num_queries_halved']:,}",
            f"{point['num_queries_without_negatives']:,}",
            _percent(point["share_positives_above"]),
            _number(point["mean_rank_removed"]),
        ]
        if has_truth:
            line += [_percent(point["precision"]), _percent(point["recall"]), _times(point["times_chance"])]
        lines.append(line)
    return MetricsTable(header, lines, num_names=1)


def type_table(report: dict[str, Any]) -> MetricsTable:
    """Return the share removed per query type, at the configured threshold and at some others."""
    shown = [
        point for point in report["grid"] if point["threshold"] in (0.5, 0.8, 0.9, 0.95, 0.99, report["threshold"])
    ]
    marks = [f"> {point['threshold']:g}{' *' * (point['threshold'] == report['threshold'])}" for point in shown]
    lines = [
        [name, f"{facts['num_negatives']:,}", *(_percent(point["share_removed_by_type"][name]) for point in shown)]
        for name, facts in report["types"].items()
    ]
    return MetricsTable(["query type", "negatives", *marks], lines, num_names=1)


def plain(report: dict[str, Any]) -> rich.console.Group:
    """Return the report for a terminal."""
    drawn: list[rich.console.RenderableType] = [
        Text("\n".join(sentences(report))),
        threshold_table(report).plain(),
        Text(LEGEND),
        margin_table(report).plain(),
        Text(MARGIN_LEGEND),
    ]
    if report["types"]:
        drawn += [Text("\nShare removed by query type"), type_table(report).plain()]
    return rich.console.Group(*drawn)


def markdown(report: dict[str, Any]) -> str:
    """Return the report as Markdown."""
    parts = ["# Noise report\n", "\n".join(f"- {sentence}" for sentence in sentences(report)) + "\n"]
    parts += ["## By threshold\n", threshold_table(report).markdown(), "\\" + LEGEND + "\n"]
    parts += ["## By margin below the best positive\n", margin_table(report).markdown(), "\\" + MARGIN_LEGEND + "\n"]
    if report["types"]:
        parts += ["## Share removed by query type\n", type_table(report).markdown()]
    return "\n".join(parts)


def _percent(share: float | None) -> str:
    return EMPTY_CELL if share is None else f"{share:.2%}" if share < 0.1 else f"{share:.1%}"


def _number(value: float | None) -> str:
    return EMPTY_CELL if value is None else f"{value:.1f}"


def _times(ratio: float | None) -> str:
    return EMPTY_CELL if ratio is None else f"{ratio:.1f}x"
