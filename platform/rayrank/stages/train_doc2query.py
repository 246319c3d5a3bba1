"""Train doc2query: the model that writes queries for passages, on the pairs judged relevant in train."""

import pyarrow as pa
import pyarrow.compute as pc

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import Doc2QueryConfig, PipelineConfig
from rayrank.core.errors import DatasetError
from rayrank.data.ids import PairLookup
from rayrank.data.pair_set import relevant
from rayrank.data.qrels import qrels_of
from rayrank.models.query_writer import build, load_model_tokenizer
from rayrank.stages.training import train
from rayrank.text.pieces import PieceEncoder, save_tokenizer
from rayrank.training.phases import doc2query
from rayrank.training.phases.doc2query import PAIRS

MIN_QUERIES = 2
"""One to train on and one held out."""


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the train_doc2query artifact: model/, tokenizer/, pairs.parquet, log.jsonl and tensorboard/."""
    if done := store.find("train_doc2query", config):
        return done
    corpus, artifact = store.require("corpus", config), store.artifact("train_doc2query", config)
    tokenizer = load_model_tokenizer(config.doc2query, corpus.local("tokenizer"))
    # Workers load the model again. It is loaded here first, so that an unusable one is reported in one sentence and
    # not as a failed worker.
    model_config = build(config.doc2query, tokenizer).base.config
    pairs = _pairs(config, corpus, tokenizer.backend_tokenizer.to_str())
    save_tokenizer(tokenizer, artifact)
    artifact.write_table(PAIRS, pairs)
    return train(doc2query, config, store, model_config=model_config)


def _pairs(config: PipelineConfig, corpus: Artifact, tokenizer: str) -> pa.Table:
    """Return the training pairs with the ids of both texts, stored so that workers need not tokenise them."""
    judgments = relevant(qrels_of(corpus, "train"), config.dataset.relevant_from)
    if pc.count_distinct(judgments["query_id"]).as_py() < MIN_QUERIES:
        raise DatasetError(
            f"The dataset {config.dataset.source} has fewer than {MIN_QUERIES} judged training queries: doc2query "
            f"needs a train split with grades of dataset.relevant_from={config.dataset.relevant_from} or more."
        )
    queries = corpus.read_table("queries.parquet", ["query_id", "text"])
    passages = _judged(corpus, pc.unique(judgments["passage_id"]))
    query_rows, passage_rows = PairLookup(queries["query_id"], passages["passage_id"])(judgments)
    chosen: Doc2QueryConfig = config.doc2query
    columns = [
        PieceEncoder(tokenizer, length)(texts["text"].to_pylist()).take(pa.array(rows))
        for texts, rows, length in (
            (passages, passage_rows, chosen.length),
            (queries, query_rows, chosen.query_length),
        )
    ]
    return pa.table({"query": query_rows, "passage_pieces": columns[0], "query_pieces": columns[1]})


def _judged(corpus: Artifact, passage_ids: pa.Array) -> pa.Table:
    """Return the passages with these ids, read in bounded memory."""
    parts = [
        batch.filter(pc.is_in(batch.column(0), value_set=passage_ids))
        for shard in corpus.manifest["shards"]
        for batch in corpus.batches(shard, ["passage_id", "text"])
    ]
    return pa.Table.from_batches(parts)
