"""A template decides which parts an input has, in which order, and how each part is truncated."""

from itertools import chain

import pytest
import torch
from hypothesis import given, strategies as st
from transformers import PreTrainedTokenizerFast

from rayrank.core.config import MINILM, InputConfig, PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.models.batches import pad
from rayrank.models.pair_texts import PairTexts
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged, Windows
from rayrank.text.template import MIN_PASSAGE_PIECES, Sequences, Template

CLS, SEP, PAD = 1, 2, 0
TEXTS = ["where is the bogue", "who", "an insouciantly long-winded answer about the red house on the hill", "42 metres"]
ROW = st.lists(st.integers(10, 99), max_size=40)


@pytest.fixture(scope="module")
def bert() -> PreTrainedTokenizerFast:
    return load_tokenizer(MINILM)


def plain(bert: PreTrainedTokenizerFast, texts: list[str]) -> Ragged:
    return Ragged.of([bert(text, add_special_tokens=False).input_ids for text in texts])


def template(length: int = 16, query_length: int = 4, has_type: bool = True) -> Template:
    return Template(CLS, SEP, PAD, length, query_length, has_type)


def inputs(sequences: Sequences) -> list[list[int]]:
    return [sequences.ids[row].tolist() for row in range(len(sequences.ids))]


def read(of: Template, query: list[int], passage: list[int], kind: list[int] | None = None) -> list[int]:
    """Return the input of one pair."""
    types = None if kind is None else Ragged.of([kind])
    return inputs(of.pairs(of.prefixes(Ragged.of([query]), types), Ragged.of([passage])))[0]


def test_a_pair_without_type_equals_the_tokenizers_own_pair(bert: PreTrainedTokenizerFast) -> None:
    of, rows = Template.of(bert, InputConfig(query_type=False)), [(q, p) for q in range(4) for p in range(4)]
    queries, passages = ([TEXTS[row[side]] for row in rows] for side in range(2))

    found = of.pairs(of.prefixes(plain(bert, queries)), plain(bert, passages))

    own = bert(queries, passages, return_token_type_ids=True)
    assert inputs(found) == own.input_ids
    assert found.token_types().tolist() == list(chain(*own.token_type_ids))


def test_the_type_comes_before_the_query_and_has_its_own_separator(bert: PreTrainedTokenizerFast) -> None:
    of = Template.of(bert, InputConfig())

    prefixes = of.prefixes(plain(bert, ["where is the bogue"]), plain(bert, ["location"]))
    found = of.pairs(prefixes, plain(bert, ["in the bay"]))

    pieces = bert.convert_ids_to_tokens(found.ids[0].tolist())
    assert pieces == "[CLS] location [SEP] where is the bog ##ue [SEP] in the bay [SEP]".split()
    assert found.token_types().tolist() == [0] * 9 + [1] * 4


@pytest.mark.parametrize(
    ("kind", "query", "passage", "expected"),
    [
        # Sixteen ids, four of which are special tokens; four of the query's.
        ([50], [10, 11], [20, 21], [CLS, 50, SEP, 10, 11, SEP, 20, 21, SEP]),
        # An over-long passage loses its end.
        ([50], [10], [20] * 9 + [21, 22], [CLS, 50, SEP, 10, SEP, *[20] * 9, 21, SEP]),
        # An over-long query does, too, whatever room there is.
        ([50], [10, 11, 12, 13, 14], [20], [CLS, 50, SEP, 10, 11, 12, 13, SEP, 20, SEP]),
        # An over-long type leaves the query whole, and room for four pieces of the passage.
        ([50, 51, 52, 53, 54], [10] * 4, [20] * 9, [CLS, 50, 51, 52, 53, SEP, *[10] * 4, SEP, *[20] * 4, SEP]),
        # It is cut to the same length where the passage does not use that room.
        ([50, 51, 52, 53, 54], [10] * 4, [20], [CLS, 50, 51, 52, 53, SEP, *[10] * 4, SEP, 20, SEP]),
        # A shorter query leaves a type more.
        ([50] * 99, [10], [20] * 9, [CLS, *[50] * 7, SEP, 10, SEP, *[20] * 4, SEP]),
        # Parts without a piece keep their separators.
        ([], [], [], [CLS, SEP, SEP, SEP]),
    ],
)
def test_truncation_worked_by_hand(kind: list[int], query: list[int], passage: list[int], expected: list[int]) -> None:
    assert read(template(), query, passage, kind) == expected


def test_without_a_type_there_is_no_separator_for_it() -> None:
    of = template(has_type=False)

    assert read(of, [10, 11, 12, 13, 14], [20]) == [CLS, 10, 11, 12, 13, SEP, 20, SEP]
    assert read(of, [], []) == [CLS, SEP, SEP]


@pytest.mark.parametrize("has_type", [False, True])
def test_types_are_given_if_and_only_if_inputs_have_them(has_type: bool) -> None:
    types = None if has_type else Ragged.of([[50]])

    with pytest.raises(ConfigError, match=rf"input\.query_type={has_type} asks for"):
        template(has_type=has_type).prefixes(Ragged.of([[10]]), types)


def test_a_query_longer_than_the_input_is_truncated(bert: PreTrainedTokenizerFast) -> None:
    of = Template.of(bert, InputConfig(length=16, query_length=64))

    found = read(of, [10] * 64, [20] * 64, [50] * 64)

    assert found == [of.cls_id, of.sep_id, *[10] * 8, of.sep_id, *[20] * MIN_PASSAGE_PIECES, of.sep_id]


@pytest.mark.parametrize("length", [16, 48, 180])
def test_settings_that_the_pipeline_accepts_leave_queries_their_length(
    length: int, bert: PreTrainedTokenizerFast
) -> None:
    longest = length - 5 - MIN_PASSAGE_PIECES
    config = PipelineConfig(input=InputConfig(length=length, query_length=longest))

    assert Template.of(bert, config.input).query_length == longest
    with pytest.raises(ValueError, match="leaves no room for a passage"):
        PipelineConfig(input=InputConfig(length=length, query_length=longest + 1))


def test_a_query_alone_is_a_prefix(bert: PreTrainedTokenizerFast) -> None:
    of = Template.of_one_text(bert, 5)

    prefixes = of.prefixes(Ragged.of([[10, 11], [], [12] * 9]))

    found = [prefixes[row].tolist() for row in range(3)]
    assert found == [[of.cls_id, *query, of.sep_id] for query in ([10, 11], [], [12] * 5)]
    assert max(map(len, found)) == of.length


def test_a_passage_may_be_a_window_of_a_document() -> None:
    of, document = template(12, has_type=False), Ragged.of([range(10, 30), range(30, 50)])
    # The second from the end of one document, the third over the start of the other.
    windows = Windows(document.values, *torch.tensor([[0, 8], [16, 20], [20, 40]]).T.numpy())

    found = of.pairs(of.prefixes(Ragged.of([[5], [6], [7]])), windows)

    assert inputs(found) == [
        [CLS, 5, SEP, *range(10, 18), SEP],
        [CLS, 6, SEP, *range(26, 30), SEP],
        [CLS, 7, SEP, *range(30, 38), SEP],
    ]


def test_a_prefix_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="no room for a prefix of 16"):
        template().pairs(Ragged.of([range(16)]), Ragged.of([[1]]))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(3, 4, (3, 4)), (50, 4, (9, 4)), (3, 50, (3, 10)), (50, 50, (6, 7)), (6, 50, (6, 7)), (0, 0, (0, 0))],
)
def test_two_halves_that_do_not_fit_share_the_room_equally_or_use_what_the_other_leaves(
    first: int, second: int, expected: tuple[int, int]
) -> None:
    sizes = Ragged.of([range(first), range(second)]).lengths()

    before, after = template(16, 16, False).halves(sizes[:1], sizes[1:])

    assert (before[0], after[0]) == expected


@given(
    st.lists(st.tuples(ROW, ROW, ROW), min_size=1, max_size=6),
    st.integers(16, 40),
    st.integers(4, 8),
    st.booleans(),
)
def test_inputs_equal_those_assembled_one_by_one_and_are_never_too_long(
    rows: list[tuple[list[int], list[int], list[int]]], length: int, query_length: int, has_type: bool
) -> None:
    of = template(length, query_length, has_type)
    kinds, queries, passages = (Ragged.of([row[part] for row in rows]) for part in range(3))
    prefixes = of.prefixes(queries, kinds if has_type else None)

    found = of.pairs(prefixes, passages)

    expected, types = [], []
    for kind, query, passage in rows:
        query = query[:query_length]
        kind = [*kind[: length - 4 - len(query) - MIN_PASSAGE_PIECES], SEP] if has_type else []
        before = [CLS, *kind, *query, SEP]
        expected.append([*before, *passage][: length - 1] + [SEP])
        types.append([0] * len(before) + [1] * (len(expected[-1]) - len(before)))
        assert len(before) + MIN_PASSAGE_PIECES + 1 <= length
    assert inputs(found) == expected
    assert found.token_types().tolist() == list(chain(*types))
    assert of.lengths(prefixes.lengths(), passages.lengths()).tolist() == [len(row) for row in expected]
    longer = [len(prefixes[row]) + len(passages[row]) + 1 > length for row in range(len(rows))]
    assert of.is_truncated(prefixes.lengths(), passages.lengths()).tolist() == longer


@given(st.lists(st.tuples(ROW, ROW), min_size=1, max_size=6))
def test_batches_assembled_on_a_device_equal_the_templates(rows: list[tuple[list[int], list[int]]]) -> None:
    of, cpu = template(24, 8, has_type=False), torch.device("cpu")
    queries, passages = (Ragged.of([row[part] for row in rows]) for part in range(2))
    prefixes = of.prefixes(queries)
    every = torch.arange(len(rows)).numpy()

    expected = pad(of.pairs(prefixes, passages), PAD)

    texts = PairTexts(prefixes, passages, of)
    padded, packed = texts.padded(every, every, cpu), texts.packed(every, every, 256, cpu)
    present = expected.attention_mask.bool()
    for name in ("ids", "attention_mask", "token_types"):
        assert torch.equal(getattr(padded, name), getattr(expected, name)), name
    for name in ("ids", "token_types"):
        assert torch.equal(getattr(packed, name)[: present.sum()], getattr(expected, name)[present]), name
