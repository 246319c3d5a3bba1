"""Train the pointwise model, which classifies one pair at a time as relevant or not; its input has the query's type."""

from rayrank.core.config import PipelineConfig
from rayrank.jobs.entry import parser, run_job


def stages(config: PipelineConfig) -> list[tuple[str, PipelineConfig]]:
    """Return the query_types stage if inputs have a type, then the pointwise stage."""
    typed = ["query_types"] if config.input.query_type else []
    return [(stage, config) for stage in [*typed, "pointwise"]]


if __name__ == "__main__":
    run_job(parser(__doc__).parse_args(), stages)
