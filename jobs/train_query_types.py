"""Train the classifier of query types on labelled questions, and compare it with the rules on other questions."""

from dataclasses import asdict
from typing import Any

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.data.labelled_questions import Labelled, read_labelled
from rayrank.jobs.entry import Arguments, assignment, parser, run_job

RULES, TRAINED = "rules", "trained"


def measure(rows: list[Labelled], config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Return the accuracy of the rules and of the trained classifier with 95 % intervals, and their difference."""
    import numpy as np

    from rayrank.measure.significance import compare, mean_interval
    from rayrank.models.query_typer import load_typer
    from rayrank.text.query_types import predict

    typer = load_typer(store.require("query_typer", config))
    types, texts = zip(*rows, strict=True)
    answers = {RULES: predict(texts, abbreviation="abbreviation" in typer.types), TRAINED: typer(texts)}
    right = {name: np.array(found) == np.array(types) for name, found in answers.items()}
    settings = config.evaluate
    resamples, seed = settings.resamples, settings.seed
    return {
        "num_questions": len(rows),
        **{name: asdict(mean_interval(values, resamples, seed)) for name, values in right.items()},
        "comparison": asdict(compare(right[TRAINED], right[RULES], settings.test, resamples, seed)),
    }


def show(figures: dict[str, Any], file: str) -> None:
    """Print both accuracies."""
    from rich.console import Console

    from rayrank.measure.significance import Comparison, Interval
    from rayrank.reports.table import Row, metrics_table

    rows = [
        Row(RULES, "accuracy", Interval(**figures[RULES])),
        Row(TRAINED, "accuracy", Interval(**figures[TRAINED]), Comparison(**figures["comparison"])),
    ]
    console = Console()
    console.print(metrics_table(rows, RULES).plain())
    console.print(f"{figures['num_questions']:,} questions of {file}", soft_wrap=True, markup=False)


def main(arguments: Arguments) -> None:
    """Train the classifier, then measure it if --test names a file."""
    extra = [] if arguments.labels is None else [assignment("typer.labels", arguments.labels)]
    test: list[Labelled] = []

    def plan(config: PipelineConfig) -> list[tuple[str, PipelineConfig]]:
        # Read before the training, so that a mistake in the file is reported at once.
        test.extend(read_labelled(arguments.test, "--test") if arguments.test else [])
        return [("query_typer", config)]

    def conclude(summary: dict[str, Any], config: PipelineConfig, store: Store) -> dict[str, Any]:
        if not test:
            return {}
        figures = measure(test, config, store)
        show(figures, arguments.test)
        return {"test": figures}

    run_job(arguments, plan, extra, conclude)


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument(
        "--labels",
        metavar="FILE",
        help="`TYPE:subtype question` or `type<TAB>question` lines; default: the labelled training queries of the "
        "dataset",
    )
    options.add_argument("--test", metavar="FILE", help="other labelled questions, to compare it with the rules")
    main(options.parse_args())
