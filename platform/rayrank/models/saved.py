"""Models on storage: the encoder's shape and all weights, in two files of their stage's artifact."""

import numpy as np
import safetensors.torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel

from rayrank.core.artifacts import Artifact
from rayrank.core.config import PipelineConfig
from rayrank.models.encoder import Encoder
from rayrank.models.reranker import Reranker

SHAPE, WEIGHTS = "model/config.json", "model/model.safetensors"
_ENCODER = "encoder."


def save(artifact: Artifact, base_config: PretrainedConfig, weights: dict[str, Tensor]) -> None:
    """Store a trained model: the config of its transformers encoder and every weight by name."""
    artifact.write_json(SHAPE, base_config.to_diff_dict())
    with artifact.create(WEIGHTS) as stream:
        stream.write(safetensors.torch.save({name: tensor.contiguous() for name, tensor in weights.items()}))


def load_weights(artifact: Artifact) -> dict[str, Tensor]:
    """Return every weight of a stored model by name."""
    with artifact.open(WEIGHTS) as stream:
        return safetensors.torch.load(stream.read())


def load_pretrained(artifact: Artifact, config: PipelineConfig, words: NDArray[np.int8]) -> Encoder:
    """Return the encoder of a stored model, whatever heads were on it."""
    weights = load_weights(artifact)
    encoder = Encoder(_shaped(artifact), words, config.strm)
    encoder.load_state_dict(
        {name.removeprefix(_ENCODER): tensor for name, tensor in weights.items() if name.startswith(_ENCODER)}
    )
    return encoder


def load_reranker(artifact: Artifact, config: PipelineConfig, words: NDArray[np.int8]) -> Reranker:
    """Return a stored re-ranker, ready to score."""
    weights = load_weights(artifact)
    model = Reranker(Encoder(_shaped(artifact), words, config.strm), num_outputs=len(weights["head.bias"]))
    model.load_state_dict(weights)
    return model.eval()


def _shaped(artifact: Artifact) -> PreTrainedModel:
    """Return an encoder of the stored shape, its weights not read yet."""
    settings = artifact.read_json(SHAPE)
    shape = AutoConfig.for_model(settings.pop("model_type"), **settings)
    return AutoModel.from_config(shape, attn_implementation="sdpa")  # type: ignore[no-any-return,no-untyped-call]
