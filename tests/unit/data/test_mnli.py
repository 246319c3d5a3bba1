"""Natural language inference as judgments: both forms of MNLI's files, labels, splits and broken rows."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rayrank.core.config import DatasetConfig
from rayrank.core.errors import DatasetError
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.judged import read_judged
from rayrank.data.problems import Problems
from rayrank.data.sources import absolute, open_source
from rayrank.data.sources.fields import passage_of_text
from rayrank.data.sources.mnli import Mnli

COLUMNS = ("gold_label", "sentence1_parse", "sentence1", "sentence2", "promptID", "pairID", "genre")
PREMISE, OTHER = 'He said "no" in 1999.', "The fish swims."


def row(label: str, premise: str, hypothesis: str, pair: str) -> dict[str, Any]:
    fields = (label, "(ROOT)", premise, hypothesis, pair[:-1], pair, "fiction")
    return dict(zip(COLUMNS, fields, strict=True))


ROWS = [
    row("entailment", PREMISE, "He refused.", "1e"),
    row("neutral", PREMISE, "He was angry.", "1n"),
    row("contradiction", PREMISE, "He agreed.", "1c"),
    row("-", PREMISE, "He spoke.", "2x"),
    row("entailment", OTHER, "An animal moves.", "3e"),
]


def write(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    if ".jsonl" in path.name:
        text = "".join(json.dumps(each) + "\n" for each in rows)
    else:
        text = "\n".join("\t".join(fields) for fields in [COLUMNS, *(each.values() for each in rows)]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def passages(source: Mnli, part_bytes: int = 1 << 20) -> list[Passage | Malformed]:
    return [found for part in source.parts(part_bytes) for found in source.passages(part)]


@pytest.mark.parametrize("name", ["multinli_1.0_train.jsonl", "multinli_1.0_train.txt", "train.tsv", "train.tsv.gz"])
@pytest.mark.parametrize("part_bytes", [64, 1 << 20])
def test_an_entailed_hypothesis_is_a_query_to_which_its_premise_is_relevant(
    tmp_path: Path, name: str, part_bytes: int
) -> None:
    source = Mnli(str(write(tmp_path / name)))

    premise, other = passage_of_text(PREMISE), passage_of_text(OTHER)
    assert passages(source, part_bytes) == [premise, premise, premise, other]
    assert next(iter(source.queries())) == Query("1e", "He refused.", "train", group=premise.passage_id)
    assert list(source.judgments()) == [
        Judgment("1e", premise.passage_id, 1, "train"),
        Judgment("1n", premise.passage_id, 0, "train"),
        Judgment("1c", premise.passage_id, 0, "train"),
        Judgment("3e", other.passage_id, 1, "train"),
    ]


def test_a_row_may_end_before_the_columns_of_single_annotators(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("gold_label\tsentence1\tsentence2\tpairID\tlabel1\tlabel2\nneutral\ta\tb\t1n\tneutral\n")
    assert list(Mnli(str(path)).judgments()) == [Judgment("1n", passage_of_text("a").passage_id, 0, "train")]


def test_pairs_without_a_gold_label_are_left_out_and_counted(tmp_path: Path) -> None:
    source = Mnli(str(write(tmp_path / "train.jsonl")))

    assert source.notes() == ["1 pairs without a gold label are left out"]
    assert "2x" not in {query.query_id for query in source.queries() if isinstance(query, Query)}


def test_splits_are_those_of_the_file_names(tmp_path: Path) -> None:
    names = ("multinli_1.0_train.jsonl", "multinli_1.0_dev_matched.txt", "pairs.jsonl")
    for number, name in enumerate(names):
        write(tmp_path / name, [row("entailment", PREMISE, "He refused.", f"{number}e")])
    source = Mnli(",".join(str(tmp_path / name) for name in names))

    assert [(query.query_id, query.split) for query in source.queries() if isinstance(query, Query)] == [
        ("0e", "train"), ("1e", "dev"), ("2e", "train"),
    ]  # fmt: skip
    assert source.notes() == [f"{tmp_path / 'pairs.jsonl'} is read as the split train: its name mentions no split"]


def test_without_a_dev_file_the_hypotheses_of_a_premise_are_held_out_together(tmp_path: Path) -> None:
    rows = [
        row("entailment", f"{number}.", f"{number} {kind}", f"{number}{kind}") for number in range(20) for kind in "en"
    ]
    source, dataset = Mnli(str(write(tmp_path / "train.jsonl", rows))), DatasetConfig(holdout=0.2)

    found = read_judged(source, dataset, Problems(dataset), {})

    splits = {query.query_id: query.split for query in found.queries}
    assert found.num_held_out == 8
    assert all(splits[f"{number}e"] == splits[f"{number}n"] for number in range(20))


@pytest.mark.parametrize(
    ("name", "broken", "reason"),
    [
        ("train.jsonl", '{"gold_label": "neutral"}', "the field 'sentence1' is missing"),
        ("train.jsonl", json.dumps(row("maybe", "a", "b", "9n")), "the gold label 'maybe' is not"),
        ("train.jsonl", "{", "not JSON"),
        ("train.txt", "neutral\ta\tb", "3 tab-separated fields, not 7 as in the first line"),
        ("train.txt", "\t".join(row("", "a", "b", "9n").values()), "the gold label '' is not"),
    ],
)
def test_a_broken_row_is_named_by_file_and_line(tmp_path: Path, name: str, broken: str, reason: str) -> None:
    path = write(tmp_path / name, ROWS[:2])
    with path.open("a") as stream:
        stream.write(broken + "\n")
    source = Mnli(str(path))

    (found,) = [each for each in passages(source, 64) if isinstance(each, Malformed)]
    assert (found.file, found.line) == (str(path), 3 if name.endswith("jsonl") else 4)
    assert reason in found.reason
    assert not any(isinstance(each, Malformed) for each in [*source.queries(), *source.judgments()])


def test_a_file_without_labels_or_without_content_is_refused(tmp_path: Path) -> None:
    for name, text in (("test.tsv", "index\tsentence1\tsentence2\tpairID\n"), ("empty.txt", "")):
        (tmp_path / name).write_text(text)
        with pytest.raises(DatasetError, match="has no column gold_label in its first line"):
            Mnli(str(tmp_path / name))
    with pytest.raises(DatasetError, match="does not exist"):
        Mnli(str(tmp_path / "none.tsv"))


def test_the_source_is_opened_by_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "train.jsonl")
    write(tmp_path / "dev.jsonl")
    monkeypatch.chdir(tmp_path)
    source = absolute("mnli:train.jsonl,dev.jsonl")
    assert source == f"mnli:{tmp_path}/train.jsonl,{tmp_path}/dev.jsonl"
    assert open_source(DatasetConfig(source=source)).files() == [f"{tmp_path}/train.jsonl", f"{tmp_path}/dev.jsonl"]
