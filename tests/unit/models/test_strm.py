"""STRM's masks and codes against formula 12 read naively and the paper's figures."""

import random

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rayrank.core.config import MINILM
from rayrank.models.attention.strm import Representative, packed_codes, padded_mask, word_starts
from rayrank.text.pieces import load_tokenizer
from rayrank.text.words import ALONE, CONTINUES, STARTS, word_table


@pytest.fixture(scope="module")
def bert() -> PreTrainedTokenizerFast:
    return load_tokenizer(MINILM)


@pytest.fixture(scope="module")
def table(bert: PreTrainedTokenizerFast) -> torch.Tensor:
    return torch.from_numpy(word_table(bert))


def words_of(starts: list[bool]) -> list[int]:
    """Number the words of a sequence."""
    return list(np.cumsum(starts))


def naive(words: list[int], padded_to: int, representative: str = "last") -> list[list[bool]]:
    """Formula 12, position by position, or with other representative pieces."""
    length = len(words)
    allowed = [[False] * padded_to for _ in range(padded_to)]
    for a in range(length):
        for b in range(length):
            is_representative = {
                "last": b == length - 1 or words[b + 1] != words[b],
                "first": b == 0 or words[b - 1] != words[b],
                "all": True,
            }
            allowed[a][b] = is_representative[representative] or words[a] == words[b]
    return allowed


def random_batch(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[list[int]]]:
    """Return ids, attention mask and table of a toy vocabulary, and the words of each row."""
    rng = random.Random(seed)
    roles = torch.tensor([ALONE, ALONE] + [rng.choice([STARTS, CONTINUES]) for _ in range(30)], dtype=torch.int8)
    lengths = [rng.randint(1, 24) for _ in range(5)]
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    mask = torch.zeros_like(ids)
    words = []
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.tensor([rng.randrange(len(roles)) for _ in range(length)])
        mask[row, :length] = 1
        role = [int(roles[i]) for i in ids[row, :length]]
        starts = [i == 0 or role[i] != CONTINUES or role[i - 1] == ALONE for i in range(length)]
        words.append(words_of(starts))
    return ids, mask, roles, words


def test_the_last_piece_represents_its_word_by_default() -> None:
    ids, mask, roles, _ = random_batch(0)

    assert torch.equal(padded_mask(ids, mask, roles), padded_mask(ids, mask, roles, "last"))
    assert not torch.equal(padded_mask(ids, mask, roles), padded_mask(ids, mask, roles, "first"))


@pytest.mark.parametrize("representative", ["last", "first", "all"])
@pytest.mark.parametrize("seed", range(20))
def test_the_padded_mask_equals_formula_12_read_naively(seed: int, representative: Representative) -> None:
    ids, mask, roles, words = random_batch(seed)

    built = padded_mask(ids, mask, roles, representative)

    assert built.shape == (len(words), 1, ids.shape[1], ids.shape[1])
    for row, of_row in enumerate(words):
        length = len(of_row)
        assert built[row, 0, :length].tolist() == naive(of_row, ids.shape[1], representative)[:length]


@pytest.mark.parametrize("representative", ["last", "first", "all"])
@pytest.mark.parametrize("seed", range(20))
def test_packed_codes_allow_exactly_what_the_padded_mask_allows_and_nothing_across_sequences(
    seed: int, representative: Representative
) -> None:
    ids, mask, roles, words = random_batch(seed)
    lengths = [len(of_row) for of_row in words]
    flat = torch.cat([ids[row, :length] for row, length in enumerate(lengths)] + [torch.zeros(3, dtype=torch.long)])
    seq = torch.cat([torch.full((length,), row) for row, length in enumerate(lengths)] + [torch.full((3,), -1)])

    codes = packed_codes(flat, seq, roles, representative)

    assert {code.dtype for code in codes} == {torch.int32}
    allowed = (codes.word[:, None] == codes.word[None, :]) | (codes.visible_to[None, :] == codes.seq[:, None])
    padded = padded_mask(ids, mask, roles, representative)[:, 0]
    expected = torch.block_diag(*(padded[row, :length, :length] for row, length in enumerate(lengths)))
    assert torch.equal(allowed[:-3, :-3], expected)
    assert not allowed[:-3, -3:].any()


def test_figure_3_row_by_row(bert: PreTrainedTokenizerFast, table: torch.Tensor) -> None:
    """Positions 4 and 5 of seven are the two pieces of one word: only they attend to the first of them."""
    ids = torch.tensor([bert("where is the bogue located now", add_special_tokens=False).input_ids])[:, :7]
    pieces = bert.convert_ids_to_tokens(ids[0].tolist())
    assert pieces == ["where", "is", "the", "bog", "##ue", "located", "now"]

    seen = padded_mask(ids, torch.ones_like(ids), table)[0, 0]

    for position, row in enumerate(seen.tolist()):
        inside = position in (3, 4)
        assert row == [True, True, True, inside, True, True, True]


@pytest.mark.parametrize("word", ["bogue", "insouciantly"])
def test_rare_words_of_the_real_vocabulary_have_several_pieces_and_the_last_represents_them(
    bert: PreTrainedTokenizerFast, table: torch.Tensor, word: str
) -> None:
    ids = torch.tensor([bert(f"a {word} b").input_ids])
    starts = word_starts(ids, table)[0].tolist()
    num_pieces = len(bert.tokenize(word))

    assert num_pieces > 1
    assert starts == [True, True, True] + [False] * (num_pieces - 1) + [True, True]
    seen_from_cls = padded_mask(ids, torch.ones_like(ids), table)[0, 0, 0].tolist()
    assert seen_from_cls == [True, True] + [False] * (num_pieces - 1) + [True, True, True]


def test_a_word_cut_by_truncation_is_represented_by_its_last_kept_piece(
    bert: PreTrainedTokenizerFast, table: torch.Tensor
) -> None:
    pieces = bert("insouciantly", add_special_tokens=False).input_ids
    assert len(pieces) > 2
    ids = torch.tensor([[bert.cls_token_id, *pieces[:2], bert.sep_token_id]])

    seen_from_cls = padded_mask(ids, torch.ones_like(ids), table)[0, 0, 0].tolist()

    assert seen_from_cls == [True, False, True, True]


def trained(model: object, trainer: object, pre_tokenizer: object, decoder: object) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizer, decoder
    text = ["the river runs, the rivers ran; a runner ran to the riverside and back. where is the river?"] * 20
    tokenizer.train_from_iterator(text, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", cls_token="<s>", sep_token="</s>")


SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = pre_tokenizers.ByteLevel.alphabet()
KINDS = {
    "byte-level BPE": lambda: trained(
        models.BPE(),
        trainers.BpeTrainer(vocab_size=300, special_tokens=SPECIAL, initial_alphabet=BYTES),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    ),
    "SentencePiece": lambda: trained(
        models.Unigram(),
        trainers.UnigramTrainer(vocab_size=60, special_tokens=SPECIAL, unk_token="<unk>"),
        pre_tokenizers.Metaspace(),
        decoders.Metaspace(),
    ),
}


def group_words(ids: torch.Tensor, roles: torch.Tensor) -> list[list[int]]:
    words: list[list[int]] = []
    for piece, starts in zip(ids.tolist(), word_starts(ids, roles).tolist(), strict=True):
        if starts:
            words.append([])
        words[-1].append(piece)
    return words


@pytest.mark.parametrize("kind", KINDS)
def test_other_vocabularies_separate_words_and_punctuation(kind: str) -> None:
    tokenizer = KINDS[kind]()
    roles = torch.from_numpy(word_table(tokenizer))
    body = tokenizer("riverside runners, back", add_special_tokens=False).input_ids
    words = group_words(torch.tensor([tokenizer.cls_token_id, *body, tokenizer.sep_token_id]), roles)

    texts = ["".join(tokenizer.convert_ids_to_tokens(word)).strip("Ġ▁") for word in words]
    assert texts == ["<s>", "riverside", "runners", ",", "back", "</s>"]
    assert any(len(word) > 1 for word in words)


def test_words_on_two_lines_are_two_words() -> None:
    tokenizer = KINDS["byte-level BPE"]()
    ids = torch.tensor(tokenizer("the river\nthe runner\tran", add_special_tokens=False).input_ids)

    words = group_words(ids, torch.from_numpy(word_table(tokenizer)))

    assert [tokenizer.decode(word).strip() for word in words] == ["the", "river", "", "the", "runner", "", "ran"]
