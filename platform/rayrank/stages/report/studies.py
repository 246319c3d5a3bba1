"""What studies on the same storage found: what each part is worth, and which settings are better."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow.compute as pc
import yaml

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import as_file
from rayrank.stages import ablation

MOST_SEEDS = 5
"""The largest number of seeds of an ablation that is looked for."""
MOST_TRIALS = 400
BEST = "best.yaml"


def ablations(config: PipelineConfig, store: Store) -> list[dict[str, Any]]:
    """Return the tables that `jobs.ablate` made for this configuration, of each kind the one with the most seeds."""
    kept = {folder.key: folder for folder in store.folders("ablation")}
    if not kept:
        return []
    found: list[dict[str, Any]] = []
    with suppress(ConfigError):  # there is no model to ablate
        full = flow.title(ablation.full_run(config), config)
        found += _with_most_seeds(kept, ablation.table_one, full, config)
        found += _with_most_seeds(kept, ablation.rankers_table, ablation.MONOBERT, config)
    return found


def _with_most_seeds(
    kept: dict[str, Artifact], rows_of: Callable[[PipelineConfig], list[ablation.RowSpec]], reference: str,
    config: PipelineConfig,
) -> list[dict[str, Any]]:  # fmt: skip
    rows, first = rows_of(config), config.training.seed
    for num_seeds in range(MOST_SEEDS, 0, -1):
        folder = kept.get(ablation.digest(config, rows, range(first, first + num_seeds), reference))
        if folder and folder.exists("table.json"):
            return [folder.read_json("table.json")]
    return []


def sweeps(config: PipelineConfig, store: Store) -> list[dict[str, Any]]:
    """Return the finished trials of every sweep over the same dataset, the best first."""
    dataset, found = _dataset(as_file(config)), []
    for folder in store.folders("sweeps"):
        if not folder.exists(BEST):
            continue
        with folder.open(BEST) as stream:
            best = yaml.safe_load(stream)
        dev = f"dev {best['training']['metric']}"
        if _dataset(best) != dataset:
            continue
        trials = folder.read_table("trials.parquet")
        trials = trials.filter(pc.is_valid(trials[dev])).sort_by([(dev, "descending")])[:MOST_TRIALS]
        settings = [name for name in trials.column_names if "." in name]
        rows = [{"trial": row["trial"], "dev": row[dev], "settings": {name: row[name] for name in settings}}
                for row in trials.to_pylist()]  # fmt: skip
        found.append({"key": folder.key, "metric": best["training"]["metric"], "settings": settings, "trials": rows})
    return found


def _dataset(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values["dataset"].items() if name != "fingerprint"}
