"""Run the whole flow, from a dataset to a re-ranker measured beside BM25; what exists already is reused."""

import shlex

from jobs.entry import Arguments, parser, run_job
from rayrank.core.config import PipelineConfig
from rayrank.core.flow import FLOW, last_run, plan
from rayrank.core.progress import say


def whole(config: PipelineConfig) -> list[tuple[str, PipelineConfig]]:
    """Return every stage the configuration needs, then one evaluation a run, each against the first stage."""
    first = config.candidates.first_stage
    # Candidates that come with a dataset come in no order, and would leave the model's as it is.
    blended = ["fused"] if first == "bm25" or config.fusion.weight else []
    stages: dict[tuple[str, PipelineConfig], None] = {}
    for run in dict.fromkeys([first, "pointwise", last_run(config), *blended]):
        chosen = {"run": run, "baseline": "" if run == first else first}
        evaluated = config.model_copy(update={"evaluate": config.evaluate.model_copy(update=chosen)})
        *before, last = plan("evaluate", evaluated)
        stages.update(dict.fromkeys((stage, config) for stage in before))
        stages[last, evaluated] = None
    if config.listwise.enabled and config.noise.threshold < 1:
        stages["noise_report", config] = None
    # The first stage is measured before anything is trained: a split that is not there is a matter of seconds.
    return list(stages)


def next_steps(arguments: Arguments) -> list[str]:
    """Return the commands that put the trained model behind an endpoint."""
    same = {"--preset": arguments.preset, "--dataset": arguments.dataset, "--storage": arguments.storage}
    given = [part for pair in {**same, "--config": arguments.config}.items() if pair[1] for part in pair]
    settings = [part for setting in arguments.set for part in ("--set", setting)]
    export = shlex.join(["python", "-m", "jobs.export", *given, *settings, "--output", "models/new"])
    return [export, "serve run serve.app:build model=models/new"]


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--until", choices=list(FLOW), help="the last stage to run, with all that it needs")
    arguments = options.parse_args()
    if arguments.until:
        run_job(arguments, lambda config: [(stage, config) for stage in plan(arguments.until, config)])
    else:
        run_job(arguments, whole)
        say("\n".join(["next, to serve it:", *next_steps(arguments)]))
