"""A student learns the scores that a teacher gave to the training candidates."""

import math
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from rayrank.core.artifacts import Store
from rayrank.core.config import ListwiseConfig, PointwiseConfig, TrainingConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.core.overrides import build
from rayrank.core.records import CANDIDATES
from rayrank.training.data import Inputs
from rayrank.training.phases.listwise import Listwise
from rayrank.training.phases.pointwise import Pointwise
from rayrank.training.steps import TrainStep, adamw
from rayrank.training.teacher import Teacher, teacher_of

from .conftest import WORDS, tiny_model


def rows(inputs: Inputs, split: str, score: float = 0.0) -> pa.Table:
    """Every candidate of a split, scored by its first word unless a score is given."""
    data = inputs.data
    of = data.splits[split]
    pairs = [(int(query), int(row)) for index, query in enumerate(of.queries) for row in of.candidates[index]]
    ids = [[f"q{query}" for query, _ in pairs], [f"p{row}" for _, row in pairs]]
    return pa.table([*ids, [1] * len(pairs), [score or float(row % WORDS) for _, row in pairs]], schema=CANDIDATES)


def test_scores_are_found_by_pair_in_any_order_of_rows_and_files(inputs: Inputs) -> None:
    table = rows(inputs, "train")
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    teacher = Teacher.of(inputs.data, [shuffled.slice(0, 30), shuffled.slice(30), rows(inputs, "dev", 9.0)])

    query, passages = int(inputs.data.splits["train"].queries[3]), inputs.data.splits["train"].candidates[3]
    unscored = next(row for row in range(36) if row not in passages)
    asked = np.array([*passages, unscored])
    found = teacher.scores(np.full(len(asked), query), asked)

    assert found[:-1].tolist() == [float(row % WORDS) for row in passages]
    assert math.isnan(found[-1])
    # Only the training queries' scores are kept.
    dev = inputs.data.splits["dev"]
    assert np.isnan(teacher.scores(dev.queries[:1], dev.candidates[0][:1].astype(np.int64))).all()


@pytest.mark.parametrize("loss", ["kl", "margin_mse"])
def test_a_student_of_a_teacher_alone_takes_over_its_scores(inputs: Inputs, loss: str) -> None:
    """The teacher's scores do not depend on the query, so no label says what it says."""
    teacher = Teacher.of(inputs.data, [rows(inputs, "train")])
    config = ListwiseConfig(
        teacher="t", teacher_loss=loss, teacher_weight=1.0, temperature=4.0, negatives=6, batch_size=16, lr=3e-3
    )
    phase = Listwise(inputs, config, TrainingConfig(), teacher=teacher)
    torch.manual_seed(0)
    model = tiny_model(outputs=1, dropout=0.0)
    step = TrainStep(model, phase, adamw(model, config), config)

    losses = [step(phase.examples(epoch), seed=epoch)[0].item() for epoch in range(40)]

    assert losses[-1] < 0.2 * losses[0]
    assert phase.facts()["taught"] == {"positives": 1.0, "negatives": 1.0}


def test_the_losses_of_teacher_and_labels_are_mixed_by_weight_and_unscored_passages_count_for_labels_only(
    inputs: Inputs,
) -> None:
    table = rows(inputs, "train")
    teacher = Teacher.of(inputs.data, [table.filter(pa.array(np.arange(len(table)) % 2 == 0))])
    model = tiny_model(outputs=1, dropout=0.0)

    def loss(weight: float) -> float:
        config = ListwiseConfig(teacher="t", teacher_weight=weight, negatives=6)
        phase = Listwise(inputs, config, TrainingConfig(), teacher=teacher)
        return phase.loss(model, phase.prepare(model, phase.examples(0)))[0].item()

    plain = Listwise(inputs, ListwiseConfig(negatives=6), TrainingConfig())
    of_labels = plain.loss(model, plain.prepare(model, plain.examples(0)))[0].item()
    assert loss(0.25) == pytest.approx(0.75 * of_labels + 0.25 * loss(1.0), rel=1e-5)
    assert loss(1.0) != pytest.approx(of_labels, rel=1e-3)
    facts = Listwise(inputs, ListwiseConfig(teacher="t"), TrainingConfig(), teacher=teacher).facts()["taught"]
    assert 0 < facts["positives"] < 1
    assert 0 < facts["negatives"] < 1


def test_a_pointwise_student_learns_probabilities_of_which_labels_and_teacher_have_their_shares(
    inputs: Inputs,
) -> None:
    table = rows(inputs, "train")
    teacher = Teacher.of(inputs.data, [table.filter(pa.array(np.arange(len(table)) % 2 == 0))])
    config = PointwiseConfig(teacher="t", teacher_weight=0.75, temperature=4.0, negatives=6)
    phase = Pointwise(inputs, config, TrainingConfig(), teacher=teacher)

    queries, passages, labels = phase.examples(0).T
    found = phase.targets(queries, passages, labels)

    scores = teacher.scores(queries, passages)
    assert 0 < np.isnan(scores).sum() < len(scores)
    for label, score, target in zip(labels, scores, found, strict=True):
        mixed = 0.25 * label + 0.75 / (1 + math.exp(-score / 4))
        assert target == pytest.approx(label if math.isnan(score) else mixed, rel=1e-6)
    assert 0 < phase.facts()["taught"]["negatives"] < 1
    # Without a teacher the targets are the labels themselves.
    alone = Pointwise(inputs, PointwiseConfig(negatives=6), TrainingConfig())
    assert alone.targets(queries, passages, labels) is labels
    assert "taught" not in alone.facts()


def test_a_pointwise_student_of_a_teacher_alone_takes_over_its_probabilities(inputs: Inputs) -> None:
    """The teacher's scores do not depend on the query, so no label says what it says."""
    teacher = Teacher.of(inputs.data, [rows(inputs, "train")])
    config = PointwiseConfig(teacher="t", teacher_weight=1.0, temperature=4.0, negatives=6, batch_size=16, lr=1e-2)
    phase = Pointwise(inputs, config, TrainingConfig(), teacher=teacher)
    torch.manual_seed(0)
    model = tiny_model(outputs=2, dropout=0.0)
    step = TrainStep(model, phase, adamw(model, config), config)

    for epoch in range(40):
        step(phase.examples(epoch), seed=epoch)

    examples = phase.examples(0)
    scores = phase.loss(model, phase.prepare(model, examples))[1].detach().numpy()
    taught = teacher.scores(examples[:, 0], examples[:, 1]) / 4
    assert np.corrcoef(scores, taught)[0, 1] > 0.95


def test_a_teacher_without_scores_of_training_queries_is_an_error(inputs: Inputs, tmp_path: Path) -> None:
    config, store = build("demo", assignments=["listwise.teacher=pointwise"]), Store(str(tmp_path))
    artifact = store.artifact("run:pointwise@train", config)
    artifact.write_table("train/part-00000.parquet", rows(inputs, "dev"))
    store.finish(artifact, config, time.monotonic(), {}, "run:pointwise@train")

    with pytest.raises(DatasetError, match=r"listwise\.teacher=pointwise has scored no passage of a training query"):
        teacher_of("listwise", config, store, inputs.data)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["listwise.teacher=missing"], "listwise.teacher=missing cannot be used: there is no such run"),
        (["pointwise.teacher=missing"], "pointwise.teacher=missing cannot be used: there is no such run"),
        (["pointwise.teacher=pointwise"], "pointwise -> pointwise@train -> pointwise is a cycle"),
        (
            ["pointwise.teacher=bm25"],
            "pointwise.teacher=bm25 cannot be used: its scores are no logits, .* listwise.teacher=bm25",
        ),
        (
            ["runs.large={kind: file, paths: x}", "pointwise.teacher=large", "pointwise.pairs=judged"],
            "pointwise.teacher=large cannot be used with pointwise.pairs=judged: a teacher has scored candidates",
        ),
        (["listwise.teacher=drbert"], "listwise -> drbert@train -> listwise is a cycle"),
        (["listwise.negatives_from=provided"], "listwise.negatives_from=provided cannot be used: this run has no sc"),
        (
            ["candidates.first_stage=provided", "listwise.negative_ranks=[1, 5]"],
            "candidates.first_stage=provided cannot be used with listwise.negative_ranks: this run has no scores",
        ),
        (["listwise.negative_ranks=[5, 1]"], "the first rank is at least 1, and the last is not before it"),
        (["noise.run=provided"], "noise.run=provided cannot be used: this run has no scores; name another run"),
        (["listwise.teacher=provided"], "listwise.teacher=provided cannot be used: this run has no scores"),
        (
            ["runs.both={kind: interpolate, of: [pointwise, bm25]}", "listwise.teacher=both"],
            r"runs.both.weight is empty, .* as in runs.both.weight=\[1, 1\]",
        ),
    ],
)
def test_a_run_that_cannot_teach_is_one_sentence(settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build("demo", assignments=settings)
