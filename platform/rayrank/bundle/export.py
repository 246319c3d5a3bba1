"""A trained re-ranker as a Hugging Face folder, and back: weights, tokenizer, settings and a model card.

A BERT with plain attention becomes a `BertForSequenceClassification`, which every tool knows. That class puts a linear
layer and a tanh between [CLS] and the classifier; ours has neither. A tanh leaves small numbers as they are, so the
pooler makes them small and the classifier makes up for it. STRM's attention is not BERT's: such a folder says it is of
a kind of its own, which transformers and sentence-transformers refuse, instead of opening it with other scores.
"""

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import safetensors.torch
import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from torch import Tensor
from transformers import AutoConfig, AutoModel

from rayrank.bundle.golden import GOLDEN_PAIRS, GoldenPair
from rayrank.core.artifacts import MANIFEST, Artifact
from rayrank.core.config import Backend, InputConfig, QueryTypesConfig, Section, StrmConfig
from rayrank.core.errors import ConfigError, StorageError
from rayrank.models.encoder import Encoder, quiet
from rayrank.models.inference.fused_layers import check_eight_bits
from rayrank.models.query_typer import Typer, copy_typer, load_typer
from rayrank.models.reranker import RELEVANT, Reranker
from rayrank.scores.calibration import Calibration
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.text.words import word_table

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SETTINGS, SHAPE, WEIGHTS, CARD = "rayrank.json", "config.json", "model.safetensors", "README.md"
INT8, CALIBRATION, GOLDEN, TYPER = "model-int8.onnx", "calibration.json", "golden.json", "query_typer"
"""What a folder may have besides."""
OWN_KIND = "rayrank"
"""The model type of folders that only `load` opens; no version of transformers knows it."""

Content = TypeVar("Content")

SMALL = 2.0**-13
"""What the pooler multiplies with. A power of two costs no bits. tanh changes a state of 10 by less than a millionth of
itself, and in half precision a state of 1 still keeps all its bits."""


class Settings(Section):
    """What has to be known besides the weights to score as in training."""

    format: Literal[1] = 1
    base: str
    """The encoder's architecture, as transformers calls it."""
    strm: StrmConfig
    input: InputConfig
    query_types: QueryTypesConfig = QueryTypesConfig()
    types: tuple[str, ...] = ()
    """The query types seen in training, the most frequent first."""
    first_stage_weight: float = Field(default=0.0, ge=0, le=1)
    """How much the first stage's scores should count where they are known, as learnt on dev."""


class Exported(NamedTuple):
    """A re-ranker that came out of a folder."""

    model: Reranker
    tokenizer: "PreTrainedTokenizerFast"
    settings: Settings
    int8: bytes | None = None
    """The graph that scores in the model's place, if the folder was opened for it."""
    calibration: Calibration | None = None
    golden: tuple[GoldenPair, ...] = ()
    typer: Typer | None = None
    """Predicts the types of queries where the model was trained with predicted ones."""


def is_portable(model: Reranker, tokenizer: "PreTrainedTokenizerFast") -> bool:
    """Return whether other libraries compute the same: a BERT, plain attention, and the template's pairs."""
    if model.encoder.words is not None or model.encoder.base.config.model_type != "bert":
        return False
    theirs, template = tokenizer("a", "b"), Template.of(tokenizer, InputConfig(query_type=False))
    query, passage = (Ragged.of([tokenizer(text, add_special_tokens=False).input_ids]) for text in ("a", "b"))
    ours = template.pairs(template.prefixes(query), passage)
    same_types = theirs.get("token_type_ids") == ours.token_types().tolist()
    return bool(theirs.input_ids == ours.ids[0].tolist() and same_types)


def settings_of(
    model: Reranker, inputs: InputConfig, query_types: QueryTypesConfig, types: Sequence[str], weight: float = 0.0
) -> Settings:  # fmt: skip
    """Return what to keep of a model; STRM that changes nothing, as with all pieces visible, is off."""
    strm = model.encoder.strm if model.encoder.words is not None else StrmConfig(form="off")
    base = model.encoder.base.config.model_type
    return Settings(
        base=base, strm=strm, input=inputs, query_types=query_types, types=tuple(types), first_stage_weight=weight
    )


def check_output(folder: str) -> None:
    """Refuse a place that holds something, before any work is done."""
    path = Path(folder)
    if "://" in folder:
        raise StorageError(f"--output {folder} cannot be written: it is a URL; name a folder of this machine.")
    if path.exists() and not path.is_dir():
        raise StorageError(f"--output {folder} cannot be written: it is a file; name a folder that is new or empty.")
    if path.is_dir() and any(path.iterdir()):
        raise StorageError(f"--output {folder} is not empty: name another folder, or remove it first.")


def export(
    folder: str, model: Reranker, tokenizer: "PreTrainedTokenizerFast", settings: Settings, card: str,
    int8: bytes | None = None, calibration: Calibration | None = None, golden: Sequence[GoldenPair] = (),
    typer: Artifact | None = None,
) -> None:  # fmt: skip
    """Write the folder, which appears under its name only once it is whole; two outputs become their difference."""
    check_output(folder)
    path = Path(folder).absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as draft:
            whole = Path(draft) / path.name
            whole.mkdir()
            _write(whole, model, tokenizer, settings, card)
            if int8 is not None:
                (whole / INT8).write_bytes(int8)
            if calibration is not None:
                _dump(whole / CALIBRATION, calibration.model_dump(mode="json"))
            if golden:
                _dump(whole / GOLDEN, GOLDEN_PAIRS.dump_python(tuple(golden), mode="json"))
            if typer is not None:
                copy_typer(typer, str(whole))
            whole.replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(f"--output {folder} cannot be written: {reason}; name another folder.") from None


def _write(
    folder: Path, model: Reranker, tokenizer: "PreTrainedTokenizerFast", settings: Settings, card: str
) -> None:  # fmt: skip
    portable = is_portable(model, tokenizer)
    weights = _one_output(model)
    (folder / WEIGHTS).write_bytes(
        safetensors.torch.save(_classifier(weights) if portable else weights, {"format": "pt"})
    )
    _dump(folder / SHAPE, _shape(model, portable))
    _dump(folder / SETTINGS, settings.model_dump(mode="json"))
    _save_tokenizer(tokenizer, folder, settings.input.length)
    (folder / CARD).write_text(card, encoding="utf-8")


def _save_tokenizer(tokenizer: "PreTrainedTokenizerFast", folder: Path, length: int) -> None:
    tokenizer.save_pretrained(str(folder))
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    # How and with what length it was loaded here; others cut a pair at model_max_length.
    for name in ("is_local", "local_files_only", "max_length"):
        config.pop(name, None)
    _dump(file, {**config, "model_max_length": length})


def _one_output(model: Reranker) -> dict[str, Tensor]:
    """Return all weights by name, the pointwise classes as the one score they stand for."""
    weights = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in model.state_dict().items()}
    if len(weights["head.bias"]) == 2:
        for name in ("head.weight", "head.bias"):
            weights[name] = weights[name][[RELEVANT]] - weights[name][[1 - RELEVANT]]
    return weights


def _classifier(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under the names, and in the form, of BertForSequenceClassification."""
    base = {
        name.replace("encoder.base.", "bert.", 1): tensor
        for name, tensor in weights.items()
        if name.startswith("encoder.")
    }
    hidden = weights["head.weight"].shape[1]
    return {
        **base,
        "bert.pooler.dense.weight": torch.eye(hidden) * SMALL,
        "bert.pooler.dense.bias": torch.zeros(hidden),
        "classifier.weight": weights["head.weight"] / SMALL,
        "classifier.bias": weights["head.bias"],
    }


def _reranker(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Undo `_classifier`, to the last bit."""
    if "classifier.weight" not in weights:
        return weights
    base = {
        name.replace("bert.", "encoder.base.", 1): tensor
        for name, tensor in weights.items()
        if name.startswith("bert.") and not name.startswith("bert.pooler.")
    }
    return {**base, "head.weight": weights["classifier.weight"] * SMALL, "head.bias": weights["classifier.bias"]}


def _shape(model: Reranker, portable: bool) -> dict[str, Any]:
    shape = model.encoder.base.config.to_diff_dict()
    # Where the encoder lay on the machine it was trained on is nobody's business.
    shape.pop("_name_or_path", None)
    shape |= {"id2label": {"0": "relevance"}, "label2id": {"relevance": 0}}
    if portable:
        # Without the entry CrossEncoder puts a sigmoid over the score.
        identity = {"activation_fn": "torch.nn.modules.linear.Identity"}
        return shape | {"architectures": ["BertForSequenceClassification"], "sentence_transformers": identity}
    return shape | {"architectures": ["RayrankReranker"], "model_type": OWN_KIND}


def load(folder: str, backend: Backend = "torch") -> Exported:
    """Return the re-ranker of a folder, ready to score, on CPU; the folder alone is enough."""
    path = Path(folder).expanduser()
    if not (path / SETTINGS).is_file():
        raise ConfigError(f"{folder} is no exported model: it has no {SETTINGS}; name a folder that jobs.export made.")
    if backend == "onnx-int8" and not (path / INT8).is_file():
        raise ConfigError(
            f"scorer.backend={backend} cannot be used: {folder} has no {INT8}; run jobs.export with --set "
            f"scorer.backend={backend}, or set scorer.backend=torch."
        )
    try:
        int8 = (path / INT8).read_bytes() if backend == "onnx-int8" else None
        settings = Settings.model_validate_json((path / SETTINGS).read_text(encoding="utf-8"))
        calibration = _read(path / CALIBRATION, Calibration.model_validate_json)
        golden = _read(path / GOLDEN, GOLDEN_PAIRS.validate_json) or ()
        shape = json.loads((path / SHAPE).read_text(encoding="utf-8"))
        weights = _reranker(safetensors.torch.load((path / WEIGHTS).read_bytes()))
        typer = _typer(path)
    except (OSError, ValueError, ValidationError, SafetensorError) as error:
        reason = str(error).split("\n")[0]
        raise ConfigError(
            f"{folder} cannot be opened: {reason}; export the model again with this version of rayrank."
        ) from None
    shape.pop("model_type", None)
    with quiet():
        tokenizer = load_tokenizer(str(path.absolute()))
    base = AutoModel.from_config(AutoConfig.for_model(settings.base, **shape), attn_implementation="sdpa")  # type: ignore[no-untyped-call]
    model = Reranker(Encoder(base, word_table(tokenizer), settings.strm), num_outputs=1)
    model.load_state_dict(weights)
    if backend == "torch-fp8":
        check_eight_bits(model)
    return Exported(model.eval(), tokenizer, settings, int8, calibration, golden, typer)


def _typer(folder: Path) -> Typer | None:
    """Return the classifier of a folder that has one; on the CPU, which one short query does not keep busy."""
    for place in folder.glob(f"{TYPER}/*/{MANIFEST}"):
        return load_typer(Artifact(str(folder.absolute()), TYPER, place.parent.name), "cpu")
    return None


def _read(file: Path, parse: Callable[[bytes], Content]) -> Content | None:
    """Return what a file holds that not every folder has."""
    return parse(file.read_bytes()) if file.is_file() else None


def _dump(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
