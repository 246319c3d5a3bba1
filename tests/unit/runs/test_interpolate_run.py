"""Interpolated runs: the weight is chosen on dev, used for every split, and reported in the findings."""

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import build
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.jobs.run_pipeline import whole
from rayrank.measure.metrics import MRR_10
from rayrank.runs.making import Making
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
    queries = [f"{split}{query}" for split in splits for query in range(NUM_QUERIES)]
    corpus.write_table("queries.parquet", pa.table({"query_id": queries}))
    columns = dict(zip(JUDGMENTS.names, map(list, zip(*judged, strict=True)), strict=True))
    corpus.write_table("judgments.parquet", pa.table(columns, schema=JUDGMENTS))
    facts = {"splits": {split: {"num_judgments": NUM_QUERIES} for split in [*splits, "train"]}}
    store.finish(corpus, config, time.monotonic(), facts)
    for name in ("candidates", model_run(config)):
        store.finish(store.artifact(name, config), config, time.monotonic(), {}, name)
    return store


@pytest.mark.parametrize("of", ["drbert", "pointwise"])
def test_the_best_weight_on_dev_is_used_for_every_split(tmp_path: Path, of: str) -> None:
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
        splits[split] = Interpolation([stage.read_table(stage.names(split)[0]) for stage in stages])
    assert made.read_table("test/part-00000.parquet").equals(splits["test"].run((1 - weight, weight)))
    judgments = store.require("corpus", config).read_table("judgments.parquet")
    qrels = judgments.filter(pa.compute.equal(judgments["split"], "dev"))
    weights = splits["dev"].search(qrels, MRR_10).cross_fitted()
    assert made.read_table("dev/part-00000.parquet").equals(splits["dev"].run((1 - weight, weight), weights))
    assert first_stage_weight(of, config, store) == weight


def test_the_metric_of_the_configuration_chooses_the_weight(tmp_path: Path) -> None:
    config = build("demo", assignments=["training.metric=nDCG@5"])

    facts = make("fused", config, storage(tmp_path, config, ["dev"])).manifest

    assert facts["nDCG@5"][f"{facts['weight']:.2f}"] == max(facts["nDCG@5"].values()) == 1.0
    assert "MRR@10" not in facts
    assert ", which is best on dev: nDCG@5 1.0000; DR-BERT alone has 0." in facts["findings"][0]


def test_a_model_has_a_first_stage_weight_only_if_the_weight_was_tuned_for_it(tmp_path: Path) -> None:
    config = build("demo")
    store = storage(tmp_path, config, ["dev"])

    assert first_stage_weight("drbert", config, store) is None
    make("fused", config, store)
    told = build("demo", assignments=["runs.fused.weight=0.25"])
    assert [first_stage_weight("pointwise", each, store) for each in (config, told)] == [None, None]
    assert [first_stage_weight("drbert", each, store) is not None for each in (config, told)] == [True, True]


def test_without_dev_the_first_stage_has_no_weight_unless_one_is_set(tmp_path: Path) -> None:
    alone, told = build("demo"), build("demo", assignments=["runs.fused.weight=0.25"])
    store = storage(tmp_path, alone, ["test"])

    found = [make("fused", config, store).manifest for config in (alone, told)]

    assert [facts["weight"] for facts in found] == [0.0, 0.25]
    assert found[0]["findings"] == ["fused: DR-BERT alone, since no dev candidates exist to tune the weight of BM25 on"]
    assert found[1]["findings"] == ["fused: BM25 has the weight 0.25, as runs.fused.weight says"]


def test_candidates_without_scores_have_no_weight(tmp_path: Path) -> None:
    config = build("demo", assignments=["candidates.first_stage=provided"])

    facts = make("fused", config, storage(tmp_path, config, ["dev"])).manifest

    assert facts["weight"] == 0.0
    assert facts["findings"] == ["fused: DR-BERT alone, since provided has no scores"]


@pytest.mark.parametrize(
    ("first", "weight", "blends"), [("bm25", None, 1), ("provided", None, 0), ("provided", 0.3, 1)]
)
def test_the_pipeline_interpolates_only_if_that_can_change_the_order(
    first: str, weight: float | None, blends: int
) -> None:
    config = build("demo", assignments=[f"candidates.first_stage={first}", f"runs.fused.weight={weight or ''}"])

    assert [node for node, _ in whole(config)].count("run:fused") == blends


def test_a_split_without_candidates_is_left_out(tmp_path: Path) -> None:
    config = build("demo")
    store = storage(tmp_path, config, ["test"])
    corpus = store.require("corpus", config)
    splits = {**corpus.manifest["splits"], "dev": {"num_judgments": 1}}
    store.finish(corpus, config, time.monotonic(), {"splits": splits})
    store.require("candidates", config).write_table("dev/part-00000.parquet", CANDIDATES.empty_table())

    made = make("fused", config, store)

    assert (made.manifest["weight"], made.names("dev")) == (0.0, [])
    assert made.names("test")


def test_passages_that_one_of_the_runs_lacks_are_kept(tmp_path: Path) -> None:
    config = build("demo", assignments=["runs.fused.weight=0.25"])
    store = storage(tmp_path, config, ["dev"])
    candidates = store.require("candidates", config)
    name = candidates.names("dev")[0]
    candidates.write_table(name, candidates.read_table(name).slice(1))

    made = make("fused", config, store)

    assert made.manifest["num_candidates"] == NUM_QUERIES * DEPTH
    assert made.read_table("dev/part-00000.parquet")["passage_id"][0].as_py() == "p0"


def test_an_endpoint_gets_no_weight_of_scores_that_it_would_normalise_differently(tmp_path: Path) -> None:
    config = build("demo", assignments=["runs.fused.weight=0.25", "runs.fused.normalize=z-score"])
    store = storage(tmp_path, config, ["dev"])

    make("fused", config, store)

    assert first_stage_weight("drbert", config, store) is None


@pytest.mark.parametrize(
    ("of", "weight", "sentence"),
    [
        ("[drbert, candidates]", "1.5", "runs.fused.weight=1.5 cannot be used: a weight is a number from 0 to 1"),
        ("[drbert, candidates]", "half", "runs.fused.weight=half cannot be used: a weight is a number from 0 to 1"),
        ("[drbert, candidates]", "[1, 0, 0]", "2 runs need a list of 2 weights, at least one of them above 0"),
        ("[drbert, bm25, dense]", "0.5", "3 runs need a list of 3 weights, at least one of them above 0"),
        ("[drbert, bm25, dense]", "[0, 0, 0]", "3 runs need a list of 3 weights, at least one of them above 0"),
        ("[drbert]", "0.5", "runs.fused.of=['drbert'] cannot be used"),
    ],
)
def test_weights_that_do_not_fit_the_runs_are_one_sentence(of: str, weight: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build("demo", assignments=[f"runs.fused.of={of}", f"runs.fused.weight={weight}"])
    assert sentence in str(caught.value)


@pytest.mark.parametrize("combined", ["{kind: interpolate, of: [pointwise, candidates], weight: [0.25, 0.75]}", "RRF"])
def test_a_combiner_of_rankers_scores_the_training_candidates_for_a_student(tmp_path: Path, combined: str) -> None:
    run = combined.replace("RRF", "{kind: rrf, of: [pointwise, candidates]}")
    config = build("demo", assignments=[f"runs.both={run}", "listwise.teacher=both", "runs.fused.of=[pointwise, bm25]"])
    store = storage(tmp_path, config, ["train", "dev"])
    ranker = store.artifact("run:pointwise@train", config)
    held_out = store.require(model_run(config), config)
    ranker.write_table("train/part-00000.parquet", held_out.read_table("train/part-00000-0000.parquet"))
    store.finish(ranker, config, time.monotonic(), {}, "run:pointwise@train")

    made = make(flow.inputs("listwise", config)[-1], config, store)

    assert made.names("dev") == []
    found = made.read_table("train/part-00000.parquet")
    assert found.num_rows == NUM_QUERIES * DEPTH
    tables = [store.require(node, config) for node in ("run:pointwise@train", "run:bm25")]
    read = [table.read_table(table.names("train")[0]) for table in tables]
    if combined != "RRF":
        assert found.equals(Interpolation(read).run((0.25, 0.75)))
    best = {row["query_id"]: row["passage_id"] for row in found.to_pylist() if row["rank"] == 1}
    assert len(best) == NUM_QUERIES


def test_a_source_has_no_rows_of_a_split_without_files(tmp_path: Path) -> None:
    config = build("demo")
    making = Making(flow.run_node("fused", config), config, storage(tmp_path, config, ["dev"]))

    assert making.rows("candidates", "test").equals(CANDIDATES.empty_table())
    assert making.read("candidates", "test").equals(CANDIDATES.empty_table())
    assert len(making.rows("candidates", "dev")) == NUM_QUERIES * DEPTH
