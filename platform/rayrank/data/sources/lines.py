"""Lines of plain or compressed files on any fsspec storage, in byte ranges, with true line numbers."""

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple, TypeVar

import fsspec

from rayrank.core.errors import DatasetError
from rayrank.core.records import Malformed
from rayrank.data.sources.source import Part

Row = TypeVar("Row")

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


class BadRow(Exception):
    """Why a row could not be read; `rows` turns it into a Malformed that knows the place."""


class Line(NamedTuple):
    """One line without its end, and how many lines of its part came before it."""

    offset: int
    data: bytes


def split_bytes(path: str, part_bytes: int) -> list[Part]:
    """Return byte ranges of one file; a compressed file cannot be entered half-way and stays whole."""
    if path.endswith(COMPRESSED):
        return [Part(path)]
    filesystem, name = fsspec.url_to_fs(path)
    size = filesystem.size(name)
    return [Part(path, start, min(start + part_bytes, size)) for start in range(0, size, part_bytes)]


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading, uncompressed; what is wrong with it becomes an error that names it."""
    try:
        with fsspec.open(path, "rb", compression="infer") as stream:
            yield stream
    except FileNotFoundError:
        raise DatasetError(f"The file {path} does not exist: check the path after --dataset.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise DatasetError(f"The file {path} is not a whole compressed file: {error}.") from None
    except OSError as error:
        raise DatasetError(f"The file {path} cannot be read: {error.strerror or error}.") from None


def lines(part: Part) -> Iterator[Line]:
    """Yield the lines that begin inside the part's byte range."""
    with opened(part.file) as stream:
        if part.start:
            # The line that crosses our start belongs to the part before.
            stream.seek(part.start - 1)
            stream.readline()
        place = stream.tell() if part.end is not None else 0
        for offset, data in enumerate(stream):
            if part.end is not None and place >= part.end:
                return
            place += len(data)
            yield Line(offset, data.rstrip(b"\r\n"))


def lines_before(part: Part) -> int:
    """Return how many lines of the file come before the part; reads the file up to there, so only for errors."""
    if not part.start:
        return 0
    before = 0
    with fsspec.open(part.file, "rb") as stream:
        remaining = part.start - 1
        while remaining > 0:
            block = stream.read(min(remaining, 1 << 24))
            before += block.count(b"\n")
            remaining -= len(block)
        stream.readline()
    return before + 1


def rows(part: Part, parse: Callable[[str], Row | None]) -> Iterator[Row | Malformed]:
    """Yield each line parsed; `parse` returns None for a line to pass over and raises BadRow for a broken one."""
    before: int | None = None
    for line in lines(part):
        if not line.data:
            continue
        try:
            row = parse(line.data.decode("utf-8"))
        except UnicodeDecodeError as error:
            reason = f"byte {error.start + 1} is not UTF-8"
        except BadRow as error:
            reason = str(error)
        else:
            if row is not None:
                yield row
            continue
        # Counted at the first broken line, and once: the file may be large and have many.
        before = lines_before(part) if before is None else before
        yield Malformed(part.file, before + line.offset + 1, reason)
