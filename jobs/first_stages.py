"""Compare first stages: what each one finds, what it costs, and how much MRR@10 is lost in retrieval and in ranking.

Without --run these are candidates.first_stage, the first stages that it reads, and all others that exist on storage. A
first stage that --run names is made if it is missing:

  --run bm25   --run dense   --run hybrid
"""

from typing import Any

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.jobs.entry import Arguments, parser, run_task


def chosen(arguments: Arguments, config: PipelineConfig) -> list[str]:
    """Return the first stages that the options name; raises ConfigError for one that cannot be compared."""
    known = ", ".join(name for name in config.runs if flow.is_first_stage(name, config))
    for name in arguments.run:
        if not flow.is_run(name, config):
            raise ConfigError(f"--run {name} is not a run of the configuration: choose one of {known}.")
        if not flow.is_first_stage(name, config):
            raise ConfigError(
                f"--run {name} is not a first stage, it ranks what another run found: choose one of {known}."
            )
    names = list(dict.fromkeys(flow.run_named(name, config)[0] for name in arguments.run))
    if names:
        from rayrank.stages.first_stages import with_digests

        with_digests(names, config)  # raises if a file that one of them reads is missing
    return names


def run(arguments: Arguments, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Compare first stages, write the report as JSON, Markdown and PNG, and return it as text."""
    from rayrank.jobs.report_folder import write_report
    from rayrank.reports import first_stages_plot, first_stages_table
    from rayrank.stages import first_stages

    compared = first_stages.prepare(config, store, chosen(arguments, config), arguments.split)
    report = first_stages.measure(compared, store)
    files = {"report.md": first_stages_table.markdown(report).encode()}
    for part in report.splits:
        files[f"recall-{part.split}.png"] = first_stages_plot.recall_png(part)
        files[f"ranking-{part.split}.png"] = first_stages_plot.ranking_png(part)
    place, shown = ("first_stages", compared.digest), first_stages_table.plain(report)
    return write_report(store, place, {"report": report.to_json()}, files, shown)


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--run", action="append", default=[], metavar="NAME", help="a first stage to compare")
    options.add_argument("--split", default="", help="default: every judged split but train")
    arguments = options.parse_args()
    run_task(arguments, lambda config, store: run(arguments, config, store), lambda config: chosen(arguments, config))
