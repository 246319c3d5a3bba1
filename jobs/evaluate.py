"""Measure a run on a split, with 95 % intervals, and compare it with a baseline if one is named.

The run of a model is made first: the model scores every candidate of the held-out splits.
"""

from rayrank.core.config import PipelineConfig
from rayrank.core.flow import is_first_stage, plan, run_of
from rayrank.jobs.entry import assignment, parser, run_job


def runs_first(config: PipelineConfig) -> list[tuple[str, PipelineConfig]]:
    """Return the runs to make first, which are all but the first stage, then the evaluation."""
    runs = [(node, found[0]) for node in plan("evaluate", config) if (found := run_of(node)) and not found[1]]
    made = [node for node, name in runs if not is_first_stage(name, config)]
    return [(node, config) for node in [*made, "evaluate"]]


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--run", help="a run by its name (bm25, pointwise, drbert, fused), or a TREC run file")
    options.add_argument("--baseline", help="a run to compare with, named the same way")
    options.add_argument("--split", help="default: test if the dataset has it, else dev")
    arguments = options.parse_args()
    chosen = {f"evaluate.{name}": getattr(arguments, name) for name in ("run", "baseline", "split")}
    named = [assignment(key, name) for key, name in chosen.items() if name is not None]
    run_job(arguments, runs_first, named)
