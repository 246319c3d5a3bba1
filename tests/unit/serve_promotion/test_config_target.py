"""A promotion in a Serve config file changes the model and nothing else."""

from pathlib import Path

import pytest
import yaml

from rayrank.core.errors import ConfigError
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
