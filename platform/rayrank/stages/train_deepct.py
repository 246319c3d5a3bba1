"""DeepCT: a model of the weights of a passage's words, trained on passages that are relevant to training queries."""

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import DatasetError
from rayrank.core.progress import progress
from rayrank.data.pair_set import relevant
from rayrank.data.qrels import qrels_of
from rayrank.retrieval.terms import terms_in
from rayrank.stages.training import train
from rayrank.text.aligned_words import ALL_PIECES, align
from rayrank.text.pieces import PieceEncoder
from rayrank.text.term_recall import query_term_recall
from rayrank.text.terms import Terms, terms_of
from rayrank.training.data import tokenizer_of
from rayrank.training.phases import deepct
from rayrank.training.phases.deepct import EXAMPLES, NO_WORD, template_of

ROWS = 10_000
"""Passages that are read at a time."""


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the DeepCT artifact: examples.parquet, model/, log.jsonl and tensorboard/."""
    artifact = store.artifact(deepct.STAGE, config)
    if not artifact.exists(EXAMPLES):
        # Stored for the workers, which would each have to make them again.
        artifact.write_table(EXAMPLES, _examples(config, store))
    return train(deepct, config, store)


def _examples(config: PipelineConfig, store: Store) -> pa.Table:
    """Return the windows of all passages that are relevant to training queries, with the targets of their words."""
    corpus = store.require("corpus", config)
    queries = _training_queries(corpus, config.dataset.relevant_from)
    tokenizer = tokenizer_of(config, store)
    encoder = PieceEncoder(tokenizer.backend_tokenizer.to_str(), ALL_PIECES)
    max_pieces, shards = template_of(config, store).query_length, corpus.manifest["shards"]
    relevant_ids, tables, num_passages = pa.array(list(queries), pa.string()), [], 0
    with terms_in(config.index) as terms, progress("deepct: targets", len(shards), "shards") as advance:
        for shard in shards:
            for batch in corpus.batches(shard, ["passage_id", "text"], rows=ROWS):
                found = batch.filter(pc.is_in(batch.column(0), value_set=relevant_ids))
                query_texts = [queries[passage_id] for passage_id in found.column(0).to_pylist()]
                texts = found.column(1).to_pylist()
                tables.append(windows_with_targets(texts, query_texts, encoder, max_pieces, num_passages, terms))
                num_passages += len(found)
            advance(1)
    table = pa.concat_tables(tables)
    if not len(table):
        raise DatasetError(
            f"The dataset {config.dataset.source} has no passage that is relevant to a training query, so DeepCT has "
            f"nothing to learn from: it needs a train split with grades of dataset.relevant_from="
            f"{config.dataset.relevant_from} or more."
        )
    return table


def _training_queries(corpus: Artifact, relevant_from: int) -> dict[str, list[str]]:
    """Return the texts of the training queries that each passage is relevant to."""
    queries = corpus.read_table("queries.parquet", ["query_id", "text"])
    texts = dict(zip(queries["query_id"].to_pylist(), queries["text"].to_pylist(), strict=True))
    judgments = relevant(qrels_of(corpus, "train"), relevant_from)
    found: dict[str, list[str]] = defaultdict(list)
    for query_id, passage_id in zip(*(judgments[name].to_pylist() for name in ("query_id", "passage_id")), strict=True):
        found[passage_id].append(texts[query_id])
    return found


def windows_with_targets(
    passages: list[str],
    queries: list[list[str]],
    encoder: PieceEncoder,
    max_pieces: int,
    first_number: int = 0,
    terms: Terms = terms_of,
) -> pa.Table:
    """Return the windows of passages that hold a word, each with its passage's number and a target for each piece."""
    aligned = align(passages, encoder, max_pieces)
    targets = np.full(len(aligned.windows.values), NO_WORD, np.float32)
    for words, firsts, answered in zip(aligned.words, aligned.firsts, queries, strict=True):
        # Where one piece begins two words, which WordPiece never does, the higher of the two targets counts.
        np.maximum.at(targets, firsts, query_term_recall(words, answered, terms))
    lists = {
        name: pa.LargeListArray.from_arrays(aligned.windows.offsets, pa.array(values))
        for name, values in (("piece_ids", aligned.windows.values), ("targets", targets))
    }
    num_words = np.add.reduceat(np.append(targets >= 0, 0), aligned.windows.starts, dtype=np.int64)
    table = pa.table({"passage": pa.array(first_number + aligned.of_text, pa.int64()), **lists})
    return table.filter(pa.array(num_words > 0))
