"""First stages that answer one query at a time, as the run on storage was made: same index, encoder and weights."""

from collections.abc import Callable
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from rayrank.core.artifacts import Artifact
from rayrank.core.config import DenseConfig, IndexConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.core.records import CANDIDATES

QUERY_ID = "query"

Find = Callable[[str], pa.Table]
"""Takes a query's text; returns its candidates, best first."""

COMBINERS = ("interpolate", "rrf")
FOLDERS = ("search", "dense", *COMBINERS)
"""The kinds of runs that can be searched online; their artifacts lie in folders of these names."""


def open_run(url: str) -> Artifact:
    """Return the artifact of a first stage's run, or say in a sentence why it cannot be searched."""
    root, folder, key = ["", "", *url.rstrip("/").rsplit("/", 2)][-3:]
    run = Artifact(root, folder, key)
    if folder not in FOLDERS or not _exists(run):
        kinds = ", ".join(FOLDERS)
        raise ConfigError(
            f"search.run={url} is no first stage that can be searched: name a folder STORAGE/KIND/KEY that "
            f"jobs.build_candidates wrote, where KIND is one of {kinds}."
        )
    for source in _sources(run):
        open_run(source.url)
    corpus_of(run)  # raises an error if the run does not name its corpus
    return run


def _exists(run: Artifact) -> bool:
    try:
        return run.exists()
    except (ImportError, OSError, ValueError) as error:  # a file system that is unknown, not installed or unreachable
        reason = str(error).split("\n")[0].rstrip(".")
        raise ConfigError(
            f"search.run={run.url} cannot be read: {reason}; name a folder that this machine can read."
        ) from None


def corpus_of(run: Artifact) -> Artifact:
    """Return the corpus that a run was made of."""
    key = run.manifest["inputs"].get("corpus")
    if not key:
        raise ConfigError(
            f"search.run={run.url} was made by an earlier version of rayrank: make it again with jobs.build_candidates."
        )
    return Artifact(run.root, "corpus", key)


def first_stage(run: Artifact) -> Find:
    """Return a function that searches as a run of a first stage did."""
    settings = run.manifest["config"]["run"]
    if run.stage == "search":
        return _lucene(run, settings)
    if run.stage == "dense":
        return _dense(run, settings)
    return _combined(run, settings)


def _lucene(run: Artifact, settings: dict[str, Any]) -> Find:
    from rayrank.retrieval.lucene import Bm25, Rm3, Searcher

    index = _only_input(run)
    # A run without RM3 has none of its settings.
    expansion = [settings[name] for name in ("rm3_terms", "rm3_passages", "rm3_weight") if settings.get("rm3")]
    ranking = Bm25(settings["k1"], settings["b"], settings["depth"], Rm3(*expansion) if expansion else None)
    analysis = IndexConfig.model_validate(index.manifest["config"]["index"])
    search = Searcher(index.local(index.manifest["lucene"]), analysis, ranking)
    return lambda query: search([QUERY_ID], [query], threads=1)


def _dense(run: Artifact, settings: dict[str, Any]) -> Find:
    from rayrank.models.inference.embedder import Embedder
    from rayrank.models.pair_texts import PairTexts
    from rayrank.models.saved import load_model
    from rayrank.models.sentence_encoder import load_sentence_encoder
    from rayrank.retrieval.ann_index import open_index
    from rayrank.retrieval.dense import VectorIndex
    from rayrank.text.sentence_texts import QUERY, SentenceInputs

    vectors = _only_input(run)
    config = DenseConfig.model_validate(vectors.manifest["config"]["dense"])
    trained = vectors.manifest["inputs"].get("train_dense")
    encoder: Any = (
        load_model(Artifact(run.root, "train_dense", trained), StrmConfig(form="off"), np.empty(0, np.int8))
        if trained
        else load_sentence_encoder(config).eval()
    )
    prefixes = [vectors.manifest["sentence"][name] for name in ("query_prefix", "passage_prefix")]
    inputs = SentenceInputs.of(vectors.local("tokenizer"), None, prefixes, config.length)
    kept = corpus_of(run).manifest["config"]["text"]["query_pieces"]
    approximate = run.manifest.get("ann")
    index = VectorIndex(vectors, open_index(run, approximate) if approximate else None, in_memory=True)
    # An encoder keeps state while it reads a batch, and requests are answered in several threads.
    one_at_a_time = Lock()

    def find(query: str) -> pa.Table:
        pieces = inputs.pieces(pa.table({"text": [query]})).truncate(kept)
        texts = PairTexts(inputs.prefixes, pieces, inputs.template)
        with one_at_a_time:
            vector = Embedder(encoder, texts)(np.array([QUERY]), np.zeros(1, np.int64))
        # As float16, like the vectors of the dataset's queries.
        return index.candidates(pa.array([QUERY_ID]), vector.astype(np.float16), settings["depth"])

    return find


def _combined(run: Artifact, settings: dict[str, Any]) -> Find:
    from rayrank.scores.interpolation import Interpolation
    from rayrank.scores.union import Union, reciprocal_ranks

    sources, depth = [first_stage(source) for source in _sources(run)], settings["depth"]

    def find(query: str) -> pa.Table:
        tables = [source(query) for source in sources]
        if not any(map(len, tables)):
            return CANDIDATES.empty_table()
        if run.stage == "rrf":
            union = Union.of(tables)
            return union.table(reciprocal_ranks(union, settings["k"]), range(len(tables)), depth, True)
        weight = run.manifest["weight"]
        weights = tuple(weight) if isinstance(weight, list) else (1 - weight, weight)
        return Interpolation(tables, settings["normalize"]).run(weights, None, depth, True)

    return find


def _sources(run: Artifact) -> list[Artifact]:
    """Return the runs that a combiner reads, in its order."""
    if run.stage not in COMBINERS:
        return []
    inputs = run.manifest["inputs"]
    return [_of_any_kind(run.root, inputs[f"run:{name}"], name) for name in run.manifest["combined"]]


def _of_any_kind(root: str, key: str, name: str) -> Artifact:
    for folder in FOLDERS:
        if (found := Artifact(root, folder, key)).exists():
            return found
    raise ConfigError(f"The run {name} cannot be searched online: only runs of kind {', '.join(FOLDERS)} can.")


def _only_input(run: Artifact) -> Artifact:
    """Return the index or the vectors that a run searches."""
    (found,) = ((stage, key) for stage, key in run.manifest["inputs"].items() if stage != "corpus")
    return Artifact(run.root, *found)
