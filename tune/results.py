"""What a sweep leaves behind: best.yaml, trials.parquet, plots, and one page with all of it."""

import hashlib
import json
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
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import as_file
from rayrank.data.digests import DIGESTS, varied
from rayrank.training.ray_train import CHECKPOINTS
from tune import plots
from tune.page import page
from tune.spaces import NEGATIVES, SEED, THRESHOLD, Changes, Space, own_value
from tune.study import (
    COST,
    Record,
    best,
    busy_of,
    mean_dev,
    records,
    settings_text,
    trainings,
    value_text,
    without_seed,
)

FACTS = ("seconds", "train_seconds", "num_steps", "best_step", "pairs_per_s", "device", "key")


def write(folder: Artifact, study: Study, space: Space, config: PipelineConfig, store: Store) -> list[str]:
    """Write everything and return the lines a person wants to read."""
    found = records(study)
    keys, metric = list(space.dimensions), config.training.metric
    folder.write_table("trials.parquet", trials_table(found, keys, metric, study))
    lines = [*findings(found, space, config), *_front(study), *_gpus(study)]
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
    """Return a whole configuration for --config, without what belongs to the machine or is found out anew."""
    values = as_file(varied(config, changes))
    del values["resources"]
    for section in ("dataset", "text", "encoder", "typer", "evaluate", "domain"):
        del values[section]["fingerprint"]
    swept = yaml.safe_dump(dict(changes), sort_keys=False).replace("\n", "\n#   ").rstrip("# \n")
    return f"# {headline}\n# The sweep chose:\n#   {swept}\n{yaml.safe_dump(values, sort_keys=False)}"


def trials_table(found: Sequence[Record], keys: Sequence[str], metric: str, study: Study) -> pa.Table:
    """Return every trial as a row, its settings as columns under their dotted keys."""
    times = {trial.number: trial for trial in study.get_trials(deepcopy=False)}
    front = _on_the_front(study)
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
    """Return the best trial beside the configuration's own values, and what became of the others."""
    states = [record.state for record in found]
    counts = {state: states.count(state) for state in ("finished", "stopped early", "failed") if state in states}
    lines = [f"trials: {', '.join(f'{count} {state}' for state, count in counts.items())}"]
    winner = best(found)
    if winner is None:
        return ["No trial finished.", *lines, *_reasons(found)]
    own = {key: own_value(config, key) for key in space.dimensions}
    same = [record for record in trainings(found) if without_seed(record.changes) == without_seed(own)]
    beside = f", the settings as they were {mean_dev(same):.4f}" if same else ""
    group = [record for record in trainings(found) if _like(record, winner)]
    seeds = f", mean of {len(group)} trainings" if len(group) > 1 else ""
    shown = settings_text(without_seed(winner.changes))
    dev = f"dev {config.training.metric} {mean_dev(group):.4f}"
    lines.insert(0, f"best: trial {winner.number}, {dev}{seeds}{beside}: {shown}")
    if SEED not in space.dimensions and not _like(winner, Record(0, "", own, None)):
        changed = {key: value for key, value in winner.changes.items() if value != own[key]}
        lines.insert(1, _to_confirm(changed, config.training.seed + 1))
    return [*lines, *_reasons(found)]


def table_lines(found: Sequence[Record], keys: Sequence[str], metric: str) -> list[list[str]]:
    """Return a header and a line a trial, as text."""
    two_aims = any(record.cost is not None for record in found)
    lines = [
        ["trial", "state", f"dev {metric}", *(["ms per query"] if two_aims else []), *keys, "seconds", "why it failed"]
    ]
    for record in found:
        aims = ["" if record.dev is None else f"{record.dev:.4f}"]
        if two_aims:
            aims.append("" if record.cost is None else f"{record.cost:.4g}")
        values = [value_text(record.changes.get(key, "")) for key in keys]
        seconds = f"{record.facts['seconds']:.0f}" if "seconds" in record.facts else ""
        lines.append([str(record.number), record.state, *aims, *values, seconds, record.reason])
    return lines


def live_table(study: Study, keys: Sequence[str], metric: str, trials: int, most: int = 15) -> Table:
    """Return the last trials and the best so far, for the screen."""
    found = [record for record in records(study) if record.state != "waiting"]
    winner = best(found)
    over = sum(record.state not in ("running", "waiting") for record in found)
    best_text = f"; best: trial {winner.number}, {winner.dev:.4f}" if winner else ""
    table = Table(title=f"{over} of {trials} trials over{best_text}", title_justify="left")
    header, *lines = table_lines(found[-most:], keys, metric)
    for title in header:
        table.add_column(title, overflow="fold")
    for record, line in zip(found[-most:], lines, strict=True):
        table.add_row(*line, style="bold" if record is winner else None)
    return table


def clear(found: Sequence[Record], config: PipelineConfig, store: Store) -> None:
    """Remove the checkpoints of trials that nobody goes on with; each is as big as a model and its optimiser."""
    for record in found:
        if record.state in ("running", "waiting"):
            continue
        with suppress(ConfigError):  # of settings that cannot be used together, so that nothing was made
            store.artifact("listwise", varied(config, record.changes)).remove_folder(CHECKPOINTS)


def _to_confirm(changed: Changes, seed: int) -> str:
    """Return how the best of many trials, which is partly luck, is compared again."""
    if any(value is None or len(str(value).split()) != 1 for value in changed.values()):
        # What no --row can say.
        return f"the best of many is partly luck; train it again with --config best.yaml --set training.seed={seed}"
    return (
        f"the best of many is partly luck; compare it again with python -m jobs.ablate, your options and "
        f"--only DR-BERT --seeds 3 --set training.seed={seed} --row {shlex.quote(f'best: {settings_text(changed)}')}"
    )


def _like(record: Record, other: Record) -> bool:
    return without_seed(record.changes) == without_seed(other.changes)


def _reasons(found: Sequence[Record]) -> list[str]:
    return [f"trial {record.number} failed: {record.reason}" for record in found if record.reason]


def _gpus(study: Study) -> list[str]:
    seen = busy_of(study)
    return [f"GPUs: busy {seen.busy / seen.looks:.0%} of {seen.looks} looks a second apart"] if seen.looks else []


def _on_the_front(study: Study) -> set[int]:
    """Return the trials that no other beats in both aims; none where there is one."""
    return {trial.number for trial in study.best_trials} if len(study.directions) > 1 else set()


def _front(study: Study) -> list[str]:
    front = _on_the_front(study)
    both = [f"trial {r.number} ({r.dev:.4f}, {r.cost:.4g} ms)" for r in records(study) if r.number in front]
    return [f"no other is both better and faster: {', '.join(both)}"] if both else []


def _column(values: list[Any]) -> pa.Array:
    """Return values that may be of several types, such as a number or nothing or a word, as one column."""
    kinds = {type(value) for value in values if value is not None}
    return pa.array(values if len(kinds) <= 1 else [None if value is None else str(value) for value in values])


def _pictures(
    found: Sequence[Record], study: Study, space: Space, config: PipelineConfig, store: Store
) -> Mapping[str, bytes]:
    """Return the plots that the space and the trials have something to show in, in the order of the page."""
    done = trainings(found)
    pictures: dict[str, bytes] = {}
    if not done:
        return pictures
    two_aims, dev = len(study.directions) > 1, f"dev {config.training.metric}"
    if two_aims:
        pictures["pareto"] = plots.pareto(study, dev)
    elif not space.grid:  # which tries everything, in its own order
        pictures["best_so_far"] = plots.best_so_far(found, dev)
    if NEGATIVES in space.dimensions:
        pictures["n_minus"] = plots.negatives(done, NEGATIVES, dev, pairwise=config.listwise.positives == 1)
    if THRESHOLD in space.dimensions:
        report = store.find("noise_report", threshold_config(config))
        facts = report.read_json("report.json") if report else None
        pictures["threshold"] = plots.threshold(done, THRESHOLD, dev, facts)
    swept = [key for key in space.dimensions if key != SEED]
    if len(swept) > 1 and len(done) >= plots.ENOUGH and not two_aims:
        # Where all trials measured the same there is no difference to explain.
        if len({record.dev for record in done}) > 1:
            pictures["importances"] = plots.importances(study, swept, dev)
        pictures["coordinates"] = plots.coordinates(study, swept, dev)
    return pictures


def threshold_config(config: PipelineConfig) -> PipelineConfig:
    """Return the configuration whose noise report shows all thresholds; where nothing is removed there is none."""
    return config if config.noise.threshold < 1 else varied(config, {THRESHOLD: 0.9})


def place(space: Space, config: PipelineConfig, cost: bool, store: Store) -> Artifact:
    """Return where a sweep's results belong: the same place for the same sweep, however many trials it has."""
    parts = [flow.key("listwise", config), space.described(), space.grid, cost]
    for key, dimension in space.dimensions.items():
        if key in DIGESTS and isinstance(dimension, CategoricalDistribution):
            # A folder's name is not its content.
            parts.append([flow.key("listwise", varied(config, {key: value})) for value in dimension.choices])
    return Artifact(store.root, "sweeps", hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16])
