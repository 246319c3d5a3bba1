"""A job's summary, as facts for JSON and as text for the terminal."""

import sys
from typing import Any

from rich.console import Console
from rich.text import Text

from rayrank.core.artifacts import Artifact
from rayrank.measure.significance import Comparison, Interval
from rayrank.reports.table import Row, difference_text, metrics_table, p_phrase

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
    stages = []
    for name, artifact, reused in results:
        manifest = artifact.manifest
        fact = {"stage": name, "path": artifact.url, "reused": reused, "seconds": manifest["seconds"]}
        fact["counts"] = {name: manifest[name] for name in SHOWN if manifest.get(name)}
        fact["left_out"] = {kind: entry["count"] for kind, entry in manifest.get("problems", {}).items()}
        if "metrics" in manifest:
            names = ("run", "baseline", "split", "num_queries", "num_without_results", "metric", "metrics")
            fact["evaluation"] = {name: manifest[name] for name in names}
        if "findings" in manifest:
            fact["findings"] = manifest["findings"]
        stages.append(fact)
    return {"stages": stages, "log": log_file}


def show(summary: dict[str, Any]) -> None:
    """Print a summary."""
    # Output to a file or a pipe is not wrapped at rich's default of 80 characters.
    console = Console() if sys.stdout.isatty() else Console(width=120)
    for fact in summary["stages"]:
        made = "reused" if fact["reused"] else f"{fact['seconds']:.1f} s"
        counts = [f"{count:,} {name.removeprefix('num_').replace('_', ' ')}" for name, count in fact["counts"].items()]
        counts += [f"{count:,} {kind.replace('_', ' ')} left out" for kind, count in fact["left_out"].items()]
        line = f"{fact['stage']:<16}{made:>8}  {', '.join(counts)}".rstrip()
        # Paths are not wrapped, so that they can be copied.
        console.print(Text(f"{line}\n{'':26}{fact['path']}"), soft_wrap=True)
    for fact in summary["stages"]:
        for line in fact.get("findings", []):
            console.print(Text(line), soft_wrap=True)
    evaluations = [fact["evaluation"] for fact in summary["stages"] if "evaluation" in fact]
    if evaluations:
        _show_evaluations(evaluations, console)
    console.print(Text(f"log: {summary['log']}"), soft_wrap=True)


def _show_evaluations(evaluations: list[dict[str, Any]], console: Console) -> None:
    """Print all runs of one split and one baseline as one table, metric by metric."""
    last = evaluations[-1]
    rows: dict[tuple[str, str], Row] = {}
    for metric in last["metrics"]:
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
    table = metrics_table(list(rows.values()), last["baseline"]).plain()
    console.print(table)
    console.print(
        f"{last['split']} split, {last['num_queries']:,} queries, "
        f"{last['num_without_results']:,} of them without results (they score 0)"
    )
    if len(evaluations) > 1:
        console.print(Text(_headline(evaluations)), soft_wrap=True)


def _headline(evaluations: list[dict[str, Any]]) -> str:
    last = evaluations[-1]
    metric = last["metric"]
    steps = " -> ".join(f"{facts['run']} {facts['metrics'][metric]['mean']:.4f}" for facts in evaluations)
    comparison = Comparison(**last["metrics"][metric]["comparison"])
    against = f"{difference_text(comparison)} over {last['baseline']}, {p_phrase(comparison.p_value)}"
    return f"{metric}: {steps} ({against})"
