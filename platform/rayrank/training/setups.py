"""Where each phase starts from: the model and the data of a worker, read from storage."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import DatasetError
from rayrank.data.pair_set import PairSet
from rayrank.measure.metrics import Measure
from rayrank.models.batches import PairTexts
from rayrank.models.encoder import Encoder, load_encoder
from rayrank.models.pretraining import PretrainingModel, build
from rayrank.models.reranker import Reranker, listwise_head
from rayrank.models.saved import load_pretrained, load_reranker
from rayrank.scores.noise_filter import removed
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.text.words import word_table
from rayrank.training.data import TrainingData, hold_out, load, read_candidates
from rayrank.training.phases import Inputs, Listwise, Pointwise
from rayrank.training.pretraining import Pretraining, Vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def tokenizer_of(config: PipelineConfig, store: Store) -> "PreTrainedTokenizerFast":
    """Return the tokenizer that made the corpus's ids."""
    return load_tokenizer(store.require("corpus", config).local("tokenizer"))


def inputs_of(config: PipelineConfig, store: Store, candidates: Mapping[str, Iterable[pa.Table]]) -> Inputs:
    """Return what pairs are assembled from, the candidates of some splits joined to it."""
    corpus, tokenizer = store.require("corpus", config), tokenizer_of(config, store)
    types = store.require("query_types", config).read_table("query_types.parquet") if config.input.query_type else None
    template = Template.of(tokenizer, config.input)
    data = load(corpus, types, template, tokenizer, candidates, config.dataset.relevant_from)
    return Inputs(data, PairTexts(data.prefixes, data.passages, template))


def pretrain(config: PipelineConfig, store: Store) -> tuple[PretrainingModel, Pretraining]:
    """Masked words and next sentences, from the encoder as it comes."""
    corpus, tokenizer = store.require("corpus", config), tokenizer_of(config, store)
    shards = [corpus.read_table(name, ["piece_ids"]) for name in corpus.manifest["shards"]]
    passages = Ragged.from_arrow(pa.concat_tables(shards)["piece_ids"])
    model = build(config, word_table(tokenizer))
    return model, Pretraining(passages, Vocabulary.of(tokenizer), config.pretrain, config.training.seed)


def pointwise(config: PipelineConfig, store: Store) -> tuple[Reranker, Pointwise]:
    """Pairs, from the pre-trained encoder."""
    inputs = _whole_inputs(config, store)
    words = word_table(tokenizer_of(config, store))
    phase = Pointwise(inputs, config.pointwise, config.training.seed, Measure.of(config))
    return Reranker(_encoder(config, store, words), num_outputs=2), phase


def listwise(config: PipelineConfig, store: Store) -> tuple[Reranker, Listwise]:
    """Lists from which unlabelled answers were taken out, from the pointwise model."""
    inputs = _denoised_inputs(config, store) if config.noise.threshold < 1 else _whole_inputs(config, store)
    words = word_table(tokenizer_of(config, store))
    phase = Listwise(inputs, config.listwise, config.training.seed, Measure.of(config))
    if config.listwise.start == "encoder":
        return Reranker(_encoder(config, store, words), num_outputs=1), phase
    model = load_reranker(store.require("pointwise", config), config, words).train()
    if config.listwise.head == "fresh":
        return Reranker(model.encoder, num_outputs=1), phase
    listwise_head(model)
    return model, phase


def denoised(config: PipelineConfig, store: Store) -> Iterator[pa.Table]:
    """Yield the training candidates that stay: D', the lists without unjudged candidates that are likely answers."""
    judged = PairSet(store.require("corpus", config).read_table("judgments.parquet"))
    for scored in read_candidates(store.require("noise", config), "train"):
        gone = removed(scored["score"].to_numpy(), judged.marks(scored), config.noise.threshold)
        yield scored.filter(pa.array(~gone))


def _whole_inputs(config: PipelineConfig, store: Store) -> Inputs:
    return _held_out(inputs_of(config, store, _candidates(config, store)), config)


def _denoised_inputs(config: PipelineConfig, store: Store) -> Inputs:
    """Return inputs with D' to learn from and all candidates to measure on."""
    joined = inputs_of(config, store, {**_candidates(config, store), "train": denoised(config, store)})
    inputs = _held_out(joined, config)
    if len(joined.data.splits["dev"].queries):
        return inputs
    # Dev is a part of train then; without what the pointwise model is wrong about it would be too easy.
    splits = {"train": inputs.data.splits["train"], "dev": _whole_inputs(config, store).data.splits["dev"]}
    return replace(inputs, data=replace(inputs.data, splits=splits))


def _candidates(config: PipelineConfig, store: Store) -> dict[str, Iterator[pa.Table]]:
    """Return what reads them: nothing is read before it is asked for."""
    found = store.require("candidates", config)
    return {split: read_candidates(found, split) for split in ("train", "dev")}


def _held_out(inputs: Inputs, config: PipelineConfig) -> Inputs:
    data: TrainingData = inputs.data
    if not len(data.splits["train"].queries):
        raise DatasetError(
            f"The dataset {config.dataset.source} has no judged training queries: training needs a train split with "
            f"grades of dataset.relevant_from={config.dataset.relevant_from} or more."
        )
    splits = hold_out(data.splits, config.training.dev_queries)
    if not len(splits["dev"].candidates.values):
        raise DatasetError(
            f"No dev query of the dataset {config.dataset.source} has candidates, so that no training could be told "
            f"from another: add candidates of the dev split, or leave its judgments out for a part of train instead."
        )
    return replace(inputs, data=replace(data, splits=splits))


def _encoder(config: PipelineConfig, store: Store, words: NDArray[np.int8]) -> Encoder:
    if config.pretrain.enabled:
        return load_pretrained(store.require("pretrain", config), config, words)
    return load_encoder(config.encoder, words, config.strm)
