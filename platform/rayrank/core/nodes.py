"""What the flow knows of a stage, and what identifies the result of a node."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rayrank.core.config import PipelineConfig

_FOLDERS = ("text.tokenizer", "encoder.name", "dense.encoder", "doc2query.model")
"""Settings that may name a local folder; if they do, their section has a fingerprint."""


def soup_members(config: PipelineConfig) -> tuple[str, ...]:
    """Return the nodes whose weights a soup averages."""
    return tuple(f"listwise@{seed}" for seed in config.listwise.soup)


def is_variant(name: str) -> bool:
    """Return whether a node is a stage with one setting changed.

    It is a member of a soup, such as `listwise@14`: the phase with that seed; or it belongs to a round of the listwise
    phase, such as `listwise@round1` and `noise_report@round1`.
    """
    return re.fullmatch(r"listwise@\d+|(listwise|noise_report)@round[1-9]\d*", name) is not None


def stage_of(name: str, config: PipelineConfig) -> tuple[str, PipelineConfig]:
    """Return the stage of a node, and the configuration that makes it."""
    if not is_variant(name):
        return name, config
    stage, _, variant = name.partition("@")
    if variant.startswith("round"):
        own: dict[str, object] = {"rounds": int(variant.removeprefix("round"))}
        return stage, config.model_copy(update={"listwise": config.listwise.model_copy(update=own)})
    # With training.seed the member has the key of the listwise model itself, so it is not trained twice.
    own = {"seed": None if int(variant) == config.training.seed else int(variant)}
    return stage, config.model_copy(update={"listwise": config.listwise.model_copy(update=own)})


class Stage(NamedTuple):
    """One stage: the sections of the configuration and the nodes that its result depends on."""

    sections: tuple[str, ...]
    inputs: Callable[[PipelineConfig], tuple[str, ...]]
    job: str
    version: int = 1
    """Increase it when the stage's code produces a different result from the same inputs."""
    ignores: tuple[str, ...] = ()
    """Settings of these sections that do not affect the result, such as the path of a file that has a digest."""
    scores_pairs: bool = False
    """Whether the stage trains a model that a run of kind `rerank` can use."""


class Node(NamedTuple):
    """What identifies a result: two nodes with equal descriptions share one artifact."""

    folder: str
    version: int
    settings: dict[str, object]
    inputs: tuple[str, ...]
    job: str

    @property
    def command(self) -> str:
        """The command that makes the result, such as `rayrank build-index`."""
        module, *options = self.job.removeprefix("jobs.").split()
        name = "run" if module == "run_pipeline" else module.replace("_", "-")
        return " ".join(["rayrank", name, *options])

    def key(self, ignores: Sequence[str], input_keys: Sequence[str]) -> str:
        """Return the key of the node's artifact, from the keys of its inputs and without the settings it ignores."""
        chosen = json.loads(json.dumps(self.settings))
        # A local folder counts by the digest of its content; where it is stored does not matter.
        folders = [each for each in _FOLDERS if chosen.get(each.partition(".")[0], {}).get("fingerprint")]
        for ignored in (*ignores, *folders):
            section, _, setting = ignored.partition(".")
            del chosen[section][setting]
        identity = json.dumps([self.folder, self.version, chosen, input_keys], sort_keys=True)
        return hashlib.sha256(identity.encode()).hexdigest()[:16]
