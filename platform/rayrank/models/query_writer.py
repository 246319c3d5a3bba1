"""doc2query's model: a sequence-to-sequence model of transformers that writes queries for passages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from rayrank.core.artifacts import Artifact
from rayrank.core.config import Doc2QueryConfig
from rayrank.core.errors import ConfigError, StorageError
from rayrank.core.phase_config import SCRATCH
from rayrank.core.pretrained import locate
from rayrank.models.batches import PaddedBatch, pad
from rayrank.models.encoder import quiet
from rayrank.models.sampling import sample
from rayrank.models.saved import KIND, SHAPE, load_weights
from rayrank.text.pieces import PieceEncoder, load_tokenizer
from rayrank.text.ragged import Ragged, Rows, Windows, join
from rayrank.text.seq2seq import Seq2SeqTemplate, special_tokens
from rayrank.text.template import Sequences

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SCRATCH_SIZE: dict[str, Any] = {
    "d_model": 128,
    "d_kv": 32,
    "d_ff": 256,
    "num_layers": 2,
    "num_heads": 4,
    "dropout_rate": 0.0,
}
"""The T5 that `doc2query.model=scratch` trains: small enough for two cores, for corpora like the demo's."""

SEQUENCES_AT_ONCE = 256
"""Queries that are written at once. With T5-base and passages of 512 pieces their attention needs 5 GB."""

_KIND = "query_writer"
_PREFIX = "base."


class QueryWriter(nn.Module):
    """Computes the logits of a query's next pieces, given a passage and the pieces before."""

    def __init__(self, base: PreTrainedModel, start_id: int) -> None:
        """Take a sequence-to-sequence model and its decoder's start token."""
        super().__init__()
        self.base, self.start_id = base, start_id
        first = {id(weight): name for name, weight in self.named_parameters()}
        every = self.named_parameters(remove_duplicate=False)
        self._tied = {name: first[id(weight)] for name, weight in every if first[id(weight)] != name}
        """Names of weights that are the same tensor as another, such as T5's embeddings of encoder and decoder."""

    def description(self) -> dict[str, Any]:
        """Return how the model is saved, see `rayrank.models.saved`."""
        return {"kind": _KIND, "start_id": self.start_id}

    def state_dict(self, *given: Any, **options: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return every weight once: safetensors refuses tensors that share memory."""
        weights = super().state_dict(*given, **options)
        return {name: weight for name, weight in weights.items() if name not in self._tied}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load what `state_dict` returned."""
        tied = {name: state_dict[source] for name, source in self._tied.items() if source in state_dict}
        return super().load_state_dict({**state_dict, **tied}, strict, assign)

    def forward(self, passages: PaddedBatch, queries: Tensor) -> Tensor:
        """Return (queries, length, vocabulary) logits of the piece after each of a query's pieces."""
        answer = self.base(
            input_ids=passages.ids, attention_mask=passages.attention_mask, decoder_input_ids=queries, use_cache=False
        )
        logits: Tensor = answer.logits
        return logits


def batch_of(texts: Windows, rows: Rows, pad_id: int) -> PaddedBatch:
    """Return some texts, with their special tokens, as a padded batch."""
    return pad(Sequences(join(texts.take(rows)), texts.lengths(rows)), pad_id)


def load_model_tokenizer(config: Doc2QueryConfig, corpus_tokenizer: str) -> "PreTrainedTokenizerFast":
    """Return the tokenizer of `doc2query.model`, or for `scratch` the corpus's."""
    if config.model == SCRATCH:
        return load_tokenizer(corpus_tokenizer)
    return load_tokenizer(config.model, key="doc2query.model")


def build(config: Doc2QueryConfig, tokenizer: "PreTrainedTokenizerFast") -> QueryWriter:
    """Return the model that `doc2query.model` names, or for `scratch` a small T5 with random weights."""
    if config.model == SCRATCH:
        template = Seq2SeqTemplate.of(tokenizer, None, config.length, config.query_length)
        special: dict[str, Any] = {
            "pad_token_id": template.pad_id, "eos_token_id": template.end_id,
            "decoder_start_token_id": template.start_id,
        }  # fmt: skip
        shape = T5Config(vocab_size=len(tokenizer), **special, **SCRATCH_SIZE)
        return QueryWriter(T5ForConditionalGeneration(shape), template.start_id)
    special_tokens(tokenizer)
    base = _load(config)
    _check_fit(config, base, len(tokenizer))
    start = base.generation_config.decoder_start_token_id
    start = getattr(base.config, "decoder_start_token_id", None) if start is None else start
    if start is None:
        raise ConfigError(
            f"doc2query.model={config.model} cannot be used: its config has no decoder_start_token_id; add it, or name "
            f"a model such as t5-base."
        )
    return QueryWriter(base, int(start))


def _check_fit(config: Doc2QueryConfig, base: PreTrainedModel, vocabulary: int) -> None:
    """Refuse a model with fewer word pieces than its tokenizer, and passages longer than it reads."""
    num_pieces = cast(nn.Embedding, base.get_input_embeddings()).num_embeddings
    if vocabulary > num_pieces:
        raise ConfigError(
            f"doc2query.model={config.model} cannot be used: its tokenizer has {vocabulary} word pieces, more than the "
            f"model's {num_pieces}; name a model that fits its tokenizer."
        )
    # T5, whose positions are relative, reads passages of any length.
    positions = getattr(base.config, "max_position_embeddings", None)
    if positions is not None and config.length > positions:
        raise ConfigError(
            f"doc2query.length={config.length} cannot be used: {config.model} reads {positions} word pieces at most; "
            f"lower doc2query.length."
        )


def _load(config: Doc2QueryConfig) -> PreTrainedModel:
    place = locate(config.model, key="doc2query.model")
    try:
        with quiet():
            base, report = AutoModelForSeq2SeqLM.from_pretrained(place, output_loading_info=True, dtype=torch.float32)
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ConfigError(
            f"doc2query.model={config.model} cannot be loaded: {reason}; name scratch, or a folder or hub model that "
            f"holds a sequence-to-sequence model such as T5 or BART."
        ) from None
    if missing := sorted(report["missing_keys"]):
        raise ConfigError(
            f"doc2query.model={config.model} cannot be used: it lacks {len(missing)} weights of {type(base).__name__}, "
            f"such as {missing[0]}; name a model whose weights match its config."
        )
    return base  # type: ignore[no-any-return]


def load_query_writer(artifact: Artifact) -> QueryWriter:
    """Return a stored model, ready to write queries."""
    description, settings = artifact.read_json(KIND), artifact.read_json(SHAPE)
    if description["kind"] != _KIND:
        raise StorageError(
            f"The model in {artifact.url} writes no queries: name an artifact of the stage train_doc2query."
        )
    shape = AutoConfig.for_model(settings.pop("model_type"), **settings)
    weights = {name.removeprefix(_PREFIX): tensor for name, tensor in load_weights(artifact).items()}
    with quiet():
        # from_pretrained knows which weights a model shares; loading them one by one does not.
        kind: Any = MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[type(shape)]
        base = kind.from_pretrained(None, config=shape, state_dict=weights, dtype=torch.float32)
    return QueryWriter(base, description["start_id"]).eval()


@dataclass(frozen=True)
class PassageQueries:
    """A trained model with its tokenizer: writes queries for texts."""

    model: QueryWriter
    tokenizer: "PreTrainedTokenizerFast"
    encode: PieceEncoder
    template: Seq2SeqTemplate
    count: int
    """Queries for each text."""
    top_k: int

    @classmethod
    def of(cls, model: QueryWriter, tokenizer: "PreTrainedTokenizerFast", config: Doc2QueryConfig) -> "PassageQueries":
        """Return the writer of a model with the settings of `doc2query`."""
        template = Seq2SeqTemplate.of(tokenizer, model.start_id, config.length, config.query_length)
        encode = PieceEncoder(tokenizer.backend_tokenizer.to_str(), config.length)
        return cls(model, tokenizer, encode, template, config.queries, config.top_k)

    def __call__(self, texts: Sequence[str], seed: int) -> list[list[str]]:
        """Return queries for each text; the same seed and texts give the same queries."""
        device = next(self.model.parameters()).device
        generator = torch.Generator(device).manual_seed(seed)
        inputs = self.template.passages(Ragged.from_arrow(pa.chunked_array([self.encode(texts)])))
        # Texts of similar length together, so that batches have little padding.
        order, size = np.argsort(inputs.lengths(), kind="stable"), max(1, SEQUENCES_AT_ONCE // self.count)
        found: list[list[str]] = [[]] * len(texts)
        for begin in range(0, len(texts), size):
            rows = order[begin : begin + size]
            batch = batch_of(inputs, rows, self.template.pad_id).to(device)
            ids = sample(self.model.base, batch, self.template, self.count, self.top_k, generator).cpu()
            written = self.tokenizer.batch_decode(ids, skip_special_tokens=True)
            for place, row in enumerate(rows.tolist()):
                queries = written[place * self.count : (place + 1) * self.count]
                found[row] = [query.strip() for query in queries if query.strip()]
        return found


def load_passage_queries(artifact: Artifact, config: Doc2QueryConfig, device: torch.device) -> PassageQueries:
    """Return the writer of a trained artifact; on a GPU it computes in bfloat16."""
    model = load_query_writer(artifact).to(device)
    if device.type == "cuda":
        model.bfloat16()
    return PassageQueries.of(model, load_tokenizer(artifact.local("tokenizer")), config)
