"""The judged dev queries that are exported with a model, so that a later promotion can be judged."""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayrank.bundle.dev_sample import JudgedDocument, JudgedQuery
from rayrank.bundle.golden import truncate_after_word
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.records import DEV
from rayrank.data.pair_set import relevant_pairs
from rayrank.data.qrels import qrels_of
from rayrank.scores.fusion import Fusion
from rayrank.stages.export_checks import by_id
from rayrank.stages.golden_fusion import features_of
from rayrank.training.data import read_candidates

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

NUM_CANDIDATES = 20
"""Candidates of each query."""

MAX_BYTES = 8 << 20
"""The largest total of the documents' texts; further queries are left out."""

CHARACTERS_PER_PIECE = 32
"""Characters of a document that are tokenised for each word piece that is read: a long document is not read whole."""


def dev_sample(
    num_queries: int,
    tokenizer: "PreTrainedTokenizerFast",
    config: PipelineConfig,
    store: Store,
    fusion: Fusion | None = None,
) -> tuple[JudgedQuery, ...]:
    """Return evenly spaced dev queries that have a relevant candidate; none without dev candidates on storage.

    Documents have the features of the fusion that the model is exported with.
    """
    candidates = store.find("candidates", config)
    if not num_queries or candidates is None or not candidates.names("dev"):
        return ()
    corpus = store.require("corpus", config)
    rows = _chosen_rows(num_queries, candidates, corpus, config.dataset.relevant_from)
    if not len(rows):
        return ()
    query_texts = by_id([corpus.read_table("queries.parquet", ["query_id", "text"])], rows["query_id"])
    shards = (corpus.read_table(name, ["passage_id", "text"]) for name in corpus.manifest["shards"])
    passage_texts = by_id(shards, rows["passage_id"])
    types: dict[str, str] = {}
    if config.input.query_type:
        types = by_id([store.require("query_types", config).read_table("query_types.parquet")], rows["query_id"])
    most = config.input.pieces_read()
    chosen = list(_by_query(rows))
    ids = pa.concat_tables(table.select(["query_id", "passage_id"]) for table in chosen)
    features = iter(features_of(ids, fusion, config, store) if fusion else [{}] * len(ids))
    found, num_bytes = [], 0
    for table in chosen:
        own = table.to_pydict()
        texts = [
            truncate_after_word(passage_texts[name][: most * CHARACTERS_PER_PIECE], tokenizer, most)
            for name in own["passage_id"]
        ]
        num_bytes += sum(len(text.encode()) for text in texts)
        if num_bytes > MAX_BYTES:
            break
        query_id = own["query_id"][0]
        found.append(
            JudgedQuery(
                query=query_texts[query_id], query_type=types.get(query_id),
                documents=tuple(JudgedDocument(text=text, fields=next(features)) for text in texts),
                relevance=tuple(own["relevance"]), first_stage_scores=tuple(own["score"]),
            )
        )  # fmt: skip
    return tuple(found)


def _chosen_rows(num_queries: int, candidates: Artifact, corpus: Artifact, relevant_from: int) -> pa.Table:
    """Return the candidates of the chosen queries, by query and rank, with their grades; 0 without a judgment."""
    judgments = qrels_of(corpus, DEV)
    # Like the golden pairs, from the first file alone: a large dev run has many.
    (rows,) = islice(read_candidates(candidates, "dev"), 1)
    is_relevant = relevant_pairs(judgments, relevant_from).marks(rows)
    names = pc.unique(rows["query_id"].filter(pa.array(is_relevant)))
    chosen = names.take(np.unique(np.linspace(0, len(names) - 1, min(num_queries, len(names))).round().astype(int)))
    kept = pc.is_in(rows["query_id"], value_set=chosen)
    rows = rows.append_column("is_relevant", pa.array(is_relevant)).filter(kept)
    rows = rows.join(judgments.select(["query_id", "passage_id", "relevance"]), ["query_id", "passage_id"])
    rows = rows.set_column(rows.schema.get_field_index("relevance"), "relevance", pc.fill_null(rows["relevance"], 0))
    return rows.sort_by([("query_id", "ascending"), ("rank", "ascending")])


def _by_query(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield for each query its best candidates by rank; a relevant one that ranks lower replaces the last."""
    names = rows["query_id"].to_pylist()
    for query_id in dict.fromkeys(names):
        own = rows.filter(pc.equal(rows["query_id"], query_id))
        first = int(np.flatnonzero(own["is_relevant"].to_numpy())[0])
        places = list(range(min(NUM_CANDIDATES, len(own))))
        if first >= len(places):
            places[-1] = first
        yield own.take(places)
