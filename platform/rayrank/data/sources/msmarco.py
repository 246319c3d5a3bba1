"""MS MARCO passage ranking folders: collection.tsv, queries.SPLIT.tsv, qrels.SPLIT.tsv, top1000.SPLIT.tsv."""

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePosixPath

from rayrank.core.errors import DatasetError
from rayrank.core.records import Candidate, Judgment, Malformed, Passage, Query
from rayrank.data.sources.fields import tab_fields, trec_judgment
from rayrank.data.sources.lines import rows, split_bytes
from rayrank.data.sources.locate import find_all, find_one
from rayrank.data.sources.source import Part, Source

Files = dict[str, dict[str, str]]
"""Split -> variant ("" or "small") -> path."""


class MsMarco(Source):
    """An MS MARCO passage folder; each file may be .gz.

    The split is the first part of a file name after `queries.` or `qrels.`. If a split has a full and a small
    version (`queries.dev.tsv` and `queries.dev.small.tsv`), the small files are read and the full ones are ignored.
    """

    def __init__(self, folder: str) -> None:
        self.collection = find_one(folder, "collection.tsv", "collection.tsv.gz")
        query_files = _by_split(folder, "queries")
        qrels = _by_split(folder, "qrels")
        self.query_files = {split: _chosen(variants, qrels.get(split)) for split, variants in query_files.items()}
        self.qrels = {split: _chosen(variants, query_files.get(split)) for split, variants in qrels.items()}
        self._top1000 = _one_per_split(folder, find_all(folder, "top1000.*", required=False))
        self._ignored = sorted(
            path
            for files, chosen in ((query_files, self.query_files), (qrels, self.qrels))
            for split, variants in files.items()
            for path in variants.values()
            if path != chosen[split]
        )

    def files(self) -> list[str]:
        return [
            self.collection,
            *self.query_files.values(),
            *self.qrels.values(),
        ]

    def candidate_files(self) -> list[str]:
        return self._top1000

    def notes(self) -> list[str]:
        return [f"{path} is not read: its split has a smaller or better matching file" for path in self._ignored]

    def parts(self, part_bytes: int) -> list[Part]:
        return split_bytes(self.collection, part_bytes)

    def passages(self, part: Part) -> Iterator[Passage | Malformed]:
        return rows(part, lambda line: Passage(*tab_fields(line, "passage-id", "text")))

    def queries(self) -> Iterator[Query | Malformed]:
        for split, path in self.query_files.items():
            yield from rows(Part(path), lambda line, split=split: _query(line, split))  # type: ignore[misc]

    def judgments(self) -> Iterator[Judgment | Malformed]:
        for split, path in self.qrels.items():
            yield from rows(Part(path), lambda line, split=split: trec_judgment(line, split))  # type: ignore[misc]

    def candidates(self) -> Iterator[Candidate | Malformed]:
        for path in self._top1000:
            seen: Counter[str] = Counter()
            yield from rows(Part(path), lambda line, seen=seen: _candidate(line, seen))  # type: ignore[misc]


def _by_split(folder: str, kind: str) -> Files:
    found: Files = {}
    for path in find_all(folder, f"{kind}.*.tsv", f"{kind}.*.tsv.gz", what=kind):
        split, *rest = PurePosixPath(path).name.removeprefix(f"{kind}.").split(".tsv")[0].split(".")
        variants = found.setdefault(split, {})
        other = variants.setdefault(".".join(rest), path)
        if other != path:
            raise DatasetError(f"The dataset folder {folder} has {other} and {path}: keep one of them.")
    return found


def _one_per_split(folder: str, paths: list[str]) -> list[str]:
    found: dict[str, str] = {}
    for path in paths:
        name = PurePosixPath(path).name
        if name.endswith((".tar.gz", ".zip")):
            continue  # the downloaded archive, which was not deleted after it was unpacked
        other = found.setdefault(name.removeprefix("top1000.").split(".")[0], path)
        if other != path:
            raise DatasetError(f"The dataset folder {folder} has {other} and {path}: keep one of them.")
    return list(found.values())


def _chosen(variants: dict[str, str], partner: dict[str, str] | None) -> str:
    """Return one file of a split: of the variants that both queries and qrels have, the small one if there is one."""
    paired = [variant for variant in variants if variant in (partner or {})]
    among = paired or list(variants)
    return variants["small" if "small" in among else min(among)]


def _query(line: str, split: str) -> Query:
    query_id, text = tab_fields(line, "query-id", "text")
    return Query(query_id, text, split)


def _candidate(line: str, seen: Counter[str]) -> Candidate:
    query_id, passage_id, _, _ = tab_fields(line, "query-id", "passage-id", "query", "passage")
    seen[query_id] += 1
    rank = seen[query_id]
    return Candidate(query_id, passage_id, rank, -float(rank))
