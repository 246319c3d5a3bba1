"""Writing a trained re-ranker as a Hugging Face folder, and loading it: weights, tokenizer, settings, model card.

A model with plain attention and without markers is written as transformers' model for sequence classification, such as
`BertForSequenceClassification`, which other libraries load. Models with STRM or markers would get other scores there.
Their folder has the model type `rayrank`, so that transformers and sentence-transformers refuse to load it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar

import safetensors.torch
from pydantic import AfterValidator, Field
from torch import Tensor
from transformers import AutoConfig, AutoModel

from rayrank.bundle.dev_sample import JudgedQuery, from_lines, to_lines
from rayrank.bundle.golden import GOLDEN_PAIRS, GoldenPair, check_fusion
from rayrank.bundle.sequence_classification import (
    from_sequence_classification,
    is_portable,
    pair_tokenizer,
    portable_config,
    to_sequence_classification,
)
from rayrank.core.artifacts import MANIFEST, Artifact
from rayrank.core.config import Backend, InputConfig, QueryTypesConfig, Section, StrmConfig
from rayrank.core.copies import temporary_folder
from rayrank.core.errors import ConfigError, RayrankError, StorageError
from rayrank.core.languages import ENGLISH
from rayrank.core.metric_names import display_name
from rayrank.measure.metrics import MRR_10, Measure
from rayrank.models.encoder import Encoder, quiet
from rayrank.models.inference.fp8 import check_fp8
from rayrank.models.query_typer import QueryTyper, load_typer
from rayrank.models.reranker import RELEVANT, Reranker
from rayrank.scores.calibration import Calibration
from rayrank.scores.fusion import FUSION, Fusion
from rayrank.scores.precision import PrecisionTable
from rayrank.text.pieces import load_tokenizer
from rayrank.text.words import word_table

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SETTINGS, ENCODER_CONFIG, WEIGHTS, CARD = "rayrank.json", "config.json", "model.safetensors", "README.md"
INT8, CALIBRATION, GOLDEN, QUERY_TYPER = "model-int8.onnx", "calibration.json", "golden.json", "query_typer"
PRECISION, DEV = "precision.json", "dev.jsonl"
"""Optional files of a folder."""
MODEL_TYPE = "rayrank"
"""The model type of folders that only `load` can open; no version of transformers knows it."""
FORMAT: Final = 1
"""The number of a folder's layout, to be raised when an older rayrank would misread what `export` writes."""

Content = TypeVar("Content")


class Settings(Section):
    """The settings that scoring as in training needs besides the weights."""

    format: Literal[1] = FORMAT
    base: str
    """The encoder's model type in transformers, e.g. `bert`."""
    strm: StrmConfig
    input: InputConfig
    query_types: QueryTypesConfig = QueryTypesConfig()
    language: str = ENGLISH
    """The dataset's language; the rules that predict query types read English."""
    types: tuple[str, ...] = ()
    """The query types seen in training, most frequent first."""
    first_stage_weight: float = Field(default=0.0, ge=0, le=1)
    """The weight of the first stage's scores in the final ranking, tuned on dev."""
    metric: Annotated[str, AfterValidator(display_name)] = MRR_10.name
    """The metric that selected the model in training; a promotion compares models by it."""
    relevant_from: int = Field(default=MRR_10.relevant_from, ge=1)
    """The lowest grade that counts as relevant."""

    @property
    def measure(self) -> Measure:
        """The measure that selected the model."""
        return Measure(self.metric, self.relevant_from)


@dataclass(frozen=True)
class Bundle:
    """The content of an exported folder: what `export` writes and `load` returns."""

    model: Reranker
    tokenizer: "PreTrainedTokenizerFast"
    settings: Settings
    card: str = ""
    """The model card, as Markdown."""
    int8: bytes | None = None
    """The ONNX graph with int8 weights. If it is set, it scores instead of `model`; `load` sets it on request only."""
    calibration: Calibration | None = None
    precision: PrecisionTable | None = None
    golden: tuple[GoldenPair, ...] = ()
    dev: tuple[JudgedQuery, ...] = ()
    """Judged queries of dev, on which a promotion compares two models."""
    fusion: Fusion | None = None
    """How dev prefers to fuse the model's scores with other features, which requests may bring."""
    query_typer: QueryTyper | None = None
    """Predicts the types of queries, for a model that was trained with its predictions."""


def settings_of(
    model: Reranker,
    inputs: InputConfig,
    query_types: QueryTypesConfig,
    types: Sequence[str],
    weight: float = 0.0,
    language: str = ENGLISH,
    measure: Measure = MRR_10,
) -> Settings:
    """Return the settings of a model; STRM that hides no piece is stored as `off`."""
    strm = model.encoder.strm if model.encoder.words is not None else StrmConfig(form="off")
    base = model.encoder.base.config.model_type
    return Settings(
        base=base,
        strm=strm,
        input=inputs,
        query_types=query_types,
        language=language,
        types=tuple(types),
        first_stage_weight=weight,
        metric=measure.name,
        relevant_from=measure.relevant_from,
    )


def check_output(folder: str) -> None:
    """Raise StorageError if a folder cannot be exported to."""
    path = Path(folder)
    if "://" in folder:
        raise StorageError(f"--output {folder} cannot be written: it is a URL; name a folder of this machine.")
    if path.exists() and not path.is_dir():
        raise StorageError(f"--output {folder} cannot be written: it is a file; name a folder that is new or empty.")
    if path.is_dir() and any(path.iterdir()):
        raise StorageError(f"--output {folder} is not empty: name another folder, or remove it first.")


def export(folder: str, bundle: Bundle) -> None:
    """Write a folder, which appears under its name only once it is complete."""
    check_output(folder)
    path = Path(folder).absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(path.parent, f".{path.name}.") as draft:
            complete = draft / path.name
            complete.mkdir()
            _write(complete, bundle)
            complete.replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"--output {folder} cannot be written: {reason}; name another folder.") from None


def _write(folder: Path, bundle: Bundle) -> None:
    portable, base = is_portable(bundle.model, bundle.tokenizer, bundle.settings.input), bundle.model.encoder.base
    weights, tokenizer = _one_output(bundle.model), bundle.tokenizer
    if portable:
        weights = to_sequence_classification(weights, base.config.model_type, base.base_model_prefix)
        tokenizer = pair_tokenizer(bundle.model, tokenizer)
    (folder / WEIGHTS).write_bytes(safetensors.torch.save(weights, {"format": "pt"}))
    _dump(folder / ENCODER_CONFIG, _encoder_config(bundle.model, portable))
    _dump(folder / SETTINGS, bundle.settings.model_dump(mode="json"))
    _save_tokenizer(tokenizer, folder, bundle.settings.input.length)
    (folder / CARD).write_text(bundle.card, encoding="utf-8")
    if bundle.int8 is not None:
        (folder / INT8).write_bytes(bundle.int8)
    if bundle.calibration is not None:
        _dump(folder / CALIBRATION, bundle.calibration.model_dump(mode="json"))
    if bundle.precision is not None:
        _dump(folder / PRECISION, bundle.precision.model_dump(mode="json"))
    if bundle.golden:
        _dump(folder / GOLDEN, GOLDEN_PAIRS.dump_python(bundle.golden, mode="json", exclude_defaults=True))
    if bundle.fusion is not None:
        _dump(folder / FUSION, bundle.fusion.model_dump(mode="json"))
    if bundle.dev:
        (folder / DEV).write_bytes(to_lines(bundle.dev))
    if bundle.query_typer is not None:
        bundle.query_typer.copy_to(str(folder))


def _one_output(model: Reranker) -> dict[str, Tensor]:
    """Return all weights by name; the two pointwise outputs become one score, their difference."""
    weights = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}
    if len(weights["head.bias"]) == 2:
        for name in ("head.weight", "head.bias"):
            weights[name] = weights[name][[RELEVANT]] - weights[name][[1 - RELEVANT]]
    return weights


def _encoder_config(model: Reranker, portable: bool) -> dict[str, Any]:
    config = model.encoder.base.config.to_diff_dict()
    # The encoder's path on the training machine stays private.
    config.pop("_name_or_path", None)
    config |= {"id2label": {"0": "relevance"}, "label2id": {"relevance": 0}}
    if portable:
        return config | portable_config(model)
    return config | {"architectures": ["RayrankReranker"], "model_type": MODEL_TYPE}


def _save_tokenizer(tokenizer: "PreTrainedTokenizerFast", folder: Path, length: int) -> None:
    tokenizer.save_pretrained(str(folder))
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    # Options with which this machine loaded the tokenizer.
    for name in ("is_local", "local_files_only", "max_length"):
        config.pop(name, None)
    # Other libraries truncate pairs to model_max_length.
    _dump(file, {**config, "model_max_length": length})


def load_for_serving(folder: str, backend: Backend = "torch") -> Bundle:
    """Load a folder as `load` does, and refuse it if this machine fuses scores otherwise than training."""
    exported = load(folder, backend)
    if exported.fusion:
        check_fusion(exported.golden, exported.fusion)
    return exported


def load(folder: str, backend: Backend = "torch") -> Bundle:
    """Return the content of an exported folder, the model on the CPU and in eval mode."""
    path = Path(folder).expanduser()
    _check_folder(path, folder, backend)
    try:
        settings = _read_settings(path / SETTINGS, folder)
        config = json.loads((path / ENCODER_CONFIG).read_text(encoding="utf-8"))
        weights = safetensors.torch.load((path / WEIGHTS).read_bytes())
        optional = _read_optional(path, backend)
        with quiet():
            tokenizer = load_tokenizer(str(path.absolute()))
        model = _model(settings, config, weights, tokenizer)
    except RayrankError:
        raise
    except Exception as error:  # the parsers of damaged files raise many kinds of errors
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise ConfigError(
            f"{folder} cannot be opened: {reason}; export the model again with this version of rayrank."
        ) from None
    if backend == "torch-fp8":
        check_fp8(model)
    return Bundle(model.eval(), tokenizer, settings, **optional)


def _model(
    settings: Settings, config: dict[str, Any], weights: dict[str, Tensor], tokenizer: "PreTrainedTokenizerFast"
) -> Reranker:
    config.pop("model_type", None)
    base = AutoModel.from_config(AutoConfig.for_model(settings.base, **config))  # type: ignore[no-untyped-call]
    model = Reranker(Encoder(base, word_table(tokenizer), settings.strm), num_outputs=1)
    try:
        model.load_state_dict(from_sequence_classification(weights, settings.base, base.base_model_prefix))
    except (KeyError, RuntimeError):
        raise ValueError(f"{WEIGHTS} has other weights than {ENCODER_CONFIG} and {SETTINGS} describe") from None
    return model


def _check_folder(path: Path, folder: str, backend: Backend) -> None:
    if not (path / SETTINGS).is_file():
        raise ConfigError(
            f"{folder} is no exported model: it has no {SETTINGS}; name a folder that `rayrank export` made."
        )
    if backend == "onnx-int8" and not (path / INT8).is_file():
        raise ConfigError(
            f"scorer.backend={backend} cannot be used: {folder} has no {INT8}; run `rayrank export` with --set "
            f"scorer.backend={backend}, or set scorer.backend=torch."
        )


def _read_settings(file: Path, folder: str) -> Settings:
    """Return the settings of a folder; one without a number was written before folders had numbers, in format 1."""
    content = json.loads(file.read_text(encoding="utf-8"))
    number = content.get("format") if isinstance(content, dict) else None
    if isinstance(number, int) and number > FORMAT:
        raise ConfigError(
            f"{folder} has format {number}, and this version of rayrank reads formats up to {FORMAT}: install a newer "
            f"rayrank, or export the model again with this version."
        )
    return Settings.model_validate_json(json.dumps(content))


def _read_optional(folder: Path, backend: Backend) -> dict[str, Any]:
    """Return the fields of a Bundle whose files not every folder has."""
    return {
        "card": _read(folder / CARD, lambda content: content.decode(errors="replace")) or "",
        "int8": _read(folder / INT8, bytes) if backend == "onnx-int8" else None,
        "calibration": _read(folder / CALIBRATION, Calibration.model_validate_json),
        "precision": _read(folder / PRECISION, PrecisionTable.model_validate_json),
        "golden": _read(folder / GOLDEN, GOLDEN_PAIRS.validate_json) or (),
        "fusion": _read(folder / FUSION, Fusion.model_validate_json),
        "dev": _read(folder / DEV, from_lines) or (),
        "query_typer": _load_query_typer(folder),
    }


def _read(file: Path, parse: Callable[[bytes], Content]) -> Content | None:
    return parse(file.read_bytes()) if file.is_file() else None


def _load_query_typer(folder: Path) -> QueryTyper | None:
    # On the CPU, which is fast enough for one short query.
    for manifest in folder.glob(f"{QUERY_TYPER}/*/{MANIFEST}"):
        return load_typer(Artifact(str(folder.absolute()), QUERY_TYPER, manifest.parent.name), "cpu")
    return None


def _dump(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
