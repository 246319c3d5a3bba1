"""What the flow knows of a stage, and what identifies the result of a node."""

from collections.abc import Callable
from typing import NamedTuple

from rayrank.core.config import PipelineConfig


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
