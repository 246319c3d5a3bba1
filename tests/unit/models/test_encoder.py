"""Every form of STRM in a real encoder, compared with attention computed entry by entry and with plain BERT."""

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AlbertConfig,
    AlbertModel,
    AttentionInterface,
    BertConfig,
    BertModel,
    ElectraConfig,
    ElectraModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

from rayrank.core.config import StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.models.batches import PaddedBatch
from rayrank.models.encoder import BIAS_SCALE, Encoder
from rayrank.text.words import CONTINUES, STARTS

VOCABULARY, LAYERS, HEADS = 40, 3, 2
WORDS = np.array([STARTS] * 25 + [CONTINUES] * 15, np.int8)
"""The word table of the toy vocabulary, in which ids from 25 on continue a word."""
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "initializer_range": 0.6,
}
KINDS: dict[str, Callable[[], PreTrainedModel]] = {
    "BERT": lambda: BertModel(BertConfig(**SIZES)),
    "RoBERTa": lambda: RobertaModel(RobertaConfig(**SIZES, type_vocab_size=1)),
    "ELECTRA": lambda: ElectraModel(ElectraConfig(**SIZES, embedding_size=8)),
}
FORMS = {
    "the paper's": StrmConfig(),
    "first piece": StrmConfig(representative="first"),
    "all pieces": StrmConfig(representative="all"),
    "off": StrmConfig(form="off"),
    "from layer 1": StrmConfig(first_layer=1),
    "to layer 1": StrmConfig(last_layer=1),
    "layer 1, first piece": StrmConfig(first_layer=1, last_layer=1, representative="first"),
    "bias": StrmConfig(form="bias"),
    "bias, first piece": StrmConfig(form="bias", representative="first"),
    "bias, all pieces": StrmConfig(form="bias", representative="all"),
    "bias in layer 1": StrmConfig(form="bias", first_layer=1, last_layer=1),
}
every_form = pytest.mark.parametrize("strm", FORMS.values(), ids=FORMS)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    # For models this small, synchronising threads takes longer than computing.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def base(kind: str = "BERT") -> PreTrainedModel:
    torch.manual_seed(0)
    return KINDS[kind]().eval()


def encoder(strm: StrmConfig, kind: str = "BERT") -> Encoder:
    """Return an encoder with the same weights for every form of STRM, except a random learned bias."""
    model = Encoder(base(kind), WORDS, strm)
    if model.strm_bias is not None:
        nn.init.normal_(model.strm_bias, std=2 / BIAS_SCALE)
    return model


def batch_of(*rows: list[int]) -> PaddedBatch:
    length = max(len(row) for row in rows)
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    present = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
    return PaddedBatch(ids, present, (torch.arange(length) > 3).long().expand(len(rows), -1))


PIECES = batch_of([1, 30, 31, 2, 3, 33, 4, 35], [5, 26, 27, 28, 29], [6, 7, 39])
WHOLE = batch_of([1, 2, 3, 4, 5, 6, 7], [8, 9, 10])


def states(model: Encoder, batch: PaddedBatch) -> Tensor:
    """Return the hidden states of all positions except padding."""
    with torch.no_grad():
        return model(batch)[batch.attention_mask.bool()]


def added(strm: StrmConfig, bias: Tensor | None, layer: int, head: int, row: list[int], a: int, b: int) -> float:
    """Return what a form of STRM adds to the logit of query a for key b, by its definition."""
    word = np.cumsum([piece < 25 or place == 0 for place, piece in enumerate(row)])
    is_representative = {
        "last": b == len(row) - 1 or word[b + 1] != word[b],
        "first": b == 0 or word[b - 1] != word[b],
        "all": True,
    }[strm.representative]
    last_layer = LAYERS - 1 if strm.last_layer is None else strm.last_layer
    if strm.form == "off" or is_representative or word[a] == word[b] or not strm.first_layer <= layer <= last_layer:
        return 0.0
    return -math.inf if bias is None else BIAS_SCALE * float(bias[layer, head])


def naive_states(model: Encoder, strm: StrmConfig, batch: PaddedBatch) -> Tensor:
    """Return the encoder's states with attention computed entry by entry."""
    rows = [ids[present.bool()].tolist() for ids, present in zip(batch.ids, batch.attention_mask, strict=True)]

    def attend(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **_: Any
    ) -> tuple[Tensor, None]:
        answer = torch.zeros_like(query)
        for i, row in enumerate(rows):
            for head in range(HEADS):
                for a in range(len(row)):
                    logits = [
                        float(query[i, head, a] @ key[i, head, b]) / math.sqrt(query.shape[-1])
                        + added(strm, model.strm_bias, module.layer_idx, head, row, a, b)
                        for b in range(len(row))
                    ]
                    share = torch.tensor(logits, dtype=query.dtype).softmax(0)
                    answer[i, head, a] = share @ value[i, head, : len(row)]
        return answer.transpose(1, 2), None

    AttentionInterface.register("entry_by_entry", attend)
    reference = copy.deepcopy(model.base)
    reference.set_attn_implementation("entry_by_entry")
    types = {"token_type_ids": batch.token_types} if reference.config.type_vocab_size > 1 else {}
    with torch.no_grad():
        answer = reference(batch.ids, attention_mask=batch.attention_mask, **types).last_hidden_state
    return answer[batch.attention_mask.bool()]


@every_form
def test_every_form_equals_attention_computed_entry_by_entry(strm: StrmConfig) -> None:
    model = encoder(strm).double()

    assert torch.allclose(states(model, PIECES), naive_states(model, strm, PIECES), atol=1e-10)


@pytest.mark.parametrize("kind", ["RoBERTa", "ELECTRA"])
@pytest.mark.parametrize("form", ["the paper's", "from layer 1", "bias in layer 1"])
def test_other_encoders_like_bert_get_the_same_masks(kind: str, form: str) -> None:
    model = encoder(FORMS[form], kind).double()

    assert torch.allclose(states(model, PIECES), naive_states(model, FORMS[form], PIECES), atol=1e-10)


@every_form
def test_without_multi_piece_words_every_form_equals_plain_bert_bit_for_bit(strm: StrmConfig) -> None:
    plain = base()
    with torch.no_grad():
        usual = plain(WHOLE.ids, attention_mask=WHOLE.attention_mask, token_type_ids=WHOLE.token_types)

    assert torch.equal(states(encoder(strm), WHOLE), usual.last_hidden_state[WHOLE.attention_mask.bool()])


@pytest.mark.parametrize("name", [name for name, strm in FORMS.items() if "all pieces" not in name and name != "off"])
def test_multi_piece_words_change_the_states(name: str) -> None:
    plain = states(encoder(FORMS["off"]), PIECES)

    assert (states(encoder(FORMS[name]), PIECES) - plain).abs().max() > 1e-2


@pytest.mark.parametrize("form", ["all pieces", "bias, all pieces"])
def test_all_pieces_as_representatives_is_plain_attention_bit_for_bit(form: str) -> None:
    assert torch.equal(states(encoder(FORMS[form]), PIECES), states(encoder(FORMS["off"]), PIECES))
    assert list(encoder(FORMS[form]).state_dict()) == list(encoder(FORMS["off"]).state_dict())


@pytest.mark.parametrize("first_layer", [1, 2])
@pytest.mark.parametrize("form", ["mask", "bias"])
def test_layers_before_the_first_strm_layer_equal_plain_berts_bit_for_bit(form: Any, first_layer: int) -> None:
    def after_each_layer(strm: StrmConfig) -> list[Tensor]:
        model, seen = encoder(strm), []
        for layer in model.base.encoder.layer:
            layer.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
        states(model, PIECES)
        return [output[PIECES.attention_mask.bool()] for output in seen]

    own, plain = after_each_layer(StrmConfig(form=form, first_layer=first_layer)), after_each_layer(FORMS["off"])

    assert [torch.equal(a, b) for a, b in zip(own, plain, strict=True)] == [i < first_layer for i in range(LAYERS)]


def test_a_bias_starts_as_plain_attention() -> None:
    assert torch.allclose(
        states(Encoder(base(), WORDS, FORMS["bias"]), PIECES), states(encoder(FORMS["off"]), PIECES), atol=1e-6
    )


def test_a_very_low_bias_is_the_papers_mask() -> None:
    model = encoder(FORMS["bias"])
    nn.init.constant_(model.strm_bias, -1e4 / BIAS_SCALE)

    assert torch.allclose(states(model, PIECES), states(encoder(FORMS["the paper's"]), PIECES), atol=1e-5)


def test_the_gradient_reaches_the_bias_of_every_head_in_its_layers_and_nowhere_else() -> None:
    model = Encoder(base(), WORDS, FORMS["bias in layer 1"])

    model(PIECES)[:, 0].square().sum().backward()

    assert model.strm_bias is not None
    assert (model.strm_bias.grad != 0).tolist() == [[False] * HEADS, [True] * HEADS, [False] * HEADS]


def test_single_piece_words_give_the_bias_a_gradient_of_zeros() -> None:
    """Distributed training waits for the gradient of every parameter, so it must not be None."""
    model = Encoder(base(), WORDS, FORMS["bias"])

    model(WHOLE)[:, 0].square().sum().backward()

    assert model.strm_bias is not None
    assert torch.equal(model.strm_bias.grad, torch.zeros(LAYERS, HEADS))


def test_the_bias_is_a_hundred_times_its_parameter_but_its_gradient_is_not_scaled() -> None:
    model = encoder(FORMS["bias"]).double()
    assert model.strm_bias is not None

    def value() -> Tensor:
        return model(PIECES)[:, 0].square().sum()

    value().backward()
    slope = model.strm_bias.grad[1, 0].item()
    step, ends = 1e-6, []
    for direction in (1, -1):
        with torch.no_grad():
            model.strm_bias[1, 0] += direction * step
            ends.append(value().item())
            model.strm_bias[1, 0] -= direction * step

    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step * BIAS_SCALE), rel=1e-4)


@pytest.mark.parametrize("form", ["the paper's", "from layer 1", "bias"])
def test_gradients_are_finite_in_float32_and_under_autocast(form: str) -> None:
    model = encoder(FORMS[form]).train()
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            answer = model(PIECES)
        answer[:, 0].float().square().mean().backward()

        assert torch.isfinite(answer).all()
        assert all(weight.grad is not None and torch.isfinite(weight.grad).all() for weight in model.parameters())


@every_form
def test_the_state_dict_has_no_word_table_and_only_the_learned_bias_in_addition(strm: StrmConfig) -> None:
    added_names = [name for name in encoder(strm).state_dict() if not name.startswith("base.")]

    assert added_names == (["strm_bias"] if strm.form == "bias" and strm.representative != "all" else [])


@pytest.mark.parametrize(
    ("strm", "message"),
    [
        (StrmConfig(last_layer=3), r"strm\.last_layer=3 cannot be used: the encoder has 3 layers.*lower strm\.last"),
        (StrmConfig(first_layer=3), r"strm\.first_layer=3 cannot .* last layer is 2 .* has 3 layers.*lower strm\.f"),
        (StrmConfig(form="bias", first_layer=2, last_layer=1), r"strm\.first_layer=2 cannot .* last layer is 1"),
    ],
)
def test_strm_layers_that_the_encoder_lacks_are_refused(strm: StrmConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Encoder(base(), WORDS, strm)


@pytest.mark.parametrize(
    ("strm", "key"),
    [
        (StrmConfig(form="bias"), "form=bias"),
        (StrmConfig(first_layer=1), "first_layer=1"),
        (StrmConfig(last_layer=1), "last_layer=1"),
    ],
)
def test_an_encoder_that_repeats_one_layer_supports_only_the_papers_form(strm: StrmConfig, key: str) -> None:
    shared = AlbertModel(AlbertConfig(**SIZES, embedding_size=8)).eval()

    assert not torch.equal(states(Encoder(shared, WORDS), PIECES), states(Encoder(shared, None), PIECES))
    with pytest.raises(ConfigError, match=rf"strm\.{key} cannot be used: the layers of AlbertModel cannot have"):
        Encoder(shared, WORDS, strm)
