"""The settings of the training phases, and of the noise filter between them."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from rayrank.core.metric_names import display_name
from rayrank.core.section import Section

SCRATCH = "scratch"
"""The value of `doc2query.model` that means a small T5 with random weights instead of a named model."""


class TrainingConfig(Section):
    """Settings of all training phases."""

    seed: int = Field(default=13, ge=0)
    dev_queries: int | None = Field(default=500, ge=1, description="number measured during training; all if empty")
    evaluations: int = Field(
        default=1, ge=1, description="dev measurements per epoch; the weights of the best one are kept"
    )
    patience: int | None = Field(
        default=None, ge=1, description="dev measurements without a new best after which a phase ends; never if empty"
    )
    metric: Annotated[str, AfterValidator(display_name)] = Field(
        default="MRR@10", description="selects models on dev: MRR, nDCG, MAP, P or R, as in nDCG@10"
    )


class PhaseConfig(Section):
    """Settings that each training phase has separately."""

    epochs: int = Field(default=1, ge=1)
    max_steps: int | None = Field(default=None, ge=1, description="end the phase after this many steps")
    min_steps: int = Field(
        default=0, ge=0, description="fewest steps: with little data the batch size is reduced, then epochs are added"
    )
    smallest_batch: int = Field(default=8, ge=1, description="the batch size that min_steps may lead to")
    batch_size: int = Field(default=32, ge=1)
    lr: float = Field(default=3e-5, gt=0)
    warmup: float = Field(default=0.1, ge=0, lt=1, description="share of the steps in which the learning rate rises")
    lr_end: float = Field(default=0.0, ge=0, le=1, description="final learning rate as a share of lr")
    weight_decay: float = Field(default=0.01, ge=0)
    clip: float = Field(default=1.0, gt=0, description="maximum norm of the gradient")
    micro_batch_size: int | None = Field(
        default=None, ge=1, description="examples per forward pass; a worker's share of the batch if empty"
    )


class FineTuningConfig(PhaseConfig):
    """Settings of the phases that fine-tune the re-ranker."""

    layer_decay: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="learning rate of a layer as a share of that of the layer above it; the head has lr",
    )
    freeze_embeddings: bool = Field(default=False, description="do not train the encoder's embeddings")
    seed: int | None = Field(default=None, ge=0, description="the seed of this phase alone; training.seed if empty")
    teacher: str = Field(
        default="",
        description="the run whose scores of the training candidates the model learns besides the labels; none if "
        "empty",
    )
    teacher_weight: float = Field(
        default=0.5, gt=0, le=1, description="share of the teacher's loss; the rest is the loss of the labels"
    )
    temperature: float = Field(
        default=1.0, gt=0, description="the teacher's scores are divided by it; higher is a softer teacher"
    )

    def seeded(self, training: TrainingConfig) -> TrainingConfig:
        """Return the settings of all phases with this phase's seed."""
        return training if self.seed is None else training.model_copy(update={"seed": self.seed})

    def unused(self) -> set[str]:
        # They came later: at their defaults they are in no key, so that earlier artifacts are still found.
        neutral = {"layer_decay": 1.0, "freeze_embeddings": False, "seed": None}
        of_teacher = set() if self.teacher else {"teacher_weight", "temperature"}
        return of_teacher | {name for name, value in neutral.items() if getattr(self, name) == value}


class TyperConfig(PhaseConfig):
    """The classifier that predicts the types of queries, trained on labelled questions."""

    epochs: int = Field(default=4, ge=1)
    lr: float = Field(default=1e-4, gt=0)
    labels: str = Field(
        default="",
        description="a file of `TYPE:subtype question` or `type<TAB>question` lines; the labelled queries of the train "
        "split if empty",
    )
    fingerprint: str = Field(default="", description="digest of that file, filled in when a job starts")


class PretrainConfig(PhaseConfig):
    """Pre-training on the corpus with masked language modelling and next-sentence prediction."""

    enabled: bool = True
    length: int = Field(default=128, ge=16, description="maximum number of word pieces of an input")
    masked: float = Field(default=0.15, gt=0, lt=1, description="share of the word pieces that are masked")


class PointwiseConfig(FineTuningConfig):
    """The pointwise phase: is a passage relevant to a query, one pair at a time."""

    negatives: int = Field(default=5, ge=1, description="negatives per positive")
    pairs: Literal["candidates", "judged"] = Field(
        default="candidates",
        description="candidates: every relevant passage, with other candidates of its query as negatives; judged: "
        "every judged pair with its own label, without candidates, as natural language inference needs it",
    )


def round_named(number: int) -> str:
    """Return the name of a round of the listwise phase, counted from 1."""
    return f"round{number}"


class ListwiseConfig(FineTuningConfig):
    """The listwise phase: a query's positives compete with its negatives in one list."""

    start: Literal["pointwise", "encoder"] = Field(
        default="pointwise", description="the weights that the phase starts from"
    )
    head: Literal["difference", "fresh"] = Field(
        default="difference", description="the initial head: the difference of the two pointwise classes, or random"
    )
    positives: int = Field(default=1, ge=1)
    negatives: int = Field(default=5, ge=1)
    loss: Literal["softmax", "ranknet", "lambda", "listmle"] = Field(
        default="softmax",
        description="softmax: each positive against its list, as in the paper; ranknet: pairs; lambda: pairs weighted "
        "by their effect on nDCG (NDCG-Loss2++); listmle: the order of the grades",
    )

    teacher_loss: Literal["kl", "margin_mse"] = Field(
        default="kl",
        description="kl: the teacher's distribution over the list; margin_mse: how far its positives score above its "
        "negatives",
    )

    negatives_from: str = Field(
        default="",
        description="the run whose rows of the training queries negatives are drawn from; candidates if empty",
    )
    negative_ranks: tuple[int, int] | None = Field(
        default=None, description="the first and the last rank in that run that negatives have; any rank if empty"
    )
    rounds: int = Field(
        default=1,
        ge=1,
        le=20,
        description="trainings one after another: the model of a round scores the training candidates, and the noise "
        "filter and negative_ranks of the next round read these scores",
    )
    continued: bool = Field(
        default=False,
        description="each round starts from the model of the round before, instead of from listwise.start",
    )
    soup: tuple[int, ...] = Field(
        default=(),
        description="seeds of the phase: the stage soup averages the weights of its models, for runs with model=soup",
    )

    @property
    def round_before(self) -> str:
        """Name of the previous round, and of its run; empty if there is one round."""
        return round_named(self.rounds - 1) if self.rounds > 1 else ""

    @field_validator("negative_ranks")
    @classmethod
    def _window(cls, ranks: tuple[int, int] | None) -> tuple[int, int] | None:
        if ranks is not None and not 1 <= ranks[0] <= ranks[1]:
            raise ValueError("the first rank is at least 1, and the last is not before it")
        return ranks

    @field_validator("soup")
    @classmethod
    def _several(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(seeds) == 1 or len(set(seeds)) < len(seeds) or min(seeds, default=0) < 0:
            raise ValueError("a soup needs two different seeds or more, from 0 on")
        return seeds

    def unused(self) -> set[str]:
        of_teacher = set() if self.teacher else {"teacher_loss"}
        of_negatives = {"negative_ranks"} if self.negative_ranks is None else set()
        of_rounds = {"rounds", "continued"} if self.rounds == 1 else set()
        return super().unused() | of_teacher | of_negatives | of_rounds | {"soup"}


class TrainDenseConfig(PhaseConfig):
    """The bi-encoder of the dense first stage, trained to score a query's relevant passage above other passages."""

    epochs: int = Field(default=4, ge=1)
    batch_size: int = Field(
        default=128, ge=2, description="queries per batch; the passages of each are negatives for the others"
    )
    lr: float = Field(default=5e-5, gt=0)
    first_stage: str = Field(
        default="bm25", description="the run whose candidates are hard negatives, besides the in-batch negatives"
    )
    negatives: int = Field(default=1, ge=0, description="hard negatives per query")
    temperature: float = Field(default=0.05, gt=0, description="dot products are divided by it before the softmax")
    noise_run: str = Field(
        default="",
        description="a run that has scored these candidates; the noise filter uses its scores. If empty, nothing is "
        "filtered",
    )

    noise_threshold: float = Field(
        default=0.9, gt=0, lt=1, description="candidates that noise_run finds more probably relevant are left out"
    )
    micro_batch_size: int | None = Field(
        default=None, ge=2, description="queries that are compared at a time; a smaller number has fewer negatives"
    )


class SdnetConfig(PhaseConfig):
    """SDNet: layers that match the words of a query and a passage, trained on vectors of a frozen encoder."""

    epochs: int = Field(default=5, ge=1)
    batch_size: int = Field(default=64, ge=1, description="training queries per batch")
    lr: float = Field(default=1e-3, gt=0)
    warmup: float = Field(default=0.0, ge=0, lt=1, description="share of the steps in which the learning rate rises")
    weight_decay: float = Field(default=0.0, ge=0)
    dropout: float = Field(default=0.4, ge=0, lt=1)
    length: int = Field(default=256, ge=16, description="word pieces of an input, `[CLS]` and `[SEP]` included")
    layers: int | None = Field(
        default=None, ge=1, description="number of the encoder's last layers to mix; all and the embeddings if empty"
    )
    hidden: int = Field(default=128, ge=1, description="size of an LSTM layer in each direction")
    signals: int = Field(default=10, ge=1, description="number of the strongest signals that the score is made from")
    match: Literal["cosine", "softmax"] = Field(
        default="cosine",
        description="what a signal is: the cosine of a passage word's vector and the query's, or the word's share in a "
        "softmax over all words of its passage",
    )
    negatives: int = Field(default=1, ge=1, description="negatives that each positive is compared with")


class DeepCtConfig(PhaseConfig):
    """DeepCT: how much each word of a passage matters, learnt from the words that training queries share with it."""

    lr: float = Field(default=2e-5, gt=0)
    batch_size: int = Field(default=16, ge=1)
    epochs: int = Field(default=3, ge=1)
    length: int = Field(
        default=512,
        ge=16,
        description="maximum number of word pieces of an input; a longer passage is split into several inputs",
    )
    scale: int = Field(
        default=100, ge=1, description="term frequency of a word with weight 1; a word with weight 0 is dropped"
    )


class Doc2QueryConfig(PhaseConfig):
    """doc2query: queries that a sequence-to-sequence model generates for each passage, indexed with it."""

    model: str = Field(
        default="t5-base", description="a hub name, a folder, or scratch: a small T5 with the corpus's word pieces"
    )
    lr: float = Field(default=1e-4, gt=0)
    batch_size: int = Field(default=32, ge=1)
    epochs: int = Field(default=3, ge=1)
    length: int = Field(default=512, ge=16, description="maximum number of word pieces of a passage")
    query_length: int = Field(default=64, ge=4, description="maximum number of word pieces of a query")
    queries: int = Field(default=10, ge=1, description="queries generated for each passage")
    top_k: int = Field(default=10, ge=1, description="the next piece is drawn from this many most likely ones")
    fingerprint: str = Field(default="", description="digest of the model's folder, filled in when a job starts")
