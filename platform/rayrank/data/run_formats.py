"""Run files of other systems: TREC's format, MS MARCO's two, and Parquet; each may be on any fsspec storage."""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple, NoReturn

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem
from numpy.typing import NDArray

from rayrank.core.artifacts import digest_of
from rayrank.core.errors import DatasetError
from rayrank.core.records import CANDIDATES
from rayrank.data.run_files import TREC, LineFormat, read_lines, stop
from rayrank.data.sources.lines import opened
from rayrank.data.sources.locate import file_digest

PARQUET = b"PAR1\x15"
"""The first bytes of every Parquet file: its magic number, and the header of the first field of any page or footer."""


class Block(NamedTuple):
    """Some rows of a run file in the file's order, and the number of each one's line, or of its row in Parquet."""

    rows: pa.Table
    numbers: NDArray[np.int64]


class RunFile:
    """A run file whose format is known by its content."""

    def __init__(self, path: str) -> None:
        self.path, self.format = path, _format_of(path)

    @property
    def has_ranks(self) -> bool:
        """Whether rows have ranks and scores, which may contradict each other."""
        return self.format is TREC

    @property
    def is_ranked(self) -> bool:
        """Whether rows have ranks or scores; MS MARCO's top1000 files do not, and their order was shuffled."""
        return self.format is not TOP1000

    def blocks(self) -> Iterator[Block]:
        """Yield all rows. In a file with ranks alone the score is the negative rank, so that the order is the same."""
        if self.format is None:
            yield from self._read_parquet()
            return
        with opened(self.path) as stream:
            first = 0
            for rows, numbers in read_lines(stream, self.path, self.format):
                if not self.is_ranked:
                    places = pa.array(np.arange(first, first + len(rows)), pa.int32())
                    rows = rows.set_column(2, CANDIDATES.field("rank"), places)
                first += len(rows)
                self._check_finite(rows, numbers)
                yield Block(rows, numbers)

    def stop(self, number: int, reason: str) -> NoReturn:
        """Raise an error that names the file and the place in it."""
        stop(self.path, number, reason, self._unit)

    def place(self, number: int) -> str:
        """Return the words for a place in the file."""
        return f"{self.path} {self._unit} {number}"

    @property
    def _unit(self) -> str:
        return "row" if self.format is None else "line"

    def _read_parquet(self) -> Iterator[Block]:
        with opened(self.path) as stream:
            try:
                file = pq.ParquetFile(stream, page_checksum_verification=True)
                names = file.schema_arrow.names
                if missing := [name for name in ("query_id", "passage_id", "score") if name not in names]:
                    raise DatasetError(f"The run file {self.path} cannot be used: it has no column {missing[0]}.")
                columns = [name for name in CANDIDATES.names if name in names]
                first = 1
                for batch in file.iter_batches(200_000, columns=columns):
                    numbers = np.arange(first, first + len(batch))
                    yield Block(self._of_batch(pa.table(batch), numbers), numbers)
                    first += len(batch)
            except pa.ArrowException as error:
                reason = str(error).splitlines()[0].rstrip(".")
                raise DatasetError(f"The run file {self.path} cannot be used: {reason}.") from None

    def _of_batch(self, table: pa.Table, numbers: NDArray[np.int64]) -> pa.Table:
        if "rank" not in table.column_names:
            table = table.append_column("rank", pa.array(numbers, pa.int64()))
        for name in CANDIDATES.names:
            if table[name].null_count:
                self.stop(int(numbers[pc.index(pc.is_null(table[name]), True).as_py()]), f"there is no {name}")
        # Scores are converted by numpy, which rounds them; Arrow would refuse to.
        score = table["score"].cast(pa.float64()).to_numpy().astype(np.float32)
        columns = [table["query_id"].cast(pa.string()), table["passage_id"].cast(pa.string())]
        rows = pa.table([*columns, table["rank"].cast(pa.int32()), score], schema=CANDIDATES)
        self._check_finite(rows, numbers)
        return rows

    def _check_finite(self, rows: pa.Table, numbers: NDArray[np.int64]) -> None:
        if (bad := np.flatnonzero(~np.isfinite(rows["score"].to_numpy()))).size:
            self.stop(int(numbers[bad[0]]), f"the score {rows['score'][int(bad[0])].as_py()} is not a finite number")


def find_files(paths: Sequence[str]) -> list[str]:
    """Return the files that paths name: a file, all files of a folder, or all that a pattern such as *.trec matches."""
    found: list[str] = []
    for path in paths:
        filesystem, name = fsspec.url_to_fs(path)
        names = [name] if filesystem.isfile(name) else filesystem.glob(f"{name}/**" if filesystem.isdir(name) else name)
        # Names with a dot or an underscore in front are of other programs, such as Spark's _SUCCESS.
        files = sorted(each for each in names if PurePosixPath(each).name[0] not in "._" and filesystem.isfile(each))
        if not files:
            raise DatasetError(f"The run file {path} does not exist: change `paths` of the run that reads it.")
        found += files if isinstance(filesystem, LocalFileSystem) else map(filesystem.unstrip_protocol, files)
    return found


def files_digest(paths: Sequence[str]) -> str:
    """Return a digest of the content of run files; where they lie does not matter."""
    contents = [file_digest(path, "change `paths` of the run that reads it") for path in find_files(paths)]
    return digest_of(contents)


def _format_of(path: str) -> LineFormat | None:
    """Return the format of a file by its first line; None for Parquet."""
    with opened(path) as stream:
        line, number = stream.readline(), 1
        while line.isspace():
            line, number = stream.readline(), number + 1
    if not line:
        raise DatasetError(f"The run file {path} cannot be used: it is empty.")
    if line.startswith(PARQUET):
        return None
    if line.count(b"\t") == 3 and not _is_scored(line):
        return TOP1000
    width = len(line.split())
    if width not in (3, 6):
        stop(
            path,
            number,
            f"{width} fields, where a TREC run has the 6 of 'query Q0 passage rank score tag', MS MARCO's run the 3 of "
            f"'query passage rank' and its top1000 the 4 of 'query-id passage-id query passage' between tabs",
        )
    return TREC if width == 6 else MS_MARCO


def _parse_msmarco(lines: list[bytes]) -> pa.Table:
    words = b" \0 ".join([*lines, b""]).split()
    if len(words) != 4 * len(lines) or words[3::4] != [b"\0"] * len(lines):
        raise ValueError
    ranks = np.array(list(map(int, words[2::4])), np.int64)
    if (ranks < 0).any():
        raise ValueError
    return _table(words[0::4], words[1::4], ranks, -ranks)


def _msmarco_reason(line: bytes) -> str:
    words = line.split()
    if len(words) != 3:
        return f"{len(words)} fields, not the 3 of 'query passage rank'"
    return f"the rank {words[2].decode(errors='replace')!r} is not a whole number from 0 on, or an id is not UTF-8"


def _parse_top1000(lines: list[bytes]) -> pa.Table:
    fields = [line.split(b"\t") for line in lines]
    if any(len(row) != 4 or not row[0].strip() or not row[1].strip() for row in fields):
        raise ValueError
    zeros = np.zeros(len(lines), np.int64)
    return _table([row[0] for row in fields], [row[1] for row in fields], zeros, zeros)


def _top1000_reason(line: bytes) -> str:
    fields = line.split(b"\t")
    if len(fields) != 4:
        return f"{len(fields)} fields, not the 4 of 'query-id passage-id query passage' between tabs"
    return "an id is missing or is not UTF-8"


def _is_scored(line: bytes) -> bool:
    """Return whether a line of four fields has a rank and a score where a query and a passage should be."""
    _, _, rank, score = line.split(b"\t")
    try:
        float(score)
    except ValueError:
        return False
    return rank.strip().isdigit()


def _table(
    queries: list[bytes], passages: list[bytes], ranks: NDArray[np.int64], scores: NDArray[np.int64]
) -> pa.Table:
    texts = [pa.array(ids, pa.binary()).cast(pa.string()) for ids in (queries, passages)]
    return pa.table([*texts, pa.array(ranks).cast(pa.int32()), scores.astype(np.float32)], schema=CANDIDATES)


MS_MARCO = LineFormat(_parse_msmarco, _msmarco_reason)
TOP1000 = LineFormat(_parse_top1000, _top1000_reason)
