"""A folder of weights is known by what it holds, a name on the hub or in a package by itself."""

import shutil
from pathlib import Path

import pytest

from jobs.entry import configure, parser
from rayrank.core import flow
from rayrank.core.config import MINILM, PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.pretrained import content_digest


def folder(place: Path, weights: bytes = b"weights") -> str:
    (place / "inside").mkdir(parents=True)
    (place / "config.json").write_text("{}")
    (place / "inside" / "model.safetensors").write_bytes(weights)
    return str(place)


def test_a_folder_is_the_same_wherever_it_lies_and_another_when_a_file_is(tmp_path: Path) -> None:
    here = folder(tmp_path / "here")
    digest = content_digest(here, "encoder.name")

    shutil.copytree(here, tmp_path / "there")
    assert content_digest(str(tmp_path / "there"), "encoder.name") == digest
    assert content_digest(folder(tmp_path / "other", b"others"), "encoder.name") != digest
    (tmp_path / "there" / "inside").rename(tmp_path / "there" / "beside")
    assert content_digest(str(tmp_path / "there"), "encoder.name") != digest


@pytest.mark.parametrize("name", [MINILM, "bert-large-uncased", "owner/model"])
def test_names_stand_for_their_content(name: str) -> None:
    assert content_digest(name, "encoder.name") == ""


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"text\.tokenizer=.*/none cannot be found: there is no folder"):
        content_digest(str(tmp_path / "none"), "text.tokenizer")


def configured(encoder: str) -> PipelineConfig:
    return configure(parser("").parse_args(["--set", f"encoder.name={encoder}", "--set", f"text.tokenizer={encoder}"]))


def test_weights_that_were_trained_anew_in_their_folder_make_other_results(tmp_path: Path) -> None:
    place = folder(tmp_path / "encoder")
    before = configured(place)
    assert flow.key("corpus", configured(place)) == flow.key("corpus", before)

    (tmp_path / "encoder" / "inside" / "model.safetensors").write_bytes(b"trained anew")

    for stage in ("corpus", "pretrain", "listwise"):
        assert flow.key(stage, configured(place)) != flow.key(stage, before), stage
