"""Datasets of the ir_datasets package."""

import difflib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from rayrank.core.errors import DatasetError
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.sources.fields import usable_id
from rayrank.data.sources.lines import BadRow
from rayrank.data.sources.locate import named_split
from rayrank.data.sources.source import Part, Source

Row = TypeVar("Row", Passage, Query)


class Irds(Source):
    """A dataset by its ir_datasets name; if it has no judgments of its own, those of its direct children are read."""

    def __init__(self, name: str) -> None:
        self.name = name
        dataset = _load(name)
        if not dataset.has_docs():
            raise DatasetError(f"The ir_datasets dataset {name} has no documents: {_instead(name)}")
        self.judged = [name] if _is_judged(dataset) else _judged_children(name)
        if not self.judged:
            raise DatasetError(f"The ir_datasets dataset {name} has no judged queries: {_instead(name)}")

    def files(self) -> list[str]:
        return []

    def identity(self) -> str:
        return f"{self.name} {_package().__version__}"

    def parts(self, part_bytes: int) -> list[Part]:
        # One part: the package knows the number of documents only after it has read them once, and a job that is run
        # again must find the same parts.
        return [Part(self.name)]

    def passages(self, part: Part) -> Iterator[Passage | Malformed]:
        yield from _parsed(part.file, _load(part.file).docs_iter, _passage)

    def queries(self) -> Iterator[Query | Malformed]:
        for name in self.judged:
            yield from _parsed(name, _load(name).queries_iter, partial(_query, named_split(name, "test")))

    def judgments(self) -> Iterator[Judgment | Malformed]:
        for name in self.judged:
            for qrel in _fetched(name, _load(name).qrels_iter):
                yield Judgment(qrel.query_id, qrel.doc_id, qrel.relevance, named_split(name, "test"))


def _package() -> Any:
    try:
        import ir_datasets
    except ImportError:
        raise DatasetError("The dataset kind irds needs the ir_datasets package: pip install rayrank[irds].") from None
    return ir_datasets


def _load(name: str) -> Any:
    try:
        return _package().load(name)
    except KeyError:
        raise DatasetError(f"ir_datasets has no dataset {name}: {_instead(name)}") from None


def _instead(name: str) -> str:
    names = list(_package().registry)
    below = [other for other in names if other.startswith(f"{name}/")]
    close = below[:5] or difflib.get_close_matches(name, names, n=5)
    return f"did you mean {' or '.join(close)}?" if close else "see https://ir-datasets.com for the names."


def _is_judged(dataset: Any) -> bool:
    return bool(dataset.has_docs() and dataset.has_queries() and dataset.has_qrels())


def _judged_children(name: str) -> list[str]:
    docs = _load(name).docs_handler()
    below = [other for other in _package().registry if other.rpartition("/")[0] == name]
    children = {other: _load(other) for other in below}
    return [other for other, child in children.items() if _is_judged(child) and child.docs_handler() is docs]


def _passage(doc: Any) -> Passage:
    return Passage(usable_id(doc.doc_id, "passage id"), doc.default_text())


def _query(split: str, query: Any) -> Query:
    return Query(usable_id(query.query_id, "query id"), query.default_text(), split)


def _parsed(name: str, read: Callable[[], Iterable[Any]], parse: Callable[[Any], Row]) -> Iterator[Row | Malformed]:
    """Yield each row parsed; one without a usable id is named by its number, because the package hides the files."""
    for number, row in enumerate(_fetched(name, read), 1):
        try:
            yield parse(row)
        except BadRow as error:
            yield Malformed(name, number, str(error))


def _fetched(name: str, read: Callable[[], Iterable[Any]]) -> Iterator[Any]:
    try:
        yield from read()
    except (OSError, RuntimeError, ValueError, EOFError) as error:
        raise DatasetError(f"The ir_datasets dataset {name} could not be read: {error}.") from None
