"""The weights of a stored model: read as they were saved, or not at all."""

import json
from pathlib import Path

import pytest
import torch
from transformers import BertConfig

from rayrank.core.artifacts import Artifact
from rayrank.core.errors import StorageError
from rayrank.models.saved import WEIGHTS, load_weights, save


@pytest.fixture
def trained(tmp_path: Path) -> Artifact:
    artifact = Artifact(str(tmp_path), "pointwise", "key")
    weights = {"a": torch.arange(1000.0), "b": torch.ones(3, 5)}
    save(artifact, BertConfig(), weights, {"kind": "reranker"})
    return artifact


def test_weights_are_read_as_they_were_saved(trained: Artifact) -> None:
    weights = load_weights(trained)
    assert torch.equal(weights["a"], torch.arange(1000.0))
    assert torch.equal(weights["b"], torch.ones(3, 5))


@pytest.mark.parametrize("change", ["flipped", "torn"])
def test_damaged_weights_are_never_loaded(trained: Artifact, change: str) -> None:
    path = Path(trained.path(WEIGHTS))
    if change == "flipped":
        content = bytearray(path.read_bytes())
        content[int(0.7 * len(content))] ^= 1
        path.write_bytes(content)
    else:
        path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(StorageError, match=r"model\.safetensors is damaged \(.*\): delete the folder"):
        load_weights(trained)


def test_weights_of_an_earlier_version_have_no_checksum(trained: Artifact) -> None:
    path = Path(trained.path(WEIGHTS))
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:end])
    del header["__metadata__"]
    older = json.dumps(header).encode()
    path.write_bytes(len(older).to_bytes(8, "little") + older + content[end:])
    assert set(load_weights(trained)) == {"a", "b"}
