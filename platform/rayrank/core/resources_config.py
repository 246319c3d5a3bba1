"""The settings that say how much of the cluster each stage may take."""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from rayrank.core.section import Section

_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
LABEL = re.compile(rf"([A-Za-z0-9.-]+/)?{_NAME}=!?({_NAME}|in\({_NAME}(, ?{_NAME})*\))")


def _several(labels: object) -> object:
    return (labels,) if isinstance(labels, str) else labels


def _labels(labels: tuple[str, ...]) -> tuple[str, ...]:
    for label in labels:
        if not LABEL.fullmatch(label):
            raise ValueError(f"{label!r} is not KEY=VALUE, KEY=!VALUE, KEY=in(VALUE, VALUE) or KEY=!in(VALUE, VALUE)")
    keys = [label.partition("=")[0] for label in labels]
    if repeated := [key for key in keys if keys.count(key) > 1]:
        raise ValueError(f"{repeated[0]} is named twice: give it once, for several values as {repeated[0]}=in(A, B)")
    return labels


class ResourcesConfig(Section):
    """How much of the cluster a stage may take; no artifact's key depends on it.

    With the same input artifacts no setting here changes the examples of a training step, the learning rate or the dev
    queries. One CPU worker with the same number of cores ends in the same weights, bit for bit. `train_cpus` and
    `score_actors` change rounding only, `train_workers` and `train_gpus` change rounding and the draws of dropout.
    """

    readers: int | None = Field(default=None, ge=1, description="parallel corpus readers; one per core if empty")
    index_threads: int | None = Field(default=None, ge=1, description="threads of the indexer; a node's cores if empty")
    search_actors: int | None = Field(
        default=None, ge=1, description="each with its own JVM; if empty, as many as fit with search_threads"
    )
    search_threads: int | None = Field(
        default=None, ge=1, description="threads per search actor; a node's cores if empty"
    )
    train_workers: int | None = Field(
        default=None, ge=1, description="if empty, one per GPU; a cluster without GPUs gets one"
    )
    train_cpus: int | None = Field(
        default=None, ge=1, description="cores per worker; if empty, 1 with a GPU, else an equal share of all cores"
    )
    train_gpus: float | None = Field(
        default=None, ge=0, le=1, description="GPUs per worker; if empty, 1, or 0 if the cluster has none"
    )
    score_actors: int | None = Field(
        default=None, ge=1, description="if empty, one per GPU; a cluster without GPUs gets one per node"
    )
    labels: Annotated[tuple[str, ...], BeforeValidator(_several), AfterValidator(_labels)] = Field(
        default=(),
        description="labels of the nodes that train, score and encode, as in [ray.io/accelerator-type=H200]; a value "
        "may also be !VALUE, in(A, B) or !in(A, B)",
    )
    checkpoint_steps: int = Field(
        default=500, ge=1, description="steps between checkpoints; a killed training repeats at most this many"
    )
    retries: int = Field(
        default=3, ge=0, description="restarts of a training after the loss of a worker or of Ray Train's controller"
    )

    def label_selector(self) -> dict[str, str]:
        """Return the labels in Ray's form."""
        return dict(label.split("=", 1) for label in self.labels)
