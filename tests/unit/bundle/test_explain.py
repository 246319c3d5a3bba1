"""An explanation shows the model's input, attention and score, and does not change the model."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel, BertTokenizer, ElectraConfig, ElectraModel, PreTrainedTokenizerFast

from rayrank.bundle import explain as explaining
from rayrank.bundle.explain import attention_weights, copy_sharing_weights, explain
from rayrank.bundle.export import Bundle, settings_of
from rayrank.bundle.text_scorer import pair_texts, score
from rayrank.core.config import InputConfig, QueryTypesConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.models.attention.strm import padded_mask
from rayrank.models.encoder import Encoder
from rayrank.models.inference.fused_layers import fuse_layers
from rayrank.models.inference.onnx_graph import int8, onnx_graph
from rayrank.models.reranker import Reranker
from rayrank.text.pieces import load_tokenizer
from rayrank.text.words import word_table

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] what is a bog ##ue fish of number ##s entity ? .".split()
SIZES = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}
FORMS = {
    "off": StrmConfig(form="off"),
    "the paper's": StrmConfig(),
    "first piece": StrmConfig(representative="first"),
    "from layer 1": StrmConfig(first_layer=1),
    "bias": StrmConfig(form="bias"),
}
QUERY, PASSAGE = "What is a bogue?", "A Bogue is a fish . Numbers of bogs ."


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    folder = tmp_path_factory.mktemp("tokenizer")
    BertTokenizer(vocab={piece: row for row, piece in enumerate(VOCABULARY)}).save_pretrained(str(folder))
    return load_tokenizer(str(folder))


def tiny(
    tokenizer: PreTrainedTokenizerFast, strm: StrmConfig, types: bool = False, length: int = 48, electra: bool = False
) -> Bundle:
    torch.manual_seed(0)
    base = ElectraModel(ElectraConfig(**SIZES, embedding_size=8)) if electra else BertModel(BertConfig(**SIZES))
    model = Reranker(Encoder(base, word_table(tokenizer), strm), 1).eval()
    if model.encoder.strm_bias is not None:
        nn.init.normal_(model.encoder.strm_bias, std=0.02)
    inputs = InputConfig(length=length, query_length=8, query_type=types)
    return Bundle(model, tokenizer, settings_of(model, inputs, QueryTypesConfig(), []))


def weights(of: Bundle) -> tuple[Tensor, float]:
    """Return the attention of every piece to every piece, in all layers and heads, and the score."""
    texts = pair_texts(of, [QUERY], [PASSAGE])
    batch = texts.padded(np.zeros(1, np.int64), np.zeros(1, np.int64), torch.device("cpu"))
    every = torch.eye(batch.ids.shape[1])
    return attention_weights(copy_sharing_weights(of.model), batch, every, every)


def words_of(found: dict, segment: str) -> list[str]:
    return [word["text"] for word in found["words"] if word["segment"] == segment]


@pytest.mark.parametrize("electra", [False, True])
@pytest.mark.parametrize("strm", FORMS.values(), ids=FORMS)
def test_the_recorded_attention_gives_the_models_score(
    tokenizer: PreTrainedTokenizerFast, strm: StrmConfig, electra: bool
) -> None:
    of = tiny(tokenizer, strm, electra=electra)

    seen, eager = weights(of)

    assert eager == pytest.approx(score(of, [QUERY], [PASSAGE])[0], abs=1e-5)
    assert torch.allclose(seen.sum(-1), torch.ones(seen.shape[:-1]))


def test_fused_layers_have_the_same_attention_weights(tokenizer: PreTrainedTokenizerFast) -> None:
    of = tiny(tokenizer, StrmConfig())
    for layer in of.model.encoder.base.encoder.layer:
        for part in (layer.attention.self.query, layer.attention.self.key, layer.attention.self.value):
            nn.init.normal_(part.bias, std=0.2)
    expected, expected_score = weights(of)

    fuse_layers(of.model.encoder.base)

    seen, fused_score = weights(of)
    assert torch.allclose(seen, expected, atol=1e-6)
    assert fused_score == pytest.approx(expected_score, abs=1e-5)


def test_hidden_pieces_get_no_attention_from_other_words_and_all_others_get_some(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    of = tiny(tokenizer, StrmConfig())
    ids = torch.tensor([tokenizer(QUERY, PASSAGE).input_ids])
    allowed = padded_mask(ids, torch.ones_like(ids), of.model.encoder.words)[0, 0]

    seen, _ = weights(of)

    assert (~allowed).sum() > 0
    assert (seen[:, :, ~allowed] == 0).all()
    assert (seen[:, :, allowed] > 0).all()


def test_pieces_and_words_have_their_texts_and_positions(tokenizer: PreTrainedTokenizerFast) -> None:
    found = explain(tiny(tokenizer, StrmConfig(), types=True), QUERY, PASSAGE, None)

    assert found["query_type"] == "description"
    pieces = [piece["text"] for piece in found["pieces"]]
    assert pieces[:11] == "[CLS] [UNK] [SEP] what is a bog ##ue ? [SEP] a".split()
    assert words_of(found, "query") == ["What", "is", "a", "bogue", "?"]
    assert words_of(found, "document") == "A Bogue is a fish . Numbers of bogs .".split()
    bogue = next(word for word in found["words"] if word["text"] == "Bogue")
    assert [found["pieces"][place]["text"] for place in bogue["pieces"]] == ["bog", "##ue"]
    assert bogue["representatives"] == bogue["pieces"][-1:]
    first, last = (found["pieces"][place] for place in bogue["pieces"])
    assert PASSAGE[first["start"] : last["end"]] == "Bogue"


def test_a_given_query_type_is_used(tokenizer: PreTrainedTokenizerFast) -> None:
    of = tiny(tokenizer, StrmConfig(), types=True)

    found = explain(of, QUERY, PASSAGE, "number")

    assert found["query_type"] == "number"
    assert words_of(found, "type") == ["number"]
    assert found["score"] == pytest.approx(score(of, [QUERY], [PASSAGE], ["number"])[0], abs=1e-6)


def test_matches_are_equal_words_up_to_case_without_punctuation(tokenizer: PreTrainedTokenizerFast) -> None:
    found = explain(tiny(tokenizer, StrmConfig()), "is a Bogue . bog", "A bogue . BOGUE bogs", None)

    pairs = [(found["words"][one]["text"], found["words"][other]["text"]) for one, other in found["matches"]]
    assert pairs == [("a", "A"), ("Bogue", "bogue"), ("Bogue", "BOGUE")]


@pytest.mark.parametrize("strm", FORMS.values(), ids=FORMS)
def test_attention_is_shown_with_and_without_strm_for_every_form_of_strm(
    tokenizer: PreTrainedTokenizerFast, strm: StrmConfig
) -> None:
    of = tiny(tokenizer, strm)

    shown = explain(of, QUERY, PASSAGE, None)["attention"]

    own, other = ("without_strm", "with_strm") if strm.form == "off" else ("with_strm", "without_strm")
    assert shown[own]["score"] == pytest.approx(score(of, [QUERY], [PASSAGE])[0], abs=1e-5)
    assert np.shape(shown[own]["weights"]) == np.shape(shown[other]["weights"]) == (2, 2, 5, 10)
    assert shown[own]["weights"] != shown[other]["weights"]


def test_attention_to_a_word_is_its_pieces_sum_and_from_it_their_mean(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    of = tiny(tokenizer, StrmConfig())
    found = explain(of, QUERY, PASSAGE, None)
    shown = found["attention"]
    row = next(place for place, number in enumerate(shown["query_words"]) if found["words"][number]["text"] == "bogue")
    column = next(n for n, number in enumerate(shown["document_words"]) if found["words"][number]["text"] == "Bogue")
    asking, asked = (
        found["words"][shown[k][n]]["pieces"] for k, n in (("query_words", row), ("document_words", column))
    )

    seen, _ = weights(of)

    by_hand = seen[1, 0][asking][:, asked].sum(1).mean().item()
    assert len(asking) == len(asked) == 2
    assert shown["with_strm"]["weights"][1][0][row][column] == pytest.approx(by_hand, abs=5e-5)


@pytest.mark.parametrize(("text", "side"), [("fish", "document"), ("is", "query")])
def test_the_change_of_a_word_is_that_of_the_score_without_it(
    tokenizer: PreTrainedTokenizerFast, text: str, side: str
) -> None:
    of = tiny(tokenizer, StrmConfig())
    found = explain(of, QUERY, PASSAGE, None)
    number = next(n for n, word in enumerate(found["words"]) if (word["text"], word["segment"]) == (text, side))
    change = next(entry["change"] for entry in found["removed"] if entry["word"] == number)

    query = QUERY.replace("is ", "") if side == "query" else QUERY
    passage = PASSAGE.replace("fish ", "") if side == "document" else PASSAGE

    assert abs(change) > 1e-3
    assert change == pytest.approx(score(of, [query], [passage])[0] - found["score"], abs=1e-5)


def test_a_long_passage_is_truncated_as_in_scoring(tokenizer: PreTrainedTokenizerFast) -> None:
    of = tiny(tokenizer, StrmConfig(), length=16)
    passage = "fish of number " * 20 + "bogue"

    found = explain(of, QUERY, passage, None)

    assert found["cut"]
    assert len(found["pieces"]) == 16
    assert found["score"] == pytest.approx(score(of, [QUERY], [passage])[0], abs=1e-6)
    assert not explain(of, QUERY, "fish", None)["cut"]


@pytest.mark.parametrize("passage", ["", " \n", "\0"])
def test_a_passage_without_word_pieces_is_refused(tokenizer: PreTrainedTokenizerFast, passage: str) -> None:
    with pytest.raises(ConfigError, match="send a passage with text"):
        explain(tiny(tokenizer, StrmConfig()), QUERY, passage, None)


def test_a_type_of_any_length_leaves_room_for_the_passage(tokenizer: PreTrainedTokenizerFast) -> None:
    of, kind = tiny(tokenizer, StrmConfig(), types=True, length=16), "number " * 100
    found = explain(of, QUERY, PASSAGE, kind)

    assert len(found["pieces"]) == 16
    assert words_of(found, "type") == ["number"] * 2
    assert words_of(found, "document") == ["A", "Bogue", "is"]
    assert found["score"] == pytest.approx(score(of, [QUERY], [PASSAGE], [kind])[0], abs=1e-6)


def test_a_long_passage_shows_its_first_words_and_counts_the_rest(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explaining, "MAX_WEIGHTS", 0)

    shown = explain(tiny(tokenizer, StrmConfig()), QUERY, PASSAGE, None)["attention"]

    assert np.shape(shown["with_strm"]["weights"]) == (2, 2, 5, 8)
    assert len(shown["document_words"]) == 8
    assert shown["left_out"] == 2


def test_words_are_removed_one_by_one_until_the_time_limit(
    tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    of, passage = tiny(tokenizer, StrmConfig()), "fish of number " * 10
    whole = explain(of, QUERY, passage, None)["removed"]
    monkeypatch.setattr(explaining, "REMOVAL_SECONDS", -1)

    removed = explain(of, QUERY, passage, None)["removed"]

    assert len(whole) == 5 + 30
    assert removed == whole[:15]


def test_an_explanation_can_be_written_as_json(tokenizer: PreTrainedTokenizerFast) -> None:
    found = explain(tiny(tokenizer, StrmConfig(form="bias"), types=True), "", PASSAGE, "entity")

    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert words_of(found, "query") == []


def test_scoring_in_another_thread_is_not_affected_by_explanations(tokenizer: PreTrainedTokenizerFast) -> None:
    of = tiny(tokenizer, StrmConfig(form="bias"))
    before, wrong, done = score(of, [QUERY] * 8, [PASSAGE] * 8), [], threading.Event()
    alone = explain(of, QUERY, PASSAGE, None)

    def work() -> None:
        while not done.is_set():
            try:
                assert np.array_equal(score(of, [QUERY] * 8, [PASSAGE] * 8), before)
            except Exception as error:
                wrong.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    found = [explain(of, QUERY, PASSAGE, None) for _ in range(20)]
    done.set()
    thread.join()

    assert not wrong
    assert found == [alone] * 20


def test_an_int8_model_is_explained_with_its_float32_weights(tokenizer: PreTrainedTokenizerFast) -> None:
    of = tiny(tokenizer, StrmConfig())

    found = explain(replace(of, int8=int8(onnx_graph(of.model))), QUERY, PASSAGE, None)

    assert found == explain(of, QUERY, PASSAGE, None)
