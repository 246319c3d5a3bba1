"""Lines of plain or compressed files on any fsspec storage: read in byte ranges, numbered within the whole file."""

import gzip
import lzma
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO, NamedTuple, TypeVar

import fsspec

from rayrank.core.errors import DatasetError
from rayrank.core.records import Malformed
from rayrank.data.sources.source import Part

Row = TypeVar("Row")

COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""What spreadsheets and Windows write at the beginning of a file in UTF-8."""

_FORMATS = {".csv": "csv", ".jsonl": "jsonl"}


class BadRow(Exception):
    """The reason why a row cannot be read; `rows` turns it into a Malformed with file and line."""


class Line(NamedTuple):
    """One line without its line end, and how many lines of its part come before it."""

    offset: int
    data: bytes


def file_format(file: str) -> str:
    """Return the format of a file: csv, jsonl or tsv."""
    name = PurePosixPath(file.lower())
    return _FORMATS.get(PurePosixPath(name.stem).suffix if name.suffix in COMPRESSED else name.suffix, "tsv")


def split_bytes(path: str, part_bytes: int) -> list[Part]:
    """Return byte ranges of one file; a compressed file is one range, because it cannot be read from the middle."""
    if path.endswith(COMPRESSED):
        return [Part(path)]
    filesystem, name = fsspec.url_to_fs(path)
    size = filesystem.size(name)
    return [Part(path, start, min(start + part_bytes, size)) for start in range(0, size, part_bytes)]


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading and uncompress it; a file that cannot be read raises an error that names it."""
    try:
        with fsspec.open(path, "rb", compression="infer") as stream:
            yield stream
    except FileNotFoundError:
        raise DatasetError(f"The file {path} does not exist: check its path.") from None
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise DatasetError(f"The file {path} is not a complete compressed file: {error}.") from None
    except OSError as error:
        raise DatasetError(f"The file {path} cannot be read: {error.strerror or error}.") from None


def lines(part: Part) -> Iterator[Line]:
    """Yield the lines that begin inside the part's byte range, the first of a file without a byte order mark."""
    with opened(part.file) as stream:
        if part.start:
            # A line that begins before the range belongs to the part before.
            stream.seek(part.start - 1)
            stream.readline()
        place = stream.tell() if part.end is not None else 0
        for offset, data in enumerate(stream):
            if part.end is not None and place >= part.end:
                return
            place += len(data)
            if part.start == 0 and offset == 0:
                data = data.removeprefix(BYTE_ORDER_MARK)
            yield Line(offset, data.rstrip(b"\r\n"))


def lines_before(part: Part) -> int:
    """Return how many lines of the file come before the part; slow, as it reads the file, so for errors only."""
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
    """Yield each line parsed; `parse` returns None for a line to skip and raises BadRow for a broken one."""
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
        # The file may be large and have many broken lines, so the lines before the part are counted once.
        before = lines_before(part) if before is None else before
        yield Malformed(part.file, before + line.offset + 1, reason)
