"""Rank: the last model's run with the first stage's scores blended in, as much as helps on dev."""

import time

import pyarrow as pa
import pyarrow.compute as pc

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import StorageError
from rayrank.scores.interpolation import METRIC, Blend
from rayrank.stages.scoring import held_out
from rayrank.training.data import read_candidates

LEARNT_ON = "dev"


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the run: a file for each held-out split; the weight, and what others would have given, in its manifest.

    A half of dev is blended with what is best for the other, so that dev can be measured as well.
    """
    if done := store.find("rank_fused", config):
        return done
    started = time.monotonic()
    artifact = store.artifact("rank_fused", config)
    model, first = (store.require(name, config) for name in (flow.RUNS[flow.last_run(config)], "candidates"))
    blends = {split: _blend(split, model, first) for split in held_out(config, store) if model.names(split)}
    weight, tried = config.fusion.weight, None
    # Candidates that come with a dataset come in no order.
    if weight is None and config.candidates.first_stage == "bm25" and LEARNT_ON in blends:
        judgments = store.require("corpus", config).read_table("judgments.parquet")
        tried = blends[LEARNT_ON].tried(judgments.filter(pc.equal(judgments["split"], LEARNT_ON)))
        weight = tried.best()
    weight = weight or 0.0
    for split, blend in blends.items():
        own = tried.crossed() if tried and split == LEARNT_ON else None
        artifact.write_table(f"{split}/part-00000.parquet", blend.run(weight, own))
    curve = tried.curve() if tried else {}
    measured = {f"{each:.2f}": value for each, value in curve.items()}
    facts = {"weight": weight, METRIC: measured, "findings": [_finding(config, weight, curve)]}
    return store.finish(artifact, config, started, facts)


def _blend(split: str, model: Artifact, first: Artifact) -> Blend:
    scored, found = (pa.concat_tables(read_candidates(part, split)) for part in (model, first))
    if not all(scored[name].equals(found[name]) for name in ("query_id", "passage_id")):
        raise StorageError(
            f"{model.url} ranks other candidates than those in {first.url}: delete the first folder and run again."
        )
    return Blend(scored, found)


def _finding(config: PipelineConfig, weight: float, curve: dict[float, float]) -> str:
    name = config.candidates.first_stage
    if curve:
        return (
            f"fused: {name} counts {weight:.2f} and the model {1 - weight:.2f}, which is best on {LEARNT_ON}: {METRIC} "
            f"{curve[weight]:.4f}, the model alone {curve[0.0]:.4f}, {name} alone {curve[1.0]:.4f}"
        )
    if config.fusion.weight is not None:
        return f"fused: {name} counts {weight:g}, as fusion.weight says"
    if name != "bm25":
        return "fused: the model alone, since candidates that come with a dataset come in no order"
    return f"fused: the model alone, for want of {LEARNT_ON} candidates to learn from how much {name} should count"
