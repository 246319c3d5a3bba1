"""SMART files (CACM, CISI, MED ...): a record begins with `.I ID`, a field of it with `.LETTER`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.sources.lines import BadRow, lines
from rayrank.data.sources.source import Part

_RECORD = re.compile(rb"\.I(?:\s+(\S+))?\s*")
_FIELD = re.compile(rb"\.([A-Z])\s*")


@dataclass
class _Record:
    record_id: str
    current: str = ""
    fields: dict[str, list[str]] = field(default_factory=dict)
    fault: Malformed | None = None

    def text(self, name: str) -> str:
        return "\n".join(self.fields.get(name, [])).strip()


def documents(path: str) -> Iterator[Passage | Malformed]:
    """Yield a file's documents: title (.T), then abstract (.W)."""
    for record in _records(path):
        if isinstance(record, Malformed):
            yield record
        else:
            texts = (record.text("T"), record.text("W"))
            yield Passage(record.record_id, "\n".join(text for text in texts if text))


def topics(path: str, split: str) -> Iterator[Query | Malformed]:
    """Yield a file's queries (.W)."""
    for record in _records(path):
        if isinstance(record, Malformed):
            yield record
        else:
            yield Query(record.record_id, " ".join(record.text("W").split()), split)


def judgment(line: str, split: str) -> Judgment | None:
    """Parse a row `query-id passage-id 0 0`; every passage listed is relevant."""
    fields = line.split()
    if not fields:
        return None
    if len(fields) != 4:
        raise BadRow(f"{len(fields)} fields, not query-id, passage-id and two zeros")
    return Judgment(_plain_id(fields[0]), _plain_id(fields[1]), 1, split)


def _records(path: str) -> Iterator[_Record | Malformed]:
    record: _Record | None = None
    for offset, data in lines(Part(path)):
        number = offset + 1
        begins, names = _RECORD.fullmatch(data), _FIELD.fullmatch(data)
        text, fault = "", None
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            fault = Malformed(path, number, f"byte {error.start + 1} is not UTF-8")
        if begins:
            if record:
                yield record.fault or record
            record = _Record(_plain_id(text[2:].strip()), fault=fault)
            if not begins[1]:
                record.fault = Malformed(path, number, "the record has no id after .I")
        elif record is None:
            if data.strip():
                yield fault or Malformed(path, number, "text before the first .I")
        elif names:
            record.current = text[1]
        else:
            record.fault = record.fault or fault
            record.fields.setdefault(record.current, []).append(text)
    if record:
        yield record.fault or record


def _plain_id(text: str) -> str:
    # Judgments pad their ids with zeros (`01 0046`), documents and queries do not.
    return text.lstrip("0") or text
