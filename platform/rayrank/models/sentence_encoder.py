"""The sentence encoder of dense search: one vector for each text, so that passages are encoded once, before search."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RemoteEntryNotFoundError
from torch import Tensor, nn
from torch.nn import functional

from rayrank.core.config import DenseConfig, EncoderConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.core.pretrained import locate
from rayrank.models.architectures import check_length
from rayrank.models.batches import PackedBatch, PaddedBatch
from rayrank.models.encoder import Encoder, load_encoder

POOLING_NAMES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "last",
}
"""What sentence-transformers calls the poolings that are supported here."""


class SentenceSettings(NamedTuple):
    """How an encoder makes vectors: from `dense` in the configuration, else from the encoder's own folder."""

    pooling: str
    normalize: bool
    query_prefix: str
    passage_prefix: str


def sentence_settings(config: DenseConfig) -> SentenceSettings:
    """Return the settings that apply: those that `dense` gives, then those of a sentence-transformers folder."""
    place = locate(config.encoder, key="dense.encoder")
    modules = _read(config, place, "modules.json")
    prompts = (_read(config, place, "config_sentence_transformers.json") or {}).get("prompts") or {}
    kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in modules or ()]
    if unknown := [kind for kind in kinds if kind not in ("Transformer", "Pooling", "Normalize")]:
        raise ConfigError(
            f"dense.encoder={config.encoder} cannot be used: after its encoder comes a {unknown[0]} layer, which is "
            f"not supported; name an encoder whose vectors are pooled states."
        )
    own = _pooling(config, place, modules) if "Pooling" in kinds and config.pooling is None else "mean"
    normalize = config.normalize
    if normalize is None:
        normalize = not modules or "Normalize" in kinds
    query, passage = config.query_prefix, config.passage_prefix
    return SentenceSettings(
        config.pooling or own,
        normalize,
        str(prompts.get("query") or "") if query is None else query,
        str(prompts.get("passage") or prompts.get("document") or "") if passage is None else passage,
    )


def _pooling(config: DenseConfig, place: str, modules: list[dict[str, Any]]) -> str:
    folder = next(module["path"] for module in modules if str(module["type"]).endswith("Pooling"))
    found = _read(config, place, f"{folder}/config.json") or {}
    # Newer versions of sentence-transformers write one name, older ones a flag for each.
    named = [found["pooling_mode"]] if isinstance(found.get("pooling_mode"), str) else []
    chosen = named or [name for flag, name in POOLING_NAMES.items() if found.get(flag)]
    chosen = ["last" if name == "lasttoken" else name for name in chosen]
    if len(chosen) != 1 or chosen[0] not in POOLING_NAMES.values():
        raise ConfigError(
            f"dense.encoder={config.encoder} says a pooling that is not supported: set dense.pooling to mean, cls or "
            f"last."
        )
    return str(chosen[0])


def _read(config: DenseConfig, place: str, name: str) -> Any:
    """Return a JSON file of an encoder's folder or hub page, None where there is none."""
    try:
        path = Path(place) / name if Path(place).is_dir() else Path(hf_hub_download(place, name))
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except RemoteEntryNotFoundError:
        return None
    except (OSError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        settings = (config.pooling, config.normalize, config.query_prefix, config.passage_prefix)
        if all(value is not None for value in settings):
            return None
        # Without the file the encoder might be pooled in another way than it was trained.
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ConfigError(
            f"dense.encoder={config.encoder}: its {name} cannot be read ({reason}); name a folder on disk, or set all "
            f"of dense.pooling, dense.normalize, dense.query_prefix and dense.passage_prefix."
        ) from None


class SentenceEncoder(nn.Module):
    """Computes one float32 vector for each text."""

    def __init__(self, encoder: Encoder, pooling: str, normalize: bool) -> None:
        super().__init__()
        self.encoder, self.pooling, self.normalize = encoder, pooling, normalize

    def description(self) -> dict[str, Any]:
        """Return how the model is saved, see `rayrank.models.saved`."""
        return {"kind": "sentence_encoder", "pooling": self.pooling, "normalize": self.normalize}

    def forward(self, batch: PaddedBatch | PackedBatch) -> Tensor:
        """Return (texts, hidden) vectors."""
        # A sentence encoder reads single texts: all positions have token type 0, as in its own training.
        batch = batch._replace(token_types=torch.zeros_like(batch.token_types))
        if self.pooling == "cls":
            vectors = self.encoder.cls_states(batch).float()
        else:
            vectors = self._pooled(self.encoder(batch), batch)
        return functional.normalize(vectors, dim=-1) if self.normalize else vectors

    def _pooled(self, states: Tensor, batch: PaddedBatch | PackedBatch) -> Tensor:
        if isinstance(batch, PackedBatch):
            states = states.flatten(0, 1).float()
            lengths = batch.offsets.diff()
            if self.pooling == "last":
                return states[batch.offsets[1:] - 1][: batch.num_inputs]
            sums = states.new_zeros(len(lengths), states.shape[-1]).index_add_(0, batch.seq, states)
            return (sums / lengths.clamp(min=1)[:, None])[: batch.num_inputs]
        mask = batch.attention_mask
        if self.pooling == "last":
            return states[torch.arange(len(mask), device=mask.device), mask.sum(1) - 1].float()
        weights = mask[:, :, None].float()
        return (states.float() * weights).sum(1) / weights.sum(1)


def load_sentence_encoder(config: DenseConfig) -> SentenceEncoder:
    """Return the pre-trained sentence encoder that `dense.encoder` names."""
    settings = sentence_settings(config)
    encoder = load_encoder(EncoderConfig(name=config.encoder), None, StrmConfig(form="off"), key="dense.encoder")
    check_length(encoder.base, config.length, "dense.length", config.encoder)
    return SentenceEncoder(encoder, settings.pooling, settings.normalize)
