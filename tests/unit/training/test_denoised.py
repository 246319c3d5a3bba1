"""What the noise filter does to the lists of the listwise phase: it removes or relabels unjudged candidates only."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

from rayrank.core.artifacts import Store
from rayrank.core.config import MINILM, InputConfig, ListwiseConfig, NoiseConfig, PipelineConfig
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.text.pieces import load_tokenizer
from rayrank.training.data import inputs_of
from rayrank.training.noise import filtered_candidates, relabelled, training_candidates

PASSAGES = ["relevant", "irrelevant", "unjudged", "near", "low"]
SCORES = [9.0, 9.0, 9.0, 7.5, -9.0]
OF_OTHERS = [("q2", "relevant", 8.0), ("q3", "unjudged", 9.0), ("q3", "low", -9.0)]
"""Rows of another file: the second query's best positive is in the first one, and the third has no scored positive."""


def stored(noise: NoiseConfig, folder: Path) -> tuple[PipelineConfig, Store]:
    config, store = PipelineConfig(noise=noise, input=InputConfig(query_type=False)), Store(str(folder))
    pairs = [("q", "relevant", 1), ("q", "irrelevant", 0), ("q2", "relevant", 2), ("q2", "best", 1), ("q3", "away", 1)]
    judgments = pa.table([*map(list, zip(*pairs, strict=True)), ["train"] * len(pairs)], schema=JUDGMENTS)
    first = pa.table(
        [["q"] * 5 + ["q2"] * 2, [*PASSAGES, "best", "near"], [1, 2, 3, 4, 5, 1, 2], [*SCORES, 9.0, 8.5]],
        schema=CANDIDATES,
    )
    queries, passages, scores = map(list, zip(*OF_OTHERS, strict=True))
    second = pa.table([queries, passages, [3, 1, 2], scores], schema=CANDIDATES)
    texts = {
        "queries": ("query_id", ["q", "q2", "q3"]),
        "passages/part-00000": ("passage_id", [*PASSAGES, "best", "away"]),
    }
    pieces = {name: pa.table({key: ids, "piece_ids": [[5, 6]] * len(ids)}) for name, (key, ids) in texts.items()}
    tables = {
        "noise": {"train/part-00000": first, "train/part-00001": second},
        "corpus": {"judgments": judgments, **pieces},
    }
    for stage, files in tables.items():
        artifact = store.artifact(stage, config)
        for name, table in files.items():
            artifact.write_table(f"{name}.parquet", table)
        store.finish(artifact, config, time.monotonic(), {"shards": ["passages/part-00000.parquet"]}, stage)
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


def test_without_scored_positives_or_noise_every_candidate_stays(tmp_path: Path) -> None:
    listwise = ListwiseConfig(negative_ranks=(1, 9))
    config = PipelineConfig(noise=NoiseConfig(threshold=1, margin=1), listwise=listwise)
    store, judgments = Store(str(tmp_path)), pa.table([["q"], ["away"], [1], ["train"]], schema=JUDGMENTS)
    scored = pa.table([["q"] * 2, ["near", "low"], [1, 2], [2.0, 1.0]], schema=CANDIDATES)
    for node, name, table in (
        ("corpus", "judgments", judgments),
        ("noise", "train/part-00000", scored),
        ("candidates", "train/part-00000", scored),
    ):
        artifact = store.artifact(node, config)
        artifact.write_table(f"{name}.parquet", table)
        store.finish(artifact, config, time.monotonic(), {}, node)

    (left,) = training_candidates(config, store)
    assert left["passage_id"].to_pylist() == ["near", "low"]


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


def test_lists_have_relabelled_candidates_as_positives_and_no_longer_as_negatives(tmp_path: Path) -> None:
    config, store = stored(NoiseConfig(threshold=1, relabel=0.9997), tmp_path)
    load_tokenizer(MINILM).save_pretrained(store.require("corpus", config).local("tokenizer"))

    candidates = {"train": training_candidates(config, store)}
    inputs = inputs_of(config, store, candidates, added=relabelled(config, store))

    split, names = inputs.data.splits["train"], [*PASSAGES, "best", "away"]
    for index, (positives, negatives) in enumerate(
        [
            ({"relevant", "unjudged"}, {"irrelevant", "near", "low"}),
            ({"relevant", "best", "near"}, set()),
            ({"away", "unjudged"}, {"low"}),
        ]
    ):
        assert {names[row] for row in split.positives[index]} == positives
        assert {names[row] for row in split.negatives(index)} == negatives
    assert split.grades
    assert dict(zip(split.positives[1].tolist(), split.grades[1].tolist(), strict=True)) == {0: 2, 5: 1, 3: 1}
    assert len(inputs.data.judgments) == 5  # what the dev metric reads has no relabelled pairs


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
