"""Files of labelled questions: both formats, both encodings, and a one-sentence error for unreadable files."""

import gzip
from collections import Counter
from pathlib import Path

import pytest

from rayrank.core.errors import ConfigError
from rayrank.data.labelled_questions import Labelled, labels_digest, read_labelled, type_names


def test_trec_labels_become_the_names_of_our_types(tmp_path: Path) -> None:
    file = tmp_path / "some.label"
    file.write_text("NUM:dist How far is it to Aspen ?\n\nHUM:ind Who was Galileo ?\r\nABBR:exp What is R.S.V.P. ?\n")

    assert read_labelled(str(file), "typer.labels") == [
        Labelled("numeric", "How far is it to Aspen ?"),
        Labelled("person", "Who was Galileo ?"),
        Labelled("abbreviation", "What is R.S.V.P. ?"),
    ]


def test_types_before_a_tab_may_be_any_text_and_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "medical.tsv"
    file.write_text("side effects\tWhat does aspirin do: to me ?\nDESC\tWhat is an atom ?\nSymptoms\twhy: a rash\n")

    assert read_labelled(str(file), "typer.labels") == [
        Labelled("side effects", "What does aspirin do: to me ?"),
        Labelled("description", "What is an atom ?"),
        Labelled("Symptoms", "why: a rash"),
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "utf-8-sig"])
def test_letters_beyond_ascii_are_decoded_from_both_encodings(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "some.label"
    file.write_bytes("LOC:city Where is Besançon ?\nHUM:ind Who is François ?\n".encode(encoding))

    assert read_labelled(str(file), "typer.labels") == [
        Labelled("location", "Where is Besançon ?"),
        Labelled("person", "Who is François ?"),
    ]


def test_the_digest_does_not_depend_on_compression(tmp_path: Path) -> None:
    content = b"LOC:city Where is Ulm ?\n"
    (tmp_path / "a.label").write_bytes(content)
    (tmp_path / "b.label.gz").write_bytes(gzip.compress(content))
    (tmp_path / "c.label").write_bytes(content + b"HUM:ind Who ?\n")
    digests = [labels_digest(str(tmp_path / name), "typer.labels") for name in ("a.label", "b.label.gz", "c.label")]

    assert digests[0] == digests[1] != digests[2]
    assert read_labelled(str(tmp_path / "b.label.gz"), "x") == [Labelled("location", "Where is Ulm ?")]


def test_the_official_trec_file_is_read_completely(shared_data: Path) -> None:
    rows = read_labelled(str(shared_data / "trec-question-types" / "train_5500.label.gz"), "typer.labels")

    assert Counter(row.query_type for row in rows) == {
        "entity": 1250, "person": 1223, "description": 1162, "numeric": 896, "location": 835, "abbreviation": 86,
    }  # fmt: skip
    assert type_names([row.query_type for row in rows], "x") == sorted({row.query_type for row in rows})


def test_a_file_that_is_missing_names_the_setting(tmp_path: Path) -> None:
    file = tmp_path / "none.label"
    for read in (read_labelled, labels_digest):
        with pytest.raises(ConfigError) as caught:
            read(str(file), "typer.labels")
        assert str(caught.value) == (
            f"typer.labels={file} does not exist: name a file of `TYPE:subtype question` or `type<TAB>question` lines."
        )


@pytest.mark.parametrize("line", ["What is an atom ?", "DESC:def", "DESC:def ", "\tWhat is an atom ?", "DESC\t "])
def test_a_line_without_a_type_or_a_question_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "some.label"
    file.write_text(f"LOC:city Where is Ulm ?\n{line}\n")

    with pytest.raises(ConfigError, match=r"some\.label line 2 has no type before its question: write `TYPE:"):
        read_labelled(str(file), "--test")


def test_a_file_without_questions_and_a_single_type_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.label").write_text("\n \n")

    with pytest.raises(ConfigError, match=r"empty\.label has no questions"):
        read_labelled(str(tmp_path / "empty.label"), "typer.labels")
    with pytest.raises(
        ConfigError, match=r"typer\.labels=x has questions of the type person only: name questions of at least two"
    ):
        type_names(["person", "person"], "typer.labels=x")
