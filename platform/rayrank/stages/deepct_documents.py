"""DeepCT's documents: all passages with the term frequencies that the trained model predicts, through Ray Data."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rayrank.cluster.connection import start_ray
from rayrank.cluster.partitions import FACTS, PartitionWorker, make_missing, slices
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig, StrmConfig
from rayrank.core.progress import progress
from rayrank.models.inference.prepare import prepare_device
from rayrank.models.inference.term_weigher import TermWeigher
from rayrank.models.saved import load_model
from rayrank.models.term_weights import TermWeights
from rayrank.runs.scoring import actor_pool
from rayrank.text.aligned_words import ALL_PIECES, AlignedTexts, align
from rayrank.text.pieces import PieceEncoder
from rayrank.text.weighted_text import weighted_text
from rayrank.training.data import tokenizer_of
from rayrank.training.phases.deepct import template_of

PASSAGES = 10_000
"""Passages per file: seconds on a GPU, minutes on a CPU core; a killed worker loses only files being made."""

COUNTS = ("num_passages", "num_empty", "num_words", "num_terms")

DOCUMENTS = pa.schema([("passage_id", pa.string()), ("text", pa.large_string())])


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the documents artifact: `documents/` files of (passage_id, text).

    Each word of a text is repeated as often as its predicted term frequency says.
    """
    if done := store.find("deepct_documents", config):
        return done
    started = time.monotonic()
    corpus, artifact = store.require("corpus", config), store.artifact("deepct_documents", config)
    store.require("train_deepct", config)
    items = _items(corpus)
    start_ray()
    pool = actor_pool(config.resources)
    arguments = {"artifact": artifact, "config": config, "store": store, "threads": pool.cpus}
    totals = dict.fromkeys(COUNTS, 0)
    with progress("deepct_documents", sum(item["count"] for item in items), "passages") as advance:
        for facts in make_missing(
            artifact, items, DocumentWriter, arguments, **pool._asdict(), label="deepct_documents"
        ):
            totals = {name: totals[name] + facts[name] for name in COUNTS}
            advance(facts["num_passages"])
    facts = {
        "shards": [item["name"] for item in items],
        "num_passages": totals["num_passages"],
        "num_empty": totals["num_empty"],
        "mean_term_frequency": totals["num_terms"] / max(1, totals["num_words"]),
        "gpus": pool.gpus,
    }
    return store.finish(artifact, config, started, facts)


class DocumentWriter(PartitionWorker):
    """Holds the model, and writes the documents of one slice of a corpus file per call."""

    calls = 2

    def __init__(self, artifact: Artifact, config: PipelineConfig, store: Store, threads: int) -> None:
        self._artifact, self._corpus = artifact, store.require("corpus", config)
        self._scale, template = config.deepct.scale, template_of(config, store)
        self._max_pieces = template.query_length
        # Cached, because the slices of a file come one after another.
        self._file = lru_cache(maxsize=1)(self._read)
        self._encoder = PieceEncoder(tokenizer_of(config, store).backend_tokenizer.to_str(), ALL_PIECES)
        device = prepare_device(threads, config.resources)
        model = _trained(store.require("train_deepct", config)).to(device)
        if device.type == "cuda" and model.encoder.packs:
            model.encoder.bfloat16()
        self._weigh = TermWeigher(model, template)
        # Two calls of `make` share one device thread: while it weighs one slice, the other is written or tokenised.
        self._device = ThreadPoolExecutor(max_workers=1)

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        table = self._file(item["shard"]).slice(item["start"], item["count"])
        texts = table["text"].to_pylist()
        aligned = align(texts, self._encoder, self._max_pieces)
        weights = self._device.submit(self._weigh, aligned.windows).result()
        documents, facts = documents_of(texts, aligned, weights, self._scale)
        stored = pa.table([table["passage_id"], pa.array(documents, pa.large_string())], schema=DOCUMENTS)
        self._artifact.write_table(item["name"], stored.replace_schema_metadata({FACTS: json.dumps(facts).encode()}))
        return facts

    def _read(self, shard: str) -> pa.Table:
        return self._corpus.read_table(shard, ["passage_id", "text"])


def documents_of(
    texts: list[str], aligned: AlignedTexts, weights: NDArray[np.float32], scale: int
) -> tuple[list[str], dict[str, Any]]:
    """Return the document of each passage, and their counts; `weights` has one number for each piece.

    A passage whose words would all occur 0 times keeps its own text: without a word no query would find it.
    """
    found = [
        weighted_text(words, weights[firsts], scale)
        for words, firsts in zip(aligned.words, aligned.firsts, strict=True)
    ]
    counts = {
        "num_passages": len(found),
        "num_empty": sum(not each.text for each in found),
        "num_words": sum(each.num_kept for each in found),
        "num_terms": sum(each.length for each in found),
    }
    return [each.text or text for each, text in zip(found, texts, strict=True)], counts


def _trained(artifact: Artifact) -> TermWeights:
    # The word table is empty: it is only read for STRM.
    model = load_model(artifact, StrmConfig(form="off"), np.empty(0, np.int8))
    assert isinstance(model, TermWeights)
    return model


def _items(corpus: Artifact) -> list[dict[str, Any]]:
    """Return slices of the corpus's files, each of which becomes one file of documents."""
    items = []
    for number, shard in enumerate(corpus.manifest["shards"]):
        for part, (start, count) in enumerate(slices(corpus, shard, PASSAGES)):
            name = f"documents/part-{number:05d}-{part:04d}.parquet"
            items.append({"name": name, "shard": shard, "start": start, "count": count})
    return items
