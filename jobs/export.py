"""Write a trained model as a Hugging Face folder: safetensors, tokenizer, settings and a model card."""

from typing import TYPE_CHECKING, Any

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, StorageError
from rayrank.jobs.entry import Arguments, check_absolute, parser, run_task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from rayrank.models.query_typer import QueryTyper
    from rayrank.models.reranker import Reranker
    from rayrank.scores.fusion import Fusion
    from rayrank.stages.choice import Choice
    from rayrank.stages.export_checks import ExportChecks
    from rayrank.stages.quantization import Quantized

DEV_QUERIES = 200
"""Judged dev queries that are exported with a model."""


def run(
    output: str, chosen: str | None, license_name: str, config: PipelineConfig, store: Store, force: bool = False,
    dev_queries: int = DEV_QUERIES,
) -> dict[str, Any]:  # fmt: skip
    """Export the model and return the job's summary; imports that load torch wait until the settings are validated."""
    from rayrank.bundle.card import write_card
    from rayrank.bundle.export import Bundle, export, settings_of
    from rayrank.bundle.provenance import gather
    from rayrank.bundle.sequence_classification import is_portable
    from rayrank.measure.metrics import Measure
    from rayrank.stages.dev_sample import dev_sample
    from rayrank.stages.export_checks import first_stage_weight, fusion_with, make_checks

    check_place(output)
    name, choice = chosen_model(chosen, force, config, store)
    artifact, tokenizer, model = _trained(name, config, store)
    origin = gather(name, config, store, license_name)
    types, weight = list(origin.query_types.get("types", {})), first_stage_weight(name, config, store)
    settings = settings_of(
        model, config.input, config.query_types, types, weight or 0.0, config.index.language, Measure.of(config)
    )
    portable = is_portable(model, tokenizer, config.input)
    quantized = _quantized(model, config, store)
    finding, int8 = (quantized.finding(), quantized.graph) if quantized else ("", None)
    fusion = fusion_with(name, config, store)
    checks = make_checks(name, model, tokenizer, config, store, fusion)
    typer, dev = _typer(config, store), dev_sample(dev_queries, tokenizer, config, store, fusion)
    card = write_card(origin, settings, portable, finding, checks.calibration, checks.precision, fusion)
    export(output, Bundle(
        model, tokenizer, settings, card, int8, checks.calibration, checks.precision, checks.golden, dev, fusion, typer
    ))  # fmt: skip
    findings = [
        *([choice.finding()] if choice else []),
        f"{name} of {artifact.url} is in {output}",
        _about_loading(portable, config.input.markers > 0),
        *([finding] if finding else []),
        *_about_types(origin.query_types.get("num_labelled", 0), typer is not None),
        *_about_scores(checks, weight, fusion),
        _about_dev(len(dev)),
    ]
    facts = {"model": name, "from": artifact.url, "output": output, "cross_encoder": portable}
    facts |= {"first_stage_weight": weight, "num_dev_queries": len(dev), **_figures(quantized, checks)}
    return {**facts, "findings": findings}


def _trained(
    name: str, config: PipelineConfig, store: Store
) -> "tuple[Artifact, PreTrainedTokenizerFast, Reranker]":  # fmt: skip
    """Return the artifact of the model that ranks a run, the tokenizer and the model."""
    from rayrank.bundle.provenance import model_stage
    from rayrank.models.saved import load_reranker
    from rayrank.text.pieces import load_tokenizer
    from rayrank.text.words import word_table

    artifact = store.require(model_stage(name, config), config)
    tokenizer = load_tokenizer(store.require("corpus", config).local("tokenizer"))
    return artifact, tokenizer, load_reranker(artifact, config.strm, word_table(tokenizer))


def _quantized(model: "Reranker", config: PipelineConfig, store: Store) -> "Quantized | None":
    """Return the quantized model, if `scorer.backend` names one."""
    from rayrank.stages.quantization import quantize

    return quantize(model, config, store) if config.scorer.backend != "torch" else None


def _typer(config: PipelineConfig, store: Store) -> "QueryTyper | None":
    """Return the trained classifier of query types, if the model's inputs have predicted types."""
    from rayrank.models.query_typer import load_typer

    if not config.input.query_type or config.query_types.predict != "trained":
        return None
    return load_typer(store.require("query_typer", config), "cpu")


def _figures(quantized: "Quantized | None", checks: "ExportChecks") -> dict[str, Any]:
    return {
        "quantized": quantized.figures() if quantized else None,
        "calibration": checks.calibration.figures() if checks.calibration else None,
        "precision": checks.precision.model_dump() if checks.precision else None,
        "num_golden": len(checks.golden),
    }


def chosen_model(named: str | None, force: bool, config: PipelineConfig, store: Store) -> tuple[str, "Choice | None"]:
    """Return the run whose model is exported, and how dev compares the runs.

    The run is the named one, else the one that dev chose, else the last one that a trained model ranks. A model that is
    not better than the first stage on dev is refused unless `force` is set.
    """
    from rayrank.stages.choice import choose

    rankers = flow.pair_rankers(config)
    if not rankers:
        raise ConfigError(
            "No model can be exported: the configuration has no run of kind rerank with model=pointwise or "
            "model=listwise; add one to runs."
        )
    if named and named not in rankers:
        raise ConfigError(_refusal(f"--model {named}", named, rankers, config))
    choice = choose(config, store)
    if choice is None:
        return named or rankers[-1], None
    ranked_by = flow.rankers(config)
    models = {
        run: next((each for each in _all_read(run, config) if each in ranked_by), "") for run in choice.comparisons
    }
    name = named or models.get(choice.name) or rankers[-1]
    if name not in rankers:
        raise ConfigError(_refusal(f"{choice.name}, which dev chose,", name, rankers, config))
    compared = [run for run, model in models.items() if model == name]
    if compared and not force and not any(map(choice.is_better, compared)):
        raise ConfigError(
            f"{name} is not exported: {choice.finding()}; train it on more judged queries, or export it all the same "
            f"with --force."
        )
    return name, choice


def _refusal(subject: str, run: str, rankers: list[str], config: PipelineConfig) -> str:
    """Return a sentence that refuses to export a run's model."""
    apart = "the endpoint cannot serve SDNet, which encodes query and passage apart; "
    reason = apart if run in flow.rankers(config) else ""
    return f"{subject} cannot be exported: {reason}choose a run of kind rerank with --model: {', '.join(rankers)}."


def _all_read(run: str, config: PipelineConfig) -> list[str]:
    """Return a run and the runs that it reads, directly or through others."""
    run, settings, kind = flow.run_named(run, config)
    return [run, *(each for source in kind.reads(settings) for each in _all_read(source, config))]


def _about_loading(portable: bool, has_markers: bool) -> str:
    if portable:
        return "sentence_transformers.CrossEncoder and rayrank.bundle.export.load open it"
    reason = "it would read inputs without markers" if has_markers else "its attention would differ"
    return f"rayrank.bundle.export.load opens it; CrossEncoder refuses it, since {reason}"


def _about_scores(checks: "ExportChecks", weight: float | None, fusion: "Fusion | None") -> list[str]:
    """Return how scores become probabilities and answers, and what they are fused with."""
    if weight is None:
        about_weight = "first_stage_scores of clients are ignored: jobs.evaluate --run fused determines their weight"
    else:
        about_weight = f"first_stage_scores of clients have a weight of {weight:g}"
    return [
        checks.finding,
        *([f"thresholds for min_precision: {checks.precision.finding()}"] if checks.precision else []),
        about_weight,
        *([_about_fusion(fusion)] if fusion else []),
    ]


def _about_fusion(fusion: "Fusion") -> str:
    fields = ", ".join(each.name for each in fusion.features if each.name not in (fusion.model, fusion.first_stage))
    needed = [*([f"fields ({fields})"] if fields else []), *(["first_stage_scores"] if fusion.first_stage else [])]
    return (
        f"fusion.json fuses {fusion.shares()}, as learned on dev; the endpoint does so if documents bring "
        f"{' and '.join(needed)}"
    )


def _about_dev(num_queries: int) -> str:
    if not num_queries:
        return "no judged dev queries are exported: a promotion of this model needs --queries with judgments"
    return f"{num_queries:,} judged dev queries are exported as text, for `rayrank promote` to compare models on"


def _about_types(labelled: int, has_typer: bool) -> list[str]:
    if not labelled or has_typer:
        return []
    return [
        f"{labelled:,} queries have types from the dataset, which the exported model cannot predict: send query_type "
        f"with each query, or train with --set query_types.predict=trained"
    ]


def check_place(output: str) -> None:
    """Refuse a folder that is not empty, and a relative one in a submitted job, whose working directory Ray deletes."""
    from rayrank.bundle.export import check_output

    try:
        check_output(output)
    except OSError as error:
        raise StorageError(f"--output {output} cannot be written: {error.strerror}; name another folder.") from None
    check_absolute("--output", output)


def check(arguments: Arguments) -> None:
    """Refuse a place that cannot be written to, and a negative number of queries."""
    check_place(arguments.output)
    if arguments.dev_queries < 0:
        raise ConfigError(f"--dev-queries {arguments.dev_queries} cannot be used: it must be at least 0.")


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--output", required=True, metavar="DIR", help="a folder that is new or empty")
    options.add_argument(
        "--model", metavar="RUN", help="the run whose model is exported; default: the one chosen on dev"
    )
    options.add_argument(
        "--force", action="store_true", help="export a model even if dev shows it is no better than its first stage"
    )
    options.add_argument("--license", default="unknown", help="license for the model card; default %(default)s")
    options.add_argument(
        "--dev-queries", type=int, default=DEV_QUERIES, metavar="N",
        help="judged dev queries to export as text for `rayrank promote`, with 20 candidates each; 0 for none; default "
        "%(default)s",
    )  # fmt: skip
    arguments = options.parse_args()
    run_task(
        arguments,
        lambda config, store: run(
            arguments.output, arguments.model, arguments.license, config, store, arguments.force, arguments.dev_queries
        ),
        lambda config: check(arguments),
    )
