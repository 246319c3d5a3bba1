"""A job's summary: facts first, then the same facts for a person."""

from typing import Any

from rich.console import Console
from rich.text import Text

from rayrank.artifacts import Artifact
from rayrank.evaluation.significance import Comparison, Interval
from rayrank.evaluation.table import Row, metrics_table

# Counts a person wants to see of each stage; the manifest has the rest.
SHOWN = ("num_passages", "num_queries", "num_judgments", "num_hidden", "num_candidates", "num_without")


def summarise(results: list[tuple[Artifact, bool]], log_file: str) -> dict[str, Any]:
    """Return the facts of finished stages."""
    stages = []
    for artifact, reused in results:
        manifest = artifact.manifest
        fact = {"stage": artifact.stage, "path": artifact.url, "reused": reused, "seconds": manifest["seconds"]}
        fact["counts"] = {name: manifest[name] for name in SHOWN if manifest.get(name)}
        fact["left_out"] = {kind: entry["count"] for kind, entry in manifest.get("problems", {}).items()}
        if "metrics" in manifest:
            names = ("run", "baseline", "split", "num_queries", "num_without_results", "metrics")
            fact["evaluation"] = {name: manifest[name] for name in names}
        stages.append(fact)
    return {"stages": stages, "log": log_file}


def show(summary: dict[str, Any]) -> None:
    """Print a summary."""
    console = Console()
    for fact in summary["stages"]:
        made = "reused" if fact["reused"] else f"{fact['seconds']:.1f} s"
        counts = [f"{count:,} {name.removeprefix('num_').replace('_', ' ')}" for name, count in fact["counts"].items()]
        counts += [f"{count:,} {kind.replace('_', ' ')} left out" for kind, count in fact["left_out"].items()]
        line = f"{fact['stage']:<12}{made:>8}  {', '.join(counts)}".rstrip()
        # Paths stay whole, to be copied, however narrow the screen.
        console.print(Text(f"{line}\n{'':22}{fact['path']}"), soft_wrap=True)
    for fact in summary["stages"]:
        if "evaluation" in fact:
            _show_evaluation(fact["evaluation"], console)
    console.print(Text(f"log: {summary['log']}"), soft_wrap=True)


def _show_evaluation(facts: dict[str, Any], console: Console) -> None:
    rows = []
    for name, figures in facts["metrics"].items():
        interval = Interval(figures["mean"], figures["low"], figures["high"])
        if "baseline" in figures:
            rows.append(Row(facts["baseline"], name, Interval(**figures["baseline"])))
            rows.append(Row(facts["run"], name, interval, Comparison(**figures["comparison"])))
        else:
            rows.append(Row(facts["run"], name, interval))
    console.print(metrics_table(rows, facts["baseline"]).plain())
    console.print(
        f"{facts['split']} split, {facts['num_queries']:,} queries, "
        f"{facts['num_without_results']:,} of them without results (they score 0)"
    )
