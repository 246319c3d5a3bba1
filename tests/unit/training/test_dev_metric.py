"""Dev is measured by the metric that the configuration selects models by, with the grades of the judgments."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from torch import nn

from rayrank.core.config import ListwiseConfig, PointwiseConfig, TrainingConfig
from rayrank.core.records import JUDGMENTS
from rayrank.measure.metrics import MRR_10, Measure
from rayrank.text.ragged import Ragged
from rayrank.training.data import Inputs, Split, TrainingData
from rayrank.training.phases import fine_tuning
from rayrank.training.phases.fine_tuning import dev_metric, first_stage_scores
from rayrank.training.phases.listwise import Listwise
from rayrank.training.phases.pointwise import Pointwise

# The scorer ranks q0's passages p1, p0, p2 and q1's p2, p1; q9 is not a dev query.
JUDGED = [("q0", "p0", 3), ("q0", "p1", 1), ("q0", "p2", 0), ("q1", "p1", 2), ("q1", "p2", 1), ("q9", "p0", 3)]
RANKED = {(0, 1): 3.0, (0, 0): 2.0, (0, 2): 1.0, (1, 2): 2.0, (1, 1): 1.0}


def scorer(queries: Any, passages: Any) -> Any:
    return np.array([RANKED[int(q), int(p)] for q, p in zip(queries, passages, strict=True)], np.float32)


@pytest.fixture
def data() -> TrainingData:
    dev = Split(np.arange(2), Ragged.of([[0], [1]]), Ragged.of([[0, 1, 2], [1, 2]]))
    rows = [dict(zip(JUDGMENTS.names, (*judged, "dev"), strict=True)) for judged in JUDGED]
    ids = pa.array(["q0", "q1", "q9"]), pa.array(["p0", "p1", "p2"])
    return TrainingData(*ids, Ragged.of([]), Ragged.of([]), {"dev": dev}, pa.Table.from_pylist(rows, JUDGMENTS))


def test_metrics_on_dev_are_worked_by_hand(data: TrainingData) -> None:
    def measured(measure: Measure) -> float:
        return dev_metric(data, data.splits["dev"], scorer, measure)

    discount = 1 / math.log2(3)
    first, second = (1 + 3 * discount) / (3 + discount), (1 + 2 * discount) / (2 + discount)
    assert measured(Measure("nDCG@5")) == measured(Measure("nDCG@5", 2)) == pytest.approx((first + second) / 2)
    assert measured(Measure("nDCG@1")) == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert measured(MRR_10) == 1.0
    assert measured(Measure("MRR@10", 2)) == 0.5
    assert measured(Measure("MRR@10", 3)) == 0.25


@pytest.mark.parametrize(("phase", "config"), [(Pointwise, PointwiseConfig()), (Listwise, ListwiseConfig())])
def test_both_phases_select_weights_by_the_measure_they_are_given(
    phase: Any, config: Any, inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fine_tuning, "scoring_copy", lambda model: model)
    monkeypatch.setattr(fine_tuning, "Scorer", lambda model, texts: lambda queries, rows: rows.astype(np.float32))

    dev = inputs.data.splits["dev"]
    measured = [
        phase(inputs, config, TrainingConfig(), Measure(name)).evaluate(nn.Identity())
        for name in ("MRR@10", "nDCG@5", "P@1")
    ]
    found = [total / count for total, count in measured]

    # The one positive of each query is ranked by its row among the candidates' rows.
    ranks = [int((dev.candidates[row] > dev.positives[row][0]).sum()) + 1 for row in range(len(dev.queries))]
    # Judgments tie nothing here, as rows are distinct.
    assert found[0] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    assert found[1] == pytest.approx(np.mean([1 / math.log2(rank + 1) if rank <= 5 else 0.0 for rank in ranks]))
    assert found[2] == pytest.approx(np.mean([rank == 1 for rank in ranks]))


def test_the_first_stage_keeps_its_order_after_any_number_of_pairs(data: TrainingData) -> None:
    scored = first_stage_scores(np.array([7, 7, 7, 2, 9, 9]), np.array([5, 1, 3, 1, 8, 0]))
    assert scored.tolist() == [-1, -2, -3, -1, -1, -2]
    assert scored.dtype == np.float32
    # q0's candidates are stored as p0, p1, p2 and q1's as p1, p2: only the first one has the highest grade first.
    assert dev_metric(data, data.splits["dev"], first_stage_scores, Measure("MRR@10", 3)) == 0.5
