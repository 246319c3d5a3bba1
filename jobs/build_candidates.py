"""Make the first-stage run (candidates.first_stage): the passages to re-rank for every query."""

from rayrank.core import flow
from rayrank.core.config import PipelineConfig
from rayrank.jobs.entry import parser, run_job

HAVE_JOBS = ("corpus", "index")
"""Inputs of first stages that jobs of their own make; what else a first stage needs is made here."""


def first_stage_nodes(config: PipelineConfig) -> list[tuple[str, PipelineConfig]]:
    """Return what the configured first stage needs, and then the first stage itself."""
    return [(node, config) for node in flow.plan("candidates", config) if node not in HAVE_JOBS]


if __name__ == "__main__":
    run_job(parser(__doc__).parse_args(), first_stage_nodes)
