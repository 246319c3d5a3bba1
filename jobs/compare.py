"""Compare two runs query by query: where one is better, on which kinds of queries, and with which passages.

Writes a table for query types, query lengths, words cut into pieces and first-stage ranks, two plots, and the
largest gains and losses with both top lists. The runs are made if they are missing.

  --run drbert --baseline bm25
  --run other.trec --baseline drbert --split dev
"""

from typing import Any

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.run_kinds import CANDIDATES
from rayrank.jobs.entry import Arguments, assignment, parser, run_task


def run(arguments: Arguments, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Write the report as JSON, Markdown and PNG, and return it as text."""
    from rayrank.jobs.report_folder import write_comparison
    from rayrank.stages import comparison

    key = comparison.prepare(config, store, arguments.cases)
    return write_comparison(store, key, comparison.compare_runs(config, store, arguments.cases))


def check(arguments: Arguments, config: PipelineConfig) -> None:
    """Refuse options that cannot be used, before anything is made."""
    if arguments.cases < 0:
        raise ConfigError(f"--cases {arguments.cases} cannot be used: it is below 0.")
    names = [
        flow.run_named(name, config)[0] if flow.is_run(name, config) else name
        for name in (arguments.run or CANDIDATES, arguments.baseline or CANDIDATES)
    ]
    if names[0] == names[1]:
        raise ConfigError(f"--run and --baseline are both {names[0]}: name two runs to compare.")


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument(
        "--run", required=True, help="a run by its name (pointwise, drbert, fused), or a TREC run file"
    )
    options.add_argument("--baseline", required=True, help="the run to compare it with, named the same way")
    options.add_argument("--split", help="default: test if the dataset has it, else dev")
    options.add_argument("--cases", type=int, default=20, help="number of gains and of losses; default: %(default)s")
    arguments = options.parse_args()
    chosen = {f"evaluate.{name}": getattr(arguments, name) for name in ("run", "baseline", "split")}
    named = [assignment(setting, name) for setting, name in chosen.items() if name is not None]
    run_task(
        arguments,
        lambda config, store: run(arguments, config, store),
        lambda config: check(arguments, config),
        named,
    )
