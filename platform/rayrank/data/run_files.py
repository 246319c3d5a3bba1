"""Run files in the formats of TREC (`query Q0 passage rank score tag`) and of the MS MARCO leaderboard.

trec_eval orders by score, ties by passage id, and ignores the rank column; `metrics.per_query` does the same.
Scores are written as the shortest decimals that read back as the same float32: ties stay ties and distinct scores
stay distinct, so trec_eval reports our metrics for our files.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import IO, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.core.errors import DatasetError
from rayrank.core.records import CANDIDATES
from rayrank.data.rows import by_query, is_sorted, long_column

ROWS_AT_ONCE = 200_000
FIELDS = ("query", "Q0", "passage", "rank", "score", "tag")


def write_trec(table: pa.Table, stream: IO[bytes], tag: str) -> None:
    """Write a TREC run, queries in the order of the table, each by rank; white space in the tag becomes '-'."""
    end = ("-".join(tag.split()) or "rayrank") + "\n"
    for query_ids, passage_ids, ranks, scores in _ordered(table):
        _write(stream, " ", query_ids, "Q0", passage_ids, ranks, scores.cast(pa.large_string()), end)


def write_msmarco(table: pa.Table, stream: IO[bytes]) -> None:
    """Write a run for the MS MARCO leaderboard: it has ranks but no scores, so ties keep the order of their ranks."""
    for query_ids, passage_ids, ranks, _ in _ordered(table):
        _write(stream, "\t", query_ids, passage_ids, _joined("", ranks, "\n"))


def read_trec(stream: IO[bytes], name: str) -> pa.Table:
    """Read a TREC run; ranks that start at 0 are shifted to start at 1.

    Scores become float32, as everywhere in rayrank: differences beyond seven digits become ties.
    """
    parts = [(CANDIDATES.empty_table(), np.empty(0, np.int64)), *read_lines(stream, name, TREC)]
    table = pa.concat_tables([part for part, _ in parts])
    _check_unique(table, np.concatenate([numbers for _, numbers in parts]), name)
    if table.num_rows and pc.min(table["rank"]).as_py() == 0:
        table = table.set_column(2, CANDIDATES.field("rank"), pc.add(table["rank"], pa.scalar(1, pa.int32())))
    return table


class LineFormat(NamedTuple):
    """A format with a row in each line: `parse` raises ValueError or OverflowError, `reason` says why for one line."""

    parse: Callable[[list[bytes]], pa.Table]
    reason: Callable[[bytes], str]


def read_lines(stream: IO[bytes], name: str, line_format: LineFormat) -> Iterator[tuple[pa.Table, NDArray[np.int64]]]:
    """Yield rows and the numbers of their lines, at most ROWS_AT_ONCE at a time; blank lines are left out."""
    first = 1
    while lines := list(islice(stream, ROWS_AT_ONCE)):
        not_blank = [index for index, line in enumerate(lines) if not line.isspace()]
        numbers = first + np.array(not_blank, np.int64)
        first += len(lines)
        lines = [lines[index] for index in not_blank]
        try:
            rows = line_format.parse(lines)
        except (ValueError, OverflowError):
            _stop_at_first_problem(lines, numbers, name, line_format)
        yield rows, numbers


def _ordered(table: pa.Table) -> Iterator[tuple[pa.Array, pa.Array, pa.Array, pa.Array]]:
    """Yield (query ids, passage ids, ranks as text, scores) in the order of the file, ROWS_AT_ONCE rows at a time."""
    if any(column.null_count for column in table.columns) or pc.any(pc.is_nan(table["score"])).as_py():
        raise DatasetError("The run has rows without an id, a rank or a score: a run file cannot hold them.")
    _, codes = by_query(table)
    query_ids, passage_ids = long_column(table, "query_id"), long_column(table, "passage_id")
    ranks, scores = table["rank"].combine_chunks(), table["score"].combine_chunks()
    keys = (codes << 32) + ranks.to_numpy().astype(np.int64)
    order = None if is_sorted(keys) else pa.array(np.argsort(keys, kind="stable"))
    for start in range(0, table.num_rows, ROWS_AT_ONCE):
        columns = [query_ids, passage_ids, ranks, scores]
        if order is None:
            columns = [column.slice(start, ROWS_AT_ONCE) for column in columns]
        else:
            columns = [column.take(order.slice(start, ROWS_AT_ONCE)) for column in columns]
        _check_id("query", columns[0])
        _check_id("passage", columns[1])
        yield columns[0], columns[1], columns[2].cast(pa.large_string()), columns[3]


def _check_id(kind: str, ids: pa.Array) -> None:
    bad = ids.filter(pc.match_substring_regex(ids, r"^$|[\s\x0b]"))
    if len(bad):
        raise DatasetError(f"The {kind} id {bad[0].as_py()!r} is empty or has white space: a run file cannot hold it.")


def _joined(separator: str, *fields: pa.Array | str) -> pa.Array:
    texts = [pa.scalar(field, pa.large_string()) if isinstance(field, str) else field for field in (*fields, separator)]
    return pc.binary_join_element_wise(*texts)


def _write(stream: IO[bytes], separator: str, *fields: pa.Array | str) -> None:
    lines = _joined(separator, *fields)
    # The data buffer of an Arrow text array is its texts end to end: here, the bytes of the file.
    _, offset_buffer, data = lines.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64)
    stream.write(memoryview(data)[offsets[lines.offset] : offsets[lines.offset + len(lines)]])


def _parse(lines: list[bytes]) -> pa.Table:
    """Return the lines as a table; a malformed line raises ValueError (a base of Arrow's errors) or OverflowError."""
    # One split of all lines, joined by a separator, is several times faster than one split per line.
    words = b" \0 ".join([*lines, b""]).split()
    width = len(FIELDS) + 1
    if len(words) != width * len(lines) or words[width - 1 :: width] != [b"\0"] * len(lines):
        raise ValueError
    texts = [pa.array(words[column::width], pa.binary()).cast(pa.string()) for column in (0, 2)]
    ranks = np.array(list(map(int, words[3::width])), np.int64)
    scores = np.array(list(map(float, words[4::width])), np.float64)
    if np.isnan(scores).any() or (ranks < 0).any():
        raise ValueError
    return pa.table([*texts, pa.array(ranks).cast(pa.int32()), _float32(scores)], schema=CANDIDATES)


def _float32(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        return scores.astype(np.float32)


def _stop_at_first_problem(
    lines: list[bytes], numbers: NDArray[np.int64], name: str, line_format: LineFormat
) -> NoReturn:
    for line, number in zip(lines, numbers, strict=True):
        try:
            line_format.parse([line])
        except (ValueError, OverflowError):
            stop(name, int(number), line_format.reason(line))
    raise AssertionError("lines that cannot be parsed together include one that cannot be parsed alone")


def _reason(line: bytes) -> str:
    row = line.split()
    if len(row) != len(FIELDS):
        return f"{len(row)} fields, not the {len(FIELDS)} of '{' '.join(FIELDS)}'"
    rank, score = row[3].decode(errors="replace"), row[4].decode(errors="replace")
    try:
        if np.isnan(float(score)):
            return "the score is NaN"
    except ValueError:
        return f"the score {score!r} is not a number"
    try:
        row[0].decode(), row[2].decode()
    except UnicodeDecodeError:
        return "an id is not UTF-8"
    return f"the rank {rank!r} is not a whole number from 0 on"


def _check_unique(table: pa.Table, numbers: NDArray[np.int64], name: str) -> None:
    query_ids, queries = by_query(table)
    passages = long_column(table, "passage_id").dictionary_encode().indices.to_numpy().astype(np.int64)
    keys = (queries << 32) + passages
    order = np.argsort(keys, kind="stable")
    repeats = order[1:][keys[order[1:]] == keys[order[:-1]]]
    if repeats.size:
        row = int(repeats.min())
        passage_id = table["passage_id"][row].as_py()
        stop(
            name,
            int(numbers[row]),
            f"the passage {passage_id!r} occurs twice for the query {query_ids[queries[row]]!r}",
        )


def stop(name: str, line: int, reason: str, unit: str = "line") -> NoReturn:
    """Raise an error that names the place in a run file."""
    raise DatasetError(f"The run file {name} cannot be used: {unit} {line}: {reason}.")


TREC = LineFormat(_parse, _reason)
