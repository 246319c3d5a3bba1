"""Measure a run on a split, with 95 % intervals, and beside a baseline if one is named.

A model's run is made first: its score for every candidate of the held-out splits.
"""

from jobs.entry import assignment, parser, run_job
from rayrank.core.config import PipelineConfig
from rayrank.core.flow import plan


def ranked_first(config: PipelineConfig) -> list[tuple[str, PipelineConfig]]:
    """Return the stages that make the runs of trained models, then the evaluation."""
    made = [stage for stage in plan("evaluate", config) if stage.startswith("rank_")]
    return [(stage, config) for stage in [*made, "evaluate"]]


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--run", help="bm25, pointwise, drbert, fused, or a TREC run file")
    options.add_argument("--baseline", help="a run to compare with, named the same way")
    options.add_argument("--split", help="test where the dataset has one, else dev")
    arguments = options.parse_args()
    chosen = {f"evaluate.{name}": getattr(arguments, name) for name in ("run", "baseline", "split")}
    named = [assignment(key, name) for key, name in chosen.items() if name is not None]
    run_job(arguments, ranked_first, named)
