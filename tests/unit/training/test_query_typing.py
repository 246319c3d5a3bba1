"""The classifier of query types: its examples, its training, and loading it from storage."""

import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from rayrank.bundle.export import Bundle, export, load, settings_of
from rayrank.bundle.predicted_types import types_for
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import (
    MINILM,
    EncoderConfig,
    InputConfig,
    PipelineConfig,
    QueryTypesConfig,
    StrmConfig,
    TrainingConfig,
    TyperConfig,
)
from rayrank.models.encoder import Encoder
from rayrank.models.query_typer import load_typer, most_likely
from rayrank.models.reranker import Reranker
from rayrank.models.saved import save
from rayrank.text.pieces import load_tokenizer, save_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.training.loop import Log, fit
from rayrank.training.phases.query_typer import QueryTyping

from .conftest import tiny_model

NUM_TYPES = 3


class Forgets:
    def load(self) -> None:
        return None

    def save(self, state: dict[str, object], log: Log) -> None:
        pass


def made_up(size: int, seed: int = 2) -> tuple[Ragged, np.ndarray]:
    """Questions whose second id tells the type."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, NUM_TYPES, size)
    rows = [[1, 10 + int(kind), *rng.integers(20, 40, rng.integers(1, 20)).tolist(), 2] for kind in labels]
    return Ragged.of(rows), labels


def phase(size: int = 300, batch_size: int = 8, seed: int = 3) -> QueryTyping:
    questions, labels = made_up(size)
    return QueryTyping(questions, labels, batch_size=batch_size, pad_id=0, seed=seed)


def test_a_tenth_of_the_questions_is_held_out_depending_only_on_the_seed() -> None:
    first, same, other = phase(), phase(batch_size=32), phase(seed=4)

    assert len(first.dev) == 30
    assert sorted([*first.dev, *first.train]) == list(range(300))
    np.testing.assert_array_equal(first.dev, same.dev)
    assert set(first.dev) != set(other.dev)


@pytest.mark.parametrize("size", [11, 300])
def test_an_epoch_has_every_training_question_once_in_its_own_order(size: int) -> None:
    made = phase(size)
    epochs = [made.examples(epoch) for epoch in range(3)]

    for examples in epochs:
        assert sorted(examples) == made.train.tolist()
        assert len(examples) == made.num_examples()
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[1] == phase(size).examples(1)


def test_batches_hold_questions_of_similar_length() -> None:
    made, size = phase(2000), 8
    questions, _ = made_up(2000)

    def padding(rows: list[int]) -> float:
        lengths = questions.lengths(np.array(rows))
        batches = [lengths[start : start + size] for start in range(0, len(rows), size)]
        return sum(len(batch) * batch.max() for batch in batches) / lengths.sum() - 1

    assert padding(made.examples(0)) < 0.1 < 0.4 < padding(made.train.tolist())


def test_the_loss_of_equal_logits_is_that_of_guessing() -> None:
    made = phase()
    model = tiny_model(NUM_TYPES, dropout=0)
    with torch.no_grad():
        model.head.weight.zero_()

    loss, scores = made.loss(model, made.prepare(model, made.train[:7].tolist()))

    assert loss.item() == pytest.approx(np.log(3))
    assert scores.shape == (7, NUM_TYPES)


def test_the_classifier_learns_types_that_depend_on_one_word() -> None:
    torch.manual_seed(0)
    made, model = phase(), tiny_model(NUM_TYPES, dropout=0.1)
    config = TyperConfig(epochs=3, batch_size=8, lr=1e-3)
    right, count = made.evaluate(model)
    fitted = fit(
        model, made, config, training=TrainingConfig(), device=torch.device("cpu"), checkpoint=Forgets(),
        log=lambda line: None,
    )  # fmt: skip

    assert right < 0.7 * count
    assert fitted.state.best == 1.0
    assert made.evaluate(model) == (30, 30)
    assert model.training


def test_predictions_are_in_the_order_of_the_questions() -> None:
    questions, _ = made_up(600)
    torch.manual_seed(1)
    model = tiny_model(NUM_TYPES, dropout=0.1)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    rows = np.random.default_rng(0).permutation(600)[:500]

    together = most_likely(model, questions, rows, pad_id=0)

    alone = [most_likely(model, questions, rows[place : place + 1], pad_id=0)[0] for place in range(60)]
    assert together[:60].tolist() == alone
    assert len(set(together.tolist())) > 1


def stored(folder: Path) -> tuple[Artifact, dict[str, Tensor]]:
    """A typer as its stage leaves it, its small encoder untrained."""
    config, store = PipelineConfig(encoder=EncoderConfig(layers=1)), Store(str(folder))
    tokenizer, artifact = load_tokenizer(MINILM), store.artifact("query_typer", config)
    shape = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    torch.manual_seed(3)
    model = Reranker(Encoder(BertModel(shape), None, StrmConfig(form="off")), num_outputs=4)
    save_tokenizer(tokenizer, artifact)
    artifact.write_json("types.json", ["a", "b", "side effects", "d"])
    save(artifact, shape, model.state_dict(), model.description())
    store.finish(artifact, config, time.monotonic(), {})
    return artifact, model.state_dict()


def test_a_loaded_classifier_predicts_names_of_its_types(tmp_path: Path) -> None:
    artifact, _ = stored(tmp_path)
    typer = load_typer(artifact)
    texts = [f"what about {word}" for word in "aspirin rashes insouciantly coughs Besançon and a whole lot".split()]

    found = typer([*texts, "", "x " * 500])

    assert typer.types == ["a", "b", "side effects", "d"]
    assert set(found) <= set(typer.types)
    assert found[: len(texts)] == [typer([text])[0] for text in texts]
    assert typer([]) == []


def test_a_loaded_classifier_uses_its_stored_head(tmp_path: Path) -> None:
    artifact, weights = stored(tmp_path)
    weights["head.bias"] = torch.tensor([0.0, 0.0, 50.0, 0.0])
    shape = BertConfig.from_dict(artifact.read_json("model/config.json"))
    save(artifact, shape, weights, artifact.read_json("model/kind.json"))

    assert load_typer(artifact)(["who", "where"]) == ["side effects", "side effects"]


def exported_with(typer: Artifact | None, folder: Path) -> Bundle:
    tokenizer = load_tokenizer(MINILM)
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    model = Reranker(Encoder(BertModel(shape), None, StrmConfig(form="off")), num_outputs=1)
    settings = settings_of(model, InputConfig(length=48), QueryTypesConfig(), ["side effects", "location"])
    query_typer = None if typer is None else load_typer(typer)
    export(str(folder), Bundle(model, tokenizer, settings, query_typer=query_typer))
    return load(str(folder))


def test_an_exported_model_predicts_types_with_the_classifier_it_was_trained_with(tmp_path: Path) -> None:
    artifact, _ = stored(tmp_path / "storage")
    texts = ["what about aspirin", "where are rashes", "insouciantly"]

    found = exported_with(artifact, tmp_path / "model")

    shutil.rmtree(tmp_path / "storage")
    expected = exported_with(None, tmp_path / "plain")
    assert found.query_typer is not None
    assert types_for(found, texts, [None, "d", None]) == [found.query_typer(texts)[0], "d", found.query_typer(texts)[2]]
    # Rules know no side effects; what they say that the model never saw becomes its most frequent type.
    assert types_for(expected, texts, [None, None, None]) == ["side effects", "location", "side effects"]


def test_an_exported_classifier_contains_no_paths_of_its_machine(tmp_path: Path) -> None:
    artifact, _ = stored(tmp_path / "storage")
    exported_with(artifact, tmp_path / "model")

    for file in (tmp_path / "model").rglob("*.json"):
        assert str(tmp_path) not in file.read_text(), file
