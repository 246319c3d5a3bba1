"""Windows: a ranker's run with another score of passages that were read in windows than that of the best window."""

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field

from rayrank.core import flow
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.records import CANDIDATES, DEV
from rayrank.core.run_kinds import RunInMaking, RunKind, RunSettings
from rayrank.data.qrels import qrels_of
from rayrank.data.rows import by_query
from rayrank.measure.metrics import JudgedRows, Measure, parse
from rayrank.scores.interpolation import Weights, WeightSearch
from rayrank.scores.union import Values
from rayrank.scores.window_scores import aggregate, best_windows

WINDOWS = "windows"
"""The folder of an artifact with the scores of windows: `windows/SPLIT/part-*.parquet`."""


class WindowSettings(RunSettings):
    """How a passage's score follows from those of its windows."""

    of: str = Field(description="the run of kind rerank that scored the windows")
    score: Literal["max", "first", "mean", "top"] = Field(
        default="top", description="top: the weighted sum of the best windows, with the weights that are best on dev"
    )
    windows: int = Field(default=3, ge=1, le=20, description="how many of the best windows score=top adds")


class WindowRun(RunKind):
    """The passages of a ranker's run, scored anew from the stored scores of their windows.

    With score=top, each half of the dev queries is scored with the weights that are best on the other half, so that dev
    metrics are not too high.
    """

    Settings = WindowSettings

    def inputs(self, settings: WindowSettings, config: PipelineConfig) -> tuple[str, ...]:
        if settings.of not in flow.pair_rankers(config) or config.input.long_passages != "windows":
            raise ConfigError(
                f"A run of kind windows cannot be made of {settings.of}: name a run of kind rerank with "
                f"model=pointwise or model=listwise, and set input.long_passages=windows."
            )
        return ("corpus",)

    def key(self, settings: WindowSettings, config: PipelineConfig) -> dict[str, Any]:
        metric = {"metric": config.training.metric} if settings.score == "top" else {}
        return {**super().key(settings, config), **metric}

    def make(self, run: RunInMaking) -> dict[str, Any]:
        weights: Weights = ()
        own: dict[str, Weights] = {}
        search = _search(run) if run.settings.score == "top" else None
        if run.settings.score == "top":
            weights = search.best() if search else (1.0, *[0.0] * (run.settings.windows - 1))
            own = search.cross_fitted() if search else {}
        for split in run.splits:
            for name in _files(run, split):
                rows = run.source(run.settings.of).read_table(name)
                scored = _scored(rows, run.settings, weights, own if split == DEV else {})
                run.artifact.write_table(name.removeprefix(f"{WINDOWS}/"), scored)
        return {"weights": list(weights), "findings": [_finding(run, weights, search)]} if weights else {}


def _finding(run: RunInMaking, weights: Weights, search: WeightSearch | None) -> str:
    if search is None:
        return f"{run.name}: the best window alone, since no {DEV} candidates exist to tune weights on"
    shares = ", ".join(f"{weight:.2f}" for weight in weights)
    best = f"{run.config.training.metric} {search.mean(weights):.4f}"
    return f"{run.name}: the weights of the best windows are {shares}, the best on {DEV}: {best}"


def _search(run: RunInMaking) -> WeightSearch | None:
    """Return the search for the weights of the best windows on dev; None if the run has no rows there."""
    if DEV not in run.splits or not (files := _files(run, DEV)):
        return None
    rows = pa.concat_tables([run.source(run.settings.of).read_table(name) for name in files])
    qrels = qrels_of(run.store.require("corpus", run.config), DEV)
    measure, best = Measure.of(run.config), _best(rows, run.settings.windows)
    judged = JudgedRows(qrels, rows, measure.relevant_from)

    def measured(weights: Weights) -> Values:
        metric = {measure.name: parse(measure.name)}
        return judged.measure((best @ np.array(weights)).astype(np.float32), metric).values[measure.name]

    return WeightSearch(judged.query_ids, run.settings.windows, measured)


def _files(run: RunInMaking, split: str) -> list[str]:
    return run.source(run.settings.of).names(f"{WINDOWS}/{split}")


def _scored(rows: pa.Table, settings: WindowSettings, weights: Weights, own: dict[str, Weights]) -> pa.Table:
    if settings.score == "top":
        query_ids, of_query = by_query(rows)
        of_row = np.array([own.get(query_id, weights) for query_id in query_ids]).reshape(-1, len(weights))[of_query]
        scores = (_best(rows, settings.windows) * of_row).sum(1).astype(np.float32)
    else:
        scores = aggregate(*_windows(rows), settings.score)
    columns = [rows[name] for name in ("query_id", "passage_id", "rank")]
    return pa.table([*columns, scores], schema=CANDIDATES)


def _best(rows: pa.Table, number: int) -> NDArray[np.float32]:
    return best_windows(*_windows(rows), number)


def with_window_scores(pairs: pa.Table, scores: NDArray[np.float32], counts: NDArray[np.int64]) -> pa.Table:
    """Return pairs with a list of the scores of their windows each."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    return pairs.append_column("window_scores", pa.ListArray.from_arrays(pa.array(offsets), pa.array(scores)))


def _windows(rows: pa.Table) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the scores of all windows, and how many each row has."""
    lists = rows["window_scores"]
    scores = pc.list_flatten(lists).to_numpy()
    return scores, pc.list_value_length(lists).to_numpy().astype(np.int64)
