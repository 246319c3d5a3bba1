"""The settings that say how much of the cluster each stage may take."""

from pydantic import Field

from rayrank.core.section import Section


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
    checkpoint_steps: int = Field(
        default=500, ge=1, description="steps between checkpoints; a killed training repeats at most this many"
    )
    retries: int = Field(default=3, ge=0, description="restarts of a training after the loss of a worker")
