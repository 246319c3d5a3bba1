"""The domain report counts words in parts of a corpus; the totals equal one count over the whole corpus."""

import csv
import json
from collections import Counter
from pathlib import Path

import pytest
import wordfreq

from rayrank.core.artifacts import Store
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import build
from rayrank.data.digests import digested
from rayrank.stages import corpus, domain_report


def write_dataset(folder: Path, texts: list[str]) -> None:
    (folder / "qrels").mkdir(parents=True)
    rows = [{"_id": f"p{row}", "text": text} for row, text in enumerate(texts)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q0", "text": "which gene"}) + "\n")
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq0\tp0\t1\n")


def test_counts_of_parts_add_up_to_the_words_of_the_corpus(ray_cluster: None, tmp_path: Path) -> None:
    texts = [f"Gene {row} of the genome: allele{'s' * (row % 3)}, {row} loci." for row in range(40)]
    write_dataset(tmp_path / "data", texts)
    settings = [f"dataset.source=beir:{tmp_path / 'data'}", "dataset.part_bytes=1000", "domain.words=100"]
    config, store = build("demo", assignments=settings), Store(str(tmp_path / "storage"))
    shards = corpus.run(config, store).manifest["shards"]
    assert len(shards) > 1

    artifact = domain_report.run(config, store)

    tokens = [token for text in texts for token in wordfreq.tokenize(text, "en")]
    expected = Counter(token for token in tokens if not token.isdecimal())
    with artifact.open("words.csv") as stream:
        words = {row["word"]: int(row["occurrences"]) for row in csv.DictReader(stream.read().decode().splitlines())}
    assert words == expected
    report = artifact.read_json("report.json")
    assert (report["num_word_occurrences"], report["num_distinct_words"]) == (len(tokens), len(expected))
    assert report["compared"] == len(expected)
    assert {"genome", "loci"} <= {word["word"] for word in report["typical"]}
    assert artifact.manifest["findings"]


def test_a_corpus_is_compared_with_the_words_of_a_reference_text(ray_cluster: None, tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", ["the gene of the allele"])
    (tmp_path / "books.txt").write_text("the whale of the sea\n" * 200)
    settings = [f"dataset.source=beir:{tmp_path / 'data'}", "dataset.part_bytes=1000"]
    config = build("demo", assignments=[*settings, f"domain.reference={tmp_path / 'books.txt'}"])
    store = Store(str(tmp_path / "storage"))
    corpus.run(config, store)

    artifact = domain_report.run(config, store)

    # the, of, gene, allele against the, of, sea, whale.
    assert artifact.read_json("report.json").items() >= {
        "reference": "the text books.txt (en)", "compared": 4, "num_differing": 2, "covered": 0.6
    }.items()  # fmt: skip
    assert len(artifact.names("reference")) == 5
    assert "are not among the 4 of the text books.txt (en)" in artifact.manifest["findings"][0]
    (tmp_path / "books.txt").write_text("1 2 3\n")
    changed = digested(config)
    with pytest.raises(ConfigError, match=r"domain\.reference=.*books\.txt has no words but those with digits"):
        domain_report.run(changed, store)


def test_a_language_without_a_word_list_is_refused_before_counting(tmp_path: Path) -> None:
    config = build("demo", assignments=["domain.language=xx"])

    with pytest.raises(ConfigError, match=r"domain\.language=xx"):
        domain_report.run(config, Store(str(tmp_path)))
