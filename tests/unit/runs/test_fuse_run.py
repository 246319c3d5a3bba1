"""Fused runs: weights of runs and of passage fields are learned on dev, used for every split, and exported."""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import build
from rayrank.jobs.run_pipeline import whole
from rayrank.measure.metrics import MRR_10
from rayrank.scores.fusion import FUSION, Fusion
from rayrank.stages.export_checks import fusion_with
from rayrank.stages.make import make
from tests.unit.runs.first_stages import finished, storage

NUM_QUERIES, DEPTH = 60, 6
FUSED = "runs.fused={kind: fuse, of: [bm25, dense], fields: [recency]}"
QUERIES = {split: [f"{split}{number}" for number in range(NUM_QUERIES)] for split in ("dev", "test")}


def configured(*assignments: str) -> PipelineConfig:
    return build("demo", assignments=["dataset.fields=[recency, price]", FUSED, *assignments])


def made_inputs(root: Path, config: PipelineConfig, folder: Path) -> Store:
    """Two runs that know nothing of relevance, and passages of which the most recent of a query is relevant."""
    rng = np.random.default_rng(1)
    recency = {f"p{number}": float(rng.integers(10_000)) for number in range(100) if number % 10}
    names = {query: rng.choice(100, DEPTH, replace=False) for query in QUERIES["dev"] + QUERIES["test"]}
    candidates = {query: [f"p{number}" for number in numbers] for query, numbers in names.items()}
    relevant = {query: max(found, key=lambda name: recency.get(name, 0)) for query, found in candidates.items()}
    store = storage(root, config, QUERIES, **relevant)
    for run in ("bm25", "dense"):
        files = {
            f"{split}/part-0": {
                query: dict(zip(candidates[query], rng.normal(size=DEPTH).tolist(), strict=True)) for query in queries
            }
            for split, queries in QUERIES.items()
        }
        finished(store, config, f"run:{run}", files)
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": f"p{number}", "text": "any", "recency": recency.get(f"p{number}")} for number in range(100)]
    (folder / "corpus.jsonl").write_text("\n".join(json.dumps({**row, "price": 1}) for row in rows))
    for name in ("queries.jsonl", "qrels/dev.tsv"):
        (folder / name).write_text("")
    return store


@pytest.fixture
def fused(tmp_path: Path) -> tuple[PipelineConfig, Store, Artifact]:
    config = configured(f"dataset.source=beir:{tmp_path / 'data'}")
    store = made_inputs(tmp_path / "storage", config, tmp_path / "data")
    make("passage_fields", config, store)
    return config, store, make("fused", config, store)


def mrr(config: PipelineConfig, store: Store, run: Artifact, split: str) -> float:
    judgments = store.require("corpus", config).read_table("judgments.parquet")
    qrels = judgments.filter([each == split for each in judgments["split"].to_pylist()])
    return float(MRR_10.values(qrels, run.read_table(run.names(split)[0])).mean())


def test_a_field_that_decides_relevance_gets_the_weight_on_every_split(
    fused: tuple[PipelineConfig, Store, Artifact],
) -> None:
    config, store, run = fused
    weights = run.manifest["fusion"]["features"]
    assert weights["recency"] > 5 * max(abs(weights["bm25"]), abs(weights["dense"]))
    figures = run.manifest["MRR@10"]
    assert figures["fused"] > 0.85 > 0.6 > max(figures["bm25"], figures["dense"])
    assert mrr(config, store, run, "dev") == pytest.approx(figures["fused"])
    assert mrr(config, store, run, "test") > 0.85
    assert "fused: the weights are bm25 " in run.manifest["findings"][0]
    assert f"MRR@10 {figures['fused']:.4f}, each half of the queries scored with what" in run.manifest["findings"][0]


def test_the_stored_fusion_is_the_one_that_made_the_test_scores_and_is_exported(
    fused: tuple[PipelineConfig, Store, Artifact],
) -> None:
    config, store, run = fused
    fusion = Fusion.model_validate(run.read_json(FUSION))
    assert [(each.name, each.kind, bool(each.points)) for each in fusion.features] == [
        ("bm25", "run", False), ("dense", "run", False), ("recency", "field", True),
    ]  # fmt: skip
    rows = run.read_table("test/part-00000.parquet").slice(0, DEPTH).to_pylist()
    assert {row["query_id"] for row in rows} == {"test0"}
    fields = store.require("passage_fields", config).read_table("fields.parquet").to_pylist()
    recency = {row["passage_id"]: row["recency"] for row in fields}
    columns = []
    for name in ("bm25", "dense"):
        source = store.require(f"run:{name}", config).read_table("test/part-0.parquet").slice(0, DEPTH).to_pylist()
        scores = {row["passage_id"]: row["score"] for row in source}
        low, high = min(scores.values()), max(scores.values())
        columns.append([(scores[row["passage_id"]] - low) / (high - low) for row in rows])
    values, levels = zip(*fusion.features[2].points, strict=True)
    found = [recency[row["passage_id"]] for row in rows]
    columns.append([0.5 if value is None else np.interp(value, values, levels) for value in found])
    assert [row["score"] for row in rows] == pytest.approx(fusion.scores(np.array(columns).T).tolist(), abs=1e-5)
    served = fusion_with("bm25", config, store)
    assert served == fusion.model_copy(update={"model": "bm25", "first_stage": "bm25"})
    assert fusion_with("pointwise", config, store) is None


def test_noise_is_not_taken_for_signal_on_dev(tmp_path: Path) -> None:
    config = build("demo", assignments=["runs.fused={kind: fuse, of: [bm25, dense]}"])
    store = made_inputs(tmp_path / "storage", config, tmp_path / "data")

    figures = make("fused", config, store).manifest["MRR@10"]

    by_chance = sum(1 / rank for rank in range(1, DEPTH + 1)) / DEPTH
    assert figures["fused"] < by_chance + 0.08


def test_without_enough_dev_queries_the_first_run_is_used_alone(tmp_path: Path) -> None:
    config = build("demo", assignments=["runs.fused={kind: fuse, of: [bm25, dense]}"])
    store = made_inputs(tmp_path / "storage", config, tmp_path / "data")
    corpus = store.require("corpus", config)
    judgments = corpus.read_table("judgments.parquet")
    corpus.write_table("judgments.parquet", judgments.slice(NUM_QUERIES - 8))

    run = make("fused", config, store)

    assert run.manifest["fusion"]["features"] == {"bm25": 1.0, "dense": 0.0}
    assert run.manifest["findings"] == [
        "fused: no weights were learned, because one half of dev has fewer than 5 queries with a relevant candidate; "
        "passages are ranked by BM25 alone"
    ]


def test_fields_change_the_key_of_no_other_node(tmp_path: Path) -> None:
    before, after = build("demo"), configured()
    nodes = [name for name in flow.STAGES if name != "passage_fields"] + ["run:bm25", "run:drbert", "run:hybrid"]
    assert [flow.key(node, before) for node in nodes] == [flow.key(node, after) for node in nodes]
    plans = ([node for node, _ in whole(config)] for config in (before, configured("runs.fused.of=[drbert, bm25]")))
    assert ["passage_fields" in nodes for nodes in plans] == [False, True]


@pytest.mark.parametrize(
    ("assignments", "sentence"),
    [
        (["runs.fused.fields=[age]"], r"field age: dataset.fields does not name it; set dataset.fields=\[recency, p"),
        (["runs.fused.of=[bm25]", "runs.fused.fields=[]"], "of and fields must name two features or more together"),
        (["runs.fused.fields=[]", "runs.fused.of=[provided, provided]"], "none of these runs has scores"),
        (["runs.fused.of=[pointwise]", "listwise.teacher=fused"], "The run fused has no rows of the training queries"),
        (["runs.fused.form=forest"], "runs.fused.form=forest cannot be used"),
        (["dataset.fields=[price, price]"], "dataset.fields=.* cannot be used: it needs different names of fields"),
        (["dataset.fields=[passage_id]"], "dataset.fields=.* cannot be used: it needs different names of fields"),
    ],
)  # fmt: skip
def test_features_that_do_not_exist_are_one_sentence(assignments: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        configured(*assignments)


def test_fields_of_another_format_are_refused(tmp_path: Path) -> None:
    config = configured()
    store = Store(str(tmp_path))
    corpus = store.artifact("corpus", config)
    store.finish(corpus, config, time.monotonic(), {"shards": []})
    with pytest.raises(
        ConfigError, match=r"^dataset.fields=\[recency, price\] is read from a beir:DIR only, not from d"
    ):
        make("passage_fields", config, store)
