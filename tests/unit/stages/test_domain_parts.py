"""The words of a reference text are counted in parts of its file, like those of a corpus in its shards."""

import gzip
from collections import Counter
from pathlib import Path

import pytest
import wordfreq

from rayrank.core import flow
from rayrank.core.artifacts import Artifact
from rayrank.core.config import DomainConfig, PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.data.digests import digested
from rayrank.data.sources.lines import split_bytes
from rayrank.stages.domain_report import WordCounter, _add_up

LINES = [f"Call me Ishmael{'s' * (row % 3)}, said he on day {row}. \N{EM DASH} Naïve whale!" for row in range(50)]


def configured(reference: Path | str) -> PipelineConfig:
    return PipelineConfig(domain=DomainConfig(reference=str(reference)))


@pytest.mark.parametrize("name", ["books.txt", "books.txt.gz"])
def test_the_parts_of_a_reference_text_add_up_to_all_of_its_words(name: str, tmp_path: Path) -> None:
    content, file = "\n".join(LINES).encode(), tmp_path / name
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    artifact = Artifact(str(tmp_path), "domain_report", "key")
    counter = WordCounter(artifact, artifact, "en")
    parts = [{"name": f"reference/{row}.parquet", "text": part} for row, part in enumerate(split_bytes(str(file), 500))]
    assert (len(parts) > 3) == (name == "books.txt")

    running = sum(counter.make(part)["num_word_occurrences"] for part in parts)

    tokens = [token for line in LINES for token in wordfreq.tokenize(line, "en")]
    counts = _add_up(artifact, [str(part["name"]) for part in parts])
    assert running == len(tokens)
    assert dict(zip(counts["word"].to_pylist(), counts["count"].to_pylist(), strict=True)) == Counter(
        token for token in tokens if not token.isdecimal()
    )


def test_without_parts_there_are_no_words(tmp_path: Path) -> None:
    assert len(_add_up(Artifact(str(tmp_path), "domain_report", "key"), [])) == 0


def test_the_content_of_a_reference_text_is_in_the_key_and_its_path_is_not(tmp_path: Path) -> None:
    one, copied, other, packed = (tmp_path / name for name in ("one.txt", "copied.txt", "other.txt", "one.txt.gz"))
    one.write_text("call me")
    copied.write_text("call me")
    other.write_text("call him")
    packed.write_bytes(gzip.compress(b"call me"))

    keys = [flow.key("domain_report", digested(configured(file))) for file in ("", one, copied, packed, other)]

    assert keys[1] == keys[2] == keys[3]
    assert len(set(keys)) == 3


@pytest.mark.parametrize(
    ("name", "told"), [("nowhere.txt", "does not exist"), (".", "cannot be read"), ("bad.gz", "is not a complete")]
)
def test_a_reference_text_that_cannot_be_read_is_one_sentence(name: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "bad.gz").write_bytes(b"not compressed")

    with pytest.raises(ConfigError, match=rf"^domain\.reference=.* {told}.*: name a plain-text file, or leave"):
        digested(configured(tmp_path / name))
