"""Rank: the last model's scores interpolated with the first stage's, with the weight that is best on dev."""

import time

import pyarrow as pa
import pyarrow.compute as pc

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import StorageError
from rayrank.measure.metrics import Measure
from rayrank.scores.interpolation import Interpolation
from rayrank.stages.scoring import held_out
from rayrank.training.data import read_candidates

FITTED_ON = "dev"


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the run: a file for each held-out split; the weight, and what others would have given, in its manifest.

    Each half of dev is interpolated with the weight that is best for the other half, so that dev can be measured too.
    """
    if done := store.find("rank_fused", config):
        return done
    started = time.monotonic()
    artifact = store.artifact("rank_fused", config)
    model, first = (store.require(name, config) for name in (flow.RUNS[flow.last_run(config)], "candidates"))
    splits = {split: _pairs(split, model, first) for split in held_out(config, store) if model.names(split)}
    weight, search = config.fusion.weight, None
    # Candidates that come with a dataset come in no order.
    if weight is None and config.candidates.first_stage == "bm25" and FITTED_ON in splits:
        judgments = store.require("corpus", config).read_table("judgments.parquet")
        qrels = judgments.filter(pc.equal(judgments["split"], FITTED_ON))
        search = splits[FITTED_ON].search(qrels, Measure.of(config))
        weight = search.best()
    weight = weight or 0.0
    for split, pairs in splits.items():
        query_weights = search.cross_fitted() if search and split == FITTED_ON else None
        artifact.write_table(f"{split}/part-00000.parquet", pairs.run(weight, query_weights))
    curve = search.curve() if search else {}
    measured = {f"{each:.2f}": value for each, value in curve.items()}
    facts = {"weight": weight, config.training.metric: measured, "findings": [_finding(config, weight, curve)]}
    return store.finish(artifact, config, started, facts)


def _pairs(split: str, model: Artifact, first: Artifact) -> Interpolation:
    scored, found = (pa.concat_tables(read_candidates(part, split)) for part in (model, first))
    if not all(scored[name].equals(found[name]) for name in ("query_id", "passage_id")):
        raise StorageError(
            f"{model.url} ranks other candidates than those in {first.url}: delete the first folder and run again."
        )
    return Interpolation(scored, found)


def _finding(config: PipelineConfig, weight: float, curve: dict[float, float]) -> str:
    name = config.candidates.first_stage
    if curve:
        return (
            f"fused: {name} counts {weight:.2f} and the model {1 - weight:.2f}, which is best on {FITTED_ON}: "
            f"{config.training.metric} {curve[weight]:.4f}, the model alone {curve[0.0]:.4f}, {name} alone "
            f"{curve[1.0]:.4f}"
        )
    if config.fusion.weight is not None:
        return f"fused: {name} counts {weight:g}, as fusion.weight says"
    if name != "bm25":
        return "fused: the model alone, since candidates that come with a dataset come in no order"
    return f"fused: the model alone, for want of {FITTED_ON} candidates to learn from how much {name} should count"
