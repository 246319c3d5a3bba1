"""Inputs put together from ids equal what a tokeniser would make of the texts."""

import random

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from rayrank.core.config import MINILM
from rayrank.models.batches import PaddedBatch, PairTexts
from rayrank.text.pairs import Ragged, Rows, SpecialIds, prefixes
from rayrank.text.pieces import load_tokenizer

TEXTS = ["where is the bogue", "who", "an insouciantly long-winded answer about the red house on the hill", "42 metres"]


@pytest.fixture(scope="module")
def bert() -> PreTrainedTokenizerFast:
    return load_tokenizer(MINILM)


def plain(bert: PreTrainedTokenizerFast, texts: list[str]) -> Ragged:
    return Ragged.of([bert(text, add_special_tokens=False).input_ids for text in texts])


def special(bert: PreTrainedTokenizerFast) -> SpecialIds:
    return SpecialIds(bert.cls_token_id, bert.sep_token_id)


def inputs(
    starts: Ragged, passages: Ragged, query_rows: Rows, passage_rows: Rows, sep: int, length: int
) -> PaddedBatch:
    return PairTexts(starts, passages, length, 0, sep).padded(query_rows, passage_rows, torch.device("cpu"))


def unpadded(batch: PaddedBatch, values: torch.Tensor) -> list[list[int]]:
    return [row[mask.bool()].tolist() for row, mask in zip(values, batch.attention_mask, strict=True)]


def test_a_pair_without_type_equals_the_tokenizers_own_pair(bert: PreTrainedTokenizerFast) -> None:
    texts = plain(bert, TEXTS)
    rows = np.array([(q, p) for q in range(4) for p in range(4)])

    pairs = inputs(prefixes(texts, None, special(bert), 64), texts, rows[:, 0], rows[:, 1], bert.sep_token_id, 180)

    own = bert([TEXTS[q] for q in rows[:, 0]], [TEXTS[p] for p in rows[:, 1]], return_token_type_ids=True)
    assert unpadded(pairs, pairs.ids) == own.input_ids
    assert unpadded(pairs, pairs.token_types) == own.token_type_ids


def test_the_type_stands_before_the_query_with_its_own_separator(bert: PreTrainedTokenizerFast) -> None:
    queries, types = plain(bert, ["where is the bogue"]), plain(bert, ["location"])
    passages = plain(bert, ["in the bay"])

    pairs = inputs(
        prefixes(queries, types, special(bert), 64), passages, np.array([0]), np.array([0]), bert.sep_token_id, 180
    )

    pieces = bert.convert_ids_to_tokens(pairs.ids[0].tolist())
    assert pieces == "[CLS] location [SEP] where is the bog ##ue [SEP] in the bay [SEP]".split()
    assert pairs.token_types[0].tolist() == [0] * 9 + [1] * 4


@pytest.mark.parametrize("seed", range(10))
def test_only_the_passage_is_cut_and_every_input_fits(seed: int) -> None:
    rng = random.Random(seed)
    queries = Ragged.of([[rng.randrange(10, 99) for _ in range(rng.randint(0, 30))] for _ in range(6)])
    passages = Ragged.of([[rng.randrange(100, 999) for _ in range(rng.randint(0, 60))] for _ in range(8)])
    starts = prefixes(queries, None, SpecialIds(1, 2), query_length=12)
    query_rows = np.array([rng.randrange(6) for _ in range(40)])
    passage_rows = np.array([rng.randrange(8) for _ in range(40)])

    pairs = inputs(starts, passages, query_rows, passage_rows, 2, length=32)

    ids, types = unpadded(pairs, pairs.ids), unpadded(pairs, pairs.token_types)
    for i, (q, p) in enumerate(zip(query_rows, passage_rows, strict=True)):
        head = [1, *queries[q][:12].tolist(), 2]
        expected = [*head, *passages[p].tolist()][:31] + [2]
        assert ids[i] == expected
        assert types[i].count(0) == len(head)


def test_a_column_of_lists_is_read_as_it_is_also_when_sliced() -> None:
    column = pa.chunked_array([pa.array([[1], [2, 3], [], [4, 5, 6]], pa.large_list(pa.int32()))])

    whole, part = Ragged.from_arrow(column), Ragged.from_arrow(column.slice(1, 3))

    assert [whole[i].tolist() for i in range(len(whole))] == [[1], [2, 3], [], [4, 5, 6]]
    assert [part[i].tolist() for i in range(len(part))] == [[2, 3], [], [4, 5, 6]]


def test_a_prefix_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="no room for a prefix of 9"):
        inputs(Ragged.of([range(9)]), Ragged.of([[1]]), np.array([0]), np.array([0]), 2, length=8)


def test_rows_from_one_on_and_then_others_are_those_rows() -> None:
    rng = random.Random(0)
    first, second = ([[rng.randrange(99) for _ in range(rng.randint(0, 5))] for _ in range(7)] for _ in range(2))
    for row in range(8):
        joined = Ragged.of(first).since(row) + Ragged.of(second).since(2)
        assert [joined[place].tolist() for place in range(len(joined))] == first[row:] + second[2:]
        assert joined.offsets[0] == 0
