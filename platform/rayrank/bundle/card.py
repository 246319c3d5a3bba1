"""The model card of an exported re-ranker: its input, its training data, its metrics, its use and its limits."""

from pathlib import Path
from typing import Any

import yaml

from rayrank.bundle.export import Settings
from rayrank.bundle.provenance import Provenance
from rayrank.bundle.sequence_classification import HEADS
from rayrank.core.config import MINILM, InputConfig
from rayrank.core.languages import ENGLISH
from rayrank.core.pretrained import is_hub_name
from rayrank.measure.significance import Comparison, Interval
from rayrank.reports.table import Row, metrics_table
from rayrank.scores.calibration import Calibration
from rayrank.scores.fusion import FUSION, Fusion
from rayrank.scores.precision import PrecisionTable
from rayrank.text.query_types import DEFAULT

_PACKAGED = {MINILM: "sentence-transformers/all-MiniLM-L6-v2"}
_TITLES = {"pretrain": "pre-training", "pointwise": "pointwise", "listwise": "listwise"}


def write_card(
    origin: Provenance,
    settings: Settings,
    portable: bool,
    quantization: str = "",
    calibration: Calibration | None = None,
    precision: PrecisionTable | None = None,
    fusion: Fusion | None = None,
) -> str:
    """Return the card as Markdown with YAML front matter; `quantization` is a sentence on the quantized model."""
    parts = [
        _front_matter(origin, settings, portable),
        f"# {_title(origin)}",
        _summary(origin, settings),
        "## Input\n\n" + _input(origin, settings),
        "## Use\n\n"
        + _use(settings, portable)
        + (f"\n\n{quantization}." if quantization else "")
        + _use_calibration(calibration)
        + _use_precision(precision)
        + _use_first_stage(origin, settings.first_stage_weight)
        + _use_fusion(fusion),
        "## Training\n\n" + _training(origin),
        "## Evaluation\n\n" + _evaluation(origin),
        "## Intended use and limits\n\n" + _limits(origin, settings, portable, calibration is not None),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _front_matter(origin: Provenance, settings: Settings, portable: bool) -> str:
    tags = ["reranker", "text-ranking", "rayrank", *(["cross-encoder", "sentence-transformers"] if portable else [])]
    tags += ["dr-bert"] if any(phase.name == "listwise" for phase in origin.phases) else []
    tags += ["strm"] if settings.strm.form != "off" else []
    values: dict[str, Any] = {
        "license": origin.license,
        "library_name": "sentence-transformers" if portable else "rayrank",
        "pipeline_tag": "text-ranking",
        "tags": tags,
    }
    if base := _hub_name(origin.encoder):
        values["base_model"] = base
    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}---"


def _hub_name(encoder: str) -> str:
    """Return the encoder's name on the hub; empty for a folder or package without one."""
    if encoder in _PACKAGED:
        return _PACKAGED[encoder]
    return encoder if is_hub_name(encoder) else ""


def _title(origin: Provenance) -> str:
    return f"{origin.title} re-ranker for {origin.dataset}"


def _summary(origin: Provenance, settings: Settings) -> str:
    base = _hub_name(origin.encoder) or f"the encoder `{Path(origin.encoder).name}`"
    base = f"{base}, cut after layer {origin.layers}," if origin.layers else base
    form = {
        "off": "Attention is plain, without STRM.",
        "mask": f"Attention is STRM's (segmented token recovery): of a word cut into pieces, other words see only the "
        f"{settings.strm.representative} piece.",
        "bias": f"Attention is STRM's (segmented token recovery) with a learned bias: each head has a penalty on "
        f"attention to pieces of another word except the {settings.strm.representative} one.",
    }[settings.strm.form]
    layers = settings.strm.first_layer or settings.strm.last_layer is not None
    where = f" STRM acts from layer {settings.strm.first_layer} to {_last(settings)}, counted from 0." if layers else ""
    return f"Scores how well a passage answers a query. It was trained from {base} with rayrank. {form}{where}"


def _last(settings: Settings) -> str:
    return "the last" if settings.strm.last_layer is None else f"layer {settings.strm.last_layer}"


def _input(origin: Provenance, settings: Settings) -> str:
    shape = (
        "[CLS] type [SEP] query [SEP] passage [SEP]" if settings.input.query_type else "[CLS] query [SEP] passage [SEP]"
    )
    text = (
        f"`{shape}`, at most {settings.input.length} word pieces, of which the query has at most "
        f"{settings.input.query_length}; {_long_passages(settings.input)}. Token types, if the encoder has them, are 1 "
        f"for the passage and 0 before it."
    )
    if settings.input.markers:
        text += (
            f" `[e1]` and `[/e1]` surround the first term of the query wherever query and passage both have it, and so "
            f"on for up to {settings.input.markers} terms."
        )
    if not settings.input.query_type:
        return text
    known = ", ".join(f"`{name}`" for name in settings.types) or "unknown"
    labelled, predicted = origin.query_types.get("num_labelled"), origin.query_types.get("num_predicted")
    came = (
        f" {labelled:,} queries had a type in the dataset; {_prediction(predicted or 0, settings)}."
        if origin.query_types
        else ""
    )
    return f"{text}\n\nThe type is plain text. Types seen in training: {known}.{came}"


def _long_passages(inputs: InputConfig) -> str:
    if inputs.long_passages == "cut":
        return "the end of a longer passage is cut off"
    return (
        f"a longer passage is read in up to {inputs.max_windows} windows of {inputs.pieces_of_window()} word pieces, "
        f"one every {inputs.stride()}, and has the score of its best window; other libraries read only its beginning"
    )


def _prediction(num_queries: int, settings: Settings) -> str:
    if settings.query_types.predict == "trained":
        return f"a classifier (`query_typer/`) predicted the types of {num_queries:,}"
    if settings.language != ENGLISH:
        return f"{num_queries:,} got the type `{DEFAULT}`, because the rules that predict types read English"
    return f"rules (`rayrank.text.query_types.predict`) predicted the types of {num_queries:,}"


def _use(settings: Settings, portable: bool) -> str:
    kind = settings.types[0] if settings.types else "description"
    types = f', types=["{kind}", "{kind}"]' if settings.input.query_type else ""
    ours = (
        "```python\nfrom rayrank.bundle.export import load\nfrom rayrank.bundle.text_scorer import score\n\n"
        'exported = load("this/folder")\n'
        f'score(exported, queries=["a query", "a query"], passages=["a passage", "another"]{types})\n```'
    )
    if not portable:
        return (
            f"{ours}\n\n`transformers` and `sentence_transformers.CrossEncoder` refuse this folder (model type "
            f"`rayrank`): with their attention, or their way of joining two texts, the same weights give other scores."
        )
    first = f'"{kind}{HEADS[settings.base].separator}a query"' if settings.input.query_type else '"a query"'
    note = " The type is part of the first text." if settings.input.query_type else ""
    return (
        f'```python\nfrom sentence_transformers import CrossEncoder\n\nmodel = CrossEncoder("this/folder")\n'
        f'model.rank({first}, ["a passage", "another"])\n```\n\n'
        f"{note.strip()} `AutoModelForSequenceClassification` opens the folder too. With rayrank:\n\n{ours}"
    )


def _use_calibration(calibration: Calibration | None) -> str:
    if calibration is None:
        return ""
    return (
        f"\n\n`exported.calibration.apply(scores)` turns scores into the probability that a candidate of the first "
        f"stage is judged relevant: {calibration.finding()}."
    )


def _use_precision(table: PrecisionTable | None) -> str:
    if table is None:
        return ""
    lines = [
        f"| {level.wanted:g} | {level.probability:.3f} | {level.logit:.3f} | {level.num_queries:,} of "
        f"{table.num_queries:,} | {level.precision:.3f} ({level.low:.3f} to {level.high:.3f}) |"
        if level.logit is not None else f"| {level.wanted:g} | | | {level.num_queries:,} | {level.reason} |"
        for level in table.levels
    ]  # fmt: skip
    return (
        "\n\nThe endpoint's `min_precision` leaves out candidates below a threshold, so that the wanted share of the "
        "others is relevant. The thresholds were chosen on dev; queries and precision were measured at the thresholds "
        "of the other half of dev, with a 95 % interval. They hold for candidates like those of dev, whose queries all "
        "have a relevant passage.\n\n"
        "| wanted precision | probability | score | queries that keep a candidate | measured precision |\n"
        "|---|---|---|---|---|\n" + "\n".join(lines)
    )


def _use_first_stage(origin: Provenance, weight: float) -> str:
    if not weight:
        return ""
    return (
        f"\n\nTo interpolate the model's scores with those of {origin.first_stage}, which have the weight {weight:g}, "
        f"order a query's candidates by `rayrank.scores.interpolation.interpolate(scores, first_stage_scores, "
        f"{weight:g})`. The endpoint does so for requests with `first_stage_scores`."
    )


def _use_fusion(fusion: Fusion | None) -> str:
    if fusion is None:
        return ""
    ways = {"run": f"the scores of a run, normalised within a query ({fusion.normalize})", "field": "a passage's field"}
    weights = fusion.weights or ["a LightGBM model"] * len(fusion.features)
    rows = [
        f"| {feature.name} | {ways[feature.kind]} | {weight if isinstance(weight, str) else f'{weight:.4f}'} |"
        for feature, weight in zip(fusion.features, weights, strict=True)
    ]
    return (
        f"\n\n`{FUSION}` fuses the model's scores with other features, as was learned on dev "
        f"(`rayrank.scores.fusion.Fusion`). The endpoint applies it to requests that bring the other features "
        f"(`fields` of a document, `first_stage_scores`).\n\n"
        + "\n".join(["| feature | what it is | weight |", "|---|---|---|", *rows])
    )


def _training(origin: Provenance) -> str:
    corpus = origin.corpus
    train = corpus.get("splits", {}).get("train", {})
    lines = [
        f"Dataset `{origin.dataset}`: {corpus['num_passages']:,} passages, {train.get('num_queries', 0):,} training "
        f"queries with {train.get('num_judgments', 0):,} judgments. Negatives are candidates of {origin.first_stage} "
        f"(top {origin.depth:,}) without a judgment"
        + (
            f"; those that the pointwise model scored above {origin.noise} were left out of the lists."
            if origin.noise < 1
            else "."
        ),
        "",
    ]
    for phase in origin.phases:
        chosen = ", ".join(
            f"{name} {value}" for name, value in phase.settings.items() if value not in (None, "") and name != "enabled"
        )
        facts = phase.facts
        best = f"best dev {facts.get('dev_metric', phase.metric)} {facts['dev']:.4f}" if "dev" in facts else ""
        done = f" {facts['num_steps']:,} steps, {best}." if best else ""
        lines.append(f"- {_TITLES[phase.name]}: {chosen}.{done}")
    return "\n".join([*lines, "", f"Code revision: `{origin.revision}`."])


def _evaluation(origin: Provenance) -> str:
    if not origin.evaluations:
        return "This model has not been measured yet: run `rayrank evaluate`."
    tables = []
    for manifest in origin.evaluations:
        rows, baseline = [], manifest["baseline"]
        for name, figures in manifest["metrics"].items():
            mean = Interval(figures["mean"], figures["low"], figures["high"])
            compared = Comparison(**figures["comparison"]) if "comparison" in figures else None
            if "baseline" in figures:
                rows.append(Row(baseline, name, Interval(**figures["baseline"])))
            rows.append(Row(manifest["run"], name, mean, compared))
        tables.append(
            f"The {manifest['split']} split, {manifest['num_queries']:,} queries:\n\n"
            f"{metrics_table(rows, baseline).markdown()}"
        )
    return "\n\n".join(tables)


def _limits(origin: Provenance, settings: Settings, portable: bool, calibrated: bool) -> str:
    scores = (
        "Scores are logits; compare passages of different queries by the calibrated probability only."
        if calibrated
        else "Scores are logits: they order the passages of one query. They are not probabilities, and scores of "
        "different queries cannot be compared."
    )
    points = [
        f"The model re-ranks the candidates of a first stage; in training they were the top {origin.depth:,} of "
        f"{origin.first_stage}.",
        scores,
        "The figures hold for the dataset above; measure the model before you use it in another domain or language.",
        "Judgments are incomplete: a relevant passage without one counts as wrong, in training and in the figures.",
        "The model learned the errors and biases of its training data, too.",
    ]
    if portable:
        points.append(
            f"Other libraries do not cut a query at {settings.input.query_length} pieces; a longer query leaves the "
            f"passage less room than in training."
        )
    if origin.license == "unknown":
        points.append("No licence was given: ask the authors, and check the licences of encoder and dataset.")
    return "\n".join(f"- {point}" for point in points)
