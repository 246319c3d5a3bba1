"""The first stage on real data, and the settings and storage that it refuses."""

import json
import sys
from pathlib import Path

import pytest

from rayrank.cluster.connection import node_cpus, threads_on_a_node
from rayrank.cluster.partitions import PartitionWorker, make_missing
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, StorageError

from .conftest import FORKS


@pytest.mark.slow
def test_bm25_on_insuranceqa_has_the_mrr_of_an_independent_bm25(
    shared_data: Path, joining: dict[str, str], tmp_path: Path
) -> None:
    common = ["--preset", "minilm", "--dataset", f"beir:{shared_data / 'insuranceqa'}", "--storage", str(tmp_path)]
    common += ["--set", "candidates.depth=100"]
    pipeline = [sys.executable, "-m", "jobs.run_pipeline", *common, "--until", "bm25"]
    summary = tmp_path / "summary.json"
    measured = [sys.executable, "-m", "jobs.evaluate", *common, "--run", "bm25", "--split", "dev"]
    for command in (pipeline, [*measured, "--json", str(summary)]):
        answer = FORKS.run(command, joining)
        assert answer.returncode == 0, answer.stderr

    (stage,) = json.loads(summary.read_text())["stages"]
    figures = stage["evaluation"]["metrics"]
    assert 0.25 <= figures["MRR@10"]["mean"] <= 0.30
    assert figures["MRR@10"]["low"] < 0.270 < figures["MRR@10"]["high"]
    lines = (Path(stage["path"]) / "run.trec").read_text().splitlines()
    found = {(line.split()[0], line.split()[2]) for line in lines}
    qrels = [line.split("\t") for line in (shared_data / "insuranceqa/qrels/dev.tsv").read_text().splitlines()[1:]]
    reached = {query_id for query_id, passage_id, _ in qrels if (query_id, passage_id) in found}
    assert len(reached) / 2000 == pytest.approx(0.71, abs=0.01)


def test_storage_that_nodes_do_not_share_is_refused(ray_cluster: None, tmp_path: Path) -> None:
    class Forgetful(PartitionWorker):
        """Says it wrote a file that nobody finds: what a node's own disk looks like from another node."""

        def make(self, item: dict[str, object]) -> dict[str, object]:
            return {}

    artifact = Store(str(tmp_path)).artifact("candidates", PipelineConfig())
    items = [{"name": "dev/part-00000.parquet"}]

    with pytest.raises(StorageError, match="is not shared by all nodes: 1 files that workers wrote are not there"):
        list(make_missing(artifact, items, Forgetful, {}, actors=1, cpus=1, label="candidates"))


def test_more_threads_than_the_machine_has_are_refused(ray_cluster: None) -> None:
    most = max(node_cpus())

    assert threads_on_a_node(None, "resources.index_threads") == most
    with pytest.raises(
        ConfigError, match=rf"resources\.index_threads={most + 1} cannot be used: this machine has {most}"
    ):
        threads_on_a_node(most + 1, "resources.index_threads")
