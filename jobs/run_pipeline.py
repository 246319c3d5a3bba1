"""Run the whole flow, from a dataset to a re-ranker compared with its first stage; artifacts that exist are reused."""

from functools import partial
from typing import Any

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig, round_named
from rayrank.jobs.entry import Arguments, options_of, parser, run_job


def whole(config: PipelineConfig) -> list[tuple[str, PipelineConfig]]:
    """Return every stage and run the configuration needs, then one evaluation per run, against the first stage."""
    first = config.candidates.first_stage
    wanted: dict[tuple[str, str], PipelineConfig] = {}
    # First stages are evaluated before rankers are trained, so that a missing split or a wrong file is reported early.
    used = sorted(flow.used_runs(config), key=lambda name: not flow.is_first_stage(name, config))
    for name in dict.fromkeys([first, *used]):
        evaluated = flow.evaluating(name, config)
        for node in flow.plan("evaluate", evaluated):
            wanted.setdefault((node, flow.key(node, evaluated)), evaluated if node == "evaluate" else config)
    if config.noise.reads_scores and any(flow.node(flow.NOISE, config) == node for node, _ in wanted):
        before = (f"noise_report@{round_named(number)}" for number in range(1, config.listwise.rounds))
        for report in (*before, "noise_report"):
            wanted[report, ""] = config
    return [(node, each) for (node, _), each in wanted.items()]


def conclude(
    arguments: Arguments, summary: dict[str, Any], config: PipelineConfig, store: Store
) -> dict[str, Any]:  # fmt: skip
    """Print what was built, how good it is, where the report is and how to serve the run that dev chose."""
    # Imported late: they load SciPy, which takes a second, and a wrong option is reported before.
    from rayrank.jobs.report import write
    from rayrank.jobs.summary import show_pipeline
    from rayrank.stages.choice import choose

    choice = choose(config, store)
    about_choice = (
        "no run was chosen: dev has no judgments, or the first stage found nothing for it"
        if choice is None
        else choice.finding()
    )
    report = write(arguments, config, store)
    lines = [about_choice, f"report: {report}"]
    if choice is not None and choice.name == choice.first_stage:
        lines.append("to get a better re-ranker: more judged training queries, or a larger encoder (encoder.name)")
    else:
        first, second = serving(arguments)
        lines += [f"serve it: {first}", f"          {second}"]
    show_pipeline(summary, lines)
    return {"report": report, **({"choice": choice.facts()} if choice else {})}


def serving(arguments: Arguments) -> list[str]:
    """Return the commands that put the chosen model behind an endpoint."""
    export = f"rayrank export {options_of(arguments)} --output models/new"
    return [export, "rayrank serve --model models/new"]


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--until", metavar="NAME", help="the last stage or run to make; its inputs are made first")
    arguments = options.parse_args()
    if arguments.until:
        run_job(arguments, lambda config: [(node, config) for node in flow.plan(arguments.until, config)])
    else:
        run_job(arguments, whole, conclude=partial(conclude, arguments), is_long=True)
