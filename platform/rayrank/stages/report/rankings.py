"""What the evaluated runs show: which answers are within reach, where a run wins and loses, what a score means."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from rayrank.core import flow
from rayrank.core.artifacts import Store, digest_of
from rayrank.core.config import PipelineConfig
from rayrank.core.run_kinds import CANDIDATES
from rayrank.data.qrels import qrels_of
from rayrank.measure.metrics import JudgedRows, Measure, parse
from rayrank.measure.places import places, shares
from rayrank.runs.reading import dev_pairs, measured_split, read_named
from rayrank.scores.confidence import confidence
from rayrank.stages.comparison import Side, compare_sides

MOST_POINTS = 2000
"""Queries of the curve of differences that are kept, evenly spaced."""
RESAMPLED = 50_000_000
"""Values that a test of the comparison draws at most: with many queries it has fewer resamples, which suffice then."""
FEWEST = 500


@dataclass(frozen=True)
class Measured:
    """Runs with the judgments of the split that they are measured on."""

    names: list[str]
    split: str
    qrels: pa.Table
    config: PipelineConfig
    store: Store

    @classmethod
    def of(cls, names: list[str], config: PipelineConfig, store: Store) -> "Measured | None":
        """Read the judgments from storage; None if the first stage has no rows there to compare with."""
        corpus, first = store.require("corpus", config), store.find(CANDIDATES, config)
        split = measured_split(config.evaluate, corpus)
        if first is None or not any(first.num_rows(name) for name in first.names(split)):
            return None
        return cls(names, split, qrels_of(corpus, split), config, store)


def reach(measured: Measured) -> dict[str, Any]:
    """Return on which ranks every run has the first relevant passage, and what a perfect ranker would reach."""
    runs, best = [], 0.0
    for number, name in enumerate(measured.names):
        rows = read_named(name, measured.split, measured.config, measured.store)
        found = places(measured.qrels, rows, measured.config.dataset.relevant_from)
        runs.append({
            "title": flow.title(name, measured.config),
            "shares": asdict(shares(found.first)),
            "recall": [{"rank": rank, "recall": value} for rank, value in found.recall.items()],
        })  # fmt: skip
        if number == 0:
            measure = Measure.of(measured.config)
            judged = JudgedRows(measured.qrels, rows, measure.relevant_from)
            best = judged.measure_best({measure.name: parse(measure.name)}).means()[measure.name]
    return {"num_queries": len(measured.qrels["query_id"].unique()), "perfect_ranker": best, "runs": runs}


def comparison(name: str, measured: Measured, num_cases: int) -> dict[str, Any] | None:
    """Return one run against the first stage, query by query; None without a run to compare."""
    if not name:
        return None
    config = measured.config
    drawn = resamples(config, len(measured.qrels["query_id"].unique()))
    chosen = {"run": name, "baseline": config.candidates.first_stage, "resamples": drawn}
    config = config.model_copy(update={"evaluate": config.evaluate.model_copy(update=chosen)})
    side, first = (Side(flow.title(each, config), each, config) for each in (name, CANDIDATES))
    found = compare_sides(side, first, config, measured.store, num_cases).to_json()
    found["differences"] = thinned(found["differences"])
    return found


def calibration(names: list[str], config: PipelineConfig, store: Store) -> dict[str, Any] | None:
    """Return how well the last model's scores, once calibrated, tell how often it is right on dev."""
    ranked = [name for name in flow.pair_rankers(config) if name in names]
    artifact = store.find(flow.run_node(ranked[-1], config), config) if ranked else None
    if artifact is None or not artifact.names("dev"):
        return None
    scores, relevant, query_ids = dev_pairs(artifact, config, store)
    if not relevant.any() or relevant.all() or len(np.unique(query_ids)) < 2:
        return None
    return {"title": flow.title(ranked[-1], config), **confidence(scores, relevant, query_ids)}


def resamples(config: PipelineConfig, num_queries: int) -> int:
    """Return how often a test of the report resamples."""
    return min(config.evaluate.resamples, max(FEWEST, RESAMPLED // num_queries))


def judged(measured: Measured) -> str:
    """Return a digest of the judgments, which is the same for two storages that measure on the same ones."""
    rows = measured.qrels.select(["query_id", "passage_id", "relevance"])
    rows = rows.sort_by([("query_id", "ascending"), ("passage_id", "ascending")])
    return digest_of([measured.split, *(rows[name].to_pylist() for name in rows.column_names)])


def thinned(differences: list[float]) -> list[dict[str, float]]:
    """Return evenly spaced places of a sorted list, the first and the last among them."""
    kept = np.unique(np.linspace(0, len(differences) - 1, MOST_POINTS).astype(int))
    return [{"query": int(place) + 1, "difference": differences[place]} for place in kept]
