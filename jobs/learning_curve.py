"""Measure how good the re-ranker is after training on few and on many judged queries.

Every number of --queries, and all queries, go through the whole flow with each seed; seeds differ in the queries that
are drawn. The report has the first stage, every run that ranks its candidates, and the run that dev chose.
"""

from typing import Any

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.jobs.entry import Arguments, add_repeat_options, parser, run_task, seeds_of

SIZES = [25, 100, 400, 1600]


def checked_seeds(arguments: Arguments, config: PipelineConfig) -> list[int]:
    """Return the seeds that --seeds asks for; raises ConfigError for unusable options."""
    if small := [size for size in arguments.queries if size < 2]:
        raise ConfigError(f"--queries {small[0]} cannot be used: at least 2 are needed, one to train and one for dev.")
    return seeds_of(arguments, config)


def run(arguments: Arguments, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Make the curve, write it as JSON, Markdown and PNG, and return it as text."""
    from rayrank.jobs.report_folder import write_report
    from rayrank.reports import learning_curve as report
    from rayrank.reports.learning_curve_plot import learning_curve_png
    from rayrank.stages import learning_curve

    seeds = checked_seeds(arguments, config)
    curve, key = learning_curve.run(config, store, arguments.queries, seeds, arguments.parallel)
    files = {"curve.md": report.markdown(curve).encode(), "curve.png": learning_curve_png(curve)}
    shown = report.plain(curve)
    return write_report(store, ("learning_curve", key), {"curve": curve.to_json()}, files, shown, [config])


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument(
        "--queries", type=int, nargs="+", default=SIZES, metavar="N", help=f"training queries; default: {SIZES}, all"
    )
    add_repeat_options(options, "number of queries")
    arguments = options.parse_args()
    run_task(
        arguments, lambda config, store: run(arguments, config, store), lambda config: checked_seeds(arguments, config)
    )
