"""A replica changes its model without losing a request; wrong settings are found before anything is started."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import torch

from rayrank.bundle.export import Bundle, export, settings_of
from rayrank.core.config import MINILM, EncoderConfig, InputConfig, QueryTypesConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.models.encoder import load_encoder
from rayrank.models.reranker import Reranker
from rayrank.serve.app import Ranker, _ranker, build
from rayrank.serve.config import ServeConfig
from rayrank.serve.records import Answer, Ask
from rayrank.text.pieces import load_tokenizer
from rayrank.text.words import word_table

ASK = Ask("where is the bogue", [f"The bogue number {number} lies in the bay." for number in range(20)])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place, tokenizer = tmp_path_factory.mktemp("models"), load_tokenizer(MINILM)
    for seed in (0, 1):
        torch.manual_seed(seed)
        model = Reranker(load_encoder(EncoderConfig(layers=1), word_table(tokenizer), StrmConfig()), 1).eval()
        settings = settings_of(model, InputConfig(), QueryTypesConfig(), [])
        export(str(place / str(seed)), Bundle(model, tokenizer, settings))
    return [place / "0", place / "1"]


def test_the_old_model_answers_until_the_new_one_is_loaded(folders: list[Path]) -> None:
    async def work() -> list[Answer]:
        ranker, answers = Ranker(), []
        await ranker.reconfigure({"model": str(folders[0]), "name": "old"})
        swap = asyncio.create_task(ranker.reconfigure({"model": str(folders[1]), "name": "new"}))
        while not swap.done() or answers[-1].model == "old":
            found = await asyncio.gather(*(ranker.rerank(ASK) for _ in range(4)))
            answers += [answer for answer in found if isinstance(answer, Answer)]
        await swap
        ranker.check_health()
        await ranker.model.close()
        return answers

    answers = asyncio.run(work())

    names = [answer.model for answer in answers]
    assert names == sorted(names, reverse=True)
    assert set(names) == {"old", "new"}
    for name in ("old", "new"):
        scores = [answer.logits for answer in answers if answer.model == name]
        assert np.allclose(scores, scores[0], atol=1e-5)
    assert not np.allclose(answers[0].logits, answers[-1].logits, atol=1e-3)


def test_a_precision_that_the_model_cannot_give_is_a_value_because_ray_logs_exceptions(folders: list[Path]) -> None:
    async def work() -> object:
        ranker = Ranker()
        await ranker.reconfigure({"model": str(folders[0])})
        found = await ranker.rerank(replace(ASK, min_precision=0.9))
        await ranker.model.close()
        return found

    found = asyncio.run(work())

    assert isinstance(found, ConfigError)
    assert "min_precision=0.9 cannot be given: the model's folder has no table" in str(found)


@pytest.mark.parametrize(
    "settings", [{"long_documents": "windows"}, {"backend": "torch-fp8", "resources": {"gpus": 0.5}}]
)
def test_a_replica_gets_every_setting_of_the_model(settings: dict[str, Any]) -> None:
    config = ServeConfig.model_validate({"model": "/m", "batching": {"wait_ms": 7}, **settings})

    found = ServeConfig.model_validate(_ranker(config).user_config)

    for name in ("model", "batching", *settings):
        assert getattr(found, name) == getattr(config, name)


def test_a_folder_without_a_model_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=r"is no exported model: it has no rayrank\.json; name a folder"):
        build({"model": str(tmp_path)})


def test_a_missing_run_or_keys_file_is_refused_before_anything_is_started(folders: list[Path]) -> None:
    with pytest.raises(click.ClickException, match=r"search\.run=.*/none is no first stage that can be searched"):
        build({"model": str(folders[0]), "search.run": "/none"})
    with pytest.raises(click.ClickException, match=r"keys_file=/none cannot be read: No such file"):
        build({"model": str(folders[0]), "keys_file": "/none"})
