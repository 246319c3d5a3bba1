"""Reads runs for a comparison: by name from storage or from a TREC file, and the split that they are measured on."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import EvaluateConfig, PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.records import DEV
from rayrank.core.run_kinds import CANDIDATES
from rayrank.data.pair_set import PairSet, relevant
from rayrank.data.qrels import qrels_of
from rayrank.data.rows import ranked
from rayrank.data.run_files import read_trec
from rayrank.runs.making import read_run


def run_names(run: str, baseline: str, config: PipelineConfig) -> tuple[str, str]:
    """Return the names to show for two runs; run files with equal stems are shown by file name, or else by path."""
    pairs = list(zip(_names(run or CANDIDATES, config), _names(baseline, config), strict=True))
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def _names(run: str, config: PipelineConfig) -> list[str]:
    """Return three names for a run, shortest first; a file is never shown under the name of a configured run."""
    if not run or flow.is_run(run, config):
        return [flow.run_named(run, config)[0] if run else ""] * 3
    names = [name for name in (Path(run).stem, Path(run).name) if name not in config.runs]
    return [*names, run, run, run][:3]


def measured_split(settings: EvaluateConfig, corpus: Artifact) -> str:
    """Return the split that runs are measured on: the one that is set, or test, or dev."""
    splits = [name for name, counts in corpus.manifest["splits"].items() if counts["num_judgments"]]
    if settings.split in splits:
        return settings.split
    if not splits:
        raise ConfigError("No split of the dataset has judgments, so no run can be measured: add judgments.")
    preferred = [name for name in ("test", "dev") if name in splits]
    if settings.split or not preferred:
        wanted = (
            f"evaluate.split={settings.split} has no judgments" if settings.split else "test and dev are not judged"
        )
        raise ConfigError(f"{wanted}: choose one of {', '.join(splits)} with --set evaluate.split=...")
    return preferred[0]


def read_named(name: str, split: str, config: PipelineConfig, store: Store) -> pa.Table:
    """Return the rows of a run, best first within each query, or those of a TREC file, in the order of the file."""
    name = name or CANDIDATES
    if not flow.is_run(name, config):
        with Path(name).open("rb") as stream:
            return read_trec(stream, name)
    artifact = store.require(flow.run_node(name, config), config)
    if not artifact.names(split):
        raise ConfigError(
            f"The run {name} has no rows in the split {split}: choose another split with --set evaluate.split=..., or "
            f"search for candidates with --set candidates.first_stage=bm25."
        )
    return ranked(pa.concat_tables(read_run(artifact, split)))


def dev_pairs(
    run: Artifact, config: PipelineConfig, store: Store
) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.int32]]:
    """Return a run's scores of all dev candidates, whether each is judged relevant, and the number of its query."""
    judgments = relevant(qrels_of(store.require("corpus", config), DEV), config.dataset.relevant_from)
    rows = pa.concat_tables(read_run(run, "dev"))
    # Queries without a relevant judgment are left out: all their candidates would count as irrelevant.
    rows = rows.filter(pc.is_in(rows["query_id"], value_set=pc.unique(judgments["query_id"])))
    query_ids = rows["query_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    return rows["score"].to_numpy(), PairSet(judgments).marks(rows), query_ids
