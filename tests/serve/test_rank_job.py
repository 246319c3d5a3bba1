"""jobs.rank writes what POST /search would answer."""

import asyncio
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from jobs.rank import queries_of
from rayrank.core.errors import ConfigError
from rayrank.data.run_files import read_trec
from serve.config import SearchConfig, read
from serve.first_stages import corpus_of, open_run
from serve.model import ServedModel
from serve.records import Ask
from serve.search import RunSearch

SETTINGS = ["dataset.demo.subjects=20", "candidates.depth=10", "candidates.first_stage=dense"]


def command(storage: Path, model: Path, *more: str) -> list[str]:
    chosen = [part for setting in SETTINGS for part in ("--set", setting)]
    return [sys.executable, "-m", "jobs.rank", "--storage", str(storage), "--model", str(model), *chosen, *more]


@pytest.mark.slow
def test_new_queries_get_the_passages_and_the_order_of_the_endpoint(
    run_folders: dict[str, Path], model_folder: Path, tmp_path: Path
) -> None:
    texts = {"a": "where is the lighthouse", "b": "how tall is the tower"}
    (tmp_path / "new.tsv").write_text("".join(f"{key}\t{text}\n" for key, text in texts.items()))
    files = ["--queries", str(tmp_path / "new.tsv"), "--output", str(tmp_path / "new.trec")]

    order = command(run_folders["dense"].parents[1], model_folder, *files)
    done = subprocess.run(order, text=True, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "new.trec: 2 queries, 20 passages" in done.stdout
    with (tmp_path / "new.trec").open("rb") as stream:
        rows = read_trec(stream, "new.trec").to_pylist()
    search = RunSearch(SearchConfig(run=str(run_folders["dense"])))
    model = ServedModel(read({"model": str(model_folder)}))
    for key, text in texts.items():
        hits = search(text, 10)
        ask = Ask(text, [hit.text for hit in hits], first_stage_scores=[hit.score for hit in hits])
        answer = asyncio.run(model.rerank(ask))
        found = [row for row in rows if row["query_id"] == key]
        assert [row["passage_id"] for row in found] == [hits[place].passage_id for place in answer.order]
        assert [row["score"] for row in found] == sorted((row["score"] for row in found), reverse=True)


def test_a_split_of_the_dataset_is_ranked_whether_it_is_judged_or_not(run_folders: dict[str, Path]) -> None:
    run = open_run(str(run_folders["dense"]))
    queries = corpus_of(run).read_table("queries.parquet").to_pylist()
    expected = {row["query_id"]: row["text"] for row in queries if row["split"] == "test"}
    assert queries_of(SimpleNamespace(queries=None, split="test"), run) == expected
    with pytest.raises(ConfigError, match="--split eval does not exist: choose one of dev, test, train"):
        queries_of(SimpleNamespace(queries=None, split="eval"), run)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--output", "new.trec"], "Name the queries to rank: a file with --queries, or a split"),
        (["--split", "test", "--output", "/nowhere/new.trec"], "--output /nowhere/new.trec cannot be written"),
    ],
)
def test_options_that_cannot_be_used_are_one_sentence(more: list[str], told: str, tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path, tmp_path, *more), text=True, capture_output=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"error: {told}")
    assert "Traceback" not in done.stderr
