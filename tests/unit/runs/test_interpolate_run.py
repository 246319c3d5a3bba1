"""Interpolated runs: the weight comes from dev, holds for every split, and stands in the findings."""

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from jobs.run_pipeline import whole
from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import StorageError
from rayrank.core.overrides import build
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.measure.metrics import MRR_10
from rayrank.scores.interpolation import Interpolation
from rayrank.stages.export_checks import first_stage_weight
from rayrank.stages.make import make

NUM_QUERIES, DEPTH = 60, 6


def model_run(config: PipelineConfig) -> str:
    """The node of the model's run that `fused` reads."""
    return flow.inputs("fused", config)[1]


def storage(root: Path, config: PipelineConfig, splits: list[str]) -> Store:
    """Splits of which the first stage alone knows the answers; the model knows nothing."""
    store, rng = Store(str(root)), np.random.default_rng(1)
    corpus, candidates, ranked = (store.artifact(name, config) for name in ("corpus", "candidates", model_run(config)))
    judged = []
    for split in splits:
        rows = {
            "query_id": [f"{split}{row // DEPTH}" for row in range(NUM_QUERIES * DEPTH)],
            "passage_id": [f"p{row}" for row in range(NUM_QUERIES * DEPTH)],
            "rank": [row % DEPTH + 1 for row in range(NUM_QUERIES * DEPTH)],
        }
        first = [1.0 / rank for rank in rows["rank"]]
        judged += [(f"{split}{query}", f"p{query * DEPTH}", 1, split) for query in range(NUM_QUERIES)]
        for artifact, name, scores in (
            (candidates, "part-00000", first),
            (ranked, "part-00000-0000", rng.normal(size=NUM_QUERIES * DEPTH)),
        ):
            artifact.write_table(f"{split}/{name}.parquet", pa.table({**rows, "score": scores}, schema=CANDIDATES))
    columns = dict(zip(JUDGMENTS.names, map(list, zip(*judged, strict=True)), strict=True))
    corpus.write_table("judgments.parquet", pa.table(columns, schema=JUDGMENTS))
    facts = {"splits": {split: {"num_judgments": NUM_QUERIES} for split in [*splits, "train"]}}
    store.finish(corpus, config, time.monotonic(), facts)
    for name in ("candidates", model_run(config)):
        store.finish(store.artifact(name, config), config, time.monotonic(), {}, name)
    return store


@pytest.mark.parametrize("of", ["drbert", "pointwise"])
def test_the_weight_is_the_best_one_on_dev_and_holds_for_every_split(tmp_path: Path, of: str) -> None:
    config = build("demo", assignments=[f"runs.fused.of=[{of}, candidates]"])
    store = storage(tmp_path, config, ["dev", "test"])

    made = make("fused", config, store)

    weight = made.manifest["weight"]
    assert weight >= 0.5
    assert made.manifest["MRR@10"]["1.00"] == 1.0 > made.manifest["MRR@10"]["0.00"]
    assert f"fused: BM25 has the weight {weight:.2f}, which is best on dev" in made.manifest["findings"][0]
    splits = {}
    for split in ("dev", "test"):
        stages = (store.require(stage, config) for stage in (model_run(config), "candidates"))
        splits[split] = Interpolation(*(stage.read_table(stage.names(split)[0]) for stage in stages))
    assert made.read_table("test/part-00000.parquet").equals(splits["test"].run(weight))
    judgments = store.require("corpus", config).read_table("judgments.parquet")
    qrels = judgments.filter(pa.compute.equal(judgments["split"], "dev"))
    weights = splits["dev"].search(qrels, MRR_10).cross_fitted()
    assert made.read_table("dev/part-00000.parquet").equals(splits["dev"].run(weight, weights))
    assert first_stage_weight(of, config, store) == weight


def test_the_metric_of_the_configuration_chooses_the_weight(tmp_path: Path) -> None:
    config = build("demo", assignments=["training.metric=nDCG@5"])

    facts = make("fused", config, storage(tmp_path, config, ["dev"])).manifest

    assert facts["nDCG@5"][f"{facts['weight']:.2f}"] == max(facts["nDCG@5"].values()) == 1.0
    assert "MRR@10" not in facts
    assert ", which is best on dev: nDCG@5 1.0000; DR-BERT alone has 0." in facts["findings"][0]


def test_the_first_stage_does_not_count_beside_a_model_it_was_not_weighed_against(tmp_path: Path) -> None:
    config = build("demo")
    store = storage(tmp_path, config, ["dev"])

    assert first_stage_weight("drbert", config, store) is None
    make("fused", config, store)
    told = build("demo", assignments=["runs.fused.weight=0.25"])
    assert [first_stage_weight("pointwise", each, store) for each in (config, told)] == [None, None]
    assert [first_stage_weight("drbert", each, store) is not None for each in (config, told)] == [True, True]


def test_without_dev_the_model_stands_alone_unless_a_weight_is_given(tmp_path: Path) -> None:
    alone, told = build("demo"), build("demo", assignments=["runs.fused.weight=0.25"])
    store = storage(tmp_path, alone, ["test"])

    found = [make("fused", config, store).manifest for config in (alone, told)]

    assert [facts["weight"] for facts in found] == [0.0, 0.25]
    assert found[0]["findings"] == ["fused: DR-BERT alone, for want of dev candidates to find the weight of BM25 on"]
    assert found[1]["findings"] == ["fused: BM25 has the weight 0.25, as runs.fused.weight says"]


def test_candidates_without_scores_have_no_weight(tmp_path: Path) -> None:
    config = build("demo", assignments=["candidates.first_stage=provided"])

    facts = make("fused", config, storage(tmp_path, config, ["dev"])).manifest

    assert facts["weight"] == 0.0
    assert facts["findings"] == ["fused: DR-BERT alone, since provided has no scores"]


@pytest.mark.parametrize(
    ("first", "weight", "blends"), [("bm25", None, 1), ("provided", None, 0), ("provided", 0.3, 1)]
)
def test_the_pipeline_interpolates_where_that_can_change_the_order(
    first: str, weight: float | None, blends: int
) -> None:
    config = build("demo", assignments=[f"candidates.first_stage={first}", f"runs.fused.weight={weight or ''}"])

    assert [node for node, _ in whole(config)].count("run:fused") == blends


def test_a_split_for_which_nothing_was_found_is_left_out(tmp_path: Path) -> None:
    config = build("demo")
    store = storage(tmp_path, config, ["test"])
    corpus = store.require("corpus", config)
    splits = {**corpus.manifest["splits"], "dev": {"num_judgments": 1}}
    store.finish(corpus, config, time.monotonic(), {"splits": splits})
    store.require("candidates", config).write_table("dev/part-00000.parquet", CANDIDATES.empty_table())

    made = make("fused", config, store)

    assert (made.manifest["weight"], made.names("dev")) == (0.0, [])
    assert made.names("test")


def test_a_run_of_other_candidates_is_refused(tmp_path: Path) -> None:
    config = build("demo")
    store = storage(tmp_path, config, ["dev"])
    candidates = store.require("candidates", config)
    name = candidates.names("dev")[0]
    candidates.write_table(name, candidates.read_table(name).slice(1))

    with pytest.raises(StorageError, match=r"The runs drbert and candidates rank different candidates in dev"):
        make("fused", config, store)
