"""Query typer: a classifier of queries, trained on labelled questions."""

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.data.labelled_questions import Labelled, read_labelled, type_names
from rayrank.models.query_typer import NAMES
from rayrank.stages.training import train
from rayrank.text.pieces import PieceEncoder, load_tokenizer, save_tokenizer
from rayrank.training.phases import query_typer
from rayrank.training.phases.query_typer import QUESTIONS


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the typer artifact: model/, types.json in the order of its outputs, tokenizer/, questions.parquet."""
    if done := store.find("query_typer", config):
        return done
    rows = _labelled(config, store)
    types = type_names([row.query_type for row in rows], _source(config))
    _write_questions(store.artifact("query_typer", config), config, rows, types)
    counts = dict(Counter(row.query_type for row in rows).most_common())
    return train(query_typer, config, store, num_questions=len(rows), types=counts)


def _write_questions(artifact: Artifact, config: PipelineConfig, rows: list[Labelled], types: list[str]) -> None:
    """Store the questions for the workers, which may not see the file of labels on this machine."""
    tokenizer = load_tokenizer(config.text.tokenizer)
    save_tokenizer(tokenizer, artifact)
    artifact.write_json(NAMES, types)
    encode = PieceEncoder(tokenizer.backend_tokenizer.to_str(), config.text.query_pieces)
    numbers = [types.index(row.query_type) for row in rows]
    table = {"type": pa.array(numbers, pa.int64()), "piece_ids": encode([row.text for row in rows])}
    artifact.write_table(QUESTIONS, pa.table(table))


def _source(config: PipelineConfig) -> str:
    return f"typer.labels={config.typer.labels}" if config.typer.labels else "The train split of the dataset"


def _labelled(config: PipelineConfig, store: Store) -> list[Labelled]:
    if config.typer.labels:
        return read_labelled(config.typer.labels, key="typer.labels")
    queries = store.require("corpus", config).read_table("queries.parquet", ["split", "query_type", "text"])
    chosen = pc.and_(pc.equal(queries["split"], "train"), pc.not_equal(queries["query_type"], ""))
    found = queries.filter(chosen)
    if not len(found):
        raise ConfigError(
            "typer.labels is empty, and no training query of the dataset has a type: name a file of labelled questions "
            "with --set typer.labels=FILE."
        )
    return [Labelled(*row) for row in zip(found["query_type"].to_pylist(), found["text"].to_pylist(), strict=True)]
