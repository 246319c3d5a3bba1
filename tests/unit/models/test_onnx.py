"""The ONNX graph of a re-ranker gives the model's scores in any form of STRM, and nearly so with int8 weights."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    ElectraConfig,
    ElectraModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

from rayrank.bundle.export import INT8, Bundle, export, load, settings_of
from rayrank.bundle.text_scorer import score
from rayrank.core.config import MINILM, EncoderConfig, InputConfig, QueryTypesConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.models.encoder import Encoder, load_encoder
from rayrank.models.inference.onnx_graph import int8, onnx_graph
from rayrank.models.inference.onnx_scorer import OnnxScorer
from rayrank.models.inference.scorer import Scorer
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker
from rayrank.stages.quantization import check_decrease
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.text.words import word_table

FORMS = {
    "off": StrmConfig(form="off"),
    "the paper's": StrmConfig(),
    "first piece": StrmConfig(representative="first"),
    "from layer 1": StrmConfig(first_layer=1),
    "to layer 1": StrmConfig(last_layer=1),
    "bias": StrmConfig(form="bias"),
}
SIZES = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}
BASES = {
    "BERT": lambda: BertModel(BertConfig(**SIZES)),
    "RoBERTa": lambda: RobertaModel(RobertaConfig(**SIZES, type_vocab_size=1)),
    "ELECTRA": lambda: ElectraModel(ElectraConfig(**SIZES, embedding_size=16)),
    "ALBERT": lambda: AlbertModel(AlbertConfig(**SIZES, embedding_size=16)),
}
LENGTH = 40
ROWS = np.arange(60)


def reranker(base: PreTrainedModel, strm: StrmConfig, outputs: int = 1) -> Reranker:
    torch.manual_seed(1)
    # A third of the pieces continue a word, since STRM changes nothing else.
    words = np.where(np.arange(300) % 3 == 0, 0, 1).astype(np.int8)
    model = Reranker(Encoder(base, words, strm), outputs).eval()
    nn.init.normal_(model.head.weight)
    if model.encoder.strm_bias is not None:
        nn.init.normal_(model.encoder.strm_bias, std=0.02)
    return model


def bert(strm: StrmConfig, outputs: int = 1) -> Reranker:
    torch.manual_seed(0)
    return reranker(BASES["BERT"](), strm, outputs)


def texts() -> PairTexts:
    rng = np.random.default_rng(0)
    prefixes, passages = (
        Ragged.of([rng.integers(5, 300, rng.integers(low, high)) for _ in ROWS]) for low, high in ((3, 9), (1, 45))
    )
    return PairTexts(prefixes, passages, Template(cls_id=2, sep_id=3, pad_id=0, length=LENGTH, query_length=LENGTH))


@pytest.mark.parametrize("strm", FORMS.values(), ids=FORMS)
def test_the_graph_gives_the_models_scores_in_every_form_of_strm(strm: StrmConfig) -> None:
    model = bert(strm)
    wanted = Scorer(model, texts())(ROWS, ROWS)

    graph = onnx_graph(model)

    found = OnnxScorer(graph.SerializeToString(), texts())(ROWS, ROWS)
    assert found.dtype == np.float32
    assert np.allclose(found, wanted, atol=1e-4)
    assert np.ptp(wanted) > 1


@pytest.mark.parametrize("strm", FORMS.values(), ids=FORMS)
def test_int8_scores_correlate_with_the_models_in_every_form_of_strm(strm: StrmConfig) -> None:
    model = bert(strm)
    wanted = Scorer(model, texts())(ROWS, ROWS)

    found = OnnxScorer(int8(onnx_graph(model)), texts())(ROWS, ROWS)

    assert not np.allclose(found, wanted, atol=1e-4)
    assert np.corrcoef(found, wanted)[0, 1] > 0.99


@pytest.mark.parametrize("base", ["RoBERTa", "ELECTRA", "ALBERT"])
@pytest.mark.parametrize("form", ["off", "the paper's"])
def test_the_graph_gives_the_scores_of_other_encoders(base: str, form: str) -> None:
    torch.manual_seed(0)
    model = reranker(BASES[base](), FORMS[form])

    found = OnnxScorer(onnx_graph(model).SerializeToString(), texts())(ROWS, ROWS)

    assert np.allclose(found, Scorer(model, texts())(ROWS, ROWS), atol=1e-4)


def test_a_pointwise_graph_gives_the_difference_of_its_two_classes() -> None:
    model = bert(StrmConfig(), outputs=2)

    found = OnnxScorer(onnx_graph(model).SerializeToString(), texts())(ROWS, ROWS)

    assert np.allclose(found, Scorer(model, texts())(ROWS, ROWS), atol=1e-4)


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_scores_come_in_the_callers_order_whatever_the_budget(four_threads: None) -> None:
    graph = onnx_graph(bert(StrmConfig())).SerializeToString()
    rng = np.random.default_rng(3)
    queries, passages = rng.permutation(ROWS), rng.permutation(ROWS)

    large, small = (OnnxScorer(graph, texts(), tokens)(queries, passages) for tokens in (10_000, 1))
    one_by_one = [OnnxScorer(graph, texts())(queries[[i]], passages[[i]])[0] for i in range(5)]

    assert np.allclose(large, small, atol=1e-4)
    assert np.allclose(large[:5], one_by_one, atol=1e-4)
    assert OnnxScorer(graph, texts())(queries[:0], passages[:0]).shape == (0,)


def test_tracing_restores_the_model() -> None:
    model = bert(StrmConfig(first_layer=1)).train()
    before = model.encoder.base.config._attn_implementation

    onnx_graph(model)

    assert model.training
    assert model.encoder.base.training
    assert model.encoder.base.config._attn_implementation == before


def test_every_weight_matrix_except_the_head_is_int8() -> None:
    graph = onnx_graph(bert(StrmConfig()))
    before = graph.SerializeToString()
    small = onnx.load_from_string(int8(graph))

    weights = {tensor.data_type for tensor in small.graph.initializer if tensor.name.endswith("_quantized")}

    assert weights == {onnx.TensorProto.INT8}
    assert sum(node.op_type == "MatMulInteger" for node in small.graph.node) == 3 * 6
    assert sum(node.op_type == "MatMul" for node in small.graph.node) == 1
    assert graph.SerializeToString() == before


def test_a_folder_scores_with_its_int8_graph_on_request(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(MINILM)
    torch.manual_seed(0)
    model = Reranker(load_encoder(EncoderConfig(), word_table(tokenizer), StrmConfig()), 1).eval()
    settings = settings_of(model, InputConfig(query_type=False), QueryTypesConfig(), [])
    graph = int8(onnx_graph(model))
    bundle = Bundle(model, tokenizer, settings, int8=graph)
    export(str(tmp_path / "model"), bundle)
    queries = ["where is the bogue", "who asked insouciantly", "how tall is the lighthouse", "what is a premium"]
    passages = ["The bogue lies in the bay. " * 80, "Zelda Rookhaven did.", "It is 40 m tall.", "What one pays."]

    plain, small = (load(str(tmp_path / "model"), backend) for backend in ("torch", "onnx-int8"))

    assert plain.int8 is None
    wanted, found = (score(opened, queries, passages) for opened in (plain, small))
    assert np.array_equal(found, score(bundle, queries, passages))
    assert np.corrcoef(found, wanted)[0, 1] > 0.98
    assert not np.array_equal(found, wanted)


def test_loading_an_int8_graph_that_is_missing_names_the_job_that_makes_it(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(MINILM)
    model = Reranker(load_encoder(EncoderConfig(layers=1), word_table(tokenizer), StrmConfig()), 1).eval()
    settings = settings_of(model, InputConfig(), QueryTypesConfig(), [])
    export(str(tmp_path / "model"), Bundle(model, tokenizer, settings))

    assert not (tmp_path / "model" / INT8).exists()
    with pytest.raises(ConfigError, match=r"scorer\.backend=onnx-int8 cannot be used: .* has no model-int8\.onnx; run"):
        load(str(tmp_path / "model"), "onnx-int8")


def test_an_encoder_whose_attention_cannot_be_replaced_is_refused() -> None:
    model = bert(StrmConfig())
    model.encoder.base._supports_attention_backend = False

    with pytest.raises(
        ConfigError,
        match=r"scorer\.backend=onnx-int8 cannot be used: the attention of BertModel .* set scorer\.backend",
    ):
        onnx_graph(model)


def test_a_loss_of_more_than_0_005_is_refused_with_both_figures() -> None:
    check_decrease("onnx-int8", 0.6, 0.5951, 100, "MRR@10")
    check_decrease("onnx-int8", 0.6, 0.7, 100, "MRR@10")

    with pytest.raises(ConfigError, match=r"MRR@10 on 100 dev queries falls from 0\.6000 to 0\.5940 .* at most 0\.005"):
        check_decrease("onnx-int8", 0.6, 0.594, 100, "MRR@10")
