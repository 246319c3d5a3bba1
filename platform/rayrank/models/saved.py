"""Trained models on storage: a model's kind, its encoder's shape and its weights, in the artifact of its stage."""

import json
import zlib
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

import numpy as np
import safetensors
import safetensors.torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel

from rayrank.core.artifacts import Artifact
from rayrank.core.config import StrmConfig
from rayrank.core.errors import StorageError
from rayrank.core.integrity import damaged
from rayrank.models.encoder import Encoder
from rayrank.models.reranker import Reranker

CHECKSUM = "crc32"
"""The entry of a weights file's metadata with the CRC of its tensors."""

KIND, SHAPE, WEIGHTS = "model/kind.json", "model/config.json", "model/model.safetensors"

KINDS = {
    "reranker": "rayrank.models.reranker:Reranker",
    "sentence_encoder": "rayrank.models.sentence_encoder:SentenceEncoder",
    "term_weights": "rayrank.models.term_weights:TermWeights",
    "sdnet": "rayrank.models.sdnet:SDNet",
    "pretraining": "rayrank.models.pretraining:PretrainingModel",
}
"""The classes of saved models by the kind that they are saved under."""

_ENCODER_PREFIX = "encoder."


class SavedModel(Protocol):
    """A model that can be saved: its class is in KINDS and takes an encoder and the settings of `description`."""

    def description(self) -> dict[str, Any]:
        """Return the model's kind, and the arguments of its class other than the encoder, as plain values."""


def save(
    artifact: Artifact, base_config: PretrainedConfig, weights: dict[str, Tensor], description: Mapping[str, Any]
) -> None:
    """Store a trained model: its description, the config of its transformers encoder, and every weight by name."""
    artifact.write_json(KIND, dict(description))
    artifact.write_json(SHAPE, base_config.to_diff_dict())
    _write_weights(artifact, weights)


def save_average(artifact: Artifact, members: Sequence[Artifact]) -> None:
    """Store the model whose weights are the means of the weights of models of one kind and shape."""
    total: dict[str, Tensor] = {}
    for member in members:
        weights = load_weights(member)
        total = {name: total.get(name, 0) + tensor.double() for name, tensor in weights.items()}
    mean = {name: (tensor / len(members)).to(weights[name].dtype) for name, tensor in total.items()}
    for name in (KIND, SHAPE):
        artifact.write_json(name, members[0].read_json(name))
    _write_weights(artifact, mean)


def _write_weights(artifact: Artifact, weights: Mapping[str, Tensor]) -> None:
    """Write weights with a checksum of their bytes in the file's header."""
    whole = {name: tensor.contiguous() for name, tensor in weights.items()}
    header, tensors = _parts(safetensors.torch.save(whole, {"format": "pt", CHECKSUM: "0" * 10}))
    checksum = f"{zlib.crc32(tensors):010}"
    with artifact.create(WEIGHTS) as stream:
        stream.write(header.replace(f'"{CHECKSUM}":"{"0" * 10}"'.encode(), f'"{CHECKSUM}":"{checksum}"'.encode()))
        stream.write(tensors)


def load_weights(artifact: Artifact) -> dict[str, Tensor]:
    """Return every weight of a stored model by name; raises StorageError if the file is damaged."""
    with artifact.open(WEIGHTS) as stream:
        content = stream.read()
    try:
        weights = safetensors.torch.load(content)
    except safetensors.SafetensorError as error:
        raise damaged(artifact.path(WEIGHTS), artifact.url, str(error)) from None
    header, tensors = _parts(content)
    expected = json.loads(header[8:]).get("__metadata__", {}).get(CHECKSUM)  # earlier versions wrote none
    if expected is not None and int(expected) != zlib.crc32(tensors):
        raise damaged(artifact.path(WEIGHTS), artifact.url, "its checksum is wrong")
    return weights


def _parts(content: bytes) -> tuple[bytes, memoryview]:
    """Split a safetensors file into its header, which begins with its own length, and the bytes of the tensors."""
    end = 8 + int.from_bytes(content[:8], "little")
    return content[:end], memoryview(content)[end:]


def load_pretrained(artifact: Artifact, strm: StrmConfig, words: NDArray[np.int8]) -> Encoder:
    """Return the encoder of a stored model of any kind."""
    weights = load_weights(artifact)
    encoder = Encoder(_untrained_encoder(artifact), words, strm)
    encoder.load_state_dict(
        {
            name.removeprefix(_ENCODER_PREFIX): tensor
            for name, tensor in weights.items()
            if name.startswith(_ENCODER_PREFIX)
        }
    )
    return encoder


def load_model(artifact: Artifact, strm: StrmConfig, words: NDArray[np.int8]) -> nn.Module:
    """Return a stored model of the kind that it was saved as, ready to score."""
    settings = artifact.read_json(KIND)
    kind = settings.pop("kind")
    if kind not in KINDS:
        raise StorageError(
            f"The model in {artifact.url} is of the kind {kind}, which this version does not know: use the version "
            f"that made it, or delete the folder and train again."
        )
    module, _, name = KINDS[kind].partition(":")
    encoder = Encoder(_untrained_encoder(artifact), words, strm)
    model = cast(nn.Module, getattr(import_module(module), name)(encoder, **settings))
    model.load_state_dict(load_weights(artifact))
    return model.eval()


def load_reranker(artifact: Artifact, strm: StrmConfig, words: NDArray[np.int8]) -> Reranker:
    """Return a stored re-ranker, ready to score."""
    model = load_model(artifact, strm, words)
    if not isinstance(model, Reranker):
        raise StorageError(f"The model in {artifact.url} is no re-ranker: name a stage that trains one.")
    return model


def _untrained_encoder(artifact: Artifact) -> PreTrainedModel:
    """Return an encoder of the stored shape, with random weights."""
    settings = artifact.read_json(SHAPE)
    shape = AutoConfig.for_model(settings.pop("model_type"), **settings)
    return AutoModel.from_config(shape)  # type: ignore[no-any-return,no-untyped-call]
