"""Every supported architecture loads, scores, trains, and keeps its scores when it is stored; STRM works in each."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from transformers import AutoModel, AutoModelForMaskedLM

from rayrank.core.artifacts import Artifact
from rayrank.core.config import PipelineConfig, PretrainConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.models.architectures import check_length, has_token_types, why_padded
from rayrank.models.attention.strm import word_starts
from rayrank.models.batches import PaddedBatch
from rayrank.models.inference.fused_layers import fuse_layers
from rayrank.models.inference.onnx_graph import int8, onnx_graph
from rayrank.models.inference.onnx_scorer import OnnxScorer
from rayrank.models.inference.scorer import Scorer
from rayrank.models.layers import compile_layers
from rayrank.models.pretraining import build
from rayrank.models.reranker import relevance_score
from rayrank.models.saved import load_reranker, save
from rayrank.text.words import STARTS, word_table
from rayrank.training import list_losses
from tests.unit.models.conftest import CPU, GPU
from tests.unit.models.encoder_kinds import FORMS, LENGTH, OFF, ROWS, Saved

PADDED = ("MPNet", "DeBERTa-v3")


def token_types(batch: PaddedBatch, config: object) -> dict[str, Tensor]:
    return {"token_type_ids": batch.token_types} if has_token_types(config) else {}


def test_padded_scores_equal_those_of_the_plain_transformers_model(saved: Saved) -> None:
    model, batch = saved.reranker(), saved.batch()
    plain = AutoModel.from_pretrained(saved.config.name).eval()

    with torch.no_grad():
        states = plain(batch.ids, attention_mask=batch.attention_mask, **token_types(batch, plain.config))
        expected = model.head(states.last_hidden_state[:, 0])
        assert torch.allclose(model(batch), expected, atol=1e-5)
    assert expected.std() > 0.1


def test_scores_do_not_depend_on_the_padding_of_a_batch(saved: Saved) -> None:
    for form in FORMS if saved.kind != "DeBERTa-v3" else ["off", "mask"]:
        model, texts = saved.reranker(FORMS[form]), saved.texts()
        together = Scorer(model, texts, tokens=10_000)(ROWS, ROWS)
        alone = Scorer(model, texts, tokens=1)(ROWS, ROWS)

        assert np.allclose(together, alone, atol=1e-4)


def test_an_input_of_all_positions_is_read_and_a_longer_one_is_refused(saved: Saved) -> None:
    encoder = saved.encoder()
    ids = torch.full((2, LENGTH), saved.tokenizer.sep_token_id)
    with torch.no_grad():
        assert encoder(PaddedBatch(ids, torch.ones_like(ids), torch.zeros_like(ids))).isfinite().all()

    check_length(encoder.base, LENGTH, "input.length", saved.kind)
    with pytest.raises(ConfigError, match=rf"input\.length={LENGTH + 1} cannot be used: .* reads {LENGTH} word pieces"):
        check_length(encoder.base, LENGTH + 1, "input.length", saved.kind)


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_packed_batches_have_the_logits_and_gradients_of_padded_ones(
    saved: Saved, form: str, device: torch.device
) -> None:
    if saved.kind in PADDED:
        pytest.skip(f"{saved.kind} is padded")
    model, texts = saved.reranker(FORMS[form]).to(device), saved.texts()
    found = []
    for batch in (texts.padded(ROWS, ROWS, device), texts.packed(ROWS, ROWS, 512, device)):
        model.zero_grad()
        logits = model(batch)
        logits.square().sum().backward()
        gradients = [weight.grad.clone() for weight in model.parameters()]
        with torch.no_grad():
            found.append((logits.detach(), model(batch), gradients))

    (padded, _, expected), (packed, scored, gradients) = found
    assert torch.allclose(padded, packed, atol=1e-4)
    assert torch.allclose(padded, scored, atol=1e-4)
    assert padded.std() > 0.1
    for wanted, gradient in zip(expected, gradients, strict=True):
        assert torch.allclose(wanted, gradient, rtol=1e-3, atol=1e-3)


def test_encoders_that_cannot_be_packed_say_why(saved: Saved) -> None:
    encoder = saved.encoder()
    assert encoder.packs == (saved.kind not in PADDED)
    if not encoder.packs:
        assert saved.kind.split("-")[0] in why_padded(encoder.base)
        with pytest.raises(ValueError, match="batches must be padded"):
            encoder(saved.texts().packed(ROWS, ROWS, 512, CPU))


def test_fused_and_compiled_layers_have_the_same_scores(saved: Saved) -> None:
    if saved.kind not in ("DistilBERT", "ModernBERT"):
        pytest.skip("the encoder has BERT's layers, which test_packed.py compiles, or is not compiled")
    model, batch = saved.reranker(StrmConfig()), saved.texts().packed(ROWS, ROWS, 512, CPU)
    with torch.no_grad():
        expected = model(batch)
        fuse_layers(model.encoder.base)
        torch._dynamo.reset()
        compile_layers(model.encoder.base, group_share=1, backend=CompileCounterWithBackend("eager"))
        # Fused layers compute GELU's tanh form.
        assert torch.allclose(model(batch), expected, atol=2e-2)


def two_piece_word(saved: Saved) -> tuple[list[int], list[int]]:
    """Return two inputs that differ in the first piece of a word of several pieces."""
    words = torch.from_numpy(word_table(saved.tokenizer))
    ids = saved.tokenizer("the lightriver runs", add_special_tokens=False).input_ids
    starts = word_starts(torch.tensor(ids), words).tolist()
    place = next(index for index in range(len(ids) - 1) if index and starts[index] and not starts[index + 1])
    others = [piece for piece in range(len(words)) if words[piece] == STARTS and piece != ids[place]]
    whole = [saved.tokenizer.cls_token_id, *ids, saved.tokenizer.sep_token_id]
    return whole, [*whole[: place + 1], others[-1], *whole[place + 2 :]]


@pytest.mark.parametrize("form", ["off", "mask"])
def test_strm_hides_the_first_piece_of_a_word_from_other_words(saved: Saved, form: str) -> None:
    encoder, inputs = saved.encoder(FORMS[form], layers=1), two_piece_word(saved)
    ids = torch.tensor(inputs)
    with torch.no_grad():
        one, other = encoder.cls_states(PaddedBatch(ids, torch.ones_like(ids), torch.zeros_like(ids)))

    assert torch.allclose(one, other, atol=1e-6) == (form == "mask")


def test_each_form_of_strm_changes_the_scores(saved: Saved) -> None:
    if saved.kind == "DeBERTa-v3":
        with pytest.raises(ConfigError, match=r"strm\.form=bias cannot be used: .* DebertaV2Model .*; set strm\.form="):
            saved.reranker(FORMS["bias"])
    forms = [form for form in FORMS if (form, saved.kind) != ("bias", "DeBERTa-v3")]
    with torch.no_grad():
        scores = [saved.reranker(FORMS[form])(saved.batch()) for form in forms]

    for index, one in enumerate(scores):
        assert all((one - other).abs().max() > 1e-3 for other in scores[:index])


@pytest.mark.parametrize("form", ["off", "mask"])
def test_listwise_steps_reach_every_weight_and_lower_the_loss(saved: Saved, form: str) -> None:
    model, batch = saved.reranker(FORMS[form]).train(), saved.batch()
    optimizer, labels = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.tensor([[0, 1, 0], [0, 1, -1]])
    before, history = {name: weight.clone() for name, weight in model.state_dict().items()}, []
    for _ in range(4):
        optimizer.zero_grad()
        loss = list_losses.softmax(relevance_score(model(batch)).view(2, 3), labels)
        loss.backward()
        # Distributed training waits for the gradient of every weight.
        assert all(weight.grad is not None for weight in model.parameters())
        optimizer.step()
        history.append(loss.item())

    assert history[-1] < history[0]
    changed = {name for name, weight in model.state_dict().items() if not torch.equal(weight, before[name])}
    assert changed >= {"head.weight", *(name for name in before if name.endswith("embeddings.weight") and "ok" in name)}


def test_pretraining_starts_with_the_heads_of_the_checkpoint_and_reaches_every_weight(saved: Saved) -> None:
    config = PipelineConfig(encoder=saved.config, strm=OFF, pretrain=PretrainConfig(length=LENGTH))
    batch, masked = saved.batch(), torch.tensor([1, 2, 3])
    labels = batch.ids.flatten()[masked]
    plain = AutoModelForMaskedLM.from_pretrained(saved.config.name).eval()
    model = build(config, word_table(saved.tokenizer)).eval()
    with torch.no_grad():
        theirs = plain(batch.ids, attention_mask=batch.attention_mask, **token_types(batch, plain.config)).logits
        assert torch.allclose(model(batch, masked, labels)[0], theirs.flatten(0, 1)[masked], atol=1e-4)

    model = build(config.model_copy(update={"strm": StrmConfig()}), word_table(saved.tokenizer)).train()
    pieces, pairs = model(batch, masked, labels)
    loss = nn.functional.cross_entropy(pieces, labels) + nn.functional.cross_entropy(pairs, torch.tensor([0, 1] * 3))
    loss.backward()

    assert loss.isfinite()
    assert all(weight.grad is not None for weight in model.parameters())


def test_a_stored_model_scores_the_same_bit_for_bit(saved: Saved, tmp_path: Path) -> None:
    model, artifact = saved.reranker(StrmConfig()), Artifact(str(tmp_path), "listwise", "key")
    save(artifact, model.encoder.base.config, model.state_dict(), model.description())

    again = load_reranker(artifact, StrmConfig(), word_table(saved.tokenizer))

    with torch.no_grad():
        assert torch.equal(again(saved.batch()), model(saved.batch()))


@pytest.mark.parametrize("form", ["off", "mask in layer 1"])
def test_the_onnx_graph_gives_the_models_scores(saved: Saved, form: str) -> None:
    model, texts = saved.reranker(FORMS[form]), saved.texts()
    wanted, graph = Scorer(model, texts)(ROWS, ROWS), onnx_graph(model)

    assert np.allclose(OnnxScorer(graph.SerializeToString(), texts)(ROWS, ROWS), wanted, atol=1e-3)
    assert np.corrcoef(OnnxScorer(int8(graph), texts)(ROWS, ROWS), wanted)[0, 1] > 0.95


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("form", ["off", "mask"])
def test_in_bfloat16_packed_and_padded_batches_agree_within_its_precision(saved: Saved, form: str) -> None:
    if saved.kind in PADDED:
        pytest.skip(f"{saved.kind} is padded")
    device, texts = torch.device("cuda"), saved.texts()
    model, found = saved.reranker(FORMS[form]).to(device), []
    for batch in (texts.padded(ROWS, ROWS, device), texts.packed(ROWS, ROWS, 512, device)):
        model.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(batch)
        logits.square().sum().backward()
        found.append(torch.cat([logits.flatten(), *(weight.grad.flatten() for weight in model.parameters())]))

    assert torch.cosine_similarity(*found, dim=0) > 0.99


def test_rotary_frequencies_stay_exact_in_bfloat16(saved: Saved) -> None:
    encoder = saved.encoder().bfloat16()

    assert {weight.dtype for weight in encoder.parameters()} == {torch.bfloat16}
    rotary = getattr(encoder.base, "rotary_emb", None)
    assert (rotary is not None) == (saved.kind == "ModernBERT")
    for buffer in () if rotary is None else rotary.buffers():
        assert buffer.dtype == torch.float32
