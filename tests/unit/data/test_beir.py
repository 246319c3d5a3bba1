import gzip
import json
from pathlib import Path

import pytest

from rayrank.core.config import DatasetConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.core.overrides import build
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.sources import open_source
from rayrank.data.sources.beir import Beir
from rayrank.data.sources.lines import BYTE_ORDER_MARK


def write(folder: Path, corpus: str = '{"_id": "p1", "title": "Tides", "text": "Twice a day."}\n') -> str:
    (folder / "qrels").mkdir()
    (folder / "corpus.jsonl").write_text(corpus)
    metadata = {"query_type": "number", "domain": "seas"}
    queries = [
        {"_id": 1, "text": "how often", "metadata": metadata},
        {"_id": "q2", "text": "why", "metadata": {"query_type": None}},
    ]
    text = "\n".join(map(json.dumps, queries))
    (folder / "queries.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n1\tp1\t1\n")
    (folder / "qrels" / "test.tsv").write_text("q2\tp1\t2\nq2\tp1\n")
    return str(folder)


def test_a_folder_gives_passages_queries_and_judgments(tmp_path: Path) -> None:
    source = Beir(write(tmp_path))
    (part,) = source.parts(1 << 20)
    assert list(source.passages(part)) == [Passage("p1", "Tides\nTwice a day.")]
    assert list(source.queries()) == [Query("1", "how often", "", "number"), Query("q2", "why")]
    assert list(source.judgments()) == [
        Judgment("1", "p1", 1, "dev"),
        Judgment("q2", "p1", 2, "test"),
        Malformed(str(tmp_path / "qrels/test.tsv"), 2, "2 tab-separated fields, not query-id, corpus-id, score"),
    ]


def test_a_query_has_the_type_that_is_in_the_named_field(tmp_path: Path) -> None:
    source = open_source(DatasetConfig(source=f"beir:{write(tmp_path)}", type_field="domain"))
    assert list(source.queries()) == [Query("1", "how often", "", "seas"), Query("q2", "why")]


@pytest.mark.parametrize(("label", "query_type"), [(" NUMERIC ", "numeric"), ("  ", "")])
def test_a_type_is_in_lower_case_without_blanks_and_a_blank_one_is_no_label(
    tmp_path: Path, label: str, query_type: str
) -> None:
    folder = write(tmp_path)
    query = {"_id": "q1", "text": "how often", "metadata": {"query_type": label}}
    (tmp_path / "queries.jsonl.gz").write_bytes(gzip.compress(json.dumps(query).encode()))
    assert list(Beir(folder).queries()) == [Query("q1", "how often", "", query_type)]


def test_files_with_a_byte_order_mark_are_read_like_others(tmp_path: Path) -> None:
    folder = write(tmp_path)
    before = Beir(folder)
    found = [*before.passages(before.parts(1 << 20)[0]), *before.queries(), *before.judgments()]
    for path in (tmp_path / "corpus.jsonl", *(tmp_path / "qrels").iterdir()):
        path.write_bytes(BYTE_ORDER_MARK + path.read_bytes())
    queries = tmp_path / "queries.jsonl.gz"
    queries.write_bytes(gzip.compress(BYTE_ORDER_MARK + gzip.decompress(queries.read_bytes())))
    after = Beir(folder)
    assert [*after.passages(after.parts(1 << 20)[0]), *after.queries(), *after.judgments()] == found


def test_a_query_has_the_group_that_is_in_the_named_field(tmp_path: Path) -> None:
    source = open_source(DatasetConfig(source=f"beir:{write(tmp_path)}", group_field="domain"))
    assert [query.group for query in source.queries()] == ["seas", ""]
    with pytest.raises(DatasetError, match=r"dataset\.group_field=topic is in the metadata of no query"):
        list(Beir(str(tmp_path), group_field="topic").queries())


@pytest.mark.parametrize(
    "text",
    [
        "1 0 p1 3\nq2\tQ0\tp1\t-2\n1   0 p2\t0\n",
        "query-id\t0\tcorpus-id\tscore\n1\tp1\t3\nq2 0 p1 -2\n1\tp2\t0\n",
        "query-id 0 corpus-id score\r\n1 0 p1 3\r\nq2 0 p1 -2\r\n1 0 p2 0\r\n",
    ],
)
def test_judgments_have_any_grade_in_three_columns_or_in_four_as_in_trec(tmp_path: Path, text: str) -> None:
    write(tmp_path)
    (tmp_path / "qrels" / "test.tsv").unlink()
    (tmp_path / "qrels" / "dev.tsv").write_text(text, newline="")
    assert list(Beir(str(tmp_path)).judgments()) == [
        Judgment("1", "p1", 3, "dev"),
        Judgment("q2", "p1", -2, "dev"),
        Judgment("1", "p2", 0, "dev"),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 p1 1", "1 tab-separated fields, not query-id, corpus-id, score"),
        ("1 0 p1 1 x", "1 tab-separated fields, not query-id, corpus-id, score"),
        ("1 0 p1 high", "the relevance 'high' is not a whole number"),
    ],
)
def test_a_judgment_with_other_columns_is_malformed(tmp_path: Path, line: str, reason: str) -> None:
    write(tmp_path)
    (tmp_path / "qrels" / "dev.tsv").write_text(f"1 0 p1 1\n{line}\n")
    assert list(Beir(str(tmp_path)).judgments())[1] == Malformed(str(tmp_path / "qrels/dev.tsv"), 2, reason)


ROWS = [
    {"_id": "1", "title": "Tides", "section": "Cause", "text": "The moon.\n Always.", "metadata": {"year": 1687}},
    {"_id": "2", "title": "Tides", "section": None, "text": "Twice a day.", "metadata": None},
    {"_id": "3", "text": "No title."},
    {"_id": "4", "title": " ", "section": "Only a section", "text": ""},
]


@pytest.mark.parametrize(
    ("template", "texts"),
    [
        (
            "{title} | {section}: {text}",
            [
                "Tides | Cause: The moon.\n Always.",
                "Tides | : Twice a day.",
                "| : No title.",
                "| Only a section:",
            ],
        ),
        (
            "{title} {section}\n{text}",
            ["Tides Cause\nThe moon.\n Always.", "Tides\nTwice a day.", "No title.", "Only a section"],
        ),
        (
            "Section: {section}\n\n{text}",
            [
                "Section: Cause\n\nThe moon.\n Always.",
                "Twice a day.",
                "No title.",
                "Section: Only a section",
            ],
        ),
        (
            "{text} {{{metadata.year}}}",
            ["The moon.\n Always. {1687}", "Twice a day. {}", "No title. {}", ""],
        ),
        ("{ text }", ["The moon.\n Always.", "Twice a day.", "No title.", ""]),
    ],
)
def test_a_template_names_the_fields_of_a_passage(tmp_path: Path, template: str, texts: list[str]) -> None:
    folder = write(tmp_path, "\n".join(map(json.dumps, ROWS)))
    source = open_source(DatasetConfig(source=f"beir:{folder}", passage_template=template))
    for part_bytes in (64, 1 << 20):
        found = [row for part in source.parts(part_bytes) for row in source.passages(part)]
        assert found == [Passage(str(number), text) for number, text in enumerate(texts, 1)]


def test_the_default_template_is_title_and_text_also_if_it_is_written_out(tmp_path: Path) -> None:
    rows = [*ROWS[:3], {"_id": "5", "title": None, "text": "a text "}]
    folder = write(tmp_path, "\n".join(map(json.dumps, rows)))
    expected = ["Tides\nThe moon.\n Always.", "Tides\nTwice a day.", "No title.", "a text "]
    default = DatasetConfig(source=f"beir:{folder}")
    typed = DatasetConfig(source=f"beir:{folder}", passage_template=r"{title}\n{text}")
    assert typed == default
    # The blank makes another template with the same meaning, which is not read by the fast path for the default.
    slow = DatasetConfig(source=f"beir:{folder}", passage_template="{title}\n{ text}")
    for config in (default, slow):
        source = open_source(config)
        (part,) = source.parts(1 << 20)
        assert [row.text for row in source.passages(part) if isinstance(row, Passage)] == expected


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"_id": "7", "text": "a text"}, "the fields 'title' and 'section' are missing"),
        ({"_id": "7", "title": None, "section": None}, "the fields 'title' and 'section' are missing"),
        ({"_id": "7", "title": ["a", "b"]}, "the field 'title' is not text"),
        ({"title": "a title"}, "the field '_id' is missing"),
    ],
)
def test_a_row_that_a_template_cannot_use_is_malformed(tmp_path: Path, row: dict[str, object], reason: str) -> None:
    folder = write(tmp_path, f"{json.dumps(ROWS[0])}\n{json.dumps(row)}\n")
    source = Beir(folder, passage_template="{title} {section}")
    (part,) = source.parts(1 << 20)
    assert list(source.passages(part))[1] == Malformed(str(tmp_path / "corpus.jsonl"), 2, reason)


def test_a_field_that_no_passage_has_is_named(tmp_path: Path) -> None:
    source = Beir(write(tmp_path, "\n".join(map(json.dumps, ROWS))), passage_template="{title}\n{metadata.yaer}")
    with pytest.raises(
        DatasetError,
        match=r"template=\{title\}\\n\{metadata\.yaer\} names metadata\.yaer, which is a field of no row of .*"
        r"corpus\.jsonl: name fields such as _id, title, section, text, metadata\.",
    ):
        source.parts(1 << 20)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("", "it names no field"),
        ("{{text}}", "it names no field"),
        ("{title", "a brace has no partner"),
        ("{title} text}", "a brace has no partner"),
        ("{title\n}", "a brace has no partner"),
        ("{}", "the name of a field and nothing else"),
        ("{ }", "the name of a field and nothing else"),
        ("{title:>8}", "the name of a field and nothing else"),
        ("{title!r}", "the name of a field and nothing else"),
    ],
)
def test_a_template_that_cannot_be_used_is_one_sentence(tmp_path: Path, template: str, reason: str) -> None:
    folder = write(tmp_path)
    with pytest.raises(ConfigError) as caught:
        open_source(DatasetConfig(source=f"beir:{folder}", passage_template=template))
    sentence = str(caught.value)
    shown = template.replace("\n", "\\n")
    assert sentence.startswith(f"dataset.passage_template={shown} cannot be used: ")
    assert reason in sentence
    assert sentence.endswith("as in {title} | {text}, and a brace itself as {{ or }}.")
    assert "\n" not in sentence


def test_a_template_needs_quotes_on_the_command_line() -> None:
    assert build("demo", assignments=['dataset.passage_template="{text}"']).dataset.passage_template == "{text}"
    with pytest.raises(
        ConfigError, match=r"cannot be used: braces without quotes are a mapping in YAML, so put quotes"
    ):
        build("demo", assignments=["dataset.passage_template={text}"])


@pytest.mark.parametrize("name", ["valid", "val", "Validation", "dev"])
def test_a_validation_file_is_the_dev_split(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    (tmp_path / "qrels" / "dev.tsv").rename(tmp_path / "qrels" / f"{name}.tsv")
    assert Judgment("1", "p1", 1, "dev") in list(Beir(str(tmp_path)).judgments())


def test_a_field_that_no_query_has_is_named(tmp_path: Path) -> None:
    source = Beir(write(tmp_path), "domian")
    with pytest.raises(DatasetError, match=r"type_field=domian is in the metadata of no query of .*queries\.jsonl\.gz"):
        list(source.queries())


@pytest.mark.parametrize("part_bytes", [1, 7, 50, 64, 200, 10_000])
def test_parts_together_equal_the_whole_corpus(tmp_path: Path, part_bytes: int) -> None:
    lines = [json.dumps({"_id": str(n), "text": f"é text {n}"}, ensure_ascii=False) for n in range(20)]
    lines[7] = '{"_id": "7"}'
    source = Beir(write(tmp_path, "\n".join(lines)))
    found = [row for part in source.parts(part_bytes) for row in source.passages(part)]
    assert len(found) == 20
    assert found[7] == Malformed(str(tmp_path / "corpus.jsonl"), 8, "the field 'text' is missing")
    assert found[19] == Passage("19", "é text 19")


def test_a_missing_or_ambiguous_file_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "corpus.jsonl.gz").write_bytes(b"")
    with pytest.raises(DatasetError, match="keep one of them"):
        Beir(str(tmp_path))
    (tmp_path / "corpus.jsonl.gz").unlink()
    (tmp_path / "corpus.jsonl").unlink()
    with pytest.raises(DatasetError, match=r"no corpus\.jsonl"):
        Beir(str(tmp_path))
    with pytest.raises(DatasetError, match="does not exist"):
        Beir(str(tmp_path / "elsewhere"))


@pytest.mark.parametrize(
    ("name", "passages", "queries"), [("insuranceqa", 27_413, 14_889), ("medquad", 15_809, 13_513)]
)
def test_real_datasets_are_read_without_malformed_rows(
    shared_data: Path, name: str, passages: int, queries: int
) -> None:
    source = Beir(str(shared_data / name))
    found = [row for part in source.parts(1 << 26) for row in source.passages(part)]
    assert sum(isinstance(row, Passage) for row in found) == len(found) == passages
    assert sum(isinstance(row, Query) for row in source.queries()) == queries
    assert all(isinstance(row, Judgment) for row in source.judgments())
