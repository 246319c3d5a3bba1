"""Pairs of texts for benchmarks: from a BEIR folder if it exists, else generated."""

import gzip
import json
import random
from pathlib import Path
from typing import NamedTuple

WORDS = "the of insurance policy cover claim premium agent deductible underwriting reimbursement annuity rider".split()


class TextPairs(NamedTuple):
    """The queries and the passages of pairs, and the name of their dataset."""

    queries: list[str]
    passages: list[str]
    source: str


def read_pairs(folder: str, count: int) -> TextPairs:
    """Return dev queries with random passages, the same for the same count."""
    rng = random.Random(13)
    path = Path(folder)
    if not (path / "corpus.jsonl.gz").is_file():
        texts = [" ".join(rng.choices(WORDS, k=rng.randint(5, 150))) for _ in range(count)]
        return TextPairs([" ".join(rng.choices(WORDS, k=6)) for _ in range(count)], texts, "generated")
    queries = [row["text"] for row in _rows(path / "queries.jsonl.gz") if row["_id"].startswith("dev")]
    passages = [row["text"] for row in _rows(path / "corpus.jsonl.gz")]
    return TextPairs(rng.choices(queries, k=count), rng.choices(passages, k=count), path.name)


def _rows(file: Path) -> list[dict[str, str]]:
    with gzip.open(file, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]
