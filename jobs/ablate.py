"""Measure how much each part of DR-BERT contributes: the paper's Table 1 on your data, with intervals and p values.

Rows share artifacts where their settings agree. A row of your own changes settings of the full model:

  --row 'late STRM: strm.first_layer=2'   --row 'more negatives: listwise.negatives=15 noise.threshold=0.8'
  --row 'half BM25: evaluate.run=fused runs.fused.weight=0.5'   --row 'ranks: listwise.negative_ranks=[1,10]'

Each setting is written as for --set; quote one that has spaces.
"""

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rayrank.core import flow, overrides
from rayrank.core.artifacts import Store, digest_of
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.jobs.entry import Arguments, add_repeat_options, parser, run_task, seeds_of

if TYPE_CHECKING:
    from rayrank.stages.ablation import RowSpec

CASES = 20
"""Gains and losses that a comparison of two rows shows, as many of each."""


def changes_of(row: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the settings of `name: key=value key=value`."""
    name, colon, settings = row.partition(":")
    try:
        assignments = shlex.split(settings)
    except ValueError as error:  # a quote that is not closed
        raise ConfigError(f"--row {row!r} cannot be read: {str(error).lower()}; close the quote.") from None
    if not colon or not name.strip() or not assignments:
        raise ConfigError(f"--row {row!r} cannot be read: write --row 'NAME: KEY=VALUE ...'.")
    return name.strip(), overrides.assigned(assignments, f"--row {name.strip()!r}")


def refuse_shared(option: str, changes: Mapping[str, Any]) -> None:
    """Raise ConfigError if an option changes what all rows have in common."""
    fixed = ("training.seed", "training.metric", "dataset.")
    if shared := next((key for key in changes if key.startswith(fixed)), ""):
        raise ConfigError(
            f"{option} cannot change {shared}: all rows have the same data, metric and seeds; use --set, or --seeds."
        )


def chosen(arguments: Arguments, config: PipelineConfig) -> tuple[list["RowSpec"], list[int]]:
    """Return the rows and the seeds that the options ask for; raises ConfigError for unusable options."""
    from rayrank.stages import ablation

    seeds = seeds_of(arguments, config)
    rows = ablation.rankers_table(config) if arguments.rankers else ablation.table_one(config)
    known, full, reference = [row.name for row in rows], ablation.full_run(config), reference_of(arguments, config)
    if unknown := set(arguments.only or known).difference(known):
        raise ConfigError(f"--only {unknown.pop()} is not a row of the table: choose among {', '.join(known)}.")
    rows = [row for row in rows if row.name in (arguments.only or known) or row.name == reference]
    for name, changes in map(changes_of, arguments.row):
        refuse_shared(f"--row {name!r}", changes)
        rows.append(ablation.RowSpec(name, changes, changes.pop("evaluate.run", "") or full))
    ablation.digest(config, rows, seeds)  # validates the settings of every row
    names = [row.name for row in rows]
    for pair in arguments.compare:
        if unknown := set(pair).difference(names):
            raise ConfigError(f"--compare {unknown.pop()} is not a row of the table: choose among {', '.join(names)}.")
        if pair[0] == pair[1]:
            raise ConfigError(f"--compare names the row {pair[0]} twice: name two rows.")
    return rows, seeds


def reference_of(arguments: Arguments, config: PipelineConfig) -> str:
    """Return the row that all others are compared with."""
    from rayrank.stages import ablation

    return ablation.MONOBERT if arguments.rankers else flow.title(ablation.full_run(config), config)


def run(arguments: Arguments, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Make all rows, write the table as JSON, Markdown, LaTeX and PNG, and return it as text."""
    from rayrank.jobs.report_folder import write_comparison, write_report
    from rayrank.reports import ablation_table
    from rayrank.reports.ablation_plot import ablation_png
    from rayrank.stages import ablation

    rows, seeds = chosen(arguments, config)
    reference = reference_of(arguments, config)
    table = ablation.run(config, store, rows, seeds, arguments.parallel, reference)
    files = {
        "table.md": ablation_table.markdown(table).encode(),
        "table.tex": ablation_table.latex(table).encode(),
        "table.png": ablation_png(table, table.splits[0]),
    }
    key = ablation.digest(config, rows, seeds, reference)
    shown = ablation_table.plain(table)
    facts = write_report(store, ("ablation", key), {"table": table.to_json()}, files, shown, [config])
    facts["comparisons"] = []
    for pair in arguments.compare:
        chosen_rows = [next(row for row in rows if row.name == name) for name in pair]
        report = ablation.compare_rows(config, store, chosen_rows, seeds[0], CASES)
        compared = write_comparison(store, digest_of([key, *pair, seeds[0], CASES]), report)
        facts["findings"] += compared["findings"]
        facts["comparisons"].append(compared["folder"])
    return facts


if __name__ == "__main__":
    options = parser(__doc__)
    add_repeat_options(options, "row")
    options.add_argument(
        "--only", action="append", metavar="ROW", help="this row of the table, and the one that rows are compared with"
    )
    options.add_argument(
        "--rankers", action="store_true",
        help="instead of the paper's table: first stages, and the papers' rankers, compared with monoBERT",
    )  # fmt: skip
    options.add_argument("--row", action="append", default=[], metavar="'NAME: KEY=VALUE ...'", help="your own row")
    options.add_argument(
        "--compare", nargs=2, action="append", default=[], metavar="ROW",
        help="compare two rows query by query as jobs.compare does, with the first seed",
    )  # fmt: skip
    arguments = options.parse_args()
    run_task(arguments, lambda config, store: run(arguments, config, store), lambda config: chosen(arguments, config))
