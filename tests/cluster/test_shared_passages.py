"""Corpora that differ in their queries only share what is made of passages alone."""

from pathlib import Path

import pyarrow as pa
import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import CandidatesConfig, DatasetConfig, DemoConfig, PipelineConfig
from rayrank.stages.make import make

OTHER_QUERIES = {
    "on_unknown": "skip", "on_shared": "skip", "type_field": "kind", "group_field": "team", "holdout": 0.3,
    "train_queries": 5, "train_seed": 4, "relevant_from": 2,
}  # fmt: skip


@pytest.mark.slow
def test_another_drawing_of_queries_has_the_same_passages_and_index(ray_cluster: None, tmp_path: Path) -> None:
    assert set(OTHER_QUERIES) == set(flow._OF_QUERIES)
    store, dataset = Store(str(tmp_path)), DatasetConfig(demo=DemoConfig(subjects=20))
    config = PipelineConfig(dataset=dataset, candidates=CandidatesConfig(depth=5))
    # Every setting for the keys; the demo has neither grades nor types in metadata, so only the drawing for the data.
    drawn = {"train_queries": 5, "train_seed": 4}
    other = config.model_copy(update={"dataset": dataset.model_copy(update=drawn)})
    everything = config.model_copy(update={"dataset": dataset.model_copy(update=OTHER_QUERIES)})
    for each in (config, other):
        for node in flow.plan("bm25", each):
            make(node, each, store)

    for stage in ("index", "rm3_index", "pretrain", "domain_report"):
        assert flow.key(stage, config) == flow.key(stage, everything)
    assert len(list((tmp_path / "index").iterdir())) == 1
    corpora = [store.require("corpus", each) for each in (config, other)]
    first, second = (
        pa.concat_tables([corpus.read_table(name) for name in corpus.manifest["shards"]]) for corpus in corpora
    )
    assert first == second
    judged = [set(corpus.read_table("judgments.parquet")["query_id"].to_pylist()) for corpus in corpora]
    assert judged[1] < judged[0]
    run = store.require("run:bm25", other)
    found = {row for name in run.names("train") for row in run.read_table(name)["query_id"].to_pylist()}
    assert found <= judged[1]
    assert len(found) == 5
