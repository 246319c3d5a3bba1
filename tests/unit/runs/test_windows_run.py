"""Runs of kind windows score passages anew from the stored scores of their windows."""

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
from rayrank.runs.windows import WINDOWS, with_window_scores
from rayrank.stages.make import make

IN_WINDOWS = ["input.long_passages=windows", "runs.other.kind=windows", "runs.other.of=drbert"]
# The second passage answers each query. Its best window is below the first one's, its second best is above.
SCORES = {"p1": [3.0, -1.0, -2.0], "p2": [2.0, 2.5], "p3": [0.5]}


def configured(*assignments: str) -> PipelineConfig:
    return build("demo", assignments=[*IN_WINDOWS, *assignments])


def storage(
    root: Path, config: PipelineConfig, queries: int = 8, answers: tuple[str, ...] = ("p2",),
    splits: tuple[str, ...] = ("dev", "test"),
) -> Store:  # fmt: skip
    store, node = Store(str(root)), flow.run_node("drbert", config)
    corpus, ranked = store.artifact("corpus", config), store.artifact(node, config)
    rows = [(f"q{query}", passage, rank) for query in range(queries) for rank, passage in enumerate(SCORES, 1)]
    columns = dict(zip(CANDIDATES.names[:3], map(list, zip(*rows, strict=True)), strict=True))
    pairs = pa.table(columns, schema=pa.schema(list(CANDIDATES)[:3]))
    counts = np.array([len(SCORES[passage]) for passage in columns["passage_id"]])
    scores = np.array([score for passage in columns["passage_id"] for score in SCORES[passage]], np.float32)
    for split in splits:
        ranked.write_table(f"{WINDOWS}/{split}/part.parquet", with_window_scores(pairs, scores, counts))
    judged = [[f"q{query}" for query in range(queries)], [answers[query % len(answers)] for query in range(queries)]]
    judged += [[1] * queries, ["dev"] * queries]
    corpus.write_table("judgments.parquet", pa.table(dict(zip(JUDGMENTS.names, judged, strict=True)), JUDGMENTS))
    facts = {"splits": {split: {"num_judgments": queries} for split in (*splits, "train")}}
    store.finish(corpus, config, time.monotonic(), facts)
    store.finish(ranked, config, time.monotonic(), {}, node)
    return store


@pytest.mark.parametrize(
    ("score", "expected"), [("max", [3.0, 2.5, 0.5]), ("first", [3.0, 2.0, 0.5]), ("mean", [0.0, 2.25, 0.5])]
)
def test_the_best_the_first_or_the_mean_of_the_windows(tmp_path: Path, score: str, expected: list[float]) -> None:
    config = configured(f"runs.other.score={score}")

    made = make("other", config, storage(tmp_path, config))

    rows = made.read_table(made.names("test")[0])
    assert rows.schema.equals(CANDIDATES)
    assert rows["score"].to_pylist()[:3] == expected


def test_the_weights_of_the_best_windows_are_those_that_are_best_on_dev(tmp_path: Path) -> None:
    config = configured("runs.other.windows=2")

    made = make("other", config, storage(tmp_path, config))

    first, second = made.manifest["weights"]
    assert first + second == pytest.approx(1.0)
    for split in ("dev", "test"):
        scores = made.read_table(made.names(split)[0])["score"].to_pylist()[:3]
        assert np.argmax(scores) == 1, split  # with the best window alone, the first passage would win
    assert scores == pytest.approx([3 * first - second, 2.5 * first + 2 * second, 0.5])
    (finding,) = made.manifest["findings"]
    assert finding.startswith(f"other: the weights of the best windows are {first:.2f}, {second:.2f}, the best on dev")


def test_each_half_of_dev_is_scored_with_the_weights_of_the_other_half(tmp_path: Path) -> None:
    config = configured("runs.other.windows=2")
    # In every second query the first passage answers, which needs all weight on the best window.
    store = storage(tmp_path, config, answers=("p1", "p2"))

    made = make("other", config, store)

    rows = made.read_table(made.names("dev")[0]).to_pylist()
    best = [max(rows[start : start + 3], key=lambda row: row["score"])["passage_id"] for start in range(0, 24, 3)]
    assert best == ["p2", "p1"] * 4


def test_without_dev_the_best_window_counts_and_the_job_says_so(tmp_path: Path) -> None:
    config = configured("runs.other.windows=2")

    made = make("other", config, storage(tmp_path, config, splits=("test",)))

    assert made.read_table(made.names("test")[0])["score"].to_pylist()[:3] == [3.0, 2.5, 0.5]
    assert made.manifest["findings"] == [
        "other: the best window alone, since no dev candidates exist to tune weights on"
    ]


@pytest.mark.parametrize("wrong", ["input.long_passages=cut", "runs.other.of=candidates", "runs.other.of=sdnet"])
def test_a_run_without_windows_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="A run of kind windows cannot be made of"):
        flow.key("other", configured("runs.sdnet.kind=rerank", "runs.sdnet.model=sdnet", wrong))
