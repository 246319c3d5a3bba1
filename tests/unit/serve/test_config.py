"""Settings of the endpoint are read from text or YAML, and a wrong setting gives one sentence."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from rayrank.core.errors import ConfigError
from rayrank.serve.config import read

EXAMPLE = Path(__file__).parents[3] / "serve/config.yaml"


def test_dotted_text_and_nested_values_are_the_same_settings() -> None:
    dotted = read({"model": "m", "limits.documents": "500", "batching.tokens": "", "scaling.max": "3"})
    nested = read({"model": "m", "limits": {"documents": 500}, "batching": {"tokens": None}, "scaling": {"max": 3}})

    assert dotted == nested
    assert (dotted.limits.documents, dotted.batching.tokens, dotted.scaling.max) == (500, None, 3)


def test_relative_paths_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    config = read({"model": "models/bogue", "keys_file": "keys", "search.run": "s3://bucket/search/1"})

    assert config.model == str(tmp_path / "models/bogue")
    assert config.keys_file == str(tmp_path / "keys")
    assert config.search.run == "s3://bucket/search/1"
    assert config.name == "bogue"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, r"^model is missing: name a folder written by `rayrank export`, as in model=DIR\.$"),
        (
            {"model": "m", "limits.document": "5"},
            r"^The setting limits\.document .*: did you mean limits\.documents\?$",
        ),
        ({"model": "m", "name": 1.10}, r"^name: 1\.1 is no text: put it in quotes"),
        ({"model": 2024}, r"^model: 2024 is no text: put it in quotes"),
        ({"model": "m", "limits": "5"}, r"^limits is a section, not a setting: set limits\.body_bytes or limits\.doc"),
        (
            {"model": "m", "limits.documents": "many"},
            r"^limits\.documents=many cannot be used: .*; change it with limits\.doc",
        ),
        ({"model": "m", "scaling": {"min": 2}}, r"^scaling\.max=1 is below scaling\.min=2: raise it\.$"),
        ({"model": "m", "backend": "onnx-int8", "resources.gpus": 1}, r"backend=onnx-int8 is for CPUs .*: change one"),
        ({"model": "m", "backend": "torch-fp8"}, r"backend=torch-fp8 is for GPUs and resources\.gpus=0 .*: change one"),
    ],
)
def test_a_wrong_setting_gives_one_sentence_that_names_it(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read(arguments)


def test_further_models_have_the_settings_of_the_first_one_but_for_their_own(tmp_path: Path) -> None:
    section = {"small": "/m/small", "team/v1.5": {"model": "/m/v1.5", "scaling": {"max": 3}, "backend": "onnx-int8"}}
    nested = read({"model": "/m/one", "batching.wait_ms": 5, "models": section})
    dotted = read(
        {
            "model": "/m/one",
            "batching.wait_ms": 5,
            "models": {"small": "/m/small", "team/v1.5": "/m/v1.5"},
            "models.team/v1.5.scaling.max": "3",
            "models.team/v1.5.backend": "onnx-int8",
        }
    )

    assert nested.each() == dotted.each()
    first, small, third = nested.each().values()
    assert list(nested.each()) == ["one", "small", "team/v1.5"] == [each.name for each in (first, small, third)]
    assert (small.model, small.backend, small.scaling.max) == ("/m/small", "torch", 1)
    assert (third.model, third.backend, third.scaling.max) == ("/m/v1.5", "onnx-int8", 3)
    assert {each.batching.wait_ms for each in (first, small, third)} == {5}


def test_a_setting_belongs_to_the_model_with_the_longest_name_that_it_starts_with() -> None:
    models = {"small": "/m/small", "small.v2": "/m/v2"}
    found = read({"model": "m", "models": models, "models.small.v2.backend": "onnx-int8"}).each()

    assert (found["small"].backend, found["small.v2"].backend) == ("torch", "onnx-int8")


@pytest.mark.parametrize(
    ("models", "sentence"),
    [
        ("small", r"^models=small cannot be used: map names to folders, as in models: \{NAME: DIR\}\.$"),
        ({"m": "/m/other"}, r"^models\.m has the name of the first model: give one of them another name\.$"),
        (
            {1.10: "/m/other"},
            r"^models: 1\.1 is no text: put it in quotes, without which YAML reads 1\.10 as the number 1\.1\.$",
        ),
        ({2024: "/m/other"}, r"^models: 2024 is no text: put it in quotes"),
        ({None: "/m/other"}, r"^models: None is no text: put it in quotes"),
        ({"a b": "/m/other"}, r"^models\.a b is no name of a model: use letters"),
        ({"small": 5}, r"^models\.small\.model=5 is no text: name a folder, in quotes if needed\.$"),
        ({"small": ["a"]}, r"^models\.small\.model=\['a'\] is no text: name a folder"),
        ({"small": {"model": "n", "previous": 5}}, r"^models\.small\.previous=5 is no text: name a folder"),
        ({"small": {"backend": "torch"}}, r"^models\.small has no folder: write models\.small=DIR\.$"),
        ({"small": {"model": "n", "http.cors": "*"}}, r"^models\.small\.http\.cors is no setting of a model: choose"),
        ({"small": {"model": "n", "backend": "tort"}}, r"^models\.small: backend=tort cannot be used"),
        ({"small": {"model": "n", "scaling": {"min": 2}}}, r"^models\.small: scaling\.max=1 is below scaling\.min=2"),
    ],
)
def test_a_wrong_setting_of_a_further_model_names_the_model(models: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read({"model": "m", "models": models})


def test_the_example_configuration_is_valid() -> None:
    (application,) = yaml.safe_load(EXAMPLE.read_text())["applications"]

    assert application["import_path"] == "rayrank.serve.app:build"
    assert read(application["args"]).scaling.max > 1
