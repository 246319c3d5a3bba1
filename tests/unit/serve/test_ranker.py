"""A replica changes its model without losing a request; wrong settings are found before anything is started."""

import asyncio
import hashlib
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import ray
import torch

from rayrank.bundle.export import Bundle, export, settings_of
from rayrank.core.config import MINILM, EncoderConfig, InputConfig, QueryTypesConfig, StrmConfig
from rayrank.core.errors import ConfigError, RayrankError
from rayrank.models.encoder import load_encoder
from rayrank.models.reranker import Reranker
from rayrank.serve import app
from rayrank.serve.app import _ranker, build
from rayrank.serve.config import ServeConfig
from rayrank.serve.records import Answer, Ask
from rayrank.serve.replicas import Ranker
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


def test_refusals_are_values_because_ray_logs_exceptions(folders: list[Path]) -> None:
    async def work() -> tuple[object, object]:
        ranker = Ranker()
        await ranker.reconfigure({"model": str(folders[0])})
        found = await ranker.rerank(replace(ASK, min_precision=0.9)), await ranker.explain("where", " ", None)
        await ranker.model.close()
        return found

    precision, blank = asyncio.run(work())

    assert isinstance(precision, ConfigError)
    assert "min_precision=0.9 cannot be given: the model's folder has no table" in str(precision)
    assert isinstance(blank, RayrankError)
    assert "The passage has no word pieces" in str(blank)


@pytest.mark.parametrize(
    "settings", [{"long_documents": "windows"}, {"backend": "torch-fp8", "resources": {"gpus": 0.5}}]
)
def test_a_replica_gets_every_setting_of_the_model(settings: dict[str, Any]) -> None:
    config = ServeConfig.model_validate({"model": "/m", "batching": {"wait_ms": 7}, **settings})

    found = ServeConfig.model_validate(_ranker(config).user_config)

    for name in ("model", "batching", *settings):
        assert getattr(found, name) == getattr(config, name)


def test_the_number_of_ingress_replicas_is_no_setting_of_the_model() -> None:
    one, three = (ServeConfig.model_validate({"model": "/m", "resources": {"ingress": num}}) for num in (1, 3))

    assert _ranker(one).user_config == _ranker(three).user_config


def test_equal_settings_load_nothing_and_a_model_that_cannot_be_loaded_leaves_the_old_one(
    folders: list[Path], tmp_path: Path
) -> None:
    async def work() -> None:
        ranker = Ranker()
        await ranker.reconfigure({"model": str(folders[0]), "name": "old"})
        model = ranker.model
        await ranker.reconfigure({"model": str(folders[0]), "name": "old"})
        assert ranker.model is model
        await ranker.reconfigure({"model": str(folders[0]), "name": "old", "previous": str(folders[1])})
        assert ranker.model is model

        await ranker.reconfigure({"model": str(tmp_path), "name": "new"})
        assert ranker.model is model
        ranker.check_health()
        assert f"{tmp_path} is no exported model" in ((await ranker.info()).load_error or "")
        answer = await ranker.rerank(ASK)
        assert isinstance(answer, Answer)
        assert answer.model == "old"

        await ranker.reconfigure({"model": str(folders[0]), "name": "old"})
        assert (await ranker.info()).load_error is None
        await model.close()

    asyncio.run(work())


def test_a_replica_whose_first_model_cannot_be_loaded_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no exported model"):
        asyncio.run(Ranker().reconfigure({"model": str(tmp_path), "name": "new"}))


def test_settings_that_ray_shows_hold_no_key(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYRANK_API_KEYS", "a-secret-long-key")
    app = build({"model": str(folders[0])})

    deployment = app._bound_deployment
    shown = f"{deployment.user_config} {deployment.ray_actor_options} {deployment.init_args}"
    assert hashlib.sha256(b"a-secret-long-key").hexdigest() in shown
    assert "a-secret-long-key" not in shown


@pytest.mark.parametrize(
    ("command", "running", "is_refused"),
    [
        (["serve", "run", "serve.app:build"], None, True),
        (["serve", "run", "serve.app:build"], "127.0.0.1:6379", False),
        (["serve", "run", "-a", "127.0.0.1:6379", "serve.app:build"], None, False),
        (["python", "run"], None, False),
    ],
)
def test_serve_run_is_refused_beside_another_server_unless_it_joins_that_one(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch, command: list[str], running: str | None, is_refused: bool
) -> None:
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(app, "canonicalize_bootstrap_address", lambda address: running)
    # Tests of the endpoint may have left a Ray in this process.
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(app, "SERVE_RUN_PORT", port)
        if is_refused:
            with pytest.raises(click.ClickException, match=rf"^port={port} is taken: another server listens"):
                build({"model": str(folders[0])})
        else:
            build({"model": str(folders[0])})


def test_a_folder_without_a_model_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=r"is no exported model: it has no rayrank\.json; name a folder"):
        build({"model": str(tmp_path)})


def test_a_missing_run_or_keys_file_is_refused_before_anything_is_started(folders: list[Path]) -> None:
    with pytest.raises(click.ClickException, match=r"search\.run=.*/none is no first stage that can be searched"):
        build({"model": str(folders[0]), "search.run": "/none"})
    with pytest.raises(click.ClickException, match=r"keys_file=/none cannot be read: No such file"):
        build({"model": str(folders[0]), "keys_file": "/none"})
