"""What the noise filter does to the lists of the listwise phase: it removes or relabels unjudged candidates only."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

from rayrank.core.artifacts import Store
from rayrank.core.config import ListwiseConfig, NoiseConfig, PipelineConfig
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.training.noise import filtered_candidates, relabelled, training_candidates

PASSAGES = ["relevant", "irrelevant", "unjudged", "near", "low"]
SCORES = [9.0, 9.0, 9.0, 7.5, -9.0]
OF_OTHERS = [("q2", "relevant", 8.0), ("q3", "unjudged", 9.0), ("q3", "low", -9.0)]
"""Rows of another file: the second query's best positive is in the first one, and the third has no scored positive."""


def stored(noise: NoiseConfig, folder: Path) -> tuple[PipelineConfig, Store]:
    config, store = PipelineConfig(noise=noise), Store(str(folder))
    pairs = [("q", "relevant", 1), ("q", "irrelevant", 0), ("q2", "relevant", 2), ("q2", "best", 1), ("q3", "away", 1)]
    judgments = pa.table([*map(list, zip(*pairs, strict=True)), ["train"] * len(pairs)], schema=JUDGMENTS)
    first = pa.table(
        [["q"] * 5 + ["q2"] * 2, [*PASSAGES, "best", "near"], [1, 2, 3, 4, 5, 1, 2], [*SCORES, 9.0, 8.5]],
        schema=CANDIDATES,
    )
    queries, passages, scores = map(list, zip(*OF_OTHERS, strict=True))
    second = pa.table([queries, passages, [3, 1, 2], scores], schema=CANDIDATES)
    tables = {"noise": {"train/part-00000": first, "train/part-00001": second}, "corpus": {"judgments": judgments}}
    for stage, files in tables.items():
        artifact = store.artifact(stage, config)
        for name, table in files.items():
            artifact.write_table(f"{name}.parquet", table)
        store.finish(artifact, config, time.monotonic(), {}, stage)
    return config, store


def left(noise: NoiseConfig, folder: Path) -> set[tuple[str, str]]:
    config, store = stored(noise, folder)
    rows = [row for table in filtered_candidates(config, store) for row in table.to_pylist()]
    return {(row["query_id"], row["passage_id"]) for row in rows}


KNOWN = {("q", "relevant"), ("q", "irrelevant"), ("q", "low"), ("q2", "best"), ("q2", "relevant"), ("q3", "low")}


def test_a_candidate_that_was_judged_irrelevant_stays_in_its_list(tmp_path: Path) -> None:
    assert left(NoiseConfig(threshold=0.9), tmp_path) == KNOWN


@pytest.mark.parametrize(
    ("margin", "removed"),
    [
        (-0.1, set()),
        (0.0, {("q", "unjudged")}),
        (0.5, {("q", "unjudged"), ("q2", "near")}),
        (1.5, {("q", "unjudged"), ("q", "near"), ("q2", "near")}),
    ],
)
def test_a_margin_removes_unjudged_candidates_near_the_best_positive_of_their_own_query(
    margin: float, removed: set[tuple[str, str]], tmp_path: Path
) -> None:
    everything = KNOWN | {("q", "unjudged"), ("q", "near"), ("q2", "near"), ("q3", "unjudged")}
    assert left(NoiseConfig(threshold=1, margin=margin), tmp_path) == everything - removed


def test_relabelled_candidates_are_the_unjudged_ones_above_the_threshold(tmp_path: Path) -> None:
    config, store = stored(NoiseConfig(threshold=1, relabel=0.9997), tmp_path)

    found = relabelled(config, store)

    assert found is not None
    # The logit of 0.9997 is 8.1.
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        ("q", "unjudged", 1, "train"),
        ("q2", "near", 1, "train"),
        ("q3", "unjudged", 1, "train"),
    ]
    assert relabelled(*stored(NoiseConfig(), tmp_path)) is None


def test_negatives_come_from_a_window_of_ranks_by_score_in_another_run_without_noise(tmp_path: Path) -> None:
    config, store = stored(NoiseConfig(threshold=0.9), tmp_path)
    scores = {"low": 5.0, "unjudged": 4.0, "relevant": 3.0, "irrelevant": 2.0, "new": 1.0}
    run = pa.table([["q"] * 5, list(scores), [5, 4, 3, 2, 1], list(scores.values())], schema=CANDIDATES)

    def negatives(ranks: tuple[int, int] | None) -> list[str]:
        listwise = ListwiseConfig(negatives_from="bm25", negative_ranks=ranks)
        chosen = config.model_copy(update={"listwise": listwise})
        artifact = store.artifact("run:bm25", chosen)
        artifact.write_table("train/part-00000.parquet", run)
        store.finish(artifact, chosen, time.monotonic(), {}, "run:bm25")
        (table,) = training_candidates(chosen, store)
        found: list[str] = table["passage_id"].to_pylist()
        return found

    # The noise filter removes `unjudged`; a list leaves its positives out when it draws.
    assert negatives((1, 4)) == ["low", "relevant", "irrelevant"]
    assert negatives((4, 5)) == ["irrelevant", "new"]
    assert negatives(None) == ["low", "relevant", "irrelevant", "new"]
