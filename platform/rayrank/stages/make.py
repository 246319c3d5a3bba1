"""Makes any node of the flow: a stage by its module, a run by its kind."""

from importlib import import_module

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.nodes import stage_of
from rayrank.core.progress import working_on


def make(name: str, config: PipelineConfig, store: Store) -> Artifact:
    """Return the artifact of a stage or a run; make it if it is missing, from inputs that must exist."""
    node = flow.node(name, config)
    with working_on(node, flow.key(node, config)):
        if flow.run_of(node):
            from rayrank.runs.making import make_run

            return make_run(node, config, store)
        stage, own = stage_of(node, config)
        made: Artifact = import_module(f"rayrank.stages.{stage}").run(own, store)
        return made
