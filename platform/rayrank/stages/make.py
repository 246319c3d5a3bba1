"""Makes any node of the flow: a stage by its module, a run by its kind."""

from importlib import import_module

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.leases import is_leased, leased
from rayrank.core.nodes import stage_of
from rayrank.core.progress import say, working_on


def make(name: str, config: PipelineConfig, store: Store) -> Artifact:
    """Return the artifact of a stage or a run; make it if it is missing, from inputs that must exist.

    If another process is making it, wait for it and return its result.
    """
    node = flow.node(name, config)
    with working_on(node, flow.key(node, config)):
        done = store.find(node, config)
        # A process that was killed right after it had finished the artifact has left its lease, and perhaps more.
        if done and not is_leased(done):
            return done
        with leased(store.artifact(node, config), f"making {node.removeprefix(flow.RUN)}"):
            if not done and store.find(node, config):
                say(f"{node.removeprefix(flow.RUN)}: the other process has finished it; its result is used")
            return _make(node, config, store)


def _make(node: str, config: PipelineConfig, store: Store) -> Artifact:
    if flow.run_of(node):
        from rayrank.runs.making import make_run

        return make_run(node, config, store)
    stage, own = stage_of(node, config)
    made: Artifact = import_module(f"rayrank.stages.{stage}").run(own, store)
    return made
