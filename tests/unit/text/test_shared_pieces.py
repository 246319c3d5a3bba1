"""A passage misleads if it has a piece of a query's cut word and lacks the word itself."""

import numpy as np
import pytest
from transformers import BertTokenizer, PreTrainedTokenizerFast

from rayrank.text.pieces import PieceEncoder, load_tokenizer
from rayrank.text.ragged import Ids, Ragged
from rayrank.text.shared_pieces import SharedPieces

VOCABULARY = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] is a the bog bo ##gue ##ue ##us ##ues ##s ##19 19 cat ##fish fish 2 ##021 ? . -"
).split()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    folder = tmp_path_factory.mktemp("tokenizer")
    BertTokenizer(vocab={piece: row for row, piece in enumerate(VOCABULARY)}).save_pretrained(str(folder))
    return load_tokenizer(str(folder))


def ids(tokenizer: PreTrainedTokenizerFast, text: str) -> Ids:
    return PieceEncoder(tokenizer.backend_tokenizer.to_str(), 64)([text])[0].values.to_numpy()


def misleading(tokenizer: PreTrainedTokenizerFast, query: str, passages: list[str]) -> list[bool]:
    finder = SharedPieces.of(tokenizer)
    texts = Ragged.of([ids(tokenizer, passage) for passage in passages])
    return finder.misleading(finder.cut_words(ids(tokenizer, query)), texts).tolist()


def test_cut_words_are_the_distinct_words_of_several_pieces(tokenizer: PreTrainedTokenizerFast) -> None:
    found = SharedPieces.of(tokenizer).cut_words(ids(tokenizer, "What is the bogue? Bogue - fish."))
    assert [(word.text, word.pieces) for word in found] == [("bogue", ("bog", "##ue"))]


def test_a_shared_piece_misleads_unless_the_passage_has_the_whole_word(tokenizer: PreTrainedTokenizerFast) -> None:
    passages = ["a bogus fish", "the bog", "the bog is a bogue", "Bogue", "a fish .", ""]
    assert misleading(tokenizer, "what is a bogue?", passages) == [True, True, False, False, False, False]


def test_plural_and_singular_are_the_same_word(tokenizer: PreTrainedTokenizerFast) -> None:
    assert misleading(tokenizer, "a bogue", ["the bogues"]) == [False]
    assert misleading(tokenizer, "the bogues", ["a bogue", "a bog"]) == [False, True]
    assert misleading(tokenizer, "a bogus", ["a bogue"]) == [True]


def test_numbers_single_letters_and_punctuation_are_not_shared(tokenizer: PreTrainedTokenizerFast) -> None:
    # 2021 is cut into 2 ##021; the pieces ##s and ##19 have too few letters.
    assert misleading(tokenizer, "2021 fishs cat19 ?", ["2 is 19 bogs ?"]) == [False]
    # The word cat19 is cut, and `cat` counts.
    assert misleading(tokenizer, "cat19", ["the cat", "cat19"]) == [True, False]


def test_each_cut_word_counts_by_itself(tokenizer: PreTrainedTokenizerFast) -> None:
    # The passage has the first word, but only a piece of the second.
    assert misleading(tokenizer, "bogue catfish", ["bogue cat", "bogue catfish"]) == [True, False]


def test_the_shared_words_are_named_with_their_places(tokenizer: PreTrainedTokenizerFast) -> None:
    finder = SharedPieces.of(tokenizer)
    cut = finder.cut_words(ids(tokenizer, "bogue catfish"))
    (shared,) = finder.shared(cut, ids(tokenizer, "the bogus is the catfish . bog"))
    assert shared.word.text == "bogue"
    assert [(word.pieces, word.first) for word in shared.others] == [(("bog", "##us"), 1), (("bog",), 8)]


def test_no_texts_and_no_cut_words_mislead_nobody(tokenizer: PreTrainedTokenizerFast) -> None:
    finder = SharedPieces.of(tokenizer)
    assert finder.misleading([], Ragged.of([ids(tokenizer, "bog")])).tolist() == [False]
    assert finder.misleading(finder.cut_words(ids(tokenizer, "bogue")), Ragged.of([])).tolist() == []
    assert finder.cut_words(np.empty(0, np.int32)) == []
