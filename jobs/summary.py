"""A job's summary, as facts for JSON and as text for the terminal."""

import sys
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from rayrank.core.artifacts import Artifact
from rayrank.measure.significance import Comparison, Interval
from rayrank.reports.table import MetricsTable, Row, metrics_table

# Counts of a stage that the summary shows; the manifest has all of them.
SHOWN = (
    "num_passages",
    "num_queries",
    "num_judgments",
    "num_hidden_answers",
    "num_held_out",
    "num_candidates",
    "num_without_results",
    "num_word_occurrences",
    "num_distinct_words",
)


def summarise(results: list[tuple[str, Artifact, bool]], log_file: str) -> dict[str, Any]:
    """Return the facts of finished stages and runs."""
    return {"stages": [stage_facts(*result) for result in results], "log": log_file}


def stage_facts(name: str, artifact: Artifact, reused: bool) -> dict[str, Any]:
    """Return the facts of one finished stage or run."""
    manifest = artifact.manifest
    fact = {"stage": name, "path": artifact.url, "reused": reused, "seconds": manifest["seconds"]}
    fact["counts"] = {name: manifest[name] for name in SHOWN if manifest.get(name)}
    fact["left_out"] = {kind: entry["count"] for kind, entry in manifest.get("problems", {}).items()}
    if "metrics" in manifest:
        names = ("run", "baseline", "split", "num_queries", "num_without_results", "metric", "metrics")
        fact["evaluation"] = {name: manifest[name] for name in names}
    if "findings" in manifest:
        fact["findings"] = manifest["findings"]
    return fact


def stage_line(fact: dict[str, Any]) -> str:
    """Return the name, the time and the counts of a stage as one line."""
    return f"{fact['stage']:<16}{_made(fact):>8}  {', '.join(_counts(fact))}".rstrip()


def _made(fact: dict[str, Any]) -> str:
    return "reused" if fact["reused"] else f"{fact['seconds']:.1f} s"


def _counts(fact: dict[str, Any]) -> list[str]:
    counts = [f"{count:,} {name.removeprefix('num_').replace('_', ' ')}" for name, count in fact["counts"].items()]
    return counts + [f"{count:,} {kind.replace('_', ' ')} left out" for kind, count in fact["left_out"].items()]


def show(summary: dict[str, Any]) -> None:
    """Print a summary."""
    console = _console()
    for fact in summary["stages"]:
        # Paths are not wrapped, so that they can be copied.
        console.print(Text(f"{stage_line(fact)}\n{'':26}{fact['path']}"), soft_wrap=True)
    for line in _findings(summary):
        console.print(Text(line), soft_wrap=True)
    if evaluations := _evaluations(summary):
        console.print(_metrics(evaluations).plain())
        console.print(_about_queries(evaluations[-1]))
    console.print(Text(f"log: {summary['log']}"), soft_wrap=True)


def show_pipeline(summary: dict[str, Any], conclusion: list[str]) -> None:
    """Print what a whole pipeline built, its runs by the selection metric, and the lines of a conclusion."""
    console, evaluations = _console(), _evaluations(summary)
    corpus = next(fact for fact in summary["stages"] if fact["stage"] == "corpus")
    counts = ", ".join(f"{corpus['counts'][f'num_{name}']:,} {name}" for name in ("passages", "queries", "judgments"))
    seconds = sum(fact["seconds"] for fact in summary["stages"] if not fact["reused"])
    console.print(Text(f"built from {counts} in {seconds:,.0f} s"), soft_wrap=True)
    last = evaluations[-1]
    rows = [row for row in _rows(evaluations) if row.metric == last["metric"]]
    table = metrics_table(rows, last["baseline"])
    header = [f"{last['split']}, {last['num_queries']:,} queries", f"{last['metric']} [95% CI]", *table.header[3:]]
    lines = [[name, *cells] for name, _, *cells in table.lines]
    console.print(MetricsTable(header, lines, num_names=1).plain(boxed=False))
    for line in conclusion:
        console.print(Text(line), soft_wrap=True)


def _console() -> Console:
    # Output to a file or a pipe is not wrapped at rich's default of 80 characters.
    return Console() if sys.stdout.isatty() else Console(width=120)


def _findings(summary: dict[str, Any]) -> list[str]:
    return [line for fact in summary["stages"] for line in fact.get("findings", [])]


def _evaluations(summary: dict[str, Any]) -> list[dict[str, Any]]:
    return [fact["evaluation"] for fact in summary["stages"] if "evaluation" in fact]


def _about_queries(last: dict[str, Any]) -> str:
    return (
        f"{last['split']} split, {last['num_queries']:,} queries, "
        f"{last['num_without_results']:,} of them without results (they score 0)"
    )


def _metrics(evaluations: list[dict[str, Any]]) -> MetricsTable:
    """Return all runs of one split and one baseline as one table, metric by metric.

    A metric in which no run differs, such as the recall of the same candidates, has one row.
    """
    rows = _rows(evaluations)
    same = {
        metric
        for metric in evaluations[-1]["metrics"]
        if len(compared := [row.comparison for row in rows if row.metric == metric and row.comparison]) > 1
        and all(each.difference == each.low == each.high == 0 for each in compared)
    }
    kept = [row for row in rows if row.metric not in same or not row.comparison]
    named = [replace(row, run="all runs") if row.metric in same else row for row in kept]
    return metrics_table(named, evaluations[-1]["baseline"])


def _rows(evaluations: list[dict[str, Any]]) -> list[Row]:
    rows: dict[tuple[str, str], Row] = {}
    for metric in evaluations[-1]["metrics"]:
        for facts in evaluations:
            figures = facts["metrics"][metric]
            if "baseline" in figures:
                # One row for the baseline, even if it was also evaluated as a run.
                rows.setdefault(
                    (facts["baseline"], metric), Row(facts["baseline"], metric, Interval(**figures["baseline"]))
                )
            compared = Comparison(**figures["comparison"]) if "comparison" in figures else None
            interval = Interval(figures["mean"], figures["low"], figures["high"])
            rows[facts["run"], metric] = Row(facts["run"], metric, interval, compared)
    return list(rows.values())
