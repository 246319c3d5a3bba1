"""Pre-training's loss weights all examples equally, on any number of workers, and training lowers it."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from transformers import BertConfig, BertModel

from rayrank.core.config import PretrainConfig, TrainingConfig
from rayrank.core.errors import TrainingStopped
from rayrank.models.encoder import Encoder
from rayrank.models.layers import compile_layers
from rayrank.models.pretraining import IGNORED, NEXT, PretrainingModel
from rayrank.text.ragged import Ragged
from rayrank.text.sentences import ENDS
from rayrank.text.words import ALONE, CONTINUES, STARTS
from rayrank.training import losses
from rayrank.training.loop import Log, fit
from rayrank.training.phases.pretrain import Pretraining, Vocabulary

from .conftest import Kept

PAD, CLS, SEP, MASK, UNKNOWN, FIRST = range(6)
LENGTH = 32
CHANCE = math.log(45) + math.log(2)
"""The loss of a model that knows nothing: any piece of the vocabulary below, and either answer."""
CONFIG = PretrainConfig(epochs=2, batch_size=16, lr=2e-3, length=LENGTH)


def vocabulary(end: int) -> Vocabulary:
    ids = np.arange(45)
    return Vocabulary(CLS, SEP, PAD, MASK, ids < FIRST, np.where(ids == end, ENDS, 0).astype(np.uint8))


def tiny_model(dropout: float = 0.0, words: np.ndarray | None = None) -> PretrainingModel:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=45, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=LENGTH, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    return PretrainingModel(Encoder(BertModel(config), words))


def topics(min_sentences: int = 2) -> Pretraining:
    """A language to learn: every passage keeps to five words of its own, in a fixed round."""
    rng = np.random.default_rng(3)
    rows = []
    for _ in range(160):
        topic, row = rng.integers(0, 7), []  # an eighth topic would have the piece that ends sentences
        for length in rng.integers(4, 8, rng.integers(min_sentences, 4)):
            row += [FIRST + 5 * int(topic) + (len(row) + k) % 5 for k in range(length)] + [44]
        rows.append(row)
    return Pretraining(Ragged.of(rows), vocabulary(44), CONFIG, 3)


def test_examples_without_masked_pieces_have_only_the_next_sentence_loss() -> None:
    # The piece that ends sentences is special too: such passages can be split, but nothing in them can be masked.
    phase = Pretraining(Ragged.of([[PAD, CLS, SEP, UNKNOWN] * 2] * 8), vocabulary(UNKNOWN), CONFIG, seed=7)
    model = tiny_model()

    loss, scores = phase.loss(model, phase.batch(phase.examples(0)))
    loss.backward()

    assert len(phase.batch(phase.examples(0)).labels) == 0
    assert scores.shape == (4,)
    assert loss.item() == pytest.approx(math.log(2), abs=0.1)
    assert all(weights.grad is not None for weights in model.parameters())


def mean_dev(phase: Pretraining, model: nn.Module) -> float:
    total, count = phase.evaluate(model)
    return total / count


def naive_loss(
    mlm: torch.Tensor, labels: list[int], owners: list[int], nsp: torch.Tensor, nsp_labels: list[int]
) -> float:
    """Example by example."""
    total = 0.0
    for example, label in enumerate(nsp_labels):
        mine = [place for place, owner in enumerate(owners) if owner == example]
        pieces = [-math.log(mlm[place].softmax(0)[labels[place]]) for place in mine]
        total += sum(pieces) / max(1, len(pieces))
        if label != IGNORED:
            total -= math.log(nsp[example].softmax(0)[label])
    return total / len(nsp_labels)


@pytest.mark.parametrize("seed", range(5))
def test_the_loss_equals_one_computed_example_by_example(seed: int) -> None:
    torch.manual_seed(seed)
    owners = torch.tensor([0, 0, 0, 1, 3, 3])  # The third has nothing masked.
    mlm, labels, nsp = torch.randn(6, 9), torch.randint(9, (6,)), torch.randn(4, 2)
    nsp_labels = torch.tensor([NEXT, 1 - NEXT, IGNORED, NEXT])[torch.randperm(4)]

    loss = losses.pretraining(mlm, labels, owners, nsp, nsp_labels)

    assert loss.item() == pytest.approx(
        naive_loss(mlm, labels.tolist(), owners.tolist(), nsp, nsp_labels.tolist()), abs=1e-5
    )


@pytest.mark.parametrize("min_sentences", [1, 2])
def test_the_loss_of_a_batch_is_the_weighted_mean_of_its_parts(min_sentences: int) -> None:
    phase, model = topics(min_sentences), tiny_model()
    examples = phase.examples(0)[:13]

    with torch.no_grad():
        whole, scores = phase.loss(model, phase.batch(examples))
        parts = [phase.loss(model, phase.batch(part)) for part in (examples[:2], examples[2:5], examples[5:])]

    counts = torch.bincount(phase.batch(examples).of_example)
    assert len(set(counts.tolist())) > 1
    assert whole.item() == pytest.approx(sum(len(s) * loss.item() for loss, s in parts) / 13, abs=1e-5)
    assert torch.allclose(scores, torch.cat([s for _, s in parts]), atol=1e-5, equal_nan=True)
    assert scores.isnan().any() == (min_sentences == 1)


@pytest.mark.parametrize("words", [None, np.array([ALONE] * FIRST + [STARTS, CONTINUES] * 20, np.int8)])
def test_a_packed_batch_masks_the_same_pieces_and_has_the_same_loss_and_gradients(words: np.ndarray | None) -> None:
    phase, model = topics(min_sentences=1), tiny_model(words=words).eval()
    padded = phase.batch(phase.examples(0)[:13])
    packed = phase._packed(padded)

    counts = packed.labels != IGNORED
    assert len(packed.labels) % 64 == 0
    assert packed.labels[counts].tolist() == padded.labels.tolist()
    assert packed.inputs.ids[packed.masked[counts]].tolist() == padded.inputs.ids.flatten()[padded.masked].tolist()
    found = []
    for batch in (padded, packed):
        model.zero_grad()
        loss, scores = phase.loss(model, batch)
        loss.backward()
        found.append((loss, scores, [weights.grad.clone() for weights in model.parameters()]))
    (loss, scores, gradients), (packed_loss, packed_scores, packed_gradients) = found
    assert packed_loss.item() == pytest.approx(loss.item(), abs=1e-5)
    assert torch.allclose(scores, packed_scores, atol=1e-5, equal_nan=True)
    for one, other in zip(gradients, packed_gradients, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_a_dev_measurement_compiles_nothing_and_leaves_the_model_in_training_mode() -> None:
    phase, model, counter = topics(), tiny_model().train(), CompileCounterWithBackend("eager")
    compile_layers(model.encoder.base, backend=counter)

    measured = mean_dev(phase, model)

    assert math.isfinite(measured)
    assert counter.frame_count == 0
    assert all(module.training for module in model.modules())


def test_a_model_with_zero_weights_has_the_loss_of_guessing() -> None:
    phase, model = topics(), tiny_model()
    with torch.no_grad():
        for weights in (model.next_sentence.weight, model.encoder.base.get_input_embeddings().weight):
            weights.zero_()
        loss, scores = phase.loss(model, phase.batch(phase.examples(0)))

    assert loss.item() == pytest.approx(CHANCE, abs=1e-4)
    assert scores.std() == 0


def train(model: nn.Module, phase: Pretraining, kept: Kept | None = None, **changes: Any) -> list[Log]:
    lines: list[Log] = []
    fit(
        model, phase, CONFIG.model_copy(update=changes), training=TrainingConfig(), device=torch.device("cpu"),
        checkpoint=kept or Kept(), log=lines.append,
    )  # fmt: skip
    return lines


def test_a_resumed_pretraining_ends_with_the_weights_of_an_uninterrupted_one() -> None:
    unbroken, resumed, kept = tiny_model(dropout=0.1), tiny_model(dropout=0.1), Kept(dies_after=1)
    train(unbroken, topics())
    with pytest.raises(KeyboardInterrupt):
        train(tiny_model(dropout=0.1), topics(), kept)

    train(resumed, topics(), kept)

    assert len(kept.states) > 1
    for name, weights in unbroken.state_dict().items():
        assert torch.equal(weights, resumed.state_dict()[name]), name


def test_a_model_with_collapsed_scores_is_stopped_even_if_dropout_makes_them_differ() -> None:
    phase, model = topics(), tiny_model(dropout=0.1)

    with pytest.raises(TrainingStopped, match="The scores collapsed: at step "):
        train(model, phase, epochs=30, lr=0.3)


def test_training_lowers_the_loss_on_held_out_passages() -> None:
    phase, model = topics(), tiny_model()
    before = mean_dev(phase, model)

    lines = train(model, phase, epochs=20, lr=5e-3)

    assert -before > 0.9 * CHANCE
    assert lines[-1].dev == mean_dev(phase, model)
    # The frequencies of the pieces alone are worth 0.94.
    assert -mean_dev(phase, model) < 0.75 * CHANCE
    assert model.training


def test_a_corpus_of_one_sentence_passages_trains_masked_words() -> None:
    rows = [[FIRST + 5 * (row % 8) + k % 5 for k in range(8 + row % 5)] for row in range(160)]
    phase, model = Pretraining(Ragged.of(rows), vocabulary(44), CONFIG, 3), tiny_model()
    before = mean_dev(phase, model)

    train(model, phase, epochs=20, lr=5e-3)

    assert -before == pytest.approx(math.log(45), abs=0.3)
    assert -mean_dev(phase, model) < 0.75 * math.log(45)


def test_micro_batches_train_the_same_model() -> None:
    whole, pieces = tiny_model(), tiny_model()
    curves = [
        [line.loss for line in train(whole, topics())],
        [line.loss for line in train(pieces, topics(), micro_batch_size=3)],
    ]

    assert curves[0] == pytest.approx(curves[1], abs=1e-4)


def _worker(rank: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.set_num_threads(1)
    lines = train(nn.parallel.DistributedDataParallel(tiny_model()), topics(min_sentences=1))
    torch.save([(line.loss, line.dev) for line in lines], f"{folder}/lines-{rank}.pt")
    dist.destroy_process_group()


def test_two_workers_train_and_measure_as_one_does(tmp_path: Path) -> None:
    alone = train(tiny_model(), topics(min_sentences=1))

    multiprocessing.spawn(_worker, args=(str(tmp_path),), nprocs=2)

    for rank in range(2):
        together = torch.load(tmp_path / f"lines-{rank}.pt")
        assert [loss for loss, _ in together] == pytest.approx([line.loss for line in alone], abs=1e-4)
        assert [dev for _, dev in together] == pytest.approx([line.dev for line in alone], abs=1e-4)
