"""Which first stages and rankers are compared, on a storage whose artifacts are written by hand."""

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import build
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.jobs.first_stages import chosen, run
from rayrank.reports.first_stages import Cost
from rayrank.stages.first_stages import cost, measure, prepare, with_digests

RUNS = {
    "bm25": {"q1": ["a", "b"], "q2": ["a", "c"]},
    "steep": {"q1": ["b", "a"], "q2": ["d", "c"]},
    "both": {"q1": ["a", "b"], "q2": ["d", "c", "a"]},
    "drbert": {"q1": ["a", "b"], "q2": ["a", "c"]},
}
RELEVANT = {"q1": "a", "q2": "d"}
COUNTS = {"train": 5, "dev": 2, "unjudged": 0}
SETTINGS = [
    "runs.steep={kind: search, k1: 2.0}",
    "runs.both={kind: rrf, of: [bm25, steep]}",
    "evaluate.resamples=100",
]


def finish(store: Store, config: PipelineConfig, node: str, facts: dict[str, Any], ago: float = 0.0) -> Artifact:
    return store.finish(store.artifact(node, config), config, time.monotonic() - ago, facts, node)


def storage(root: Path, config: PipelineConfig, runs: list[str]) -> Store:
    """Return a storage with a corpus, an index of 300 bytes, and runs of the split dev."""
    store = Store(str(root))
    judged = [(query, passage, 1, "dev") for query, passage in RELEVANT.items()]
    table = pa.table([list(column) for column in zip(*judged, strict=True)], schema=JUDGMENTS)
    store.artifact("corpus", config).write_table("judgments.parquet", table)
    finish(store, config, "corpus", {"splits": {name: {"num_judgments": n} for name, n in COUNTS.items()}})
    with store.artifact("index", config).create("lucene-1/segment") as stream:
        stream.write(bytes(300))
    with store.artifact("index", config).create("lucene-of-a-killed-job/segment") as stream:
        stream.write(bytes(5000))
    finish(store, config, "index", {"lucene": "lucene-1"})
    for name in runs:
        rows = [(q, p, rank, -float(rank)) for q, found in RUNS[name].items() for rank, p in enumerate(found, 1)]
        table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=CANDIDATES)
        node = flow.run_node(name, config)
        store.artifact(node, config).write_table("dev/part-0.parquet", table)
        finish(store, config, node, {"num_queries": 100}, ago=2.0)
    return store


def test_without_names_the_configured_first_stage_and_those_on_storage_are_compared(tmp_path: Path) -> None:
    config = build("demo", assignments=SETTINGS)
    compared = prepare(config, storage(tmp_path, config, ["bm25", "both", "drbert"]))

    assert (compared.names, compared.reference, compared.splits) == (["bm25", "both"], "bm25", ["dev"])
    assert compared.rankers == [("bm25", "drbert")]


def test_the_first_stages_that_the_configured_one_reads_are_compared(tmp_path: Path) -> None:
    config = build("demo", assignments=[*SETTINGS, "candidates.first_stage=both"])
    compared = prepare(config, storage(tmp_path, config, ["bm25", "steep", "both"]))

    assert (compared.names, compared.reference) == (["bm25", "steep", "both"], "both")


def test_a_run_over_the_candidates_of_two_first_stages_is_not_a_ranker_of_one(tmp_path: Path) -> None:
    config = build("demo", assignments=[*SETTINGS, "runs.fused.of=[drbert, steep]"])
    store = storage(tmp_path, config, ["bm25", "steep", "drbert"])
    finish(store, config, "run:fused", {})

    assert prepare(config, store).rankers == [("bm25", "drbert")]


def test_named_first_stages_are_compared_with_the_first_if_the_configured_one_is_not_named(tmp_path: Path) -> None:
    config = build("demo", assignments=SETTINGS)
    compared = prepare(config, storage(tmp_path, config, ["bm25", "steep", "both"]), ["steep", "both"])

    assert (compared.names, compared.reference, compared.rankers) == (["steep", "both"], "steep", [])


def test_a_combination_costs_as_much_as_all_that_it_reads(tmp_path: Path) -> None:
    config = build("demo", assignments=SETTINGS)
    store = storage(tmp_path, config, ["bm25", "steep", "both"])

    alone, combined = (cost(name, config, store) for name in ("bm25", "both"))

    assert alone.queries_per_second == pytest.approx(100 / 2, rel=0.1)
    assert combined.queries_per_second == pytest.approx(100 / 6, rel=0.1)
    # Both search the same index; the folder of a job that was killed does not count.
    assert alone.num_bytes == combined.num_bytes == 300


def test_the_cost_of_another_systems_search_is_not_known(tmp_path: Path) -> None:
    file = tmp_path / "other.trec"
    file.write_text("q1 Q0 a 1 2.0 other\n")
    config = build("demo", assignments=[f"runs.other={{kind: file, paths: '{file}'}}"])
    store = storage(tmp_path / "storage", config, [])
    config = with_digests(["other"], config)
    finish(store, config, "run:other", {"num_queries": 100})

    assert cost("other", config, store) == Cost(None, None)


def test_candidates_of_the_dataset_are_digested_only_if_such_a_run_is_on_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = build("demo", assignments=SETTINGS)
    store = storage(tmp_path, config, ["bm25"])
    monkeypatch.setattr("rayrank.runs.provided.candidates_digest", lambda source: "digest")

    assert prepare(config, store).names == ["bm25"]
    finish(store, config, "run:provided", {})
    assert prepare(config, store).names == ["bm25"]
    finish(store, with_digests(["provided"], config), "run:provided", {})
    compared = prepare(config, store)

    assert compared.names == ["bm25", "provided"]
    assert measure(compared, store).splits[0].missing == ["provided"]


def test_runs_of_the_same_title_are_told_apart_by_name(tmp_path: Path) -> None:
    config = build("demo", assignments=[*SETTINGS, "runs.both.title=BM25"])
    store = storage(tmp_path, config, ["bm25", "both"])

    report = measure(prepare(config, store), store)

    assert [stage.title for stage in report.splits[0].first_stages] == ["BM25 (bm25)", "BM25 (both)"]


def test_the_job_writes_the_report_and_its_plots(tmp_path: Path) -> None:
    config = build("demo", assignments=SETTINGS)
    store = storage(tmp_path, config, ["bm25", "steep", "both", "drbert"])

    facts = run(Namespace(run=["bm25", "steep", "candidates"], split=""), config, store)

    names = {path.name for path in Path(facts["folder"]).iterdir()}
    assert names == {"report.json", "report.md", "recall-dev.png", "ranking-dev.png"}
    (part,) = facts["report"]["splits"]
    assert [(stage["title"], stage["mrr"]["mean"]) for stage in part["first_stages"]] == [
        ("BM25", 1 / 2),
        ("steep", (1 / 2 + 1) / 2),
    ]
    assert [row["ranked_by"] for row in part["ranked"]] == ["BM25", "DR-BERT", "steep"]
    assert "DR-BERT" in facts["findings"][0]


def test_a_split_without_held_out_judgments_is_refused(tmp_path: Path) -> None:
    config = build("demo", assignments=SETTINGS)
    store = storage(tmp_path, config, ["bm25"])
    for split in ("train", "unjudged", "none"):
        with pytest.raises(
            ConfigError, match=f"^--split {split} has no judgments that are held out: choose one of dev"
        ):
            prepare(config, store, split=split)


def test_a_run_that_is_unknown_or_no_first_stage_is_refused_with_the_first_stages() -> None:
    config = build("demo", assignments=[])
    with pytest.raises(ConfigError, match=r"^--run lunch is not a run of the configuration: choose one of bm25, rm3, "):
        chosen(Namespace(run=["lunch"]), config)
    with pytest.raises(
        ConfigError, match=r"^--run drbert is not a first stage, it ranks what another run found: choose"
    ):
        chosen(Namespace(run=["drbert"]), config)
