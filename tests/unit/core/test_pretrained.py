"""An encoder in a folder enters keys by the digest of its content, one on the hub or in a package by its name."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from rayrank.core import flow
from rayrank.core.config import MINILM, PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.pretrained import content_digest, locate
from rayrank.data.digests import varied
from rayrank.jobs.entry import configure, parser


def folder(place: Path, weights: bytes = b"weights") -> str:
    (place / "inside").mkdir(parents=True)
    (place / "config.json").write_text("{}")
    (place / "inside" / "model.safetensors").write_bytes(weights)
    return str(place)


def test_a_folders_digest_depends_on_its_files_and_not_on_its_path(tmp_path: Path) -> None:
    here = folder(tmp_path / "here")
    digest = content_digest(here, "encoder.name")

    shutil.copytree(here, tmp_path / "there")
    assert content_digest(str(tmp_path / "there"), "encoder.name") == digest
    assert content_digest(folder(tmp_path / "other", b"others"), "encoder.name") != digest
    (tmp_path / "there" / "inside").rename(tmp_path / "there" / "beside")
    assert content_digest(str(tmp_path / "there"), "encoder.name") != digest


@pytest.mark.parametrize("name", [MINILM, "bert-large-uncased", "owner/model"])
def test_a_name_on_the_hub_or_in_a_package_has_no_digest(name: str) -> None:
    assert content_digest(name, "encoder.name") == ""


@pytest.mark.parametrize("name", ["", "~nobody-has-this-name/model", "a" * 300, "/" + "a" * 300, "models/\0"])
def test_a_name_that_no_folder_can_have_does_not_crash(name: str) -> None:
    with suppress(ConfigError):
        assert content_digest(name, "encoder.name") == ""


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"text\.tokenizer=.*/none cannot be found: there is no folder"):
        content_digest(str(tmp_path / "none"), "text.tokenizer")


def configured(encoder: str) -> PipelineConfig:
    return configure(parser("").parse_args(["--set", f"encoder.name={encoder}", "--set", f"text.tokenizer={encoder}"]))


def test_new_weights_in_the_same_folder_change_the_keys(tmp_path: Path) -> None:
    place = folder(tmp_path / "encoder")
    before = configured(place)
    assert flow.key("corpus", configured(place)) == flow.key("corpus", before)

    (tmp_path / "encoder" / "inside" / "model.safetensors").write_bytes(b"trained anew")

    for stage in ("corpus", "pretrain", "listwise"):
        assert flow.key(stage, configured(place)) != flow.key(stage, before), stage


NAMES = ["models/enc", "./models/enc", "models/../models/enc", "enc"]


@pytest.mark.parametrize("name", NAMES)
def test_the_content_of_a_relative_folder_is_in_the_keys(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(tmp_path / "models" / "enc")
    (tmp_path / "enc").symlink_to(tmp_path / "models" / "enc")
    monkeypatch.chdir(tmp_path)
    before = configured(name)
    assert before.encoder.fingerprint
    assert before.text.fingerprint

    (tmp_path / "models" / "enc" / "inside" / "model.safetensors").write_bytes(b"trained anew")

    for stage in ("corpus", "pretrain", "listwise"):
        assert flow.key(stage, configured(name)) != flow.key(stage, before), stage


@pytest.mark.parametrize("name", NAMES[:2])
def test_relative_paths_are_resolved_before_workers_use_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder(tmp_path / "models" / "enc")
    (tmp_path / "labels.txt").write_text("LOC:city Where is it ?\n")
    monkeypatch.chdir(tmp_path)
    config = configured(name)
    labelled = varied(config, {"typer.labels": "labels.txt", "encoder.name": name})
    monkeypatch.chdir("/")

    for found in (config, labelled):
        assert Path(locate(found.encoder.name, "encoder.name")) == Path(place)
        assert Path(locate(found.text.tokenizer, "text.tokenizer")) == Path(place)
    assert labelled.typer.labels == str(tmp_path / "labels.txt")


def test_the_path_of_a_folder_is_in_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here" / "models").mkdir(parents=True)
    folder(tmp_path / "here" / "models" / "enc")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    found = []
    for place, name in (("here", "models/enc"), ("there", "models/enc"), ("there", str(tmp_path / "there/models/enc"))):
        monkeypatch.chdir(tmp_path / place)
        config = configured(name)
        found.append({stage: flow.key(stage, config) for stage in (*flow.STAGES, "drbert")})

    assert found[0] == found[1] == found[2]


def test_two_names_on_the_hub_have_different_keys() -> None:
    first, second = (configured(name) for name in ("owner/one", "owner/two"))
    assert flow.key("corpus", first) != flow.key("corpus", second)
    assert flow.key("pretrain", first) != flow.key("pretrain", second)
