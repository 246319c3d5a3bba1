"""Two reports compared: the same runs of two storages query by query, settings that differ, and what each cost."""

from dataclasses import asdict
from typing import Any

import fsspec

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, RayrankError
from rayrank.measure.metrics import PerQuery
from rayrank.reports.ablation import Procedure
from rayrank.reports.comparison import overall
from rayrank.stages.ablation import read_per_query
from rayrank.stages.report.rankings import resamples, thinned

FOLDER, FACTS = "report", "report.json"


def other_report(place: str, own: Artifact) -> Artifact:
    """Return the report that `--against` names: its folder, or a storage, whose newest report but this one is meant."""
    try:
        other = _found(place, own)
        theirs = other.read_json(FACTS) if other else {}
    except RayrankError:
        raise
    except Exception as error:  # each file system raises its own, such as an unknown protocol
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ConfigError(
            f"--against {place} cannot be read: {reason}; name a storage, or the folder of a report in it."
        ) from None
    if other is None:
        raise ConfigError(
            f"--against {place} has no other report: make one with rayrank report and the options of that storage."
        )
    if "settings" not in theirs:
        raise ConfigError(f"--against {other.url} was made by an earlier version: make that report again.")
    return other


def _found(place: str, own: Artifact) -> Artifact | None:
    filesystem, _ = fsspec.url_to_fs(place)
    store = Store(place, is_read_only=True)
    _, path = fsspec.url_to_fs(store.root)
    if filesystem.exists(f"{path}/{FACTS}"):
        root, folder, key = store.root.rsplit("/", 2)
        return Artifact(root, folder, key)
    found = [each for each in store.folders(FOLDER) if each.exists(FACTS) and each.url != own.url]
    return max(found, key=lambda each: each.read_json(FACTS).get("created", ""), default=None)


def collect_against(
    facts: dict[str, Any], own: Artifact, other: Artifact, config: PipelineConfig
) -> dict[str, Any]:  # fmt: skip
    """Return the facts of a comparison of this report with another one, which are in `other`."""
    theirs = other.read_json(FACTS)
    labels = _labels(own, other)
    pairs = _pairs(facts, theirs)
    runs = [_run(run, its, (own, other), _is_paired(facts, theirs), config) for run, its in pairs]
    return {
        "created": facts["created"],
        "metric": facts["metric"],
        "sides": [_side(label, each) for label, each in zip(labels, (facts, theirs), strict=True)],
        "unpaired": _unpaired(facts, theirs, labels),
        "runs": runs,
        "settings": _different(_flat(facts["settings"]), _flat(theirs["settings"])),
        "cost": _costs(facts["cost"], theirs["cost"]),
    }


def _labels(own: Artifact, other: Artifact) -> tuple[str, str]:
    """Return a short name for each side: the storage's, or that of the report where both storages have the same."""
    names = [each.root.rstrip("/").rsplit("/", 1)[-1] for each in (own, other)]
    return (
        (names[0], names[1]) if names[0] != names[1] else (f"{names[0]} {own.key[:6]}", f"{names[1]} {other.key[:6]}")
    )


def _side(label: str, facts: dict[str, Any]) -> dict[str, Any]:
    copied = ("dataset", "encoder", "split", "created", "revision", "corpus")
    chosen = facts["choice"] and facts["choice"]["title"]
    seconds = {name: sum(each[name] or 0 for each in facts["cost"]) for name in ("seconds", "device_seconds")}
    return {"label": label, **{name: facts[name] for name in copied}, "chosen": chosen, **seconds}


def _pairs(facts: dict[str, Any], theirs: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the runs that dev chose, and then the runs that both reports have by the same name."""
    ours, others = ({run["name"]: run for run in each["evaluations"]} for each in (facts, theirs))
    chosen = tuple(each["choice"]["name"] if each["choice"] else "" for each in (facts, theirs))
    same = [(name, name) for name in ours if name in others]
    named = dict.fromkeys([chosen, *same] if chosen[0] in ours and chosen[1] in others else same)
    return [(ours[name], others[its]) for name, its in named]


def _is_paired(facts: dict[str, Any], theirs: dict[str, Any]) -> bool:
    return bool(facts["judged"] == theirs["judged"] and facts["judged"])


def _unpaired(facts: dict[str, Any], theirs: dict[str, Any], labels: tuple[str, str]) -> str | None:
    """Return why the two are not tested against each other; None if they are."""
    if _is_paired(facts, theirs):
        return None
    sizes = [f"{label}: {_queries(each)}" for label, each in zip(labels, (facts, theirs), strict=True)]
    return (
        f"The two were not measured on the same judged queries ({', '.join(sizes)}), so their differences have no "
        f"interval and no p value, and say little about which is better."
    )


def _queries(facts: dict[str, Any]) -> str:
    if not facts["evaluations"]:
        return "no evaluated run"
    return f"{facts['evaluations'][0]['num_queries']:,} queries of {facts['dataset']}, {facts['split']}"


def _run(
    run: dict[str, Any], its: dict[str, Any], reports: tuple[Artifact, Artifact], is_paired: bool,
    config: PipelineConfig,
) -> dict[str, Any]:  # fmt: skip
    """Return one run of each side: both means of every metric, and the paired comparison where there is one."""
    names = [name for name in run["metrics"] if name in its["metrics"]]
    found: dict[str, Any] = {
        name: {"mean": _interval(run["metrics"][name]), "other": _interval(its["metrics"][name]), "paired": None}
        for name in names
    }
    differences = None
    if is_paired and run["artifact"] and its["artifact"]:
        values, others = (
            read_per_query(Artifact(each.root, "evaluate", of["artifact"]))
            for each, of in zip(reports, (run, its), strict=True)
        )
        procedure = Procedure.of(
            config.evaluate.model_copy(update={"resamples": resamples(config, len(values.query_ids))})
        )
        for name in names:
            found[name]["paired"] = asdict(overall(values.values[name], others.values[name], procedure))
        differences = _differences(values, others, next(iter(names)))
    return {"title": run["title"], "other": its["title"], "metrics": found, "differences": differences}


def _differences(values: PerQuery, others: PerQuery, metric: str) -> list[dict[str, float]]:
    return thinned(sorted((values.values[metric] - others.values[metric]).tolist(), reverse=True))


def _interval(found: dict[str, Any]) -> dict[str, Any]:
    return {name: found[name] for name in ("mean", "low", "high")}


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return settings by their dotted keys."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def _different(ours: dict[str, Any], theirs: dict[str, Any]) -> list[dict[str, Any]]:
    keys = [key for key in dict.fromkeys([*ours, *theirs]) if ours.get(key) != theirs.get(key)]
    return [{"key": key, "value": ours.get(key), "other": theirs.get(key)} for key in keys]


def _costs(ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what every stage and run took on both sides."""
    by_node = [{each["node"]: each for each in costs} for costs in (ours, theirs)]
    return [
        {
            "node": node,
            "is_same": all(node in each for each in by_node)
            and by_node[0][node]["artifact"] == by_node[1][node]["artifact"],
            "values": [each[node]["seconds"] if node in each else None for each in by_node],
            "devices": [each[node]["device_seconds"] if node in each else None for each in by_node],
        }
        for node in dict.fromkeys([*by_node[0], *by_node[1]])
    ]
