"""With pointwise.pairs=judged the phase trains on every judged pair and measures accuracy on dev."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayrank.core.config import PipelineConfig, TrainingConfig
from rayrank.core.errors import DatasetError
from rayrank.core.records import JUDGMENTS
from rayrank.training.data import Inputs
from rayrank.training.phases.pointwise import JudgedPairs

from .conftest import tiny_model

CONFIG = PipelineConfig(training=TrainingConfig(dev_queries=None))


def judged(inputs: Inputs, grades: tuple[int, int] = (1, 0)) -> Inputs:
    """Return inputs whose judgments are one relevant and one other passage of every query, of the grades given."""
    rows = []
    for name, split in inputs.data.splits.items():
        for index, query in enumerate(split.queries):
            pair = (int(split.positives[index][0]), int(split.negatives(index)[0]))
            rows += [(f"q{query}", f"p{passage}", grade, name) for passage, grade in zip(pair, grades, strict=True)]
    table = pa.Table.from_pylist([dict(zip(JUDGMENTS.names, row, strict=True)) for row in rows], JUDGMENTS)
    return replace(inputs, data=replace(inputs.data, judgments=table, splits={}))


def test_an_epoch_has_every_judged_pair_once_in_an_order_of_its_own(inputs: Inputs) -> None:
    phase = JudgedPairs(judged(inputs), CONFIG)

    first, second = (phase.examples(epoch) for epoch in (0, 1))

    assert phase.num_examples() == 32
    assert sorted(map(tuple, first)) == sorted(map(tuple, second)) == sorted(map(tuple, phase.train))
    assert not np.array_equal(first, second)
    split = inputs.data.splits["train"]
    positives = {(int(query), int(split.positives[row][0])) for row, query in enumerate(split.queries)}
    assert {(query, passage) for query, passage, label in first.tolist() if label} == positives


def test_a_grade_below_relevant_from_is_a_negative(inputs: Inputs) -> None:
    dataset = CONFIG.dataset.model_copy(update={"relevant_from": 2})
    phase = JudgedPairs(judged(inputs, (2, 1)), CONFIG.model_copy(update={"dataset": dataset}))
    assert phase.train[:, 2].sum() == 16


def test_workers_shares_of_dev_add_up_and_dev_may_be_limited(inputs: Inputs) -> None:
    torch.manual_seed(0)
    model = tiny_model(2, dropout=0.0)
    phase = JudgedPairs(judged(inputs), CONFIG)
    shares = [phase.evaluate(model, rank, 3) for rank in range(3)]
    assert tuple(map(sum, zip(*shares, strict=True))) == phase.evaluate(model)
    assert phase.evaluate(model)[1] == 16
    few = CONFIG.model_copy(update={"training": TrainingConfig(dev_queries=5)})
    assert JudgedPairs(judged(inputs), few).evaluate(model)[1] == 5


@pytest.mark.parametrize(("bias", "num_correct"), [(5.0, 3.0), (-5.0, 2.0)])
def test_accuracy_counts_relevant_pairs_with_a_score_above_0_and_others_below(
    inputs: Inputs, bias: float, num_correct: float
) -> None:
    model = tiny_model(2, dropout=0.0)
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.copy_(torch.tensor([0.0, bias]))
    few = CONFIG.model_copy(update={"training": TrainingConfig(dev_queries=5)})
    phase = JudgedPairs(judged(inputs), few)

    assert phase.dev[:, 2].tolist() == [1, 0, 1, 0, 1]
    assert phase.evaluate(model) == (num_correct, 5)


def test_judgments_of_one_class_are_refused(inputs: Inputs) -> None:
    with pytest.raises(DatasetError, match="needs judged pairs that are relevant and others that are not"):
        JudgedPairs(judged(inputs, (1, 1)), CONFIG)
