"""Sentence encoders: pooling, what an encoder's folder says, and equality with sentence-transformers."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import BertConfig, BertModel

from rayrank.core import copies
from rayrank.core.artifacts import MANIFEST, Artifact
from rayrank.core.config import MINILM, DenseConfig
from rayrank.core.errors import ConfigError
from rayrank.models.batches import PaddedBatch, pack
from rayrank.models.encoder import Encoder
from rayrank.models.inference.embedder import Embedder
from rayrank.models.pair_texts import PairTexts
from rayrank.models.sentence_encoder import SentenceEncoder, load_sentence_encoder, sentence_settings
from rayrank.text.sentence_texts import PASSAGE, QUERY, SentenceInputs
from rayrank.text.template import Template

TEXTS = ["how tall is the lighthouse", "The tower is 41 metres tall.", "x", "an unrelated text about orchids and bees"]


def _inputs(prefixes: tuple[str, str] = ("", ""), length: int = 64) -> SentenceInputs:
    return SentenceInputs.of(MINILM, MINILM, prefixes, length)


def _pieces(texts: list[str]) -> pa.Table:
    from rayrank.text.pieces import PieceEncoder, load_tokenizer

    encode = PieceEncoder(load_tokenizer(MINILM).backend_tokenizer.to_str(), 512)
    return pa.table({"text": texts, "piece_ids": encode(texts)})


def test_vectors_equal_those_of_sentence_transformers() -> None:
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    from rayrank.core.pretrained import locate

    expected = library.SentenceTransformer(locate(MINILM, "dense.encoder"), device="cpu").encode(TEXTS)
    inputs = _inputs()
    texts = PairTexts(inputs.prefixes, inputs.pieces(_pieces(TEXTS)), inputs.template)
    model = load_sentence_encoder(DenseConfig()).eval()
    found = Embedder(model, texts)(np.full(len(TEXTS), PASSAGE), np.arange(len(TEXTS)))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def _tiny(pooling: str, normalize: bool = False) -> SentenceEncoder:
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        attn_implementation="sdpa",
    )  # fmt: skip
    return SentenceEncoder(Encoder(BertModel(shape), None), pooling, normalize).eval()


def _batch() -> PaddedBatch:
    ids = torch.tensor([[1, 7, 8, 2], [1, 9, 2, 0]])
    return PaddedBatch(ids, (ids > 0).long(), torch.zeros_like(ids))


@pytest.mark.parametrize("pooling", ["mean", "cls", "last"])
def test_a_pooling_reads_the_positions_of_the_text_only(pooling: str) -> None:
    model, batch = _tiny(pooling), _batch()
    with torch.inference_mode():
        states, found = model.encoder(batch), model(batch)
    wanted = {
        "mean": [states[0].mean(0), states[1, :3].mean(0)],
        "cls": [states[0, 0], states[1, 0]],
        "last": [states[0, 3], states[1, 2]],
    }[pooling]
    torch.testing.assert_close(found, torch.stack(wanted))


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_packed_batch_is_pooled_as_a_padded_one(pooling: str) -> None:
    batch = _batch()
    model = _tiny(pooling)
    packed = pack(batch, Template(1, 2, 0, 16, 8))
    # The states of the padded batch, laid end to end: attention over packed rows has tests of its own.
    with torch.inference_mode():
        states = model.encoder(batch)
        flat = states[batch.attention_mask.bool()]
        row = torch.nn.functional.pad(flat, (0, 0, 0, len(packed.ids) - len(flat)))[None]
        torch.testing.assert_close(model._pooled(row, packed), model._pooled(states, batch))


def test_normalized_vectors_have_length_one() -> None:
    with torch.inference_mode():
        torch.testing.assert_close(_tiny("mean", normalize=True)(_batch()).norm(dim=1), torch.ones(2))


def _folder(place: Path, modules: list[str], pooling: dict[str, object], prompts: dict[str, str]) -> str:
    paths = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize", "Dense": "2_Dense"}
    listed = [{"path": paths[kind], "type": f"sentence_transformers.models.{kind}"} for kind in modules]
    (place / "1_Pooling").mkdir()
    (place / "modules.json").write_text(json.dumps(listed))
    (place / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (place / "config_sentence_transformers.json").write_text(json.dumps({"prompts": prompts}))
    return str(place)


def test_settings_come_from_a_sentence_transformers_folder(tmp_path: Path) -> None:
    prompts = {"query": "query: ", "document": "passage: "}
    name = _folder(tmp_path, ["Transformer", "Pooling"], {"pooling_mode_cls_token": True}, prompts)
    assert sentence_settings(DenseConfig(encoder=name)) == ("cls", False, "query: ", "passage: ")
    said = DenseConfig(encoder=name, pooling="mean", normalize=True, query_prefix="", passage_prefix="p ")
    assert sentence_settings(said) == ("mean", True, "", "p ")


def test_a_folder_without_pooling_gets_normalized_means() -> None:
    assert sentence_settings(DenseConfig(encoder=str(Path(__file__).parent)))[:2] == ("mean", True)


@pytest.mark.parametrize(
    ("modules", "pooling", "words"),
    [
        (["Transformer", "Pooling", "Dense"], {"pooling_mode_mean_tokens": True}, "a Dense layer"),
        (["Transformer", "Pooling"], {"pooling_mode_max_tokens": True}, "set dense.pooling"),
    ],
)
def test_an_encoder_with_an_unsupported_layer_is_refused(
    tmp_path: Path, modules: list[str], pooling: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        sentence_settings(DenseConfig(encoder=_folder(tmp_path, modules, pooling, {})))


def test_an_encoder_that_cannot_be_reached_is_not_pooled_by_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ConfigError, match=r"dense\.encoder=no/such-encoder: its modules\.json cannot be read"):
        sentence_settings(DenseConfig(encoder="no/such-encoder"))
    said = DenseConfig(encoder="no/such-encoder", pooling="cls", normalize=False, query_prefix="", passage_prefix="p: ")
    assert sentence_settings(said) == ("cls", False, "", "p: ")


def test_passages_whose_ids_the_corpus_has_are_mapped_from_the_disk_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(copies, "_held", {})
    corpus, tables = Artifact(str(tmp_path / "storage"), "corpus", "key"), [_pieces(TEXTS[:3]), _pieces(TEXTS[3:])]
    names = [f"part-{number}.parquet" for number in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        corpus.write_table(name, table.append_column("passage_id", table["text"].cast(pa.string())))
    corpus.write_json(MANIFEST, {"shards": names})
    monkeypatch.setattr(Artifact, "read_table", lambda *_: pytest.fail("a table is in the memory of each process"))

    found = _inputs().read(corpus)

    assert [ids.tolist() for ids in found] == _pieces(TEXTS)["piece_ids"].to_pylist()


def test_a_prefix_that_leaves_no_room_for_a_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dense\.length=8 leaves no room .* takes 9 pieces"):
        _inputs(("a b c d e f g", ""), length=8)


def test_a_tokenizer_without_a_token_for_the_end_of_a_text_is_refused(tmp_path: Path) -> None:
    from rayrank.text.pieces import load_tokenizer

    tokenizer = load_tokenizer(MINILM)
    tokenizer.sep_token = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"dense\.encoder=.* has no tokens for the start and the end of a text"):
        SentenceInputs.of(str(tmp_path), None, ("", ""), 64)


def test_a_prefix_stands_before_the_text_and_the_text_is_cut() -> None:
    inputs = _inputs(("query: ", "passage: "), length=8)
    texts = inputs.pieces(_pieces(TEXTS))
    found = inputs.template.pairs(inputs.prefixes.take(np.array([QUERY, PASSAGE])), texts.take(np.array([2, 3])))
    from rayrank.text.pieces import load_tokenizer

    tokenizer = load_tokenizer(MINILM)
    assert tokenizer.decode(found.ids[0]) == "[CLS] query : x [SEP]"
    assert tokenizer.decode(found.ids[1]) == "[CLS] passage : an unrelated text about [SEP]"
