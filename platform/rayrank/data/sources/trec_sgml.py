"""TREC's SGML files: documents between <DOC> and </DOC>, topics between <top> and </top>."""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rayrank.core.records import Malformed, Passage, Query
from rayrank.data.sources.fields import usable_id
from rayrank.data.sources.lines import BadRow, lines
from rayrank.data.sources.source import Part

_DOCNO = re.compile(r"<docno>\s*(.*?)\s*</docno>", re.IGNORECASE | re.DOTALL)
_CONTENT = re.compile(r"<(title|headline|text)(?:\s[^>]*)?>(.*?)</\1\s*>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<!--.*?-->|</?[a-z][^<>]*>", re.IGNORECASE | re.DOTALL)
_ENTITY = re.compile(r"&#?\w+;")
_NUM = re.compile(r"<num>\s*(number:)?\s*([^<\s]+)", re.IGNORECASE)
_TITLE = re.compile(r"<title>\s*(?:topic:)?\s*(.*?)\s*(?=</?[a-z]|\Z)", re.IGNORECASE | re.DOTALL)


@dataclass
class Block:
    """The text between a pair of tags, and the first error found in it."""

    path: str
    line: int
    text: str = ""
    fault: Malformed | None = None
    pieces: list[str] = field(default_factory=list)

    def add(self, data: bytes, line: int, column: int = 0) -> None:
        """Append bytes; if they are not UTF-8, the block is malformed."""
        try:
            self.pieces.append(data.decode("utf-8"))
        except UnicodeDecodeError as error:
            reason = f"byte {column + error.start + 1} is not UTF-8"
            self.fault = self.fault or Malformed(self.path, line, reason)

    def broken(self, reason: str) -> Malformed:
        """Return a Malformed for the line where the block begins."""
        return Malformed(self.path, self.line, reason)

    def closed(self) -> "Block | Malformed":
        """Return the block with its text, or the first error found in it."""
        self.text = "".join(self.pieces)
        return self.fault or self


def documents(path: str) -> Iterator[Passage | Malformed]:
    """Yield a file's documents: the content of their title and text tags, or else everything but the number."""
    for block in _blocks(path, "DOC"):
        if isinstance(block, Malformed):
            yield block
            continue
        number = _DOCNO.search(block.text)
        if not number or not number[1]:
            yield block.broken("the document has no <DOCNO>")
            continue
        try:
            passage_id = usable_id(number[1], "<DOCNO>")
        except BadRow as error:
            yield block.broken(str(error))
            continue
        contents = [content[2] for content in _CONTENT.finditer(block.text)]
        whole = block.text[: number.start()] + block.text[number.end() :]
        texts = map(_plain, contents or [whole])
        yield Passage(passage_id, "\n".join(text for text in texts if text))


def topics(path: str, split: str) -> Iterator[Query | Malformed]:
    """Yield a file's topics as queries: number and title, whether these tags are closed or not."""
    for block in _blocks(path, "top"):
        if isinstance(block, Malformed):
            yield block
            continue
        number, title = _NUM.search(block.text), _TITLE.search(block.text)
        if not number or not title:
            yield block.broken(f"the topic has no {'<title>' if number else '<num>'}")
            continue
        # Older topics write `Number: 051`, and their judgments 51.
        query_id = (number[2].lstrip("0") or "0") if number[1] else number[2]
        yield Query(query_id, " ".join(_plain(title[1]).split()), split)


def _blocks(path: str, tag: str) -> Iterator[Block | Malformed]:
    name = tag.encode()
    marks = re.compile(rb"(<%b(?:\s[^>]*)?>|</%b\s*>)" % (name, name), re.IGNORECASE)
    block: Block | None = None
    for offset, data in lines(Part(path)):
        number, column = offset + 1, 0
        for piece in marks.split(data):
            if not marks.fullmatch(piece):
                if block:
                    block.add(piece, number, column)
            elif piece.startswith(b"</"):
                yield block.closed() if block else Malformed(path, number, f"</{tag}> without <{tag}>")
                block = None
            else:
                if block:
                    yield block.broken(f"<{tag}> is never closed")
                block = Block(path, number)
            column += len(piece)
        if block:
            block.pieces.append("\n")
    if block:
        yield block.broken(f"<{tag}> is never closed")


def _plain(text: str) -> str:
    return _ENTITY.sub(lambda entity: html.unescape(entity[0]), _TAG.sub(" ", text)).strip()
