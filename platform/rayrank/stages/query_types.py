"""Query types: for each query the dataset's own label or a prediction."""

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.languages import ENGLISH
from rayrank.core.progress import progress
from rayrank.text import query_types

AT_ONCE = 8192
"""Queries classified between two updates of the progress bar."""


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the query types artifact: query_types.parquet (query_id, query_type) with every query of the corpus."""
    if done := store.find("query_types", config):
        return done
    started = time.monotonic()
    artifact, corpus = store.artifact("query_types", config), store.require("corpus", config)
    queries = corpus.read_table("queries.parquet", ["query_id", "split", "query_type", "text"]).combine_chunks()
    unlabelled = pc.equal(pc.fill_null(queries["query_type"], ""), "")
    wanted = pa.repeat(True, len(queries)) if config.query_types.ignore_labels else unlabelled.combine_chunks()
    predicted = _predict(queries["text"].filter(wanted).to_pylist(), config, store)
    types = pc.replace_with_mask(queries["query_type"].combine_chunks(), wanted, pa.array(predicted, pa.string()))
    artifact.write_table("query_types.parquet", pa.table({"query_id": queries["query_id"], "query_type": types}))
    facts = {
        "num_queries": len(queries),
        "num_labelled": len(queries) - len(predicted),
        "num_predicted": len(predicted),
        "types": _counts(types),
        "splits": {
            split: _counts(types.filter(pc.equal(queries["split"], split)))
            for split in sorted(pc.unique(queries["split"]).to_pylist())
        },
    }
    return store.finish(artifact, config, started, {**facts, **_about_language(len(predicted), config)})


def _about_language(num_predicted: int, config: PipelineConfig) -> dict[str, list[str]]:
    """Return a finding if the rules had to predict types in a language that they do not read."""
    language = config.index.language
    if not num_predicted or language == ENGLISH or config.query_types.predict != "rules":
        return {}
    sentence = (
        f"query types: the rules that predict query types read English; index.language={language}, so "
        f"{num_predicted:,} queries got the type {query_types.DEFAULT}: query_types.predict=trained predicts types in "
        f"any language, input.query_type=false trains without them."
    )
    return {"findings": [sentence]}


def _predict(texts: Sequence[str], config: PipelineConfig, store: Store) -> list[str]:
    if config.query_types.predict == "rules":
        return query_types.predict(texts, config.query_types.abbreviation, config.index.language)
    trained = store.require("query_typer", config)
    # Imported only here: torch takes seconds to load, and the rules do not need it.
    from rayrank.models.query_typer import load_typer

    typer = load_typer(trained)
    found: list[str] = []
    with progress("query types", len(texts), "queries") as advance:
        for start in range(0, len(texts), AT_ONCE):
            found += typer(texts[start : start + AT_ONCE])
            advance(len(found) - start)
    return found


def _counts(types: pa.ChunkedArray) -> dict[str, Any]:
    """Return how many queries are of each type, most frequent first."""
    pairs = [(entry["values"], entry["counts"]) for entry in pc.value_counts(types).to_pylist()]
    return dict(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))
