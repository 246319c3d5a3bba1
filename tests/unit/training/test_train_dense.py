"""Training of the sentence encoder: which passages are negatives, and that it learns."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import BertConfig, BertModel

from rayrank.core.config import TrainDenseConfig, TrainingConfig
from rayrank.core.errors import DatasetError
from rayrank.core.records import JUDGMENTS
from rayrank.models.encoder import Encoder
from rayrank.models.pair_texts import PairTexts
from rayrank.models.sentence_encoder import SentenceEncoder
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.training import losses
from rayrank.training.data import Split, TrainingData
from rayrank.training.phases.train_dense import TrainDense

NUM_QUERIES, NUM_PASSAGES = 6, 8


def _phase(negatives: int = 2, positives: list[list[int]] | None = None) -> TrainDense:
    """Query i has answer i; queries 0 and 1 share the answers 0 and 1."""
    answers = positives or [[0, 1], [1, 0], [2], [3], [4], [5]]
    candidates = [[0, 1, 6, 7], [1, 6], [2, 7, 6], [3], [4, 6, 7], [5, 0]]
    template = Template(cls_id=1, sep_id=2, pad_id=0, length=8, query_length=8)
    texts = Ragged.of([[10 + row] for row in range(NUM_QUERIES)] + [[10 + row, 30] for row in range(NUM_PASSAGES)])
    split = Split(np.arange(len(answers)), Ragged.of(answers), Ragged.of(candidates[: len(answers)]))
    ids = pa.array([str(row) for row in range(NUM_PASSAGES)])
    rows = [(str(q), str(p), 1, "dev") for q, found in enumerate(answers) for p in found]
    judged = pa.Table.from_pylist([dict(zip(JUDGMENTS.names, row, strict=True)) for row in rows], schema=JUDGMENTS)
    data = TrainingData(ids[:NUM_QUERIES], ids, Ragged.of([]), Ragged.of([]), {}, judged)
    pairs = PairTexts(Ragged.of([[1], [1]]), texts, template)
    config = TrainDenseConfig(negatives=negatives)
    return TrainDense(pairs, data, {"train": split, "dev": split}, config, TrainingConfig())


def _model() -> SentenceEncoder:
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="sdpa",
    )  # fmt: skip
    return SentenceEncoder(Encoder(BertModel(shape), None), "mean", normalize=True)


def test_the_loss_is_the_cross_entropy_of_the_answer_among_passages_that_count() -> None:
    scores = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]])
    excluded = torch.tensor([[False, True, False], [False, False, False]])
    first = -np.log(np.exp(2) / (np.exp(2) + 1))
    second = -np.log(np.e / (1 + np.e + np.exp(3)))
    assert losses.in_batch(scores, excluded).item() == pytest.approx((first + second) / 2, rel=1e-6)


def test_a_passage_that_is_relevant_to_a_query_is_never_its_negative() -> None:
    phase, model = _phase(), _model()
    examples = [(0, np.array([0, 6, 7])), (1, np.array([1, 6, -1])), (2, np.array([2, 7, 6]))]
    excluded = phase.prepare(model, examples).excluded.numpy()
    # Passages: answers 0 1 2, first negatives 6 6 7, second negatives 7 - 6.
    assert excluded.tolist() == [
        [False, True, False, False, False, False, False, True, False],
        [True, False, False, False, False, False, False, True, False],
        [False, False, False, False, False, False, False, True, False],
    ]


def test_examples_are_a_function_of_the_epoch_and_negatives_are_not_judged_relevant() -> None:
    first, again, other = _phase().examples(0), _phase().examples(0), _phase().examples(1)
    assert [(place, rows.tolist()) for place, rows in first] == [(place, rows.tolist()) for place, rows in again]
    assert [place for place, _ in first] != [place for place, _ in other]
    assert sorted(place for place, _ in first) == list(range(NUM_QUERIES))
    answers = [{0, 1}, {0, 1}, {2}, {3}, {4}, {5}]
    for place, (answer, *negatives) in [(place, rows.tolist()) for place, rows in first]:
        assert answer in answers[place]
        assert not answers[place] & set(negatives)


def test_training_raises_the_dev_metric_to_its_maximum() -> None:
    phase, model = _phase(), _model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(25):
        loss, _ = phase.loss(model, phase.prepare(model, phase.examples(epoch)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total, count = phase.evaluate(model)
    assert total / count == pytest.approx(1.0)


def test_shares_of_dev_add_up_to_the_whole() -> None:
    phase, model = _phase(), _model()
    whole = phase.evaluate(model)
    shares = [phase.evaluate(model, rank, 4) for rank in range(4)]
    assert sum(count for _, count in shares) == whole[1]
    assert sum(total for total, _ in shares) == pytest.approx(whole[0])


def test_a_single_training_query_is_refused_because_it_has_no_negatives() -> None:
    with pytest.raises(DatasetError, match="two training queries"):
        _phase(positives=[[0]])
