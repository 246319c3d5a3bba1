"""What exported pairs of dev have with a fusion: their features, and golden pairs their fused scores."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rayrank.bundle.golden import GoldenPair, of_queries
from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.records import CANDIDATES
from rayrank.runs.making import read_run
from rayrank.scores.fusion import Feature, Fusion, feature_values
from rayrank.scores.union import Union


def with_fused_scores(
    pairs: Sequence[GoldenPair], ids: pa.Table, fusion: Fusion, config: PipelineConfig, store: Store
) -> tuple[GoldenPair, ...]:
    """Return golden pairs of dev with their features and fused scores; `ids` are their (query_id, passage_id)."""
    found = [
        pair.model_copy(update={"features": features})
        for pair, features in zip(pairs, features_of(ids, fusion, config, store), strict=True)
    ]
    for places in of_queries(found):
        scores = _fused([found[place] for place in places], fusion)
        for place, score in zip(places, scores, strict=True):
            found[place] = found[place].model_copy(update={"fused": score})
    return tuple(found)


def features_of(ids: pa.Table, fusion: Fusion, config: PipelineConfig, store: Store) -> list[dict[str, float]]:
    """Return the features of dev's pairs that the model's score is fused with, without those that a pair lacks."""
    found: list[dict[str, float]] = [{} for _ in range(len(ids))]
    for feature in fusion.features:
        if feature.name == fusion.model:
            continue
        of_kind = _of_run if feature.kind == "run" else _of_field
        for own, value in zip(found, of_kind(feature, ids, config, store), strict=True):
            if value is not None:
                own[feature.name] = value
    return found


def _of_run(feature: Feature, ids: pa.Table, config: PipelineConfig, store: Store) -> list[float | None]:
    """Return a run's score of each pair, None for a pair that the run does not have."""
    wanted = pc.unique(ids["query_id"])
    scores: dict[tuple[str, str], float] = {}
    for table in read_run(store.require(flow.run_node(feature.name, config), config), "dev"):
        rows = table.filter(pc.is_in(table["query_id"], value_set=wanted)).to_pydict()
        scores |= dict(zip(zip(rows["query_id"], rows["passage_id"], strict=True), rows["score"], strict=True))
    return [scores.get((row["query_id"], row["passage_id"])) for row in ids.to_pylist()]


def _of_field(feature: Feature, ids: pa.Table, config: PipelineConfig, store: Store) -> list[float | None]:
    """Return the field of each pair's passage, None for a passage that does not have it."""
    table = store.require("passage_fields", config).read_table("fields.parquet", ["passage_id", feature.name])
    rows = table.filter(pc.is_in(table["passage_id"], value_set=pc.unique(ids["passage_id"]))).to_pydict()
    values = dict(zip(rows["passage_id"], rows[feature.name], strict=True))
    return [values.get(passage_id) for passage_id in ids["passage_id"].to_pylist()]


def _fused(pairs: Sequence[GoldenPair], fusion: Fusion) -> list[float]:
    """Return the fused scores of one query's pairs, joined and normalised as a run of kind fuse does."""
    runs, fields = ([each.name for each in fusion.features if each.kind == kind] for kind in ("run", "field"))
    union = Union.of([_rows(pairs, name, fusion.model) for name in runs])
    places = [int(name) for name in union.pairs["passage_id"].to_pylist()]
    columns = np.array([[pairs[place].features.get(name, np.nan) for name in fields] for place in places])
    values = feature_values(union, range(len(runs)), fusion.features, columns, fusion.normalize)
    scores = np.empty(len(pairs))
    scores[places] = fusion.scores(values)
    found: list[float] = scores.tolist()
    return found


def _rows(pairs: Sequence[GoldenPair], name: str, model: str) -> pa.Table:
    """Return the rows that a run has of one query's pairs, whose passages are named by their places."""
    scores = [pair.score if name == model else pair.features.get(name) for pair in pairs]
    rows = [("", str(place), place + 1, score) for place, score in enumerate(scores) if score is not None]
    columns = zip(*rows, strict=True) if rows else [()] * len(CANDIDATES)
    return pa.table([list(column) for column in columns], schema=CANDIDATES)
