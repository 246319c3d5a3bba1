"""Several runs read side by side: the rows of the same queries together, a few files in memory at a time."""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from rayrank.core.artifacts import Artifact
from rayrank.core.records import CANDIDATES
from rayrank.data.ids import Lookup
from rayrank.data.rows import by_query

END = np.iinfo(np.int64).max


def query_lookup(corpus: Artifact) -> Lookup:
    """Return a lookup from query id to its row in the corpus; rows define the order of queries."""
    return Lookup(corpus.read_table("queries.parquet", ["query_id"])["query_id"])


def read_together(runs: Sequence[Artifact], split: str, rows_of: Lookup) -> Iterator[list[pa.Table]]:
    """Yield the rows of every run for some queries, then for the next ones; all rows of a query come together.

    Files of most runs hold queries in the order of the corpus, so few are in memory at a time. Where the rows of a
    query are scattered over files, as in MS MARCO's top1000, all files with rows of these queries are in memory
    together.
    """
    readers = [_Reader(run, split, rows_of) for run in runs]
    while (behind := min(reader.complete_before for reader in readers)) < END:
        for reader in readers:
            if reader.complete_before == behind:
                reader.read_next()
        end = min(reader.complete_before for reader in readers)
        if end > behind:
            yield [reader.take(end) for reader in readers]


class _Reader:
    """One run's files in the order of their first queries."""

    def __init__(self, run: Artifact, split: str, rows_of: Lookup) -> None:
        self._run, self._rows_of = run, rows_of
        self._held, self._rows = CANDIDATES.empty_table(), np.empty(0, np.int64)
        firsts = [(self._first(name), name) for name in run.names(split)]
        self._waiting = sorted((first, name) for first, name in firsts if first < END)

    @property
    def complete_before(self) -> int:
        """The corpus row of the first query that may have unread rows; earlier queries have been read completely."""
        return self._waiting[0][0] if self._waiting else END

    def read_next(self) -> None:
        """Read one more file."""
        table = self._run.read_table(self._waiting.pop(0)[1], CANDIDATES.names).replace_schema_metadata(None)
        query_ids, of_query = by_query(table)
        rows = self._rows_of(pa.array(query_ids, pa.string()))[of_query]
        self._held, self._rows = pa.concat_tables([self._held, table]), np.concatenate([self._rows, rows])

    def take(self, end: int) -> pa.Table:
        """Return the rows of the queries before `end`, and keep the others."""
        taken = self._rows < end
        found = self._held.filter(pa.array(taken))
        self._held, self._rows = self._held.filter(pa.array(~taken)), self._rows[~taken]
        return found

    def _first(self, name: str) -> int:
        """Return the row of the first query of a file, END if it is empty."""
        column = self._run.read_table(name, ["query_id"], read_dictionary=["query_id"])["query_id"]
        query_ids = pa.chunked_array([chunk.dictionary for chunk in column.chunks], pa.string())
        return int(self._rows_of(query_ids).min(initial=END))
