"""A promotion in a Serve config file changes the model and nothing else."""

from pathlib import Path

import pytest
import yaml

from rayrank.core.errors import ConfigError
from rayrank.serve.config import read
from rayrank.serve.promotion import promoted
from rayrank.serve.targets import open_target

BLOCK = """\
# Our endpoint.
http_options: {host: 0.0.0.0, port: 8123}
applications:
  - name: other
    import_path: other:app
  - name: rayrank  # the re-ranker
    route_prefix: /ranker
    import_path: serve.app:build
    args:
      # The folder.
      model: /m/one  # made by jobs.export
      batching: {wait_ms: 5}
"""
FLOW = """\
applications: [{import_path: "serve.app:build", args: {wait: 1, model: /m/one, backend: torch}}]
# The end.
"""


@pytest.mark.parametrize("text", [BLOCK, FLOW])
def test_only_the_model_is_changed(text: str, tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(text)
    before, there_and_back = yaml.safe_load(text), [("/m/two: a #name", "/m/one"), ("/m/one", "/m/two: a #name")]

    for model, previous in there_and_back:
        done = open_target(str(file)).replace_model({"model": model, "previous": previous})

        live = open_target(str(file)).live().settings
        assert (live["model"], live["previous"]) == (model, previous)
        after = yaml.safe_load(file.read_text())
        after["applications"][-1]["args"].pop("previous")
        after["applications"][-1]["args"]["model"] = "/m/one"
        assert after == before
        assert done == f"run serve deploy {file} to serve it"
    comments = [line.partition("# ")[2] for line in text.splitlines() if "# " in line]
    assert [line.partition("# ")[2] for line in file.read_text().splitlines() if "# " in line] == comments
    assert list(tmp_path.iterdir()) == [file]


SEVERAL = """\
applications:
  - import_path: serve.app:build
    args:
      model: /m/one
      models:
        small: /m/small  # for the shop
        german:
          model: /m/german
          backend: onnx-int8
        "1.10": /m/v1.10
"""


@pytest.mark.parametrize("name", ["one", "small", "german", "1.10"])
def test_of_several_models_only_the_named_one_is_changed(name: str, tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(SEVERAL)
    before = read(yaml.safe_load(SEVERAL)["applications"][0]["args"]).each()
    live = open_target(str(file), name).live()

    for model, previous in (("/m/new", live.model), (live.model, "/m/new"), ("/m/new", live.model)):
        open_target(str(file), name).replace_model({"model": model, "previous": previous})
        found = open_target(str(file), name).live()
        assert (found.model, found.settings["previous"], found.served_as) == (model, previous, name)

    assert live.model == before[name].model
    assert live.settings.get("backend") == ("onnx-int8" if name == "german" else None)
    after = read({"name": "one", **yaml.safe_load(file.read_text())["applications"][0]["args"]}).each()
    change = {"model": "/m/new", "previous": before[name].model}
    assert after.pop(name) == before.pop(name).model_copy(update=change)
    if name != "one":
        # A further model keeps its name, because requests choose it with that.
        assert promoted(live, "/m/new").get("name") is None
    assert {each: settings.model for each, settings in after.items()} == {
        each: settings.model for each, settings in before.items()
    }
    assert "# for the shop" in file.read_text()


def test_of_several_models_one_has_to_be_named(tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(SEVERAL)
    for asked, reason in (("", "it has 4 models"), ("large", "there is no model large")):
        with pytest.raises(ConfigError, match=f"{reason}; name the one to replace with --replace one or small or ger"):
            open_target(str(file), asked)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            "{model: /m/one, models: {1.10: /m/two}}",
            r"^models: 1\.1 is no text: put it in quotes, without which YAML reads 1\.10 as",
        ),
        ("{model: /m/one, models: {no: /m/two}}", r"^models: False is no text: put it in quotes"),
        ("{model: /m/one, models: small}", r"^models=small cannot be used: map names to folders"),
        ("{model: /m/one, name: 1.10}", r"^name: 1\.1 is no text: put it in quotes"),
        ("{model: 2024}", r"^model: 2024 is no text: put it in quotes"),
    ],
)
def test_a_name_that_yaml_reads_as_no_text_is_refused(arguments: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(f"applications: [{{args: {arguments}}}]")

    with pytest.raises(ConfigError, match=sentence):
        open_target(str(file))


def test_the_endpoint_is_found_in_the_file(tmp_path: Path) -> None:
    found = []
    for text in (BLOCK, FLOW):
        (tmp_path / "serve.yaml").write_text(text)
        found.append(open_target(str(tmp_path / "serve.yaml")).live())

    assert [live.endpoint for live in found] == ["http://127.0.0.1:8123/ranker", "http://127.0.0.1:8000"]
    assert [live.model for live in found] == ["/m/one", "/m/one"]


@pytest.mark.parametrize(
    "text", ["", "[]", "applications: []", "applications: [{import_path: a, args: {depth: 1}}]", "a: 1"]
)
def test_a_file_without_a_model_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text(text)

    with pytest.raises(
        ConfigError, match=r"has 0 applications with a model instead of one: give one application args: \{model: DIR\}"
    ):
        open_target(str(file)).live()
    assert file.read_text() == text


def test_an_unreadable_config_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("a: [")
    for name, reason in (("nothing", "No such file"), ("broken", "while parsing")):
        with pytest.raises(ConfigError, match=f"--to .*/{name} cannot be read: {reason}"):
            open_target(str(tmp_path / name))


def test_a_dashboard_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"--to http://127\.0\.0\.1:9 cannot be used: .*; name the dashboard's URL"):
        open_target("http://127.0.0.1:9")
