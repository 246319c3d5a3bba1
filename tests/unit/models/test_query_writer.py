"""doc2query's model: saved and loaded, and sampling from it."""

import time
from pathlib import Path

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertModel,
    GenerationConfig,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import MINILM, Doc2QueryConfig, PipelineConfig
from rayrank.core.errors import ConfigError, StorageError
from rayrank.data.digests import digested, varied
from rayrank.models.batches import PaddedBatch
from rayrank.models.query_writer import (
    PassageQueries,
    QueryWriter,
    build,
    load_passage_queries,
    load_query_writer,
)
from rayrank.models.sampling import draw_piece, sample
from rayrank.models.saved import save
from rayrank.text.pieces import load_tokenizer, save_tokenizer
from rayrank.text.seq2seq import Seq2SeqTemplate

VOCABULARY = 43
T5_SIZE = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
SCRATCH = Doc2QueryConfig(model="scratch", length=32, query_length=6, queries=3, top_k=5)
TEXTS = ["the tower rises 40 metres", "it burns tallow", "a", "the plans were drawn by a mason " * 9]


def t5(tied: bool = True, vocabulary: int = VOCABULARY) -> PreTrainedModel:
    torch.manual_seed(0)
    shape = T5Config(vocab_size=vocabulary, decoder_start_token_id=0, tie_word_embeddings=tied, **T5_SIZE)
    model = T5ForConditionalGeneration(shape)
    if not tied:
        # As in T5 1.1, whose output layer is a matrix of its own and whose states are not scaled before it.
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
    return model


def bart(vocabulary: int = VOCABULARY, **size: int) -> PreTrainedModel:
    torch.manual_seed(0)
    size |= {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    shape = BartConfig(vocab_size=vocabulary, encoder_attention_heads=2, decoder_attention_heads=2, **size)
    return BartForConditionalGeneration(shape)


def batch(count: int = 3) -> PaddedBatch:
    ids = torch.randint(3, VOCABULARY, (count, 9), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[0, 5:] = 0
    return PaddedBatch(ids, mask, torch.zeros_like(ids))


MODELS = {"t5": t5, "t5 1.1": lambda: t5(tied=False), "bart": bart}


@pytest.mark.parametrize("kind", MODELS)
def test_a_saved_and_loaded_model_gives_equal_logits(kind: str, tmp_path: Path) -> None:
    model, artifact = QueryWriter(MODELS[kind](), start_id=2).eval(), Artifact(str(tmp_path), "train_doc2query", "key")
    save(artifact, model.base.config, model.state_dict(), model.description())

    again = load_query_writer(artifact)

    queries = torch.tensor([[2, 7, 9], [2, 8, 8], [2, 10, 11]])
    with torch.inference_mode():
        assert torch.equal(again(batch(), queries), model(batch(), queries))
    assert again.start_id == 2
    assert not again.training
    assert again.state_dict().keys() == model.state_dict().keys()


@pytest.mark.parametrize("kind", MODELS)
def test_a_state_has_every_weight_once_and_restores_the_model(kind: str) -> None:
    model, other = QueryWriter(MODELS[kind](), 0), QueryWriter(MODELS[kind](), 0)
    for parameter in other.parameters():
        torch.nn.init.normal_(parameter)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    other.load_state_dict(state)

    places = [tensor.data_ptr() for tensor in model.state_dict().values()]
    assert len(set(places)) == len(places)
    for mine, theirs in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_model_of_another_kind_is_one_sentence(tmp_path: Path) -> None:
    artifact = Artifact(str(tmp_path), "pointwise", "key")
    artifact.write_json("model/kind.json", {"kind": "reranker", "num_outputs": 2})
    artifact.write_json("model/config.json", {"model_type": "bert"})

    with pytest.raises(StorageError, match="writes no queries"):
        load_query_writer(artifact)


@pytest.fixture(scope="module")
def writer() -> PassageQueries:
    tokenizer = load_tokenizer(MINILM)
    torch.manual_seed(0)
    return PassageQueries.of(build(SCRATCH, tokenizer).eval(), tokenizer, SCRATCH)


def test_sampling_repeats_with_the_same_seed_and_differs_with_another(writer: PassageQueries) -> None:
    first, same, other = writer(TEXTS, 5), writer(TEXTS, 5), writer(TEXTS, 6)

    assert first == same
    assert first != other


def test_each_text_gets_its_queries_without_special_tokens(writer: PassageQueries) -> None:
    found = writer(TEXTS, 1)

    assert [len(queries) for queries in found] == [3] * len(TEXTS)
    for query in (query for queries in found for query in queries):
        assert not {"[CLS]", "[SEP]", "[PAD]"} & set(query.split())
        assert len(writer.tokenizer(query, add_special_tokens=False).input_ids) <= 3 * SCRATCH.query_length


def greedy(model: PreTrainedModel, passages: PaddedBatch, prompt: tuple[int, ...], end: int) -> torch.Tensor:
    """What transformers generates behind a prompt, ten pieces at most."""
    settings = GenerationConfig(
        do_sample=False, num_beams=1, max_new_tokens=10, eos_token_id=end, pad_token_id=0,
        decoder_start_token_id=prompt[0],
    )  # fmt: skip
    model.generation_config = GenerationConfig()
    given = torch.tensor([prompt]).expand(len(passages.ids), -1)
    mask = passages.attention_mask
    ids = model.generate(passages.ids, attention_mask=mask, decoder_input_ids=given, generation_config=settings)
    return ids[:, len(prompt) :]


@pytest.mark.parametrize("kind", MODELS)
def test_the_most_likely_piece_each_time_is_what_transformers_generates(kind: str) -> None:
    model, passages, prompt = MODELS[kind]().eval(), batch(16), (0, 5)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=1.0)
    free = greedy(model, passages, prompt, end=VOCABULARY)
    # The end is a piece that the texts contain at different places, so that they end after different numbers of pieces.
    ends = {end: {row.tolist().index(end) for row in free if end in row} for end in free.unique().tolist() if end}
    end = max(ends, key=lambda end: len(ends[end]))
    template = Seq2SeqTemplate((), (end,), 0, prompt, length=16, query_length=9)

    found = sample(model, passages, template, count=2, top_k=1, generator=torch.Generator())

    assert len(ends[end]) > 2
    assert torch.equal(found, greedy(model, passages, prompt, end).repeat_interleave(2, 0))


def test_pieces_are_drawn_from_the_most_likely_ones_in_proportion() -> None:
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log().expand(30_000, -1)

    found = draw_piece(logits, 2, torch.Generator().manual_seed(0))

    assert found.shape == (30_000, 1)
    shares = torch.bincount(found.flatten(), minlength=4) / 30_000
    assert shares.tolist() == pytest.approx([2 / 3, 1 / 3, 0, 0], abs=0.02)
    assert draw_piece(logits[:2], 99, torch.Generator()).max() < 4


def test_queries_are_those_of_their_own_text_whatever_the_order(writer: PassageQueries) -> None:
    """With one choice for each piece, sampling is deterministic, and a text's queries depend on the text alone."""
    likely = PassageQueries.of(writer.model, writer.tokenizer, SCRATCH.model_copy(update={"top_k": 1}))

    assert likely(TEXTS, 1) == likely(TEXTS[::-1], 2)[::-1]
    assert likely(TEXTS, 1) == [likely([text], 3)[0] for text in TEXTS]


def test_a_stored_writer_samples_as_before(writer: PassageQueries, tmp_path: Path) -> None:
    config, store = PipelineConfig(doc2query=SCRATCH), Store(str(tmp_path))
    artifact = store.artifact("train_doc2query", config)
    save(artifact, writer.model.base.config, writer.model.state_dict(), writer.model.description())
    save_tokenizer(writer.tokenizer, artifact)
    store.finish(artifact, config, time.monotonic(), {})

    again = load_passage_queries(artifact, SCRATCH, torch.device("cpu"))

    assert again(TEXTS, 5) == writer(TEXTS, 5)


def saved_folder(model: PreTrainedModel, folder: Path) -> str:
    model.save_pretrained(folder)
    load_tokenizer(MINILM).save_pretrained(folder)
    return str(folder)


def test_a_folder_gives_the_model_in_it(tmp_path: Path) -> None:
    tokenizer, model = load_tokenizer(MINILM), t5(vocabulary=30_522)
    config = Doc2QueryConfig(model=saved_folder(model, tmp_path))

    found = build(config, tokenizer)

    assert found.start_id == 0
    assert torch.equal(found.base.get_input_embeddings().weight, model.get_input_embeddings().weight)


def test_a_model_that_writes_nothing_is_one_sentence(tmp_path: Path) -> None:
    shape = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    config = Doc2QueryConfig(model=saved_folder(BertModel(shape), tmp_path))

    with pytest.raises(ConfigError, match=r"doc2query.model=.* cannot be loaded: .*such as T5 or BART\."):
        build(config, load_tokenizer(MINILM))


def test_a_model_with_fewer_pieces_than_its_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    config = Doc2QueryConfig(model=saved_folder(t5(), tmp_path))

    with pytest.raises(ConfigError, match="30522 word pieces, more than the model's 43"):
        build(config, load_tokenizer(MINILM))


def test_passages_longer_than_the_model_reads_are_one_sentence(tmp_path: Path) -> None:
    model = bart(vocabulary=30_522, max_position_embeddings=48)
    config = Doc2QueryConfig(model=saved_folder(model, tmp_path), length=64)

    with pytest.raises(ConfigError, match=r"doc2query.length=64 cannot be used: .* reads 48 word pieces at most"):
        build(config, load_tokenizer(MINILM))


def test_a_model_folder_has_a_digest_and_scratch_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)

    scratch = digested(PipelineConfig(doc2query=Doc2QueryConfig(model="scratch")))
    folder = varied(scratch, {"doc2query.model": "./scratch"})

    assert (scratch.doc2query.model, scratch.doc2query.fingerprint) == ("scratch", "")
    assert folder.doc2query.model == str(tmp_path / "scratch")
    assert folder.doc2query.fingerprint
