import random
from pathlib import Path

import pyarrow as pa
import pytest

from rayrank.core.artifacts import Artifact
from rayrank.core.records import PASSAGES
from rayrank.data import shards
from rayrank.data.shards import copy_without, present_ids, repeated_rows


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return Artifact(str(tmp_path), "corpus", "key")


def write(artifact: Artifact, corpus: list[list[str]]) -> list[str]:
    names = [f"passages/part-{number:05d}.parquet" for number in range(len(corpus))]
    for name, passage_ids in zip(names, corpus, strict=True):
        texts = [f"{name} {row}" for row in range(len(passage_ids))]
        pieces = [list(range(row % 5)) for row in range(len(passage_ids))]
        artifact.write_table(name, pa.table([passage_ids, texts, pieces], schema=PASSAGES))
    return names


def looked_up(names: list[str], corpus: list[list[str]]) -> dict[str, list[int]]:
    """What repeated_rows is to return, by a plain dictionary."""
    seen: dict[str, str] = {}
    repeated: dict[str, list[int]] = {}
    for name, passage_ids in zip(names, corpus, strict=True):
        for row, passage_id in enumerate(passage_ids):
            if seen.setdefault(passage_id, f"{name} {row}") != f"{name} {row}":
                repeated.setdefault(name, []).append(row)
    return repeated


def in_order(repeated: dict[str, list[int]]) -> dict[str, list[int]]:
    return {name: sorted(rows) for name, rows in repeated.items() if rows}


@pytest.mark.parametrize("at_once", [1 << 25, 100, 7])
@pytest.mark.parametrize("num_ids", [3, 150, 10_000])
@pytest.mark.parametrize("seed", [1, 2])
def test_repeated_rows_are_those_a_dictionary_finds(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch, at_once: int, num_ids: int, seed: int
) -> None:
    monkeypatch.setattr(shards, "HASHES_AT_ONCE", at_once)
    draw = random.Random(seed)
    corpus = [[f"é{draw.randrange(num_ids)}" for _ in range(draw.randrange(80))] for _ in range(5)]
    names = write(artifact, corpus)
    expected = looked_up(names, corpus)
    assert in_order(repeated_rows(artifact, names, sum(map(len, corpus)))) == expected
    assert expected or num_ids == 10_000


def test_ids_that_do_not_repeat_are_not_reported(artifact: Artifact) -> None:
    names = write(artifact, [["a", "A", " a"], ["a ", "á", "", "0", "00"]])
    assert in_order(repeated_rows(artifact, names, 8)) == {}


def test_a_corpus_without_rows_has_no_repeats(artifact: Artifact) -> None:
    assert in_order(repeated_rows(artifact, write(artifact, [[], []]), 0)) == {}
    assert in_order(repeated_rows(artifact, write(artifact, [[], ["a"], [], ["a"]]), 2)) == {
        "passages/part-00003.parquet": [0]
    }


@pytest.mark.parametrize("rows", [[0], [2, 5, 9], [9, 0, 4], [], list(range(10))])
def test_a_copy_without_some_rows_keeps_the_others_and_does_not_change_its_source(
    artifact: Artifact, rows: list[int]
) -> None:
    (name,) = write(artifact, [[f"p{i}" for i in range(10)]])
    before = artifact.read_table(name)
    for _ in range(2):  # done twice, by two jobs or after a restart, it comes to the same
        copy_without(artifact, name, "unique/part.parquet", rows)
    kept = [row for row in range(10) if row not in rows]
    after = artifact.read_table("unique/part.parquet")
    assert after.replace_schema_metadata().equals(before.take(pa.array(kept, pa.int64())).combine_chunks())
    assert artifact.num_rows("unique/part.parquet") == len(kept)
    assert artifact.read_table(name).equals(before)


def test_rows_of_several_batches_are_left_out_of_a_copy(artifact: Artifact) -> None:
    passage_ids = [f"p{i}" for i in range(150_000)]
    (name,) = write(artifact, [passage_ids])
    rows = [0, 65_535, 65_536, 140_000, 149_999]
    copy_without(artifact, name, "unique/part.parquet", rows)
    kept = artifact.read_table("unique/part.parquet", ["passage_id"])["passage_id"].to_pylist()
    assert kept == [passage_id for row, passage_id in enumerate(passage_ids) if row not in set(rows)]


def test_repeated_ids_in_later_batches_have_their_row_numbers(artifact: Artifact) -> None:
    passage_ids = [f"p{i}" for i in range(70_000)]
    passage_ids[69_000] = "p5"
    assert in_order(repeated_rows(artifact, write(artifact, [passage_ids]), 70_000)) == {
        "passages/part-00000.parquet": [69_000]
    }


def test_present_ids_are_the_wanted_ones_that_some_shard_has(artifact: Artifact) -> None:
    names = write(artifact, [["a", "b"], [], ["c", "a"]])
    assert present_ids(artifact, names, {"a", "c", "x", ""}) == {"a", "c"}
    assert present_ids(artifact, names, set()) == set()
    assert present_ids(artifact, [], {"a"}) == set()
