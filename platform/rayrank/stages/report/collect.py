"""All facts of a report: what was trained on what, how good it is, what it cost. What storage does not have is null."""

import csv
import io
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from rayrank.bundle.provenance import without_folder
from rayrank.capacity.planning import carried, per_replica
from rayrank.capacity.records import Capacity
from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store, digest_of
from rayrank.core.config import PipelineConfig
from rayrank.stages.choice import Choice, choose, compared_runs
from rayrank.stages.report import rankings, studies, trainings
from rayrank.stages.report.belonging import studies_of

FOLDER, CAPACITY = "report", "capacity.json"
LIMITS = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds of p95 for which the report says what a replica carries."""
_EVALUATED = ("split", "num_queries", "num_without_results", "metric", "metrics")
SUSPICIOUS = 20
"""Pairs of the noise report that are shown, the most suspicious first."""


def folder(config: PipelineConfig, store: Store) -> Artifact:
    """Return the report's folder, another one for other settings or inputs of the evaluated runs."""
    keys = [flow.key("evaluate", flow.evaluating(name, config)) for name in compared_runs(config)]
    return Artifact(store.root, FOLDER, digest_of(keys))


def collect(config: PipelineConfig, store: Store, num_cases: int) -> dict[str, Any]:
    """Return the facts as a JSON value."""
    corpus = store.require("corpus", config)
    names = [name for name in compared_runs(config) if store.find(flow.run_node(name, config), config)]
    choice = choose(config, store)
    nodes = trainings.nodes(compared_runs(config), config, store)
    evaluations = _evaluations(names, config, store)
    split = evaluations[0]["split"] if evaluations else ""
    measured = rankings.Measured.of(names, config, store) if evaluations else None
    return {
        "dataset": without_folder(config.dataset.source),
        "encoder": _encoder(config.encoder.name),
        "created": datetime.now(UTC).isoformat(timespec="minutes"),
        "settings": _settings(config),
        "revision": corpus.manifest["revision"],
        "corpus": _corpus(corpus),
        "metric": config.training.metric,
        "split": split,
        "first_stage": flow.title(config.candidates.first_stage, config),
        "judged": measured and rankings.judged(measured),
        "evaluations": evaluations,
        "choice": _choice(choice, config),
        "reach": measured and rankings.reach(measured),
        "ablations": studies.ablations(config, store),
        "distillations": studies_of("distillation", "distillation.json", config, store),
        "learning_curve": studies.newest("learning_curve", "curve.json", config, store),
        "cut_words": studies.newest("cut_words", "report.json", config, store),
        "comparison": measured and rankings.comparison(_best(names, choice), measured, num_cases),
        "phases": trainings.phases(nodes),
        "noise": _noise(config, store),
        "calibration": rankings.calibration(names, config, store),
        "sweeps": studies.sweeps(config, store),
        "cost": trainings.costs(nodes),
        "capacity": _capacity(folder(config, store)),
        "findings": [line for found in nodes.values() for line in found.manifest.get("findings", [])],
    }


def _encoder(name: str) -> str:
    """Return the name of an encoder without the folders of one machine."""
    return Path(name).name if Path(name).is_absolute() else name.removeprefix("package:")


def _settings(values: Any) -> Any:
    """Return settings without digests of files, and without the folders of one machine."""
    if isinstance(values, PipelineConfig):
        found = _settings(values.model_dump(mode="json"))
        found["dataset"]["source"] = without_folder(values.dataset.source)
        return found
    if isinstance(values, dict):
        return {name: _settings(value) for name, value in values.items() if name != "fingerprint"}
    if isinstance(values, list):
        return [_settings(value) for value in values]
    return _encoder(values) if isinstance(values, str) else values


def _corpus(corpus: Artifact) -> dict[str, Any]:
    facts = corpus.manifest
    return {name: facts[name] for name in ("num_passages", "num_queries", "num_judgments", "splits")}


def _evaluations(names: list[str], config: PipelineConfig, store: Store) -> list[dict[str, Any]]:
    """Return the figures of every evaluated run, the first stage first."""
    found = []
    for name in names:
        if artifact := store.find("evaluate", flow.evaluating(name, config)):
            figures = {each: artifact.manifest[each] for each in _EVALUATED}
            found.append({"name": name, "title": flow.title(name, config), "artifact": artifact.key, **figures})
    first = config.candidates.first_stage
    if found and "comparison" in found[0]["metrics"][config.training.metric]:
        # Only rankers were evaluated, but their evaluations have the figures of the first stage.
        metrics = {metric: figures["baseline"] for metric, figures in found[0]["metrics"].items()}
        about = {"name": first, "title": flow.title(first, config), "artifact": None, "num_without_results": None}
        found.insert(0, {**found[0], **about, "metrics": metrics})
    return found


def _choice(choice: Choice | None, config: PipelineConfig) -> dict[str, Any] | None:
    if choice is None:
        return None
    return {**choice.facts(), "title": flow.title(choice.name, config), "finding": choice.finding()}


def _best(names: list[str], choice: Choice | None) -> str:
    """Return the run that is compared with the first stage: the one that dev chose, or else the best other one."""
    others = names[1:]
    if choice is None or not choice.comparisons:
        return others[-1] if others else ""
    if choice.name != choice.first_stage:
        return choice.name
    return max(choice.comparisons, key=choice.means.__getitem__)


def _capacity(place: Artifact) -> dict[str, Any] | None:
    """Return the measurement of an endpoint that the report was given, with the loads of a replica within limits."""
    if not place.exists(CAPACITY):
        return None
    found = Capacity.model_validate(place.read_json(CAPACITY))
    shown: dict[str, Any] = found.model_dump()
    for curve, values in zip(found.curves, shown["curves"], strict=True):
        points = [(limit, carried(curve, limit)) for limit in LIMITS]
        values["carried"] = [{"p95": limit, "rps": point and per_replica(point)} for limit, point in points]
    return shown


def _noise(config: PipelineConfig, store: Store) -> dict[str, Any] | None:
    """Return the noise report with its most suspicious pairs; None if storage does not have it, or nothing filters."""
    if not config.noise.reads_scores or not (found := store.find("noise_report", config)):
        return None
    with found.open("suspicious.csv") as stream:
        rows = csv.DictReader(io.TextIOWrapper(stream, encoding="utf-8", newline=""))
        return {**found.read_json("report.json"), "suspicious": list(islice(rows, SUSPICIOUS))}
