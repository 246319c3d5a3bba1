"""Write a trained model as a Hugging Face folder: safetensors, tokenizer, settings and a model card."""

import os
from pathlib import Path
from typing import Any

from jobs.entry import parser, run_task
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import StorageError
from rayrank.core.flow import last_run


def run(output: str, chosen: str | None, license_name: str, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Export the model and return the facts to show; with torch behind it, so imported once the settings are right."""
    from rayrank.bundle.card import STAGES, gather, write_card
    from rayrank.bundle.export import export, is_portable, settings_of
    from rayrank.models.saved import load_reranker
    from rayrank.stages.export_checks import companions, first_stage_weight
    from rayrank.stages.quantization import quantised
    from rayrank.text.pieces import load_tokenizer
    from rayrank.text.words import word_table

    check_place(output)
    name = chosen or last_run(config)
    artifact = store.require(STAGES[name], config)
    tokenizer = load_tokenizer(store.require("corpus", config).local("tokenizer"))
    model = load_reranker(artifact, config, word_table(tokenizer))
    origin = gather(name, config, store, license_name)
    types, weight = list(origin.query_types.get("types", {})), first_stage_weight(name, config, store)
    settings = settings_of(model, config.input, config.query_types, types, weight or 0.0)
    portable = is_portable(model, tokenizer)
    small = quantised(model, config, store) if config.scorer.backend != "torch" else None
    finding = small.finding() if small else ""
    beside = companions(name, model, tokenizer, config, store)
    card = write_card(origin, settings, portable, finding, beside.calibration)
    has_typer = config.input.query_type and config.query_types.predict == "trained"
    export(
        output, model, tokenizer, settings, card, small.graph if small else None, beside.calibration, beside.golden,
        store.require("query_typer", config) if has_typer else None,
    )  # fmt: skip
    return {
        "model": name,
        "from": artifact.url,
        "output": output,
        "cross_encoder": portable,
        "eight_bits": small.figures() if small else None,
        "calibration": beside.calibration.figures() if beside.calibration else None,
        "num_golden": len(beside.golden),
        "first_stage_weight": weight,
        "findings": [
            f"{name} of {artifact.url} is in {output}",
            "sentence_transformers.CrossEncoder and rayrank.bundle.export.load open it"
            if portable
            else "rayrank.bundle.export.load opens it; CrossEncoder refuses it, since its attention would be another",
            *([finding] if finding else []),
            *_about_types(origin.query_types.get("num_labelled", 0), has_typer),
            beside.finding,
            f"first_stage_scores of clients count {weight:g}"
            if weight is not None
            else "first_stage_scores of clients do not count: jobs.evaluate --run fused finds out if they should",
        ],
    }


def _about_types(labelled: int, has_typer: bool) -> list[str]:
    if not labelled or has_typer:
        return []
    return [
        f"{labelled:,} queries brought types of their own, which nothing in the folder predicts: send query_type with "
        f"each query, or train with --set query_types.predict=trained"
    ]


def check_place(output: str) -> None:
    """Refuse a folder that is not empty, and a relative one in a submitted job, whose working directory Ray deletes."""
    from rayrank.bundle.export import check_output

    try:
        check_output(output)
    except OSError as error:
        raise StorageError(f"--output {output} cannot be written: {error.strerror}; name another folder.") from None
    if os.environ.get("RAY_ADDRESS") and not Path(output).is_absolute():
        raise StorageError(f"--output {output} is a relative path: a job on a cluster needs an absolute one.")


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--output", required=True, metavar="DIR", help="a folder that is new or empty")
    options.add_argument("--model", choices=["pointwise", "drbert"], help="the last phase of the settings by default")
    options.add_argument("--license", default="unknown", help="for the model card; default %(default)s")
    arguments = options.parse_args()
    run_task(
        arguments,
        lambda config, store: run(arguments.output, arguments.model, arguments.license, config, store),
        lambda config: check_place(arguments.output),
    )
