"""Run the whole flow, from a dataset to a re-ranker compared with its first stage; artifacts that exist are reused."""

import shlex
from functools import partial
from typing import Any

from jobs.entry import Arguments, parser, run_job
from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.progress import say


def whole(config: PipelineConfig) -> list[tuple[str, PipelineConfig]]:
    """Return every stage and run the configuration needs, then one evaluation per run, against the first stage."""
    first = config.candidates.first_stage
    wanted: dict[tuple[str, str], PipelineConfig] = {}
    # First stages are evaluated before rankers are trained, so that a missing split or a wrong file is reported early.
    used = sorted(flow.used_runs(config), key=lambda name: not flow.is_first_stage(name, config))
    for name in dict.fromkeys([first, *used]):
        chosen = {"run": name, "baseline": "" if name == first else first}
        evaluated = config.model_copy(update={"evaluate": config.evaluate.model_copy(update=chosen)})
        for node in flow.plan("evaluate", evaluated):
            wanted.setdefault((node, flow.key(node, evaluated)), evaluated if node == "evaluate" else config)
    if any(flow.node(flow.NOISE, config) == node for node, _ in wanted):
        wanted["noise_report", ""] = config
    return [(node, each) for (node, _), each in wanted.items()]


def next_steps(arguments: Arguments, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Say which run dev chose and how to serve it, and return the choice."""
    # Imported late: it loads SciPy, which takes a second, and a wrong option is reported before.
    from rayrank.stages.choice import choose

    choice = choose(config, store)
    if choice is None:
        say("\n".join(["next, to serve it:", *serving(arguments)]))
        return {}
    lines = [choice.finding()]
    if choice.name == choice.first_stage:
        lines.append("to get a better re-ranker: more judged training queries, or a larger encoder (encoder.name)")
    else:
        lines += ["next, to serve it:", *serving(arguments)]
    say("\n".join(lines))
    return {"choice": choice.facts()}


def serving(arguments: Arguments) -> list[str]:
    """Return the commands that put the chosen model behind an endpoint."""
    same = {"--preset": arguments.preset, "--dataset": arguments.dataset, "--storage": arguments.storage}
    given = [part for pair in {**same, "--config": arguments.config}.items() if pair[1] for part in pair]
    settings = [part for setting in arguments.set for part in ("--set", setting)]
    export = shlex.join(["python", "-m", "jobs.export", *given, *settings, "--output", "models/new"])
    return [export, "serve run serve.app:build model=models/new"]


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--until", metavar="NAME", help="the last stage or run to make; its inputs are made first")
    arguments = options.parse_args()
    if arguments.until:
        run_job(arguments, lambda config: [(node, config) for node in flow.plan(arguments.until, config)])
    else:
        run_job(arguments, whole, after=partial(next_steps, arguments))
