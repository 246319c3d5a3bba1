"""Pre-training examples have correct labels, and are a function of seed, epoch and passage."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from rayrank.core.config import MINILM, PretrainConfig
from rayrank.core.errors import ConfigError
from rayrank.models.pretraining import IGNORED, NEXT
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.sentences import ENDS
from rayrank.training.phases.pretrain import Batch, Pretraining, Vocabulary

PAD, CLS, SEP, MASK, UNKNOWN, FIRST = range(6)
LENGTH = 32
CONFIG = PretrainConfig(epochs=2, batch_size=16, lr=2e-3, length=LENGTH)


class Traced:
    """Passages in which no piece occurs twice, so that each tells where it is from."""

    def __init__(self, num_passages: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.rows: list[list[int]] = []
        self.place: dict[int, tuple[int, int]] = {}
        self.starts: list[list[int]] = []
        next_id, ends = FIRST, []
        for row in range(num_passages):
            lengths = rng.integers(4, 14, rng.integers(1, 7))
            pieces = list(range(next_id, next_id + lengths.sum()))
            next_id += len(pieces)
            ends += [pieces[end - 1] for end in np.cumsum(lengths)]
            self.place.update({piece: (row, k) for k, piece in enumerate(pieces)})
            self.starts.append([0, *np.cumsum(lengths)[:-1].tolist()])
            self.rows.append(pieces)
        self.size = next_id
        table = np.zeros(self.size, np.uint8)
        table[ends] = ENDS
        self.vocabulary = vocabulary(table)

    def phase(self, **changes: Any) -> Pretraining:
        return Pretraining(Ragged.of(self.rows), self.vocabulary, CONFIG.model_copy(update=changes), seed=7)


def vocabulary(table: np.ndarray) -> Vocabulary:
    return Vocabulary(CLS, SEP, PAD, MASK, np.arange(len(table)) < FIRST, table)


@pytest.fixture(scope="module")
def traced() -> Traced:
    return Traced(3000)


def restored(batch: Batch) -> Iterator[tuple[list[int], list[int], bool | None]]:
    """The two halves of each example with nothing masked, and whether they belong together; None with one half."""
    ids = batch.inputs.ids.clone()
    ids.view(-1)[batch.masked] = batch.labels
    for row, present, types, label in zip(ids, *batch.inputs[1:], batch.nsp_labels.tolist(), strict=True):
        pieces, kinds = row[: present.sum()].tolist(), types[: present.sum()].tolist()
        middle = pieces.index(SEP)
        assert row[present.sum() :].eq(PAD).all()
        assert (pieces[0], pieces[-1], pieces.count(SEP)) == (CLS, SEP, 1 if label == IGNORED else 2)
        assert kinds == [0] * (middle + 1) + [1] * (len(pieces) - middle - 1)
        yield pieces[1:middle], pieces[middle + 1 : -1], None if label == IGNORED else label == NEXT


def test_halves_are_split_between_sentences_and_a_false_second_half_is_from_another_passage(traced: Traced) -> None:
    phase = traced.phase()
    examples = phase.examples(0)
    found = list(restored(phase.batch(examples)))

    for (_, row), (first, second, is_next) in zip(examples.tolist(), found, strict=True):
        if is_next is None:
            continue
        (row_a, begin_a), (row_b, begin_b) = traced.place[first[0]], traced.place[second[0]]
        middle = begin_a + len(first)
        assert row_a == row
        assert first == traced.rows[row_a][begin_a:middle]
        assert second == traced.rows[row_b][begin_b : begin_b + len(second)]
        assert middle in traced.starts[row_a][1:]
        assert begin_b in traced.starts[row_b][1:]
        assert (row_b == row_a and begin_b == middle) == is_next
        assert (row_b != row_a) == (not is_next)


def test_half_of_the_pairs_are_consecutive(traced: Traced) -> None:
    phase = traced.phase()
    labels = phase.batch(phase.examples(0)).nsp_labels
    of_pairs = labels[labels != IGNORED]

    # Four standard deviations.
    assert abs((of_pairs == NEXT).double().mean() - 0.5) < 4 * 0.5 / math.sqrt(len(of_pairs))


def test_long_halves_lose_their_outer_ends_and_keep_at_least_half_of_the_room(traced: Traced) -> None:
    phase = traced.phase()
    cut = 0

    for first, second, is_next in restored(phase.batch(phase.examples(0))):
        if is_next is None:
            continue
        (_, begin), (row_b, begin_b) = traced.place[first[0]], traced.place[second[0]]
        whole_a, whole_b = begin == 0, begin_b + len(second) == len(traced.rows[row_b])
        assert len(first) + len(second) + 3 <= LENGTH
        if not (whole_a and whole_b):
            cut += 1
            assert len(first) + len(second) + 3 == LENGTH
        assert whole_a or len(first) >= (LENGTH - 3) // 2
        assert whole_b or len(second) >= (LENGTH - 3) // 2
    assert cut > 100


def test_masked_pieces_have_berts_shares_of_mask_random_and_unchanged(traced: Traced) -> None:
    phase = traced.phase()
    batch = phase.batch(phase.examples(0))

    put, labels = batch.inputs.ids.view(-1)[batch.masked], batch.labels
    maskable = (batch.inputs.ids >= FIRST).sum() + (put == MASK).sum()
    counts = torch.bincount(batch.of_example, minlength=len(batch.nsp_labels))
    other = (put != MASK) & (put != labels)
    assert (labels >= FIRST).all()
    assert ((put == MASK) | (put >= FIRST)).all()
    assert counts.min() >= 1
    assert len(labels) / maskable == pytest.approx(0.15, abs=0.005)
    assert (put == MASK).double().mean() == pytest.approx(0.8, abs=0.02)
    assert other.double().mean() == pytest.approx(0.1, abs=0.015)
    assert (put == labels).double().mean() == pytest.approx(0.1, abs=0.015)
    # Any piece of the vocabulary, the first as well as the last.
    assert put[other].min() < 0.02 * traced.size
    assert put[other].max() > 0.98 * traced.size


def test_special_tokens_inside_a_text_are_not_masked(traced: Traced) -> None:
    rows = [[UNKNOWN if k % 2 else piece for k, piece in enumerate(row)] for row in traced.rows[:200]]
    often_ends = vocabulary(np.where(np.arange(traced.size) % 5, 0, ENDS).astype(np.uint8))
    phase = Pretraining(Ragged.of(rows), often_ends, CONFIG.model_copy(update={"masked": 0.9}), seed=7)

    batch = phase.batch(phase.examples(0))

    assert (batch.inputs.ids == UNKNOWN).any()
    assert (batch.labels >= FIRST).all()


def same(one: Batch, two: Batch) -> bool:
    tensors = [(*one.inputs, *one[1:]), (*two.inputs, *two[1:])]
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(*tensors, strict=True))


def test_an_epochs_examples_are_reproducible_and_differ_from_the_next_epochs(traced: Traced) -> None:
    phase, again = traced.phase(), traced.phase()
    rows = phase.examples(0)[:50, 1]

    assert np.array_equal(phase.examples(3), again.examples(3))
    assert same(phase.batch(phase.examples(3)[:50]), again.batch(again.examples(3)[:50]))
    assert not np.array_equal(phase.examples(0)[:, 1], phase.examples(1)[:, 1])
    epochs = [list(restored(phase.batch([(epoch, row) for row in rows]))) for epoch in range(2)]
    assert sum(one == two for one, two in zip(*epochs, strict=True)) < 25


def test_an_example_does_not_depend_on_its_batch(traced: Traced) -> None:
    phase = traced.phase()
    examples = phase.examples(0)[:20]
    together = phase.batch(examples)

    for place, example in enumerate(examples):
        alone = phase.batch(example[None])
        width = alone.inputs.ids.shape[1]
        assert torch.equal(alone.inputs.ids[0], together.inputs.ids[place, :width])
        assert torch.equal(alone.labels, together.labels[together.of_example == place])


def test_held_out_passages_are_never_trained_on(traced: Traced) -> None:
    phase = traced.phase()
    held = set(phase.held_out()[:, 1].tolist())
    num_single = sum(len(starts) == 1 for starts in traced.starts)

    assert len(held) == (3000 - num_single) // 50 + max(16, num_single // 50)
    for epoch in range(3):
        examples = phase.examples(epoch)
        assert sorted(examples[:, 1].tolist()) == sorted(set(range(3000)) - held)
        pieces = {piece for first, second, _ in restored(phase.batch(examples)) for piece in (*first, *second)}
        assert held.isdisjoint({traced.place[piece][0] for piece in pieces})
    assert same(phase.batch(phase.held_out()), traced.phase(length=LENGTH).batch(phase.held_out()))


@pytest.mark.parametrize(("num_passages", "held"), [(4, 2), (20, 10), (100, 16), (2000, 40), (30_000, 512)])
def test_the_number_of_held_out_passages_worked_by_hand(num_passages: int, held: int) -> None:
    table = np.array([0] * (FIRST + 1) + [ENDS], np.uint8)
    phase = Pretraining(
        Ragged.of([[FIRST] * 3 + [FIRST + 1] + [FIRST] * 4] * num_passages), vocabulary(table), CONFIG, 1
    )

    assert len(phase.held_out()) == held
    assert phase.num_examples() == num_passages - held == len(phase.examples(0))


def test_a_passage_of_one_sentence_has_masked_pieces_and_no_second_half(traced: Traced) -> None:
    phase = traced.phase()
    single = {row for row, starts in enumerate(traced.starts) if len(starts) == 1}
    examples = phase.examples(0)
    batch = phase.batch(examples)

    read_alone = {}
    for (_, row), (first, second, is_next) in zip(examples.tolist(), restored(batch), strict=True):
        assert (is_next is None) == (row in single)
        if is_next is None:
            read_alone[row] = first
            assert second == []
    assert read_alone == {row: traced.rows[row] for row in read_alone}
    assert len(read_alone) == len(single) - 16
    masked = torch.bincount(batch.of_example, minlength=len(examples))
    assert masked[batch.nsp_labels == IGNORED].min() >= 1
    assert phase.facts() == {"num_one_sentence": len(single)}


def test_each_epoch_reads_another_window_of_a_long_passage_without_sentences() -> None:
    phase = Pretraining(
        Ragged.of([list(range(FIRST, FIRST + 100))] * 4), vocabulary(np.zeros(FIRST + 100, np.uint8)), CONFIG, 1
    )
    windows = [next(restored(phase.batch(phase.examples(epoch)[:1])))[0] for epoch in range(20)]

    assert all(len(window) == LENGTH - 3 for window in windows)
    assert all(window == list(range(window[0], window[0] + LENGTH - 3)) for window in windows)
    assert len({window[0] for window in windows}) > 10


@pytest.mark.parametrize("num_paired", [0, 1, 3, 4])
def test_a_corpus_with_too_few_passages_of_several_sentences_has_masked_words_only(num_paired: int) -> None:
    table = np.array([0] * (FIRST + 1) + [ENDS], np.uint8)
    two_sentences, one_sentence = [FIRST] * 3 + [FIRST + 1] + [FIRST] * 4, [FIRST] * 9
    rows = [two_sentences] * num_paired + [one_sentence] * 40

    phase = Pretraining(Ragged.of(rows), vocabulary(table), CONFIG, 1)

    labels = phase.batch(np.concatenate([phase.examples(0), phase.held_out()])).nsp_labels
    facts = phase.facts()
    assert (labels != IGNORED).sum() == (4 if num_paired == 4 else 0)
    assert len(labels) == len(rows)
    assert facts["num_one_sentence"] == 40
    assert ("findings" not in facts) == (num_paired == 4)
    if num_paired < 4:
        assert facts["findings"][0].startswith("pretrain: no next-sentence prediction, only masked language modelling")
        assert "fewer than 4 passages" in facts["findings"][0]


def test_a_corpus_of_one_passage_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"at least 2 passages .* the corpus has 1: set pretrain\.enabled=false"):
        Pretraining(Ragged.of([[FIRST] * 9, []]), vocabulary(np.zeros(40, np.uint8)), CONFIG, 1)


def test_the_vocabulary_has_the_special_ids_of_its_tokenizer() -> None:
    bert: PreTrainedTokenizerFast = load_tokenizer(MINILM)

    found = Vocabulary.of(bert)

    assert (
        bert.convert_ids_to_tokens([found.cls, found.sep, found.pad, found.mask]) == "[CLS] [SEP] [PAD] [MASK]".split()
    )
    assert sorted(np.flatnonzero(found.special)) == sorted(bert.all_special_ids)
    assert found.sentences[bert.convert_tokens_to_ids(".")]
