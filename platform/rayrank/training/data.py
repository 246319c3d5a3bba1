"""What training and scoring read from storage: texts as word-piece ids, judgments and candidates as row numbers."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import InputConfig, PipelineConfig
from rayrank.data.ids import PairLookup
from rayrank.data.pair_set import relevant
from rayrank.data.rows import is_sorted
from rayrank.models.inference.window_scorer import PairScores, WindowScorer
from rayrank.models.pair_texts import PairTexts
from rayrank.models.window_choice import WindowChoice
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged, Rows, Windows
from rayrank.text.stored_passages import stored_passages
from rayrank.text.template import Template
from rayrank.text.windows import PassageWindows
from rayrank.text.words import word_table

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class Split:
    """The judged queries of one split: query rows, and for each query the rows of its positives and candidates."""

    queries: Rows
    positives: Ragged
    candidates: Ragged
    """In the first stage's order, best first."""
    grades: Ragged | None = None
    """The grade of each positive; None if all have the same."""

    def negatives(self, index: int) -> Rows:
        """Return the candidates of query number `index` of this split that are not judged relevant to it."""
        rows = self.candidates[index]
        # For the few positives of a query, this takes an eighth of the time of numpy's isin.
        kept: NDArray[np.bool_] = (rows != self.positives[index][:, None]).all(axis=0)
        return rows[kept].astype(np.int64)

    def take(self, indices: Rows) -> "Split":
        """Return the split with the queries at some indices only."""
        positives, candidates, grades = (
            column and Ragged.of([column[int(index)] for index in indices])
            for column in (self.positives, self.candidates, self.grades)
        )
        assert positives is not None
        assert candidates is not None
        return Split(self.queries[indices], positives, candidates, grades)

    def sample(self, most: int | None) -> "Split":
        """Return the split with at most `most` queries, evenly spaced; with all of them if `most` is None."""
        count = len(self.queries)
        return self if most is None or most >= count else self.take(np.arange(most) * count // most)


@dataclass(frozen=True)
class TrainingData:
    """Texts as word-piece ids, and the splits as row numbers of these texts."""

    query_ids: pa.Array
    passage_ids: pa.Array
    prefixes: Ragged
    """`[CLS] type [SEP] query [SEP]` of every query."""
    passages: Ragged
    splits: dict[str, Split]
    judgments: pa.Table
    """All judgments with their grades, which nDCG on dev needs; a split's positives are those that are relevant."""


@dataclass(frozen=True)
class Inputs:
    """The queries of some splits with their candidates, and the texts that pairs of rows are assembled from."""

    data: TrainingData
    texts: PairTexts
    """The prefixes of queries, and the passages or, if long passages are read in windows, the windows; `scorer` and
    `window_choice` turn rows of passages into rows of windows."""
    windows: PassageWindows | None = None

    def scorer(self, score: PairScores) -> PairScores:
        """Return a function that scores queries with passages, from one that scores pairs of `texts`."""
        return score if self.windows is None else WindowScorer(score, self.windows)

    @cached_property
    def window_choice(self) -> WindowChoice | None:
        """Chooses the window of a passage to train on; None if passages are not read in windows."""
        return None if self.windows is None else WindowChoice(self.texts, self.windows)


def tokenizer_of(config: PipelineConfig, store: Store) -> "PreTrainedTokenizerFast":
    """Return the tokenizer that made the corpus's ids."""
    return load_tokenizer(store.require("corpus", config).local("tokenizer"))


def inputs_of(
    config: PipelineConfig, store: Store, candidates: Mapping[str, Iterable[pa.Table]],
    layout: InputConfig | None = None, added: pa.Table | None = None,
) -> Inputs:  # fmt: skip
    """Return the corpus's texts, and the queries of the splits that `candidates` has; `layout` replaces `input`.

    `added` are judgments besides the dataset's own.
    """
    layout = layout or config.input
    corpus, tokenizer = store.require("corpus", config), tokenizer_of(config, store)
    types = store.require("query_types", config).read_table("query_types.parquet") if layout.query_type else None
    template = Template.of(tokenizer, layout)
    data = load(corpus, types, template, tokenizer, candidates, config.dataset.relevant_from, added)
    if layout.long_passages == "cut":
        return Inputs(data, PairTexts(data.prefixes, data.passages, template))
    windows = PassageWindows.of(data.passages, layout, word_table(tokenizer))
    return Inputs(data, PairTexts(data.prefixes, windows.windows, template), windows)


def separate_inputs(config: PipelineConfig) -> InputConfig:
    """Return the layout of SDNet's inputs, in which query and passage are encoded apart, without a query type."""
    return InputConfig(length=config.sdnet.length, query_length=config.text.query_pieces, query_type=False)


def load(
    corpus: Artifact, types: pa.Table | None, template: Template, tokenizer: "PreTrainedTokenizerFast",
    candidates: Mapping[str, Iterable[pa.Table]], relevant_from: int = 1, added: pa.Table | None = None,
) -> TrainingData:  # fmt: skip
    """Read the corpus and join each split's candidates to it, file by file. If `types` is None, inputs have no type."""
    queries = corpus.read_table("queries.parquet", ["query_id", "piece_ids"])
    query_ids, passages = queries[0].combine_chunks(), stored_passages(corpus)
    judgments = corpus.read_table("judgments.parquet")
    lookup = PairLookup(query_ids, passages.ids)
    labels = judgments if added is None else pa.concat_tables([judgments, added])
    joined = {
        split: _join(lookup, labels.filter(pc.equal(labels["split"], split)), files, relevant_from)
        for split, files in candidates.items()
    }
    type_pieces = None if types is None else _type_pieces(_of_queries(types, query_ids), tokenizer)
    prefixes = template.prefixes(Ragged.from_arrow(queries["piece_ids"]), type_pieces)
    return TrainingData(query_ids, passages.ids, prefixes, passages.pieces, joined, judgments)


def read_candidates(artifact: Artifact, split: str) -> Iterator[pa.Table]:
    """Yield the rows of one split, a file at a time. If several files have rows of a query, the first has the best."""
    return map(artifact.read_table, artifact.names(split))


def _of_queries(types: pa.Table, query_ids: pa.Array) -> pa.ChunkedArray:
    return types["query_type"].take(pc.index_in(query_ids, value_set=types["query_id"].combine_chunks()))


def _type_pieces(types: pa.ChunkedArray, tokenizer: "PreTrainedTokenizerFast") -> Windows:
    """Return the word pieces of each query's type."""
    names = types.combine_chunks().dictionary_encode()
    pieces = [tokenizer(name, add_special_tokens=False).input_ids for name in names.dictionary.to_pylist()]
    return Ragged.of(pieces).take(names.indices.to_numpy())


def _join(lookup: PairLookup, judgments: pa.Table, files: Iterable[pa.Table], relevant_from: int = 1) -> Split:
    positives = relevant(judgments, relevant_from)
    judged, grades = lookup(positives), positives["relevance"].to_numpy()
    queries = np.unique(judged[0])
    found = (_best_first(*lookup(table), table["rank"].to_numpy()) for table in files)
    graded = _grouped(queries, [(judged[0], grades)]) if len(np.unique(grades)) > 1 else None
    return Split(queries, _grouped(queries, [judged]), _grouped(queries, found), graded)


def _best_first(queries: Rows, passages: Rows, ranks: Rows) -> tuple[Rows, Rows]:
    """Return pairs sorted by query and rank; most stored files are sorted already, which makes this fast."""
    order = np.argsort(queries << 32 | ranks, kind="stable")
    return queries[order], passages[order]


def _grouped(queries: Rows, parts: Iterable[tuple[Rows, Rows]]) -> Ragged:
    """Return the passage rows of each query, in the order given; rows of other queries are left out."""
    # These arrays grow in place: half a billion pairs are 4 GB, and concatenating arrays would need twice that.
    indices, passages = array("i"), array("i")
    for of_query, part in parts:
        index = np.searchsorted(queries, of_query)
        known = np.append(queries, -2)[index] == of_query
        indices.frombytes(index[known].astype(np.int32).tobytes())
        passages.frombytes(part[known].astype(np.int32).tobytes())
    of_passage, ordered = np.asarray(indices), np.asarray(passages)
    if not is_sorted(of_passage):
        order = np.argsort(of_passage, kind="stable")
        of_passage, ordered = of_passage[order], ordered[order]
    # int32, because with another type searchsorted would convert a copy of all indices.
    return Ragged(ordered, np.searchsorted(of_passage, np.arange(len(queries) + 1, dtype=np.int32)))
