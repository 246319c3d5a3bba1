"""Train the pointwise model: relevant or not, one pair at a time, with the query's type as part of the input."""

from jobs.entry import parser, run_job
from rayrank.core.config import PipelineConfig


def stages(config: PipelineConfig) -> list[tuple[str, PipelineConfig]]:
    """Return the phase, and before it the types of the queries if inputs have any."""
    typed = ["query_types"] if config.input.query_type else []
    return [(stage, config) for stage in [*typed, "pointwise"]]


if __name__ == "__main__":
    run_job(parser(__doc__).parse_args(), stages)
