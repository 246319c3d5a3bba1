"""Packed batches hold the same inputs as padded ones, and give the same logits, gradients and [CLS] states."""

import copy
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

from rayrank.core.config import StrmConfig
from rayrank.models import pair_texts
from rayrank.models.attention import packed_scoring
from rayrank.models.attention.packed_scoring import KEY_BLOCK, QUERY_BLOCK, packed_scoring_masks
from rayrank.models.attention.packed_training import FlashAttention, PackedTrainingMasks, padded_layout
from rayrank.models.attention.padded import LayerIndex, PaddedMasks
from rayrank.models.attention.strm import packed_codes, padded_mask
from rayrank.models.batches import PackedBatch
from rayrank.models.inference.fp8 import use_fp8_layers
from rayrank.models.inference.fused_layers import fuse_layers
from rayrank.models.layers import compile_layers
from rayrank.models.pair_texts import PairTexts
from rayrank.text.ragged import Ragged
from tests.unit.models.conftest import CLS, CPU, FORMS, GPU, PAD, SEP, VOCABULARY, model, rows, template, texts


def inputs(batch: PackedBatch) -> list[list[int]]:
    bounds = batch.offsets[: batch.num_inputs + 1].tolist()
    return [batch.ids[start:stop].tolist() for start, stop in pairwise(bounds)]


def test_padded_and_packed_batches_hold_the_inputs_assembled_one_by_one() -> None:
    source, (queries, passages) = texts(), rows(40)
    expected, types = [], []
    for query, passage in zip(queries, passages, strict=True):
        start, body = source.prefixes[query].tolist(), source.passages[passage].tolist()
        expected.append([*start, *body][: source.length - 1] + [SEP])
        types += [0] * len(start) + [1] * (len(expected[-1]) - len(start))

    padded = source.padded(queries, passages, CPU)
    packed = source.packed(queries, passages, 2048, CPU)

    present = padded.attention_mask.bool()
    count = int(present.sum())
    assert [row[mask].tolist() for row, mask in zip(padded.ids, present, strict=True)] == expected
    assert inputs(packed) == expected
    assert padded.token_types[present].tolist() == packed.token_types[:count].tolist() == types
    assert (padded.ids[~present] == PAD).all()
    assert (packed.ids[count:] == PAD).all()
    assert packed.positions().max() < source.length


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
def test_batches_of_a_corpus_that_stays_off_the_device_are_the_same(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, (queries, passages) = texts(), rows(40)

    def made() -> list[torch.Tensor]:
        lengths = source.lengths(queries, passages, device)
        found = (
            source.padded(queries, passages, device),
            source.packed(queries, passages, 2048, device),
            source.packed_for_training(queries, passages, device),
            source.padded(queries[:1], passages[:1], device),
        )
        parts = [torch.from_numpy(lengths), *(part for batch in found for part in batch)]
        return [part.cpu() if isinstance(part, torch.Tensor) else torch.tensor(part) for part in parts]

    whole = made()
    source._copies.clear()
    monkeypatch.setattr(PairTexts, "_streams", lambda *_: True)
    streamed = made()

    assert source._copies == {}
    assert len(whole) == len(streamed)
    assert all(map(torch.equal, whole, streamed))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_large_corpus_is_not_copied_to_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    source, (queries, passages) = texts(), rows(4)
    monkeypatch.setattr(pair_texts, "MAX_IDS_ON_GPU", len(source.passages.values))
    source.padded(queries, passages, GPU)
    assert list(source._copies) == [GPU]
    source._copies.clear()
    monkeypatch.setattr(pair_texts, "MAX_IDS_ON_GPU", len(source.passages.values) - 1)
    source.padded(queries, passages, GPU)
    assert source._copies == {}


@pytest.mark.parametrize(("has_triton", "packs"), [(True, True), (False, False)])
def test_batches_are_padded_on_a_gpu_without_triton(
    has_triton: bool, packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(packed_scoring, "has_triton", lambda: has_triton)
    assert model(FORMS["mask"], "bert").encoder.packs is packs


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("form", FORMS)
def test_packed_and_padded_batches_have_the_same_logits_and_gradients(
    form: str, kind: str, device: torch.device
) -> None:
    source, (queries, passages), reranker = texts(), rows(12), model(FORMS[form], kind).to(device)
    marks = torch.randn(12, 1, generator=torch.Generator().manual_seed(0)).to(device)
    found = []
    for batch in (source.padded(queries, passages, device), source.packed(queries, passages, 512, device)):
        reranker.zero_grad()
        logits = reranker(batch)
        (logits * marks).sum().backward()
        gradients = {
            name: weight.grad.clone() for name, weight in reranker.named_parameters() if weight.grad is not None
        }
        with torch.no_grad():
            found.append((logits.detach(), reranker(batch), gradients))

    (padded, _, padded_gradients), (packed, scored, packed_gradients) = found
    assert torch.allclose(padded, packed, atol=1e-5)
    assert torch.allclose(padded, scored, atol=1e-5)
    assert padded.std() > 0.01
    assert padded_gradients.keys() == packed_gradients.keys()
    for name, gradient in padded_gradients.items():
        assert torch.allclose(gradient, packed_gradients[name], rtol=1e-4, atol=1e-5 if device == CPU else 3e-4), name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("form", FORMS)
def test_in_bfloat16_packed_and_padded_batches_agree_within_its_precision(form: str) -> None:
    device = torch.device("cuda")
    source, (queries, passages), reranker = texts(), rows(12), model(FORMS[form], spread=0.1).to(device)
    found = []
    for batch in (source.padded(queries, passages, device), source.packed(queries, passages, 512, device)):
        reranker.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            logits = reranker(batch)
        logits.square().sum().backward()
        gradients = torch.cat([weight.grad.flatten() for weight in reranker.parameters() if weight.grad is not None])
        found.append((logits.detach(), gradients))

    (padded, padded_gradients), (packed, packed_gradients) = found
    assert torch.allclose(padded, packed, atol=1e-2)
    assert padded.std() > 0.02
    assert torch.cosine_similarity(padded_gradients, packed_gradients, dim=0) > 0.999


@pytest.mark.parametrize("convert", [None, fuse_layers, use_fp8_layers], ids=["bert", "fused", "fp8"])
@pytest.mark.parametrize(("form", "graphs"), [("off", 2), ("mask", 2), ("mask from layer 1", 3), ("bias", 2)])
def test_layers_share_compiled_graphs_for_rows_of_all_lengths(
    form: str, graphs: int, convert: Callable[[nn.Module], None] | None
) -> None:
    source, reranker, counter = texts(), model(FORMS[form]), CompileCounterWithBackend("eager")
    batches = [source.packed(*rows(count, count), size, CPU) for count, size in ((12, 512), (1, 128), (40, 1024))]
    if convert is use_fp8_layers:
        reranker.encoder.bfloat16()
    if convert is not None:
        convert(reranker.encoder.base)
    with torch.no_grad():
        expected = [reranker(batch) for batch in batches]
        torch._dynamo.reset()
        compile_layers(reranker.encoder.base, backend=counter)
        found = [reranker(batch) for batch in batches]
        copied = copy.deepcopy(reranker)
        found.append(copied(batches[0]))

    assert all(torch.allclose(*pair, atol=1e-5) for pair in zip([*expected, expected[0]], found, strict=True))
    assert counter.frame_count == graphs
    # A copy, such as one to measure dev with, must not run the compiled graphs of the original's weights.
    assert not any(module._compiled_call_impl for module in copied.modules())


@pytest.mark.parametrize("share", [0, 0.7, 1], ids=["single layers", "two and one", "all three"])
@pytest.mark.parametrize("form", ["off", "mask from layer 1", "bias"])
def test_compiled_groups_of_layers_have_the_gradients_of_the_layers_and_compile_once(form: str, share: float) -> None:
    source, plain, counter = texts(), model(FORMS[form]), CompileCounterWithBackend("eager")
    grouped = copy.deepcopy(plain)
    torch._dynamo.reset()
    compile_layers(grouped.encoder.base, group_share=share, backend=counter)
    compiled = []
    for seed in range(4):
        batch = source.packed(*rows(8 + 5 * seed, seed), 512 + 128 * seed, CPU)
        logits = [reranker(batch) for reranker in (plain, grouped)]
        for found in logits:
            found.square().sum().backward()
        compiled.append(counter.frame_count)
        assert torch.allclose(*logits, atol=1e-5)

    assert compiled[0] == compiled[-1] > 0
    if share == 1:
        assert compiled[0] == 1
    assert plain.state_dict().keys() == grouped.state_dict().keys()
    for (name, weight), (_, other) in zip(plain.named_parameters(), grouped.named_parameters(), strict=True):
        assert weight.grad is not None
        assert torch.allclose(weight.grad, other.grad, rtol=1e-4, atol=1e-3), name


@pytest.mark.parametrize(("kind", "packed"), [("bert", False), ("bert", True), ("roberta", True), ("albert", False)])
def test_cls_states_equal_those_of_the_whole_batch(kind: str, packed: bool) -> None:
    source, (queries, passages), encoder = texts(), rows(12), model(StrmConfig(), kind).encoder
    batch = source.packed(queries, passages, 512, CPU) if packed else source.padded(queries, passages, CPU)
    with torch.no_grad():
        whole, cls_states = encoder(batch), encoder.cls_states(batch)

    expected = whole[0, batch.offsets[:12]] if isinstance(batch, PackedBatch) else whole[:, 0]
    assert cls_states.shape == (12, 32)
    assert torch.allclose(cls_states, expected, atol=1e-5)
    with torch.no_grad():
        assert encoder(batch).shape == whole.shape


def test_after_its_attention_the_last_layer_is_computed_at_cls_positions_only() -> None:
    source, (queries, passages), reranker = texts(), rows(12), model(StrmConfig())
    sizes = []
    for layer in reranker.encoder.base.encoder.layer:
        layer.intermediate.dense.register_forward_hook(lambda _, given, __: sizes.append(given[0].shape[:-1].numel()))
    batch = source.padded(queries, passages, CPU)
    reranker(batch)

    assert sizes == [batch.ids.numel(), batch.ids.numel(), 12]


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
def test_attention_in_training_draws_new_dropout_each_time(
    device: torch.device,
) -> None:
    batch = texts().packed(*rows(12), 512, device)
    layout = padded_layout(batch)
    masks = PackedTrainingMasks(layout, PaddedMasks(layout.present, None), FlashAttention.over(batch))
    query, key = torch.zeros(2, 1, 2, 512, 16, device=device)
    value = torch.ones_like(query)
    layer = LayerIndex(0, has_strm=False).to(device)
    whole, first, second = (masks.attend(layer, query, key, value, dropout) for dropout in (0.0, 0.3, 0.3))

    assert torch.allclose(whole, value)
    inputs = first[:, :, layout.is_input]
    assert inputs.mean().item() == pytest.approx(1, abs=0.02)
    assert inputs.std() > 0.1
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    ("longest", "heads", "window"),
    [(9, (2, 16), None), (64, (1, 64), None), (65, (2, 24), None), (200, (3, 16), None), (200, (1, 16), 37)],
)
@pytest.mark.parametrize("form", ["off", "mask", "bias"])
def test_the_kernel_equals_attention_over_the_padded_layout(
    form: str, longest: int, heads: tuple[int, int], window: int | None
) -> None:
    pytest.importorskip("triton")
    from rayrank.models.attention.kernel import attend

    # Without a GPU, Triton interprets the kernel in Python.
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    batch, words = kernel_batch(device, longest)
    layout, bias = padded_layout(batch), torch.randn(3, heads[0], device=device) if form == "bias" else None
    allowed = padded_mask(batch.ids[layout.positions].view(layout.present.shape), layout.present, words)
    masks = packed_scoring_masks(packed_codes(batch.ids, batch.seq, words), batch, bias)
    # Views of one tensor, as a fused projection returns them.
    fused = torch.randn(1, len(batch.ids), 3 * heads[0], heads[1], device=device).transpose(1, 2)
    query, key, value = fused.chunk(3, dim=1)
    layer = LayerIndex(1, has_strm=form != "off", window=window).to(device)

    with torch.inference_mode():
        padded_masks = PaddedMasks(layout.present, allowed, bias)
        reference = PackedTrainingMasks(layout, padded_masks, FlashAttention.over(batch))
        expected = reference.attend(layer, query, key, value, 0.0)
        rows_of = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
        layer_bias = None if bias is None else bias[1]
        output = attend(
            *rows_of, *masks.codes, masks.key_ranges, layer_bias, form == "mask", QUERY_BLOCK, KEY_BLOCK,
            window,
        )  # fmt: skip
        found = output.transpose(0, 1)[None]
        through_op = masks.attend(layer, query, key, value, 0.0)
    inputs = layout.is_input
    assert found.isfinite().all()
    assert torch.allclose(found[:, :, inputs], expected[:, :, inputs], atol=1e-5)
    assert torch.allclose(found, through_op, atol=1e-5)


def kernel_batch(device: torch.device, longest: int) -> tuple[PackedBatch, torch.Tensor]:
    rng = np.random.default_rng(longest)
    passages = Ragged.of([rng.integers(3, VOCABULARY, longest - 3 - rng.integers(0, 5)) for _ in range(5)])
    source = PairTexts(Ragged.of([[CLS, 7, SEP]]), passages, template(longest))
    chosen, total = np.arange(5), int(source.lengths(np.zeros(5, np.int64), np.arange(5)).sum())
    batch = source.packed(np.zeros(5, np.int64), chosen, -(-total // 64) * 64, device)
    return batch, torch.arange(VOCABULARY, dtype=torch.int8, device=device) % 2


def test_an_empty_passage_gives_an_input_of_the_query_alone() -> None:
    empty = PairTexts(Ragged.of([[CLS, 5, SEP]]), Ragged.of([[], []]), template(24))
    one = np.zeros(2, np.int64)

    assert inputs(empty.packed(one, np.arange(2), 128, CPU)) == [[CLS, 5, SEP, SEP]] * 2
    assert empty.padded(one, np.arange(2), CPU).ids.tolist() == [[CLS, 5, SEP, SEP]] * 2
