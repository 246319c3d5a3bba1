"""Vectors of all passages and queries by a sentence encoder, through Ray Data, in files that a restart keeps."""

import json
import time
from typing import Any

import numpy as np
import pyarrow as pa

from rayrank.cluster.connection import start_ray
from rayrank.cluster.partitions import FACTS, PartitionWorker, make_missing, slices
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig, StrmConfig
from rayrank.core.progress import progress
from rayrank.models.inference.embedder import Embedder
from rayrank.models.inference.prepare import prepare_device, to_bfloat16
from rayrank.models.pair_texts import PairTexts
from rayrank.models.saved import load_model
from rayrank.models.sentence_encoder import SentenceEncoder, load_sentence_encoder, sentence_settings
from rayrank.retrieval.dense import read_vectors
from rayrank.runs.scoring import actor_pool
from rayrank.text.pieces import load_tokenizer, save_tokenizer
from rayrank.text.ragged import Windows
from rayrank.text.sentence_texts import PASSAGE, QUERY, SentenceInputs


def embed(stage: str, model: str | None, config: PipelineConfig, store: Store) -> Artifact:
    """Return the artifact of a stage's vectors (float16), with `passages/` and `queries/` files.

    `model` is the stage that trained the encoder; without it, the encoder that `dense.encoder` names is used as it is.
    """
    if done := store.find(stage, config):
        return done
    started = time.monotonic()
    corpus, artifact = store.require("corpus", config), store.artifact(stage, config)
    if model:
        store.require(model, config)
    settings = sentence_settings(config.dense)
    # Kept with the vectors, so that a server tokenises queries in the same way.
    save_tokenizer(load_tokenizer(config.dense.encoder, "dense.encoder"), artifact)
    items = _items(corpus, config.dense.partition_texts)
    start_ray()
    pool = actor_pool(config.resources)
    arguments = {"artifact": artifact, "model": model, "config": config, "store": store, "threads": pool.cpus}
    totals = {"num_texts": 0, "embed_seconds": 0.0}
    with progress(stage, sum(item["count"] for item in items), "texts") as advance:
        for facts in make_missing(artifact, items, TextEmbedder, arguments, **pool._asdict(), label=stage):
            totals = {name: totals[name] + facts[name] for name in totals}
            advance(facts["num_texts"])
    shards = [item["name"] for item in items if item["kind"] == "passages"]
    facts = {
        **totals,
        "gpus": pool.gpus,
        "shards": shards,
        "num_passages": corpus.manifest["num_passages"],
        "dimension": read_vectors(artifact, shards[0])[1].shape[1],
        "sentence": settings._asdict(),
    }
    return store.finish(artifact, config, started, facts)


class TextEmbedder(PartitionWorker):
    """Holds the sentence encoder, and embeds one slice of a corpus file per call."""

    def __init__(
        self, artifact: Artifact, model: str | None, config: PipelineConfig, store: Store, threads: int
    ) -> None:
        self._artifact, self._corpus = artifact, store.require("corpus", config)
        self._query_pieces = config.text.query_pieces
        settings = sentence_settings(config.dense)
        self._inputs = SentenceInputs.of(
            config.dense.encoder,
            self._corpus.local("tokenizer"),
            [settings.query_prefix, settings.passage_prefix],
            config.dense.length,
        )
        device = prepare_device(threads, config.resources)
        encoder: Any = _trained(store.require(model, config)) if model else load_sentence_encoder(config.dense)
        self._encoder = encoder.to(device).eval()
        to_bfloat16(self._encoder)

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        started = time.monotonic()
        kind = item["kind"]
        id_column = "query_id" if kind == "queries" else "passage_id"
        table = self._corpus.read_table(item["file"], [id_column, self._inputs.column])
        table = table.slice(item["start"], item["count"]).combine_chunks()
        pieces: Windows = self._inputs.pieces(table)
        if kind == "queries":
            pieces = pieces.truncate(self._query_pieces)
        texts = PairTexts(self._inputs.prefixes, pieces, self._inputs.template)
        rows = np.arange(len(table))
        found = Embedder(self._encoder, texts)(np.full(len(rows), QUERY if kind == "queries" else PASSAGE), rows)
        column = pa.FixedSizeListArray.from_arrays(pa.array(found.astype(np.float16).ravel()), found.shape[1])
        facts = {"num_texts": len(rows), "embed_seconds": time.monotonic() - started}
        stored = pa.table({"id": table[id_column], "vector": column})
        self._artifact.write_table(item["name"], stored.replace_schema_metadata({FACTS: json.dumps(facts).encode()}))
        return facts


def _trained(artifact: Artifact) -> SentenceEncoder:
    model = load_model(artifact, StrmConfig(form="off"), np.empty(0, np.int8))
    assert isinstance(model, SentenceEncoder)
    return model


def _items(corpus: Artifact, size: int) -> list[dict[str, Any]]:
    """Return slices of the files of passages and of queries, each of which becomes one file of vectors."""
    files = [("passages", name) for name in corpus.manifest["shards"]] + [("queries", "queries.parquet")]
    items = []
    for number, (kind, file) in enumerate(files):
        for part, (start, count) in enumerate(slices(corpus, file, size)):
            name = f"{kind}/part-{number:05d}-{part:04d}.parquet"
            items.append({"name": name, "kind": kind, "file": file, "start": start, "count": count})
    return items
