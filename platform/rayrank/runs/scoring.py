"""Scores of a trained model for the candidates of whole splits, through Ray Data on a pool of GPU or CPU actors."""

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from rayrank.cluster.connection import model_nodes, start_ray
from rayrank.cluster.partitions import FACTS, PartitionWorker, make_missing, slices
from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig, ResourcesConfig, StrmConfig
from rayrank.core.errors import StorageError
from rayrank.core.progress import progress
from rayrank.core.records import CANDIDATES
from rayrank.core.run_kinds import RunInMaking
from rayrank.data.ids import PairLookup
from rayrank.data.rows import by_query
from rayrank.models.inference.prepare import compile_for_scoring, prepare_device, to_bfloat16
from rayrank.models.inference.scorer import Scorer
from rayrank.models.inference.sdnet_scorer import SdnetScorer
from rayrank.models.inference.word_vectors import WordVectors
from rayrank.models.saved import load_model, load_reranker
from rayrank.runs.windows import WINDOWS, with_window_scores
from rayrank.scores.window_scores import aggregate
from rayrank.text.ragged import Rows
from rayrank.text.words import word_table
from rayrank.training.data import Inputs, inputs_of, separate_inputs, tokenizer_of

PAIRS = 50_000
"""Pairs per file, scored within seconds on a GPU; a killed worker loses only files being scored or written."""

WARM_UP_PAIRS = 32
"""Pairs that are scored before the time is measured."""

WORTH_COMPILING = 60.0
"""Compile layers if scoring the remaining pairs would take more seconds than this: compiling took nine seconds on a GPU
and saved a sixth of the remaining time, measured with an earlier attention kernel."""


def score(run: RunInMaking) -> dict[str, Any]:
    """Write the rows of the run that `of` names with the model's scores; return the facts. `rank` stays that run's."""
    config, candidates = run.config, run.source(run.settings.of)
    items = _items(candidates, run.splits)
    start_ray()
    pool = actor_pool(config.resources)
    totals, left = {"num_candidates": 0, "score_seconds": 0.0}, sum(item["count"] for item in items)
    arguments = {
        "artifact": run.artifact,
        "candidates": candidates,
        "model": run.settings.model,
        "config": config,
        "store": run.store,
        "threads": pool.cpus,
    }
    with progress(run.name, left, "pairs") as advance:
        for item in items:
            item["left"], left = left / pool.actors, left - item["count"]
        for facts in make_missing(run.artifact, items, PairScorer, arguments, **pool._asdict(), label=run.name):
            totals = {name: totals[name] + facts[name] for name in totals}
            advance(facts["num_candidates"])
    return {**totals, "gpus": pool.gpus}


class PairScorer(PartitionWorker):
    """Holds the model and the corpus's ids, and scores one slice of a candidates file per call."""

    calls = 2

    def __init__(
        self, artifact: Artifact, candidates: Artifact, model: str, config: PipelineConfig, store: Store, threads: int
    ) -> None:
        self._artifact, self._candidates = artifact, candidates
        # Cached, because the slices of a file come one after another.
        self._file = lru_cache(maxsize=1)(self._read)
        device = prepare_device(threads, config.resources)
        inputs, self._scorer = load_scorer(model, config, store, device)
        self._rows, self._windows = PairLookup(inputs.data.query_ids, inputs.data.passage_ids), inputs.windows
        # Only the layers of an encoder are compiled, and SDNet encodes each text once.
        self._rates, self._is_compiled = list[float](), not flow.reads_pairs(model)
        # Two calls of `make` run at once but share one device thread: while it scores one slice, the other call writes
        # the previous slice or prepares the next.
        self._device = ThreadPoolExecutor(max_workers=1)

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        found = _whole_queries(*self._file(item["file"]), item["start"], item["count"])
        queries, passages = self._rows(found)
        if min(queries.min(initial=0), passages.min(initial=0)) < 0:
            raise StorageError(
                f"{self._candidates.path(item['file'])} names queries or passages that the corpus does not have: "
                f"delete the folder {self._candidates.url} and run again."
            )
        counts = None
        if self._windows:
            passages, counts = self._windows.of_passages(passages)
            queries = np.repeat(queries, counts)
        left = item["left"] * len(queries) / max(1, len(found))
        scores, seconds = self._device.submit(self._score, queries, passages, left).result()
        if counts is not None:
            self._artifact.write_table(f"{WINDOWS}/{item['name']}", with_window_scores(found, scores, counts))
            scores = aggregate(scores, counts)
        scored = found.append_column(CANDIDATES.field("score"), pa.array(scores, pa.float32()))
        facts = {"num_candidates": len(scored), "score_seconds": seconds}
        self._artifact.write_table(item["name"], scored.replace_schema_metadata({FACTS: json.dumps(facts).encode()}))
        return facts

    def _read(self, file: str) -> tuple[pa.Table, Rows]:
        """Return the pairs of a file and the row at which each query begins, followed by the number of rows."""
        rows = self._candidates.read_table(file, ["query_id", "passage_id", "rank"])
        _, of_query = by_query(rows)
        return rows, np.append(np.flatnonzero(np.diff(of_query, prepend=-1)), len(rows))

    def _score(self, queries: Rows, passages: Rows, left: float) -> tuple[NDArray[np.float32], float]:
        if not self._rates:
            # Loading kernels takes time once and is not part of the cost of scoring.
            self._scorer(queries[:WARM_UP_PAIRS], passages[:WARM_UP_PAIRS])
        started = time.monotonic()
        # The first slice may still wait for kernels of other shapes, so its rate is not representative.
        if not self._is_compiled and left > WORTH_COMPILING * max(self._rates[1:], default=math.inf):
            compile_for_scoring(self._scorer.model)
            self._is_compiled = True
        scores = self._scorer(queries, passages)
        seconds = time.monotonic() - started
        self._rates.append(len(scores) / seconds)
        return scores, seconds


def load_scorer(model: str, config: PipelineConfig, store: Store, device: torch.device) -> tuple[Inputs, Scorer]:
    """Return the texts of the corpus as a stage's trained model reads them, and the scorer of their pairs."""
    artifact, words = store.require(model, config), word_table(tokenizer_of(config, store))
    if flow.reads_pairs(model):
        inputs = inputs_of(config, store, {})
        reranker = load_reranker(artifact, config.strm, words).to(device)
        to_bfloat16(reranker)
        return inputs, Scorer(reranker, inputs.texts)
    inputs = inputs_of(config, store, {}, separate_inputs(config))
    sdnet: Any = load_model(artifact, StrmConfig(form="off"), words).to(device)
    return inputs, SdnetScorer(sdnet, inputs.texts, WordVectors(inputs.texts, words, mixes_layers=True))


def _items(candidates: Artifact, splits: list[str]) -> list[dict[str, Any]]:
    items = []
    for file in [file for split in splits for file in candidates.names(split)]:
        for number, (start, count) in enumerate(slices(candidates, file, PAIRS)):
            name = file.replace(".parquet", f"-{number:04d}.parquet")
            items.append({"name": name, "file": file, "start": start, "count": count})
    return items


def _whole_queries(rows: pa.Table, begins: Rows, start: int, count: int) -> pa.Table:
    """Return all rows of the queries whose first row is in a range."""
    first, last = np.searchsorted(begins, [start, start + count])
    return rows.slice(begins[first], begins[last] - begins[first])


class ActorPool(NamedTuple):
    """The actors that hold a model, as `make_missing` takes them: their number, and what each needs."""

    actors: int
    cpus: int
    gpus: float
    labels: dict[str, str]
    """The labels of their nodes."""


def actor_pool(resources: ResourcesConfig) -> ActorPool:
    """Return the actors of a model, by default one per GPU of the nodes that may run it, else one per node."""
    nodes = model_nodes(resources)
    num_gpus, cores = sum(node.get("GPU", 0) for node in nodes), [int(node.get("CPU", 0)) for node in nodes]
    gpus = resources.train_gpus if resources.train_gpus is not None else min(1.0, num_gpus)
    if gpus:
        return ActorPool(resources.score_actors or max(1, int(num_gpus)), 1, gpus, resources.label_selector())
    actors = resources.score_actors or max(1, len(list(filter(None, cores))))
    cpus = max(1, min(max(cores, default=1), sum(cores) // actors))
    return ActorPool(actors, cpus, 0.0, resources.label_selector())
