"""Every setting of the endpoint, read from `rayrank serve --model DIR key=value` or from a YAML file."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from rayrank.core.config import Backend, Section
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import changed, flatten

KEYS = "RAYRANK_API_KEYS"
"""The environment variable that holds API keys, separated by commas."""


OF_EACH_MODEL = ("model", "previous", "backend", "long_documents", "batching", "scaling", "resources")
"""Settings and sections that an entry of `models` may set; the others are those of the whole endpoint."""

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")


class LimitsConfig(Section):
    """Limits of the requests; larger, slower and further ones are refused."""

    documents: int = Field(default=1000, ge=1, description="maximum passages of a request")
    body_bytes: int = Field(default=2 << 20, ge=1024, description="maximum bytes of a request body")
    waiting_bytes: int = Field(
        default=256 << 20,
        ge=1024,
        description="bytes of all bodies that an ingress replica holds at once; further requests get HTTP 429",
    )
    request_s: float = Field(
        default=120, gt=0, description="seconds after which a request without an answer gets HTTP 503"
    )


class BatchingConfig(Section):
    """How the requests of a replica are combined into batches."""

    tokens: int | None = Field(
        default=None, ge=16, description="token budget of a batch; chosen for the device if empty"
    )
    wait_ms: float = Field(default=3, ge=0, le=1000, description="time that an idle scorer waits for more requests")
    queued_pairs: int = Field(
        default=20_000, ge=1, description="pairs in a replica's queue; when it is full, requests get HTTP 429"
    )
    queue_s: float = Field(
        default=20, gt=0, description="seconds that a request may have to wait; beyond them it gets HTTP 429 at once"
    )
    stuck_s: float = Field(
        default=15,
        gt=0,
        description="seconds that a batch may take before its replica is replaced; at least ten times what its "
        "tokens need at the measured rate",
    )
    cache_pieces: int = Field(
        default=8_000_000, ge=0, description="word pieces in the cache of tokenised passages, 4 bytes each"
    )
    tokenisers: int = Field(default=2, ge=1, description="threads that tokenise texts")


class ScalingConfig(Section):
    """Autoscaling of the model's replicas."""

    min: int = Field(default=1, ge=1)
    max: int = Field(default=1, ge=1)
    target: float = Field(default=8, gt=0, description="ongoing requests per replica that autoscaling aims at")
    most: int | None = Field(
        default=None,
        ge=1,
        description="maximum ongoing requests of a replica; if empty, 8 times the target if max > min, else 256",
    )
    queued: int = Field(default=1024, ge=1, description="maximum requests that wait for a replica to accept them")
    upscale_delay_s: float = Field(default=1, ge=0)
    downscale_delay_s: float = Field(default=60, ge=0)
    patience_s: float = Field(default=20, gt=0, description="seconds that a request waits if no replica is running")
    drain_s: float = Field(
        default=30, ge=0, description="seconds for the requests in flight if the server, or a replica of it, is stopped"
    )


class ReplicaConfig(Section):
    """Resources of the replicas."""

    cpus: float = Field(
        default=1, gt=0, description="cores of a replica of the model, which scores with one thread per core"
    )
    gpus: float = Field(default=0, ge=0, le=1, description="GPUs of a replica of the model; may be a fraction")
    ingress: int | None = Field(
        default=None,
        ge=1,
        description="replicas of the HTTP ingress; if empty, two on a machine with four cores or more, else one",
    )
    ingress_cpus: float = Field(default=0, ge=0, description="cores that Ray reserves for each ingress replica")


class SearchConfig(Section):
    """The first stage behind /search."""

    run: str = Field(
        default="", description="folder or URL of a first stage's run, STORAGE/KIND/KEY; if empty, /search is off"
    )
    depth: int = Field(default=100, ge=1, le=10_000, description="maximum passages to retrieve")
    cpus: float = Field(default=0, ge=0, description="cores that Ray reserves for each replica that searches")
    replicas: int = Field(default=1, ge=1, description="replicas that search")
    concurrent: int = Field(default=8, ge=1, description="searches of a replica at once, each on a thread")


class HttpConfig(Section):
    """What the HTTP ingress offers besides the APIs."""

    cors: str = Field(
        default="",
        description="origins of web pages that may call the endpoint, like https://example.org, separated by commas; "
        "* for all",
    )
    page: bool = Field(default=True, description="the page at / to try the model with")
    docs: bool = Field(default=True, description="/docs and /openapi.json")
    explain: bool = Field(default=True, description="/explain, which costs as much as scoring hundreds of pairs")
    access_log: bool = Field(default=False, description="a line of JSON for each request, on standard output")
    otlp: str = Field(
        default="",
        pattern=r"^(https?://.+)?$",
        description="URL of an OpenTelemetry collector, like http://collector:4318, that gets a trace of each request "
        "and the counters of /metrics",
    )


class ServeConfig(Section):
    """All settings of an endpoint."""

    model: str = Field(default="", description="a folder written by `rayrank export`")
    backend: Backend = "torch"
    previous: str = Field(default="", description="the previous model, which `rayrank promote --back` restores")
    name: str = Field(default="", description="model name that clients see; the folder's name if empty")
    models: dict[str, dict[str, Any]] = Field(
        default={},
        description="further models by the name that requests choose them with: a folder, or a section with the "
        "folder as `model` and the settings in which the model differs from the first, such as backend or scaling.max",
    )
    long_documents: Literal["cut", "windows"] | None = Field(
        default=None,
        description="cut: the end of a document that does not fit is not read; windows: such a document is read in "
        "windows and has the score of the best; if empty, as the model was trained",
    )
    keys_file: str = Field(
        default="",
        description="file of API keys, one per line, with limits per minute (requests=N passages=N) and '# name' after "
        f"it, read again when it changes; {KEYS} adds more; without keys, access is open",
    )
    limits: LimitsConfig = LimitsConfig()
    batching: BatchingConfig = BatchingConfig()
    scaling: ScalingConfig = ScalingConfig()
    resources: ReplicaConfig = ReplicaConfig()
    search: SearchConfig = SearchConfig()
    http: HttpConfig = HttpConfig()

    @model_validator(mode="after")
    def _fits(self) -> "ServeConfig":
        if self.scaling.max < self.scaling.min:
            raise ValueError(f"scaling.max={self.scaling.max} is below scaling.min={self.scaling.min}: raise it")
        if self.limits.waiting_bytes < self.limits.body_bytes:
            raise ValueError(
                f"limits.waiting_bytes={self.limits.waiting_bytes} has no room for one body of "
                f"limits.body_bytes={self.limits.body_bytes}: raise it"
            )
        if self.backend == "onnx-int8" and self.resources.gpus:
            raise ValueError(
                f"backend=onnx-int8 is for CPUs and resources.gpus={self.resources.gpus} asks for a GPU: change one"
            )
        if self.backend == "torch-fp8" and not self.resources.gpus:
            raise ValueError("backend=torch-fp8 is for GPUs and resources.gpus=0 asks for none: change one")
        return self

    def each(self) -> dict[str, "ServeConfig"]:
        """Return the settings of each model by its name, the default one first."""
        first = self.model_copy(update={"models": {}})
        return {self.name: first} | {name: _of_model(first, name, changes) for name, changes in self.models.items()}


def read(arguments: Mapping[str, Any]) -> ServeConfig:
    """Return the configuration from dotted keys, nested sections or both; text is converted to the setting's type."""
    check_names(arguments)
    # The text null means None, as with --set.
    own = {key: value for key, value in arguments.items() if key.partition(".")[0] != "models"}
    config = changed(ServeConfig, ServeConfig().model_dump(), _flat(own))
    if not config.model:
        raise ConfigError("model is missing: name a folder written by `rayrank export`, as in model=DIR.")
    config = config.model_copy(
        update={
            "model": _absolute(config.model),
            "previous": _absolute(config.previous),
            "name": config.name or Path(_absolute(config.model)).name,
            "models": _further(arguments),
            "keys_file": _absolute(config.keys_file),
            "search": config.search.model_copy(update={"run": _absolute(config.search.run)}),
        }
    )
    if config.name in config.models:
        raise ConfigError(f"models.{config.name} has the name of the first model: give one of them another name.")
    config.each()  # raises an error if a setting of a further model is wrong
    return config


def check_names(arguments: Mapping[str, Any]) -> None:
    """Refuse a folder and names that are no texts: YAML reads the name 1.10 as a number, and forgets the zero."""
    models = arguments.get("models") or {}
    if not isinstance(models, Mapping):
        raise ConfigError(f"models={models} cannot be used: map names to folders, as in models: {{NAME: DIR}}.")
    own = [(key, arguments[key]) for key in ("model", "name") if arguments.get(key) is not None]
    for key, value in [*own, *(("models", name) for name in models)]:
        if not isinstance(value, str):
            raise ConfigError(
                f"{key}: {value} is no text: put it in quotes, without which YAML reads 1.10 as the number 1.1."
            )


def _further(arguments: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the settings of each further model by dotted keys, from a section `models` or from `models.NAME=DIR`."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in (arguments.get("models") or {}).items():
        found[name] = _flat(value) if isinstance(value, Mapping) else {"model": value}
    for key, value in arguments.items():
        section_name, _, entry = key.partition(".")
        if section_name == "models" and entry:
            # A name that is known already may have dots.
            known = [name for name in found if f"{entry}.".startswith(f"{name}.")]
            name = max(known, key=len, default=entry.partition(".")[0])
            found.setdefault(name, {}).update(_flat({entry[len(name) + 1 :] or "model": value}))
    for name, settings in found.items():
        if not MODEL_NAME.fullmatch(name):
            raise ConfigError(f"models.{name} is no name of a model: use letters, digits, '.', '_', '-' and '/'.")
        if not settings.get("model"):
            raise ConfigError(f"models.{name} has no folder: write models.{name}=DIR.")
        for key in [key for key in ("model", "previous") if key in settings]:
            if not isinstance(settings[key], str):
                raise ConfigError(
                    f"models.{name}.{key}={settings[key]} is no text: name a folder, in quotes if needed."
                )
            settings[key] = _absolute(settings[key])
    return found


def _of_model(first: ServeConfig, name: str, changes: Mapping[str, Any]) -> ServeConfig:
    """Return the settings of a further model, which are those of the first one but for the changes."""
    if wrong := next((key for key in changes if key.partition(".")[0] not in OF_EACH_MODEL), None):
        raise ConfigError(f"models.{name}.{wrong} is no setting of a model: choose from {', '.join(OF_EACH_MODEL)}.")
    try:
        return changed(ServeConfig, {**first.model_dump(), "name": name, "previous": ""}, changes)
    except ConfigError as error:
        raise ConfigError(f"models.{name}: {error}") from None


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: None if value == "null" else value for key, value in flatten(settings)}


def _absolute(path: str) -> str:
    """Return an absolute path, because replicas may have another working directory; URLs are unchanged."""
    return str(Path(path).expanduser().absolute()) if path and "://" not in path else path
