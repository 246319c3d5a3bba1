"""What training reads: queries, passages, judgments and candidates as rows and ids, joined once."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.artifacts import Artifact
from rayrank.config import InputConfig
from rayrank.records import CANDIDATES
from rayrank.text.pairs import Ragged, Rows, SpecialIds, prefixes

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class Split:
    """The judged queries of one split: query rows, and for each of them its rows of positives and candidates."""

    queries: Rows
    positives: Ragged
    candidates: Ragged
    """In the first stage's order, best first."""

    def negatives(self, place: int) -> Rows:
        """Return the candidates of the place-th query that nobody judged relevant."""
        rows = self.candidates[place]
        return rows[~np.isin(rows, self.positives[place])].astype(np.int64)

    def take(self, places: Rows) -> "Split":
        """Return some of the queries."""
        positives, candidates = (
            Ragged.of([column[int(place)] for place in places]) for column in (self.positives, self.candidates)
        )
        return Split(self.queries[places], positives, candidates)


@dataclass(frozen=True)
class TrainingData:
    """Texts as ids, and the splits as rows into them."""

    query_ids: pa.Array
    passage_ids: pa.Array
    starts: Ragged
    """`[CLS] type [SEP] query [SEP]` of every query."""
    passages: Ragged
    splits: dict[str, Split]


def load(
    corpus: Artifact, types: pa.Table | None, inputs: InputConfig, tokenizer: "PreTrainedTokenizerFast",
    candidates: dict[str, pa.Table],
) -> TrainingData:  # fmt: skip
    """Read the corpus and join each split's candidates to it; without `types` inputs have none."""
    queries = corpus.read_table("queries.parquet", ["query_id", "piece_ids"])
    columns = ["passage_id", "piece_ids"]
    passages = pa.concat_tables([corpus.read_table(name, columns) for name in corpus.manifest["shards"]])
    special = SpecialIds(tokenizer.cls_token_id, tokenizer.sep_token_id)
    query_ids, passage_ids = (table[0].combine_chunks() for table in (queries, passages))
    judgments = corpus.read_table("judgments.parquet")
    joined = {
        split: _join(query_ids, passage_ids, judgments.filter(pc.equal(judgments["split"], split)), found)
        for split, found in candidates.items()
    }
    kinds = None if types is None else _type_pieces(_of_queries(types, query_ids), tokenizer)
    starts = prefixes(Ragged.from_arrow(queries["piece_ids"]), kinds, special, inputs.query_length)
    return TrainingData(query_ids, passage_ids, starts, Ragged.from_arrow(passages["piece_ids"]), joined)


def read_candidates(artifact: Artifact, split: str) -> pa.Table:
    """Return the rows of one split, whole."""
    files = artifact.names(split)
    return pa.concat_tables([artifact.read_table(name) for name in files]) if files else CANDIDATES.empty_table()


def hold_out(splits: dict[str, Split], num_dev: int) -> dict[str, Split]:
    """Return train and at most `num_dev` dev queries, evenly spread; a tenth of train where there is no dev split."""
    train, dev = splits["train"], splits["dev"]
    if not len(dev.queries):
        every = np.arange(len(train.queries)) % 10 == 0
        train, dev = train.take(np.flatnonzero(~every)), train.take(np.flatnonzero(every))
    count = min(num_dev, len(dev.queries))
    return {"train": train, "dev": dev.take(np.arange(count) * len(dev.queries) // max(1, count))}


def _of_queries(types: pa.Table, query_ids: pa.Array) -> pa.ChunkedArray:
    return types["query_type"].take(pc.index_in(query_ids, value_set=types["query_id"].combine_chunks()))


def _type_pieces(types: pa.ChunkedArray, tokenizer: "PreTrainedTokenizerFast") -> Ragged:
    """Return the pieces of each query's type, as text."""
    names = types.combine_chunks().dictionary_encode()
    pieces = [tokenizer(name, add_special_tokens=False).input_ids for name in names.dictionary.to_pylist()]
    return Ragged.of([pieces[row] for row in names.indices.to_pylist()])


def _join(query_ids: pa.Array, passage_ids: pa.Array, judgments: pa.Table, found: pa.Table) -> Split:
    relevant = judgments.filter(pc.greater(judgments["relevance"], 0))
    judged_queries = _rows(query_ids, relevant["query_id"])
    queries = np.unique(judged_queries)
    positives = _grouped(queries, judged_queries, _rows(passage_ids, relevant["passage_id"]))
    ordered = found.sort_by([("query_id", "ascending"), ("rank", "ascending")])
    listed = _grouped(queries, _rows(query_ids, ordered["query_id"]), _rows(passage_ids, ordered["passage_id"]))
    return Split(queries, positives, listed)


def _rows(ids: pa.Array, wanted: pa.ChunkedArray) -> Rows:
    return pc.index_in(wanted, value_set=ids).to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _grouped(queries: Rows, of_query: Rows, values: Rows) -> Ragged:
    """Return the values of each query, in the order given; values of other queries are left out."""
    known = np.isin(of_query, queries)
    of_query, values = of_query[known], values[known]
    order = np.argsort(of_query, kind="stable")
    counts: NDArray[np.int64] = np.searchsorted(of_query[order], queries, side="right") - np.searchsorted(
        of_query[order], queries, side="left"
    )
    return Ragged(values[order].astype(np.int32), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
