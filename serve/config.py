"""Every setting of the endpoint, and how `serve run serve.app:build key=value` and a YAML file say them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from rayrank.core.config import Backend, Section
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import changed, flatten

KEYS = "RAYRANK_API_KEYS"
"""The environment variable with API keys, comma separated."""


class LimitsConfig(Section):
    """What one request may ask for; more is refused."""

    documents: int = Field(default=1000, ge=1, description="passages of one request")
    body_bytes: int = Field(default=2 << 20, ge=1024, description="of a request, as it comes over the wire")


class BatchingConfig(Section):
    """How requests share the scorer of a replica."""

    tokens: int | None = Field(default=None, ge=16, description="of a batch; what suits the device if empty")
    wait_ms: float = Field(default=3, ge=0, le=1000, description="what an idle scorer waits for more requests")
    queued_pairs: int = Field(default=20_000, ge=1, description="at which a replica sends clients away for a while")
    cache_pieces: int = Field(default=8_000_000, ge=0, description="word pieces of passages kept, 4 bytes each")
    tokenisers: int = Field(default=2, ge=1, description="threads that turn texts into word pieces")


class ScalingConfig(Section):
    """How many replicas of the model there are."""

    min: int = Field(default=1, ge=1)
    max: int = Field(default=1, ge=1)
    target: float = Field(default=8, gt=0, description="requests in the hands of a replica that is busy enough")
    most: int | None = Field(
        default=None,
        ge=1,
        description="requests in the hands of a replica at most; if empty 8 times the target where max > min, else 256",
    )
    queued: int = Field(default=1024, ge=1, description="requests that wait for a replica's hands at most")
    upscale_delay_s: float = Field(default=1, ge=0)
    downscale_delay_s: float = Field(default=60, ge=0)
    patience_s: float = Field(default=20, gt=0, description="what a request waits for a replica where there is none")


class ReplicaConfig(Section):
    """What a replica takes of its machine."""

    cpus: float = Field(default=1, gt=0, description="of one with the model, which scores on as many threads")
    gpus: float = Field(default=0, ge=0, le=1, description="of one with the model; a share is enough")
    ingress: int = Field(default=1, ge=1, description="replicas that speak HTTP")
    ingress_cpus: float = Field(default=0, ge=0, description="that Ray sets aside for each of these")


class SearchConfig(Section):
    """The first stage behind /search."""

    index: str = Field(default="", description="the folder or URL of an index artifact; no search if empty")
    depth: int = Field(default=100, ge=1, le=10_000, description="passages found at most")
    k1: float = Field(default=0.9, ge=0)
    b: float = Field(default=0.4, ge=0, le=1)


class ServeConfig(Section):
    """One endpoint, whole."""

    model: str = Field(default="", description="a folder that jobs.export made")
    backend: Backend = "torch"
    previous: str = Field(default="", description="the model before, to which jobs.promote --back returns")
    name: str = Field(default="", description="what clients see; the folder's name if empty")
    keys_file: str = Field(default="", description=f"API keys, one a line; {KEYS} adds to them; none: open to all")
    limits: LimitsConfig = LimitsConfig()
    batching: BatchingConfig = BatchingConfig()
    scaling: ScalingConfig = ScalingConfig()
    resources: ReplicaConfig = ReplicaConfig()
    search: SearchConfig = SearchConfig()

    @model_validator(mode="after")
    def _fits(self) -> "ServeConfig":
        if self.scaling.max < self.scaling.min:
            raise ValueError(f"scaling.max={self.scaling.max} is below scaling.min={self.scaling.min}: raise it")
        if self.backend == "onnx-int8" and self.resources.gpus:
            raise ValueError(
                f"backend=onnx-int8 is for CPUs and resources.gpus={self.resources.gpus} asks for a GPU: change one"
            )
        if self.backend == "torch-fp8" and not self.resources.gpus:
            raise ValueError("backend=torch-fp8 is for GPUs and resources.gpus=0 asks for none: change one")
        return self


def read(arguments: Mapping[str, Any]) -> ServeConfig:
    """Return the configuration of dotted keys, nested sections or both; text becomes what its setting is."""
    # As with --set: null is no value.
    changes = {key: None if value == "null" else value for key, value in flatten(arguments)}
    config = changed(ServeConfig, ServeConfig().model_dump(), changes)
    if not config.model:
        raise ConfigError("model is missing: name a folder that jobs.export made, as in model=DIR.")
    return config.model_copy(
        update={
            "model": _absolute(config.model),
            "previous": _absolute(config.previous),
            "name": config.name or Path(_absolute(config.model)).name,
            "keys_file": _absolute(config.keys_file),
            "search": config.search.model_copy(update={"index": _absolute(config.search.index)}),
        }
    )


def _absolute(path: str) -> str:
    """Return a path that is the same for replicas, which may stand in another folder than the one who starts them."""
    return str(Path(path).expanduser().absolute()) if path and "://" not in path else path


def api_keys(config: ServeConfig) -> tuple[str, ...]:
    """Return the keys of the file and of the environment; none means that everybody is let in."""
    keys = os.environ.get(KEYS, "").split(",")
    if config.keys_file:
        try:
            keys += Path(config.keys_file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise ConfigError(f"keys_file={config.keys_file} cannot be read: {reason}; name a file of keys.") from None
    found = tuple(dict.fromkeys(key.strip() for key in keys if key.strip()))
    if config.keys_file and not found:
        raise ConfigError(f"keys_file={config.keys_file} has no keys: write one a line, or set keys_file to nothing.")
    return found
