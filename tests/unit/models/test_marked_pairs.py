"""MarkedBERT's markers surround the terms that query and passage share, and nothing else changes."""

import zlib
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from transformers import PreTrainedTokenizerFast

from rayrank.core.config import MINILM, InputConfig, PipelineConfig
from rayrank.models.pair_texts import PairTexts
from rayrank.text.markers import Markers
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.template import MIN_PASSAGE_PIECES, Template
from rayrank.text.terms import STOP_WORDS, term
from rayrank.text.words import CONTINUES, word_table

CPU = torch.device("cpu")
WORDS = "ghost town urban area insured insures insurance the of which houses Philadelphia , ? zyxwvut a-b 42".split()
TEXT = st.lists(st.sampled_from(WORDS), max_size=30).map(" ".join)


loaded = cache(load_tokenizer)
"""Examples of one test share a tokenizer."""


@pytest.fixture(scope="module")
def bert() -> PreTrainedTokenizerFast:
    return loaded(MINILM)


def pair_texts(
    bert: PreTrainedTokenizerFast, queries: Sequence[str], passages: Sequence[str], inputs: InputConfig,
    types: Sequence[str] | None = None,
) -> PairTexts:  # fmt: skip
    def ids(texts: Sequence[str]) -> Ragged:
        return Ragged.of([bert(text, add_special_tokens=False).input_ids for text in texts])

    template = Template.of(bert, inputs)
    return PairTexts(template.prefixes(ids(queries), None if types is None else ids(types)), ids(passages), template)


def of_one(
    bert: PreTrainedTokenizerFast, query: str, passage: str, kind: str | None = None, **options: int
) -> list[str]:
    """Return the marked input of one pair as tokens."""
    inputs = InputConfig(**{"length": 128, "query_length": 32, "markers": 8, "query_type": kind is not None} | options)
    texts = pair_texts(bert, [query], [passage], inputs, None if kind is None else [kind])
    return tokens(bert, texts, texts.padded(np.zeros(1, np.int64), np.zeros(1, np.int64), CPU).ids[0].tolist())


def tokens(bert: PreTrainedTokenizerFast, texts: PairTexts, ids: list[int]) -> list[str]:
    markers = texts.template.markers
    assert markers is not None
    return [markers.name(each) if each >= markers.first_id else bert.convert_ids_to_tokens(each) for each in ids]


def test_the_example_of_the_paper_is_marked_token_by_token(bert: PreTrainedTokenizerFast) -> None:
    passage = "Ghost town, an urban area with a fixed boundary"

    found = of_one(bert, "ghost meaning urban", passage)

    assert (
        found
        == (
            "[CLS] [e1] ghost [/e1] meaning [e3] urban [/e3] [SEP] "
            "[e1] ghost [/e1] town , an [e3] urban [/e3] area with a fixed boundary [SEP]"
        ).split()
    )


def test_a_repeated_term_has_the_number_of_its_first_occurrence(bert: PreTrainedTokenizerFast) -> None:
    found = of_one(bert, "urban ghost urban", "urban ghost")

    assert found[1:10] == "[e1] urban [/e1] [e2] ghost [/e2] [e1] urban [/e1]".split()


def test_all_pieces_of_a_word_are_inside_its_markers(bert: PreTrainedTokenizerFast) -> None:
    assert "[e1] z ##yx ##w ##vu ##t [/e1]" in " ".join(of_one(bert, "zyxwvut", "the zyxwvut"))


def test_words_with_the_same_stem_are_one_term_unless_stems_are_off(bert: PreTrainedTokenizerFast) -> None:
    assert "[e1] houses [/e1]" in " ".join(of_one(bert, "house", "two houses"))
    assert "[e1]" not in of_one(bert, "house", "two houses", marker_stems=False)


def test_stop_words_and_punctuation_are_unmarked_and_stop_words_can_be_marked(bert: PreTrainedTokenizerFast) -> None:
    assert of_one(bert, "the house ?", "the ?")[1:4] == ["the", "house", "?"]
    assert of_one(bert, "the house ?", "the ?", marker_stop_words=True)[1:6] == ["[e1]", "the", "[/e1]", "house", "?"]


def test_the_ending_after_an_apostrophe_is_no_term(bert: PreTrainedTokenizerFast) -> None:
    found = of_one(bert, "what's vitamin s", "the driver's vitamin s")

    assert "[e1] what [/e1]" not in " ".join(found)
    assert "driver ' s [e2] vitamin [/e2] [e3] s [/e3]" in " ".join(found)


def test_an_apostrophe_at_the_end_of_a_passage_does_not_change_the_next_passage(bert: PreTrainedTokenizerFast) -> None:
    inputs = InputConfig(length=64, query_length=8, markers=2, query_type=False)
    texts, alone = (pair_texts(bert, ["vitamin s"], passages, inputs) for passages in (["the drivers'", "s"], ["s"]))
    first, second = np.zeros(1, np.int64), np.ones(1, np.int64)

    assert torch.equal(texts.padded(first, second, CPU).ids, alone.padded(first, first, CPU).ids)
    assert "[e2] s [/e2]" in " ".join(tokens(bert, alone, alone.padded(first, first, CPU).ids[0].tolist()))


def test_terms_beyond_the_number_of_markers_are_unmarked(bert: PreTrainedTokenizerFast) -> None:
    found = of_one(bert, "ghost urban town", "ghost urban town", markers=2)

    assert found.count("[e2]") == 2
    assert "[/e2] town" in " ".join(found)


def test_the_type_is_never_marked(bert: PreTrainedTokenizerFast) -> None:
    assert of_one(bert, "person urban", "a person", "person")[:4] == ["[CLS]", "person", "[SEP]", "[e1]"]


def test_a_query_whose_markers_leave_no_room_for_a_passage_stays_unmarked(bert: PreTrainedTokenizerFast) -> None:
    query = "ghost town urban area house"

    found = of_one(bert, query, "ghost town urban area house", length=16, query_length=8)

    assert found[1:7] == [*query.split(), "[SEP]"]
    assert found[7:10] == ["[e1]", "ghost", "[/e1]"]
    assert len(found) == 16


def test_markers_are_words_of_their_own_for_strm() -> None:
    from transformers import BertConfig, BertModel

    from rayrank.models.encoder import Encoder
    from rayrank.text.words import ALONE, STARTS

    config = BertConfig(vocab_size=10, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    encoder = Encoder(BertModel(config), np.array([STARTS, CONTINUES] * 5, np.int8))

    encoder.add_ids(14, 4)

    assert encoder.words is not None
    assert encoder.words.tolist() == [STARTS, CONTINUES] * 5 + [ALONE] * 4
    assert encoder.base.get_input_embeddings().num_embeddings == 14


words_of = cache(word_table)


def split_words(ids: list[int], table: np.ndarray) -> list[list[int]]:
    begins = [place for place, each in enumerate(ids) if place == 0 or table[each] != CONTINUES]
    return [ids[start:stop] for start, stop in pairwise([*begins, len(ids)])]


def marked_by_definition(
    bert: PreTrainedTokenizerFast, query: str, passage: str, kind: str, inputs: InputConfig
) -> list[str]:
    """Return a marked input made word by word in plain Python."""
    table = words_of(bert)

    def words(ids: list[int]) -> list[tuple[list[str], str | None]]:
        found = []
        for of_word in split_words(ids, table):
            pieces = bert.convert_ids_to_tokens(of_word)
            word = "".join(piece.removeprefix("##") for piece in pieces)
            is_term = any(map(str.isalnum, word)) and word not in STOP_WORDS
            found.append((pieces, term(word) if is_term else None))
        return found

    start = ["[CLS]", *bert.tokenize(kind), "[SEP]"]
    of_query = words(bert(query, add_special_tokens=False).input_ids[: inputs.query_length])
    before = len(start) + sum(len(pieces) for pieces, _ in of_query) + 1
    of_passage, room = [], inputs.length - before - 1
    for pieces, each in words(bert(passage, add_special_tokens=False).input_ids):
        if room > 0:
            # A word that is cut counts as the whole word.
            of_passage.append((pieces[:room], each))
        room -= len(pieces)
    distinct = list(dict.fromkeys(each for _, each in of_query if each))[: inputs.markers]
    shared = {each for _, each in of_query} & {each for _, each in of_passage} & set(distinct)

    def marked(parts: list[tuple[list[str], str | None]], is_marked: bool) -> list[str]:
        found = []
        for pieces, each in parts:
            number = distinct.index(each) + 1 if is_marked and each in shared and each else 0
            found += [f"[e{number}]", *pieces, f"[/e{number}]"] if number else pieces
        return found

    prefix = [*start, *marked(of_query, True), "[SEP]"]
    if len(prefix) > inputs.length - 1 - MIN_PASSAGE_PIECES:
        prefix = [*start, *marked(of_query, False), "[SEP]"]
    return [*(prefix + marked(of_passage, True))[: inputs.length - 1], "[SEP]"]


@settings(max_examples=25, deadline=None)
@example(["zyxwvut"], ["the " * 12 + "zyxwvut"], 24)
@given(st.lists(TEXT, min_size=1, max_size=4), st.lists(TEXT, min_size=1, max_size=4), st.integers(24, 80))
def test_batches_equal_the_definition_padded_and_packed(queries: list[str], passages: list[str], length: int) -> None:
    bert = loaded(MINILM)
    inputs = InputConfig(length=length, query_length=12, markers=4)
    texts = pair_texts(bert, queries, passages, inputs, ["person"] * len(queries))
    rows = np.array([(query, passage) for query in range(len(queries)) for passage in range(len(passages))])
    wanted = [
        marked_by_definition(bert, queries[query], passages[passage], "person", inputs) for query, passage in rows
    ]

    lengths = texts.lengths(*rows.T)
    padded, packed = texts.padded(*rows.T, CPU), texts.packed(*rows.T, int(lengths.sum()) + 7, CPU)
    with pytest.MonkeyPatch.context() as patched:
        # As for passages with more ids than a GPU gets.
        patched.setattr(PairTexts, "_streams", lambda *_: True)
        assert texts.lengths(*rows.T).tolist() == lengths.tolist()
        assert all(map(torch.equal, texts.padded(*rows.T, CPU), padded))
        assert torch.equal(texts.packed(*rows.T, int(lengths.sum()) + 7, CPU).ids, packed.ids)

    assert lengths.tolist() == [len(each) for each in wanted]
    for row, each in enumerate(wanted):
        assert tokens(bert, texts, padded.ids[row, : len(each)].tolist()) == each
        start = int(packed.offsets[row])
        assert tokens(bert, texts, packed.ids[start : start + len(each)].tolist()) == each
        separator = each.index("[SEP]", each.index("[SEP]") + 1)
        types = [0] * (separator + 1) + [1] * (len(each) - separator - 1)
        assert padded.token_types[row, : len(each)].tolist() == types
        assert packed.token_types[start : start + len(each)].tolist() == types
    assert (padded.ids[padded.attention_mask == 0] == bert.pad_token_id).all()


@settings(max_examples=15, deadline=None)
@given(TEXT, TEXT)
def test_removing_the_markers_gives_back_the_input(query: str, passage: str) -> None:
    bert, only = loaded(MINILM), np.zeros(1, np.int64)
    marked = pair_texts(bert, [query], [passage], InputConfig(length=256, query_type=False, markers=8))
    plain = pair_texts(bert, [query], [passage], InputConfig(length=256, query_type=False))

    ids = marked.padded(only, only, CPU).ids[0]

    assert marked.template.markers is not None
    kept = ids[ids < marked.template.markers.first_id]
    assert kept.tolist() == plain.padded(only, only, CPU).ids[0].tolist()


def test_terms_are_the_same_in_every_process(bert: PreTrainedTokenizerFast) -> None:
    ids = Ragged.of([bert("urban ghosts", add_special_tokens=False).input_ids])

    found = Markers.of(bert, InputConfig(markers=2)).terms(ids)

    assert found.tolist() == [zlib.crc32(stem) & 0x7FFFFFFF for stem in (b"urban", b"ghost")]


def test_markers_of_another_language_have_no_english_stems_and_stop_words() -> None:
    german = {"index": {"language": "de"}, "input": {"markers": 4}}

    with pytest.raises(ValueError, match=r"needs input.marker_stems=false and input.marker_stop_words=true"):
        PipelineConfig.model_validate(german)
    german["input"] |= {"marker_stems": False, "marker_stop_words": True}
    assert PipelineConfig.model_validate(german).input.markers == 4


def test_a_cut_by_markers_is_reported(bert: PreTrainedTokenizerFast) -> None:
    only, passage = np.zeros(1, np.int64), "urban " * 30
    inputs = InputConfig(length=40, query_length=8, query_type=False)

    plain = pair_texts(bert, ["urban"], [passage], inputs)
    marked = pair_texts(bert, ["urban"], [passage], inputs.model_copy(update={"markers": 1}))

    assert not plain.is_truncated(only, only)[0]
    assert marked.is_truncated(only, only)[0]
