"""The results of a sweep: best.yaml, trials.parquet, plots, and an HTML report of all of them."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import yaml
from optuna.distributions import CategoricalDistribution
from optuna.study import Study
from rich.table import Table

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store, digest_of
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, StorageError
from rayrank.core.leases import leased
from rayrank.core.overrides import as_file
from rayrank.data.digests import DIGESTS, varied
from rayrank.stages.ablation import full_run
from rayrank.training.ray_train import CHECKPOINTS
from rayrank.tune import plots
from rayrank.tune.page import page
from rayrank.tune.spaces import NEGATIVES, SEED, THRESHOLD, Changes, Space, configured_value
from rayrank.tune.study import (
    COST,
    Record,
    best,
    mean_dev,
    records,
    settings_text,
    total_gpu_usage,
    trainings,
    value_text,
    without_seed,
)

FACTS = ("seconds", "train_seconds", "num_steps", "best_step", "pairs_per_s", "device", "key")


def write(folder: Artifact, study: Study, space: Space, config: PipelineConfig, store: Store) -> list[str]:
    """Write all results, and return the findings to print."""
    found = records(study)
    keys, metric = list(space.dimensions), config.training.metric
    folder.write_table("trials.parquet", trials_table(found, keys, metric, study))
    lines = [*findings(found, space, config), *_pareto_lines(study), *_gpu_lines(study)]
    winner = best(found)
    if winner is not None:
        with folder.create("best.yaml") as stream:
            stream.write(best_yaml(config, winner.changes, lines[0]).encode())
    pictures = _pictures(found, study, space, config, store)
    for name, picture in pictures.items():
        with folder.create(f"plots/{name}.png") as stream:
            stream.write(picture)
    with folder.create("report.html") as stream:
        stream.write(page(lines, pictures, table_lines(found, keys, metric)).encode())
    return [*lines, f"in {folder.url}: report.html, best.yaml, trials.parquet"]


def best_yaml(config: PipelineConfig, changes: Changes, headline: str) -> str:
    """Return the complete configuration of a trial for --config, without machine resources and file digests."""
    values = as_file(varied(config, changes))
    del values["resources"]
    values = _without_digests(values)
    swept = yaml.safe_dump(dict(changes), sort_keys=False).replace("\n", "\n#   ").rstrip("# \n")
    return f"# {headline}\n# The sweep chose:\n#   {swept}\n{yaml.safe_dump(values, sort_keys=False)}"


def _without_digests(values: Any) -> Any:
    """Return settings without the digests of files, which every job computes at its start."""
    if not isinstance(values, dict):
        return values
    return {key: _without_digests(value) for key, value in values.items() if key != "fingerprint"}


def trials_table(found: Sequence[Record], keys: Sequence[str], metric: str, study: Study) -> pa.Table:
    """Return a table with a row per trial and a column per setting, named by its dotted key."""
    times = {trial.number: trial for trial in study.get_trials(deepcopy=False)}
    front = _pareto_front(study)
    columns: dict[str, Any] = {
        "trial": [record.number for record in found],
        "state": [record.state for record in found],
        f"dev {metric}": pa.array([record.dev for record in found], pa.float64()),
        COST: pa.array([record.cost for record in found], pa.float64()),
        "pareto": pa.array([record.number in front if front else None for record in found], pa.bool_()),
        "reason": [record.reason for record in found],
    }
    columns |= {key: _column([record.changes.get(key) for record in found]) for key in keys}
    columns |= {name: _column([record.facts.get(name) for record in found]) for name in FACTS}
    columns["started"] = [times[record.number].datetime_start for record in found]
    columns["ended"] = [times[record.number].datetime_complete for record in found]
    return pa.table(columns)


def findings(found: Sequence[Record], space: Space, config: PipelineConfig) -> list[str]:
    """Return the best trial compared with the unchanged configuration, and how many trials ended in which state."""
    states = [record.state for record in found]
    counts = {state: states.count(state) for state in ("finished", "stopped early", "failed") if state in states}
    lines = [f"trials: {', '.join(f'{count} {state}' for state, count in counts.items())}"]
    winner = best(found)
    if winner is None:
        return ["No trial finished.", *lines, *_reasons(found)]
    own = {key: configured_value(config, key) for key in space.dimensions}
    same = [record for record in trainings(found) if without_seed(record.changes) == without_seed(own)]
    baseline = f", unchanged settings {mean_dev(same):.4f}" if same else ""
    group = [record for record in trainings(found) if _same_settings(record, winner)]
    seeds = f", mean of {len(group)} trainings" if len(group) > 1 else ""
    shown = settings_text(without_seed(winner.changes))
    dev = f"dev {config.training.metric} {mean_dev(group):.4f}"
    lines.insert(0, f"best: trial {winner.number}, {dev}{seeds}{baseline}: {shown}")
    if SEED not in space.dimensions and not _same_settings(winner, Record(0, "", own, None)):
        changed = {key: value for key, value in winner.changes.items() if value != own[key]}
        lines.insert(1, _advice(changed, config))
    return [*lines, *_reasons(found)]


def table_lines(found: Sequence[Record], keys: Sequence[str], metric: str) -> list[list[str]]:
    """Return a header and one line of text per trial."""
    two_objectives = any(record.cost is not None for record in found)
    metrics = [f"dev {metric}", *(["ms per query"] if two_objectives else [])]
    lines = [["trial", "state", *metrics, *keys, "seconds", "why it failed"]]
    for record in found:
        objectives = ["" if record.dev is None else f"{record.dev:.4f}"]
        if two_objectives:
            objectives.append("" if record.cost is None else f"{record.cost:.4g}")
        values = [value_text(record.changes.get(key, "")) for key in keys]
        seconds = f"{record.facts['seconds']:.0f}" if "seconds" in record.facts else ""
        lines.append([str(record.number), record.state, *objectives, *values, seconds, record.reason])
    return lines


def live_table(study: Study, keys: Sequence[str], metric: str, trials: int, most: int = 15) -> Table:
    """Return the latest trials and the best so far, for the terminal."""
    found = [record for record in records(study) if record.state != "waiting"]
    winner = best(found)
    ended = sum(record.state not in ("running", "waiting") for record in found)
    best_text = f"; best: trial {winner.number}, {winner.dev:.4f}" if winner else ""
    table = Table(title=f"{ended} of {trials} trials ended{best_text}", title_justify="left")
    header, *lines = table_lines(found[-most:], keys, metric)
    for title in header:
        table.add_column(title, overflow="fold")
    for record, line in zip(found[-most:], lines, strict=True):
        table.add_row(*line, style="bold" if record is winner else None)
    return table


def remove_checkpoints(found: Sequence[Record], config: PipelineConfig, store: Store) -> None:
    """Remove the checkpoints of trials that have ended; each is as large as a model and its optimizer state."""
    for record in found:
        if record.state in ("running", "waiting"):
            continue
        try:
            artifact = store.artifact("listwise", varied(config, record.changes))
        except ConfigError:  # the settings cannot be used together, so the trial has made nothing
            continue
        if artifact.exists(CHECKPOINTS):
            # Another process may be training this model, and resumes from them.
            with suppress(StorageError), leased(artifact, "removing checkpoints", waits=False):
                artifact.remove_folder(CHECKPOINTS)


def _advice(changed: Changes, config: PipelineConfig) -> str:
    """Return how to compare the best trial again with other seeds: the best of many trials is partly luck."""
    row = shlex.join(settings_text({key: value}) for key, value in changed.items())
    return (
        f"the best of many trials is partly luck; compare it again with rayrank ablate, your options and "
        f"--only {shlex.quote(flow.title(full_run(config), config))} --seeds 3 "
        f"--set training.seed={config.training.seed + 1} --row {shlex.quote(f'best: {row}')}"
    )


def _same_settings(record: Record, other: Record) -> bool:
    return without_seed(record.changes) == without_seed(other.changes)


def _reasons(found: Sequence[Record]) -> list[str]:
    return [f"trial {record.number} failed: {record.reason}" for record in found if record.reason]


def _gpu_lines(study: Study) -> list[str]:
    usage = total_gpu_usage(study)
    return [f"GPU utilization: {usage.busy / usage.samples:.0%} in {usage.samples} samples"] if usage.samples else []


def _pareto_front(study: Study) -> set[int]:
    """Return the numbers of the trials on the Pareto front; empty for a sweep with one objective."""
    return {trial.number for trial in study.best_trials} if len(study.directions) > 1 else set()


def _pareto_lines(study: Study) -> list[str]:
    front = _pareto_front(study)
    both = [f"trial {r.number} ({r.dev:.4f}, {r.cost:.4g} ms)" for r in records(study) if r.number in front]
    return [f"Pareto front: {', '.join(both)}"] if both else []


def _column(values: list[Any]) -> pa.Array:
    """Return values as one column; values of several types, such as numbers and words, become text."""
    kinds = {type(value) for value in values if value is not None}
    return pa.array(values if len(kinds) <= 1 else [None if value is None else str(value) for value in values])


def _pictures(
    found: Sequence[Record], study: Study, space: Space, config: PipelineConfig, store: Store
) -> Mapping[str, bytes]:
    """Return the plots that apply to the space and its trials, in the order of the report."""
    done = trainings(found)
    pictures: dict[str, bytes] = {}
    if not done:
        return pictures
    two_objectives, dev = len(study.directions) > 1, f"dev {config.training.metric}"
    if two_objectives:
        pictures["pareto"] = plots.pareto(study, dev)
    elif not space.grid:  # in a grid, the order of the trials has no meaning
        pictures["best_so_far"] = plots.best_so_far(found, dev)
    if NEGATIVES in space.dimensions:
        pictures["n_minus"] = plots.negatives(done, NEGATIVES, dev, pairwise=config.listwise.positives == 1)
    if THRESHOLD in space.dimensions:
        report = store.find("noise_report", threshold_config(config))
        facts = report.read_json("report.json") if report else None
        pictures["threshold"] = plots.threshold(done, THRESHOLD, dev, facts)
    swept = [key for key in space.dimensions if key != SEED]
    if len(swept) > 1 and len(done) >= plots.MIN_TRIALS and not two_objectives:
        # fANOVA needs some variance to explain.
        if len({record.dev for record in done}) > 1:
            pictures["importances"] = plots.importances(study, swept, dev)
        pictures["coordinates"] = plots.coordinates(study, swept, dev)
    return pictures


def threshold_config(config: PipelineConfig) -> PipelineConfig:
    """Return the configuration whose noise report has the histogram; a threshold of 1 has no report."""
    return config if config.noise.threshold < 1 else varied(config, {THRESHOLD: 0.9})


def sweep_folder(space: Space, config: PipelineConfig, cost: bool, store: Store) -> Artifact:
    """Return the folder of a sweep, which depends on its space and configuration, but not on its number of trials."""
    parts = [flow.key("listwise", config), space.as_json(), space.grid, cost]
    for key, dimension in space.dimensions.items():
        if key in DIGESTS and isinstance(dimension, CategoricalDistribution):
            # The key depends on the files of a folder, not only on its name.
            parts.append([flow.key("listwise", varied(config, {key: value})) for value in dimension.choices])
    return Artifact(store.root, "sweeps", digest_of(parts))
