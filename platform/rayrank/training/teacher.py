"""A teacher's scores of the training candidates, looked up by the rows of queries and passages."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import FineTuningConfig, PipelineConfig
from rayrank.core.errors import DatasetError
from rayrank.data.ids import PairLookup
from rayrank.text.ragged import Rows
from rayrank.training.data import Split, TrainingData, read_candidates


@dataclass(frozen=True)
class Teacher:
    """The scores of pairs, as two arrays that are sorted by pair: twelve bytes a pair."""

    pairs: NDArray[np.int64]
    values: NDArray[np.float32]

    @classmethod
    def of(cls, data: TrainingData, files: Iterable[pa.Table]) -> "Teacher":
        """Keep the scores of the training queries' pairs."""
        lookup, train = PairLookup(data.query_ids, data.passage_ids), data.splits["train"].queries
        pairs, values = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
        for table in files:
            queries, passages = lookup(table)
            known = np.isin(queries, train) & (passages >= 0)
            pairs.append(_codes(queries[known], passages[known]))
            values.append(table["score"].to_numpy()[known])
        joined, scores = np.concatenate(pairs), np.concatenate(values)
        order = np.argsort(joined, kind="stable")
        return cls(joined[order], scores[order])

    def scores(self, queries: Rows, passages: Rows) -> NDArray[np.float32]:
        """Return the score of each pair, NaN for a pair that the teacher has not scored."""
        if not len(self.pairs):
            return np.full(len(queries), np.nan, np.float32)
        wanted = _codes(queries, passages)
        places = np.searchsorted(self.pairs, wanted).clip(max=len(self.pairs) - 1)
        return np.where(self.pairs[places] == wanted, self.values[places], np.float32(np.nan))

    def shares(self, split: Split, indices: Iterable[int]) -> dict[str, float]:
        """Return which shares of the relevant passages and of the negatives of some queries the teacher has scored."""
        all_rows, scored = Counter[str](), Counter[str]()
        for index in indices:
            positives, negatives = split.positives[index].astype(np.int64), split.negatives(index)
            for name, rows in (("positives", positives), ("negatives", negatives)):
                scores = self.scores(np.full(len(rows), split.queries[index]), rows)
                all_rows[name] += len(rows)
                scored[name] += int((~np.isnan(scores)).sum())
        return {name: scored[name] / count for name, count in all_rows.items()}


def teacher_of(phase: str, config: PipelineConfig, store: Store, data: TrainingData) -> Teacher | None:
    """Return the scores of the run that a phase's setting `teacher` names, None if it names none."""
    settings: FineTuningConfig = getattr(config, phase)
    name = settings.teacher
    if not name:
        return None
    rows = read_candidates(store.require(flow.run_node(name, config, train=True), config), "train")
    found = Teacher.of(data, rows)
    if not len(found.pairs):
        raise DatasetError(
            f"{phase}.teacher={name} has scored no passage of a training query: name a run with rows of the train "
            f"split."
        )
    return found


def _codes(queries: Rows, passages: Rows) -> NDArray[np.int64]:
    return queries << 32 | passages
