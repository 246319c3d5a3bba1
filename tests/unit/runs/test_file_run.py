"""Runs read from files: order and scores are kept, rows go to their splits, and what is wrong is one sentence."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Artifact
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import DatasetError
from rayrank.core.overrides import build
from rayrank.data.digests import digested, varied
from rayrank.jobs.run_pipeline import whole
from rayrank.runs import file as file_run
from rayrank.stages.make import make
from tests.unit.runs.first_stages import read, storage

SPLITS = {"train": ["t0", "t1"], "dev": ["d0", "d1"], "unjudged": ["u0"]}
TREC = """d1 Q0 p5 1 2.5 mine
d0 Q0 p1 1 7.0 mine
d0 Q0 p3 2 7.0 mine
d0 Q0 p2 3 6.5 mine
t0 Q0 p4 1 -3.0 mine
"""


def configured(path: Path | str, *settings: str) -> PipelineConfig:
    return digested(build("demo", assignments=["runs.mine.kind=file", f"runs.mine.paths={path}", *settings]))


def made(root: Path, content: str, *settings: str) -> Artifact:
    path = root / "run.trec"
    path.write_text(content)
    config = configured(path, *settings)
    return make("mine", config, storage(root / "storage", config, SPLITS, t0="p4", d0="p1", d1="p5"))


def test_scores_and_order_are_kept_and_rows_go_to_their_splits(tmp_path: Path) -> None:
    run = made(tmp_path, TREC)

    assert read(run, "dev") == {"d0": {"p1": 7.0, "p3": 7.0, "p2": 6.5}, "d1": {"p5": 2.5}}
    assert list(read(run, "dev")["d0"]) == ["p1", "p3", "p2"]
    assert read(run, "train") == {"t0": {"p4": -3.0}}
    assert run.names("unjudged") == []
    manifest = run.manifest
    assert [manifest[name] for name in ("num_queries", "num_candidates", "num_without_results")] == [3, 5, 0]
    assert (manifest["findings"], manifest["problems"]) == ([], {})


def test_the_best_passages_are_kept_up_to_the_depth(tmp_path: Path) -> None:
    for number, setting in enumerate(("candidates.depth=2", "runs.mine.depth=2")):
        (tmp_path / str(number)).mkdir()
        run = made(tmp_path / str(number), TREC, setting)
        assert list(read(run, "dev")["d0"]) == ["p1", "p3"]


def test_training_queries_may_keep_fewer_passages(tmp_path: Path) -> None:
    run = made(tmp_path, TREC + "t0 Q0 p1 2 -4.0 mine\n", "candidates.train_depth=1")

    assert list(read(run, "train")["t0"]) == ["p4"]
    assert list(read(run, "dev")["d0"]) == ["p1", "p3", "p2"]


def test_scores_order_passages_and_ranks_those_of_equal_score(tmp_path: Path) -> None:
    content = "d0 Q0 p1 1 1.0 x\nd0 Q0 p2 3 5.0 x\nd0 Q0 p3 2 5.0 x\nd1 Q0 p1 1 3.0 x\nd1 Q0 p2 2 2.0 x\n"

    run = made(tmp_path, content)

    assert list(read(run, "dev")["d0"]) == ["p3", "p2", "p1"]
    assert run.manifest["findings"] == [
        f"mine: in 1 query of {tmp_path}/run.trec ranks contradict scores; scores count, as in trec_eval",
    ]


def test_ranks_alone_become_scores_of_the_same_order(tmp_path: Path) -> None:
    run = made(tmp_path, "d0\tp2\t2\nd0\tp1\t1\nd1\tp5\t1\n")

    assert read(run, "dev") == {"d0": {"p1": -1.0, "p2": -2.0}, "d1": {"p5": -1.0}}


def test_shuffled_candidates_are_kept_whole_whatever_the_depth(tmp_path: Path) -> None:
    rows = "".join(f"{query}\tp{number}\ttext\tpassage\n" for number in range(30) for query in ("d0", "d1"))

    run = made(tmp_path, rows, "runs.mine.depth=3")

    assert {query: list(scores) for query, scores in read(run, "dev").items()} == {
        query: [f"p{number}" for number in range(30)] for query in ("d0", "d1")
    }
    assert list(read(run, "dev")["d0"].values())[:2] == [-1.0, -2.0]
    assert "has neither ranks nor scores, so all its passages are kept" in run.manifest["findings"][0]


def test_queries_without_rows_are_counted_and_named(tmp_path: Path) -> None:
    run = made(tmp_path, "d0 Q0 p1 1 2.0 x\n")

    # t1 has no judgment, so nothing needs its candidates; and the file has no rows of train at all.
    assert run.manifest["num_without_results"] == 1
    assert run.manifest["findings"] == ["mine: 1 of 2 dev queries have no rows, such as d1"]


def test_unknown_ids_are_named_or_left_out(tmp_path: Path) -> None:
    content = f"{TREC}q9 Q0 p1 1 2.0 x\nd1 Q0 p777 2 2.0 x\n"

    with pytest.raises(DatasetError) as caught:
        made(tmp_path, content)
    assert str(caught.value) == (
        f"The run mine has 1 row of an unknown query (q9 in {tmp_path}/run.trec line 6); fix the source, or leave it "
        f"out with --set dataset.on_unknown=skip."
    )

    run = made(tmp_path, content, "dataset.on_unknown=skip")
    assert run.manifest["num_candidates"] == 5
    problems = run.manifest["problems"]
    assert {kind: entry["count"] for kind, entry in problems.items()} == {
        "unknown_run_queries": 1,
        "unknown_run_passages": 1,
    }
    assert problems["unknown_run_passages"]["examples"] == [f"p777 in {tmp_path}/run.trec line 7"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (TREC + "\nd0 Q0 p1 4 0.5 x\n", "run.trec cannot be used: line 7: the passage 'p1' occurs twice for the query"),
        (TREC + "d0 p1\n", "run.trec cannot be used: line 6: 2 fields, not the 6 of"),
        ("u0 Q0 p1 1 2.0 x\n", "The run mine has no rows of this dataset's queries: change runs.mine.paths"),
    ],
)
def test_rows_that_cannot_be_used_are_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    with pytest.raises(DatasetError) as caught:
        made(tmp_path, content)
    assert sentence in str(caught.value)


def test_a_missing_file_is_reported_when_a_job_starts(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"no\.trec does not exist: change `paths` of the run that reads it"):
        configured(tmp_path / "no.trec")


def test_several_files_make_one_run_but_a_query_is_in_one_of_them(tmp_path: Path) -> None:
    lines = TREC.splitlines(keepends=True)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.trec").write_text("".join(lines[1:]))
    pq.write_table(
        pa.table({"query_id": ["d1"], "passage_id": ["p5"], "score": [2.5]}), tmp_path / "runs" / "b.parquet"
    )
    config = configured(tmp_path / "runs")
    store = storage(tmp_path / "storage", config, SPLITS, t0="p4", d0="p1", d1="p5")

    assert read(make("mine", config, store), "dev") == {
        "d0": {"p1": 7.0, "p3": 7.0, "p2": 6.5},
        "d1": {"p5": 2.5},
    }

    (tmp_path / "runs" / "c.trec").write_text("t0 Q0 p1 1 3.0 x\n")
    config = configured(tmp_path / "runs")
    with pytest.raises(DatasetError, match=r"c\.trec cannot be used: line 1: the query 't0' is in .*a\.trec, too\.$"):
        make("mine", config, store)


def test_large_files_are_stored_in_parts_of_whole_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_run, "ROWS_PER_FILE", 4)
    rows = "".join(f"{query} Q0 p{rank} {rank} {9 - rank} x\n" for query in ("d0", "d1") for rank in range(1, 7))

    run = made(tmp_path, rows)

    assert len(run.names("dev")) == 2
    assert [len(scores) for scores in read(run, "dev").values()] == [6, 6]


def test_the_key_depends_on_the_content_of_the_files_and_not_on_their_place(tmp_path: Path) -> None:
    one, copy, other = (tmp_path / name for name in ("one", "copy", "other"))
    for path, content in ((one, TREC), (copy, TREC), (other, TREC.replace("7.0", "8.0"))):
        path.write_text(content)

    first, same, different = (configured(path) for path in (one, copy, other))

    assert flow.key("mine", first) == flow.key("mine", same) != flow.key("mine", different)
    # A row of an ablation or a trial of a sweep may name another file.
    assert flow.key("mine", varied(first, {"runs.mine.paths": str(other)})) == flow.key("mine", different)
    assert flow.key("mine", varied(first, {"training.seed": 7})) == flow.key("mine", first)


def test_paths_are_absolute_whatever_the_folder_of_a_worker_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    config = build("demo", assignments=["runs.mine={kind: file, paths: [a.trec, s3://bucket/b.trec]}"])

    assert config.runs["mine"].paths == (f"{tmp_path}/a.trec", "s3://bucket/b.trec")  # type: ignore[attr-defined]


def test_a_file_that_only_a_combination_reads_is_checked_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_text(TREC)
    config = configured(tmp_path / "run.trec", "runs.late={kind: rrf, of: [drbert, mine]}")

    nodes = [node for node, _ in whole(config)]

    assert nodes.index("run:mine") < nodes.index("pretrain")
