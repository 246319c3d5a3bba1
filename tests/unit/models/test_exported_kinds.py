"""Every supported architecture is exported, opened by other libraries and explained; what it cannot do is refused."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import nn
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from rayrank.bundle.explain import explain
from rayrank.bundle.export import Bundle, export, load, settings_of
from rayrank.bundle.sequence_classification import HEADS
from rayrank.bundle.text_scorer import score
from rayrank.core.config import EncoderConfig, InputConfig, QueryTypesConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.models.attention.strm import padded_mask, word_starts
from rayrank.models.encoder import Encoder, load_encoder
from rayrank.models.reranker import Reranker
from rayrank.text.pieces import load_tokenizer
from rayrank.text.template import Template
from rayrank.text.words import word_table
from tests.unit.models.encoder_kinds import FORMS, LENGTH, OFF, PASSAGES, QUERIES, Saved

TYPES = ["number", "river", "light"] * 2


def bundle(saved: Saved, strm: StrmConfig, types: bool = False) -> Bundle:
    model, inputs = saved.reranker(strm), InputConfig(length=LENGTH, query_length=48, query_type=types)
    return Bundle(model, saved.tokenizer, settings_of(model, inputs, QueryTypesConfig(), []))


def test_pieces_are_grouped_into_words_and_strm_shows_the_last_of_each(saved: Saved) -> None:
    tokenizer, table = saved.tokenizer, torch.from_numpy(word_table(saved.tokenizer))
    body = tokenizer("the lightriver runs, back", add_special_tokens=False).input_ids
    ids = torch.tensor([[tokenizer.cls_token_id, *body, tokenizer.sep_token_id]])
    words: list[list[str]] = []
    for piece, starts in zip(tokenizer.convert_ids_to_tokens(ids[0]), word_starts(ids[0], table), strict=True):
        words = [*words, [piece]] if starts else [*words[:-1], [*words[-1], piece]]

    texts = ["".join(piece.removeprefix("##").strip("Ġ▁") for piece in word) for word in words]
    assert texts == [tokenizer.cls_token, "the", "lightriver", "runs", ",", "back", tokenizer.sep_token]
    assert len(words[2]) > 1
    expected = [place == len(word) - 1 for word in words for place in range(len(word))]
    assert padded_mask(ids, torch.ones_like(ids), table)[0, 0, 0].tolist() == expected


@pytest.mark.parametrize("types", [False, True], ids=["", "types"])
def test_an_exported_folder_has_the_same_scores_in_sentence_transformers(
    saved: Saved, types: bool, tmp_path: Path
) -> None:
    exported = bundle(saved, OFF, types)
    export(str(tmp_path / "model"), exported)
    ours = score(exported, QUERIES, PASSAGES, TYPES if types else None)

    separator = HEADS[exported.settings.base].separator
    starts = [f"{kind}{separator}" if types else "" for kind in TYPES]
    pairs = [(start + query, passage) for start, query, passage in zip(starts, QUERIES, PASSAGES, strict=True)]
    theirs = CrossEncoder(str(tmp_path / "model"), device="cpu").predict(pairs)

    assert np.allclose(theirs, ours, atol=1e-4)
    assert np.ptp(ours) > 0.1


@pytest.mark.parametrize("form", ["off", "mask"])
def test_a_loaded_folder_scores_bit_for_bit_as_the_exported_model(saved: Saved, form: str, tmp_path: Path) -> None:
    exported = bundle(saved, FORMS[form])
    export(str(tmp_path / "model"), exported)

    opened = load(str(tmp_path / "model"))

    assert np.array_equal(score(opened, QUERIES, PASSAGES), score(exported, QUERIES, PASSAGES))
    before, after = exported.model.state_dict(), opened.model.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())


@pytest.mark.parametrize("form", ["off", "mask", "mask in layer 1"])
def test_an_explanation_shows_attention_with_and_without_strm(saved: Saved, form: str) -> None:
    exported, query, passage = bundle(saved, FORMS[form]), QUERIES[0], PASSAGES[0]
    own, plain = (score(of, [query], [passage])[0] for of in (exported, bundle(saved, OFF)))
    shown = FORMS["mask"] if form == "off" else FORMS[form]
    strm = score(bundle(saved, shown), [query], [passage])[0]

    found = explain(exported, query, passage, None)

    assert found["score"] == pytest.approx(own, abs=1e-4)
    attention = found["attention"]
    assert attention["with_strm"]["score"] == pytest.approx(strm, abs=1e-4)
    assert attention["without_strm"]["score"] == pytest.approx(plain, abs=1e-4)
    assert strm != pytest.approx(plain, abs=1e-3)
    weights = np.array(attention["with_strm"]["weights"])
    assert weights.shape == (2, 2, len(attention["query_words"]), len(attention["document_words"]))
    # Scores are compared again: an explanation must not change the model.
    assert score(exported, [query], [passage])[0] == own


def bert() -> BertModel:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    return BertModel(BertConfig(**sizes, vocab_size=6))


def test_strm_is_refused_if_the_tokenizer_marks_no_words() -> None:
    backend = Tokenizer(models.WordLevel({"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "[PAD]": 3, "a": 4, "b": 5}, "[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("unk", "cls", "sep", "pad")}
    words = word_table(PreTrainedTokenizerFast(tokenizer_object=backend, **names))

    with pytest.raises(ConfigError, match=r"^strm\.form=mask cannot be used: .* text\.tokenizer .* set strm\.form=off"):
        Encoder(bert(), words, StrmConfig())
    assert Encoder(bert(), words, OFF).words is None


def test_strm_is_refused_if_attention_masks_cannot_be_replaced() -> None:
    base = bert()
    base._supports_attention_backend = False

    with pytest.raises(ConfigError, match=r"^strm\.form=mask cannot be used: the attention masks of BertModel"):
        Encoder(base, np.array([2, 2, 2, 2, 1, 0], np.int8), StrmConfig())


def test_a_tokenizer_without_a_classification_token_is_refused() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, "a")), unk_token="a")

    with pytest.raises(ConfigError, match=r"^text\.tokenizer cannot be used: its tokenizer has no cls_token; name"):
        Template.of(tokenizer, InputConfig())


def test_a_real_mpnet_scores_the_same_in_sentence_transformers(tmp_path: Path) -> None:
    folder = os.environ.get("RAYRANK_MPNET", "")
    if not folder:
        pytest.skip("RAYRANK_MPNET does not name the folder that ../shared/weights/mpnet writes")
    tokenizer = load_tokenizer(folder)
    torch.manual_seed(0)
    model = Reranker(load_encoder(EncoderConfig(name=folder), word_table(tokenizer), OFF), 1).eval()
    nn.init.normal_(model.head.weight)
    settings = settings_of(model, InputConfig(query_type=False), QueryTypesConfig(), [])
    exported = Bundle(model, tokenizer, settings)
    export(str(tmp_path / "model"), exported)
    queries = ["where is the bogue", "who asked insouciantly", "how tall is the lighthouse"]
    passages = ["The bogue lies in the bay. " * 80, "Zelda Rookhaven did.", "It is 40 m, 5\u2032 tall."]

    ours = score(exported, queries, passages)
    theirs = CrossEncoder(str(tmp_path / "model"), device="cpu").predict(list(zip(queries, passages, strict=True)))

    assert np.allclose(theirs, ours, atol=1e-4)
    assert np.array_equal(score(load(str(tmp_path / "model")), queries, passages), ours)
    with_strm = Reranker(load_encoder(EncoderConfig(name=folder), word_table(tokenizer), StrmConfig()), 1).eval()
    with_strm.head.load_state_dict(model.head.state_dict())
    assert np.abs(score(Bundle(with_strm, tokenizer, settings), queries, passages) - ours).max() > 1e-2
