"""jobs.rank writes what POST /search would answer."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from ray import serve

from rayrank.core.errors import ConfigError
from rayrank.data.run_files import read_trec
from rayrank.jobs.rank import queries_of
from rayrank.serve.app import build
from rayrank.serve.first_stages import corpus_of, open_run
from rayrank.serve.order import final_scores

SETTINGS = ["dataset.demo.subjects=20", "candidates.depth=10", "candidates.first_stage=dense"]


def command(storage: Path, model: Path, *more: str) -> list[str]:
    chosen = [part for setting in SETTINGS for part in ("--set", setting)]
    return [sys.executable, "-m", "jobs.rank", "--storage", str(storage), "--model", str(model), *chosen, *more]


@pytest.mark.slow
def test_new_queries_get_the_passages_and_the_order_of_the_endpoint(
    run_folders: dict[str, Path], model_folder: Path, serving: str, tmp_path: Path
) -> None:
    texts = {"a": "where is the lighthouse", "b": "how tall is the tower"}
    (tmp_path / "new.tsv").write_text("".join(f"{key}\t{text}\n" for key, text in texts.items()))
    storage, output = run_folders["dense"].parents[1], tmp_path / "new.run"
    order = command(storage, model_folder, "--queries", str(tmp_path / "new.tsv"), "--output", str(output))

    done = subprocess.run(order, text=True, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "new.run: 2 queries, 20 passages" in done.stdout
    with output.open("rb") as stream:
        rows = read_trec(stream, "new.run").to_pylist()
    searched = {"model": str(model_folder), "search": {"run": str(run_folders["dense"]), "depth": 10}}
    serve.run(build(searched), name="ranked", route_prefix="/ranked")
    weight = httpx.get(f"{serving}/ranked/info", timeout=60).json()["first_stage_weight"]
    for key, text in texts.items():
        asked = {"query": text, "raw_scores": True}
        answer = httpx.post(f"{serving}/ranked/search", json=asked, timeout=60).raise_for_status().json()["results"]
        found = [row for row in rows if row["query_id"] == key]
        assert [row["passage_id"] for row in found] == [result["id"] for result in answer]
        logits, first = ([result[name] for result in answer] for name in ("relevance_score", "first_stage_score"))
        scores = list(final_scores(logits, first, weight).values())
        assert np.allclose([row["score"] for row in found], scores, atol=1e-4)
    serve.delete("ranked")

    parts = {path: path.stat().st_mtime_ns for path in storage.glob("ranked/*/run/*.parquet")}
    again = subprocess.run([*order, "--format", "msmarco"], text=True, capture_output=True, check=False)
    assert again.returncode == 0, again.stderr
    assert {path: path.stat().st_mtime_ns for path in storage.glob("ranked/*/run/*.parquet")} == parts
    expected = [f"{row['query_id']}\t{row['passage_id']}\t{row['rank']}" for row in rows]
    assert output.read_text().splitlines() == expected


def test_the_queries_of_a_split_are_found_by_its_name(run_folders: dict[str, Path]) -> None:
    run = open_run(str(run_folders["dense"]))
    queries = corpus_of(run).read_table("queries.parquet").to_pylist()
    expected = {row["query_id"]: row["text"] for row in queries if row["split"] == "test"}
    assert queries_of(SimpleNamespace(queries=None, split="test"), run) == expected
    with pytest.raises(ConfigError, match="--split eval does not exist: choose one of dev, test, train"):
        queries_of(SimpleNamespace(queries=None, split="eval"), run)
