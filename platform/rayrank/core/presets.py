"""Presets: named functions, each of which returns a complete PipelineConfig."""

from collections.abc import Callable

from rayrank.core.config import (
    CandidatesConfig,
    DatasetConfig,
    DeepCtConfig,
    DemoConfig,
    Doc2QueryConfig,
    EncoderConfig,
    InputConfig,
    ListwiseConfig,
    NoiseConfig,
    PipelineConfig,
    PointwiseConfig,
    PretrainConfig,
    SdnetConfig,
    StrmConfig,
    TextConfig,
    TrainDenseConfig,
    TrainingConfig,
)
from rayrank.core.run_kinds import read_all

DEMO_ENCODER = "package:rayrank.data.sources.demo/encoder"
"""The small encoder of the preset demo, made by `jobs.demo_encoder`; it knows few words besides those of the demo."""


def demo() -> PipelineConfig:
    """All phases of DR-BERT in minutes on two cores: one category of subjects, a small encoder, ten candidates."""
    return PipelineConfig(
        dataset=DatasetConfig(demo=DemoConfig(subjects=300, categories=1)),
        text=TextConfig(tokenizer=DEMO_ENCODER),
        candidates=CandidatesConfig(depth=10),
        encoder=EncoderConfig(name=DEMO_ENCODER, dropout=0.0),
        # The encoder has 128 positions.
        deepct=DeepCtConfig(length=128),
        sdnet=SdnetConfig(length=128),
        input=InputConfig(length=96, query_length=32),
        training=TrainingConfig(dev_queries=100),
        pretrain=PretrainConfig(max_steps=30, batch_size=16, length=96, lr=1e-4),
        pointwise=PointwiseConfig(epochs=1, batch_size=32, negatives=3, lr=5e-4),
        # So small a model gives few high probabilities.
        noise=NoiseConfig(threshold=0.6),
        listwise=ListwiseConfig(epochs=1, batch_size=8, lr=3e-4),
        # Random weights need many small steps. Whole T5 models cannot be trained on two cores in minutes.
        doc2query=Doc2QueryConfig(
            model="scratch", epochs=6, batch_size=8, lr=1e-3, length=128, query_length=16, queries=5
        ),
    )


def minilm() -> PipelineConfig:
    """A six-layer encoder that is installed as a wheel, for a first result on your own data."""
    return PipelineConfig(
        # MRR@10 on InsuranceQA without a re-ranker: trained_hybrid 0.52, hybrid 0.42, bm25 0.27.
        candidates=CandidatesConfig(first_stage="trained_hybrid", depth=100),
        train_dense=TrainDenseConfig(
            epochs=8, batch_size=256, lr=1e-4, temperature=0.02, min_steps=200, smallest_batch=32
        ),
        # This encoder was trained on whole sentences; in a trial without tuning, STRM's mask made it worse.
        strm=StrmConfig(form="off"),
        deepct=DeepCtConfig(batch_size=64, lr=1e-4),
        input=InputConfig(length=256),
        training=TrainingConfig(dev_queries=2000, patience=3),
        pretrain=PretrainConfig(epochs=4, batch_size=128, lr=1e-4),
        pointwise=PointwiseConfig(epochs=1, batch_size=128, negatives=5, lr=1e-4, min_steps=400),
        # With three epochs and decay to zero, dev was best after the second, when the learning rate was still about
        # 0.35 lr. Hence two epochs that end there.
        listwise=ListwiseConfig(
            epochs=2, batch_size=32, negatives=31, lr=1e-4, lr_end=0.35, min_steps=200, smallest_batch=4
        ),
    )


def paper() -> PipelineConfig:
    """The settings that the DR-BERT paper gives, with the departures below; this preset has not been trained here.

    As in the paper: BERT-large uncased, the top 1,000 candidates, inputs of 180 word pieces, STRM in every layer;
    pre-training for 5 epochs in batches of 128 with learning rate 1e-6 and warm-up over 10 % of the steps; then one
    epoch pointwise and 5 epochs listwise in batches of 16, with N+ = 1 and N- = 5, and the best model on dev.

    Departures from the paper:
    - BM25 searches the plain passages; the paper searched a DeepCT index.
    - Positives are all judged passages; the paper draws its lists from D', the candidates that remain after noise
      reduction.
    - The optimizer is AdamW with weight decay 0.01 and gradients clipped at norm 1; the paper names Adam.
    - An input ends with [SEP]; in the paper's formula nothing follows the passage.
    - The query types are the dataset's labels, as in the paper, but MS MARCO's ranking files (`msmarco:`) have none,
      so rules predict them.

    Not given by the paper, and chosen here:
    - the learning rate of fine-tuning: 3e-6, from monoBERT; the warm-up of fine-tuning: 10 %; linear decay to zero;
    - the noise threshold: 0.9;
    - the pairs of the pointwise phase: 5 random negatives for each positive;
    - the unit of a batch of 16: pairs in the pointwise phase, lists in the listwise phase;
    - the length of inputs in pre-training: 128 word pieces; the length at which a query is cut: 64 word pieces;
    - the initial listwise head: the difference of the two pointwise classes; the dropout: 0.1, as in BERT.
    """
    name = "bert-large-uncased"
    return PipelineConfig(
        text=TextConfig(tokenizer=name),
        candidates=CandidatesConfig(depth=1000),
        encoder=EncoderConfig(name=name),
        input=InputConfig(length=180),
        training=TrainingConfig(dev_queries=None),
        pretrain=PretrainConfig(epochs=5, batch_size=128, lr=1e-6, warmup=0.1),
        pointwise=PointwiseConfig(epochs=1, batch_size=16, lr=3e-6),
        listwise=ListwiseConfig(epochs=5, batch_size=16, positives=1, negatives=5, lr=3e-6),
    )


def monobert() -> PipelineConfig:
    """monoBERT as published: no query type, no STRM, one long pointwise phase with one negative per positive.

    This is the training on MS MARCO. On TREC-CAR the paper trains on the top ten candidates of a query:
    `candidates.train_depth=10`.
    """
    name = "bert-large-uncased"
    return PipelineConfig(
        text=TextConfig(tokenizer=name, query_pieces=64),
        candidates=CandidatesConfig(depth=1000),
        encoder=EncoderConfig(name=name, dropout=0.1),
        strm=StrmConfig(form="off"),
        input=InputConfig(length=512, query_length=64, query_type=False),
        pretrain=PretrainConfig(enabled=False),
        # An epoch of MS MARCO has 33,300 such batches; 13 epochs are more than max_steps, which ends the phase.
        pointwise=PointwiseConfig(
            epochs=13,
            max_steps=400_000,
            batch_size=32,
            negatives=1,
            lr=3e-6,
            warmup=10_000 / 400_000,
            weight_decay=0.01,
        ),
        runs=read_all(
            {
                "bm25": {"kind": "search", "title": "BM25"},
                "provided": {"kind": "provided"},
                "pointwise": {"kind": "rerank", "model": "pointwise", "title": "monoBERT"},
                "fused": {"kind": "interpolate", "of": ["pointwise", "candidates"]},
            }
        ),
    )


def markedbert() -> PipelineConfig:
    """MarkedBERT as published: monoBERT's inputs with markers around exact matches, trained on balanced pairs.

    As in the paper: BERT-base uncased, doc2query's top 1,000 candidates, inputs of 512 word pieces, 2 epochs in batches
    of 32 with learning rate 3e-6 and linear decay, as many irrelevant pairs as relevant ones, dropout 0.1. Not given
    by the paper, and chosen here: no stemming, stop words marked like other words, queries cut at 64 word pieces, no
    warm-up. This preset has not been trained here.
    """
    name = "bert-base-uncased"
    return PipelineConfig(
        text=TextConfig(tokenizer=name, query_pieces=64),
        candidates=CandidatesConfig(first_stage="doc2query", depth=1000),
        encoder=EncoderConfig(name=name, dropout=0.1),
        strm=StrmConfig(form="off"),
        input=InputConfig(
            length=512, query_length=64, query_type=False, markers=64, marker_stems=False, marker_stop_words=True
        ),
        pretrain=PretrainConfig(enabled=False),
        pointwise=PointwiseConfig(epochs=2, batch_size=32, negatives=1, lr=3e-6, warmup=0.0),
        runs=read_all(
            {
                "bm25": {"kind": "search", "title": "BM25"},
                "doc2query": {"kind": "search", "index": "doc2query", "title": "doc2query"},
                "provided": {"kind": "provided"},
                "pointwise": {"kind": "rerank", "model": "pointwise", "title": "MarkedBERT"},
                "fused": {"kind": "interpolate", "of": ["pointwise", "candidates"]},
            }
        ),
    )


def sdnet() -> PipelineConfig:
    """The passage run of CCNU at TREC DL 2019: SDNet on a frozen encoder, interpolated with BM25.

    As in the paper: BERT-large uncased, frozen; texts of 256 word pieces; Adam with learning rate 1e-3, dropout 0.4;
    the ten strongest signals, hinge loss with margin 1, weight 0.8 for BM25.

    Departures from the paper: both scores are scaled to 0-1 within a query before they are added. SDNet has the
    encoder's vectors only, no GloVe vectors. The signals are cosine similarities, of which the paper's text speaks; its
    formula has a softmax instead (`sdnet.match=softmax`), with which SDNet learnt nothing here.

    Not given by the paper, and chosen here: batches of 64 queries, 5 epochs with linear decay, one negative for each
    positive, and the size of the LSTM layers, 128. This preset has not been trained here.
    """
    name = "bert-large-uncased"
    return PipelineConfig(
        text=TextConfig(tokenizer=name, query_pieces=64),
        candidates=CandidatesConfig(depth=1000),
        encoder=EncoderConfig(name=name),
        # No listwise phase uses the filter, but it must name a run that exists.
        noise=NoiseConfig(run="sdnet", threshold=1.0),
        runs=read_all(
            {
                "bm25": {"kind": "search", "title": "BM25"},
                "provided": {"kind": "provided"},
                "sdnet": {"kind": "rerank", "model": "sdnet", "title": "SDNet"},
                "sdnet_fused": {
                    "kind": "interpolate",
                    "of": ["sdnet", "candidates"],
                    "weight": 0.8,
                    "title": "SDNet + BM25",
                },
            }
        ),
    )


PRESETS: dict[str, Callable[[], PipelineConfig]] = {
    "demo": demo,
    "minilm": minilm,
    "paper": paper,
    "monobert": monobert,
    "markedbert": markedbert,
    "sdnet": sdnet,
}
