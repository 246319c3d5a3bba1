"""How good a trained re-ranker is, and how long training it takes, compared with sentence-transformers' trainer.

    python -m benchmarks.train_quality [--dataset beir:../shared/data/insuranceqa] [--seeds 3] [--json FILE]
    python -m benchmarks.train_quality --tiny     # the demo, small: shows that both sides run on a CPU

Both start from the same encoder, train on the same training queries, judgments and candidates, and rank the same dev
candidates, measured by the same code. rayrank trains as its preset says (pre-training, pointwise, listwise).
sentence-transformers' CrossEncoderTrainer trains with each of `--losses` at each of `--rates`: `bce` is binary cross
entropy over each positive and `--negatives` random candidates, positives weighted by that number; `lambda` is
LambdaLoss over lists of the same passages; `mined` is bce with the negatives that its own `mine_hard_negatives` finds
in the corpus with the encoder as it is. Its best setting is the one with the highest mean on dev. It needs the packages
sentence-transformers, datasets and accelerate, which rayrank does not.

`seconds` is the time of a training: for rayrank that of all phases and of scoring the candidates for the noise filter,
workers started and dev measured; for sentence-transformers that of `train()` and of mining. `pairs/s` counts the pairs
that the training steps alone read.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.jobs.entry import configure, parser
from rayrank.measure.metrics import Measure
from rayrank.models.encoder import load_encoder
from rayrank.models.inference.scorer import Scorer
from rayrank.models.saved import load_reranker
from rayrank.stages.graph import make_all
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Rows
from rayrank.training.data import Inputs
from rayrank.training.draws import draw, generator
from rayrank.training.phases.fine_tuning import dev_metric, join_candidates, word_table_of

OURS = "rayrank"
PHASES = ("pretrain", "pointwise", "run:pointwise@train", "listwise")
TINY = [
    "dataset.demo.subjects=60", "dataset.demo.categories=3", "candidates.depth=20", "pretrain.max_steps=4",
    "pointwise.max_steps=10", "pointwise.min_steps=0", "pointwise.batch_size=16", "listwise.max_steps=10",
    "listwise.min_steps=0", "listwise.batch_size=4", "listwise.negatives=3", "training.dev_queries=40",
]  # fmt: skip
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Setting(NamedTuple):
    """How sentence-transformers trains."""

    loss: str
    rate: float
    epochs: int
    negatives: int
    batch_pairs: int

    @property
    def name(self) -> str:
        return f"sentence-transformers, {self.loss}, rate {self.rate:g}"


class Trained(NamedTuple):
    """One training: its metric on dev, its duration and its speed."""

    dev: float
    seconds: float
    pairs_per_s: float


class Texts(NamedTuple):
    """The texts of the queries and passages by their rows."""

    queries: list[str]
    passages: list[str]


def main() -> None:
    """Train both, seed by seed, and print a table."""
    arguments = options()
    base = configure(arguments, TINY if arguments.tiny else [])
    store, seeds = Store(arguments.storage), range(base.training.seed, base.training.seed + arguments.seeds)
    found: dict[str, list[Trained]] = {}
    for seed in seeds:
        config = base.model_copy(update={"training": base.training.model_copy(update={"seed": seed})})
        make_all([("candidates", config), ("listwise", config)], store, parallel=1)
        inputs = join_candidates(config, store)
        found.setdefault(OURS, []).append(trained_here(config, store, inputs))
        for setting in settings_of(arguments):
            found.setdefault(setting.name, []).append(trained_there(setting, seed, config, store, inputs))
    report(found, base, arguments)


def options() -> argparse.Namespace:
    """Return the command line."""
    found = parser(__doc__)
    found.add_argument("--seeds", type=int, default=1, help="trainings of each, with seeds from training.seed on")
    found.add_argument("--losses", nargs="+", choices=["bce", "lambda", "mined"], default=["bce", "lambda", "mined"])
    found.add_argument("--rates", type=float, nargs="+", default=[2e-5, 1e-4])
    found.add_argument("--epochs", type=int, default=2)
    found.add_argument("--negatives", type=int, default=15, help="per positive; bce and mined get a third of them")
    found.add_argument("--batch-pairs", type=int, default=512, help="pairs in a batch, in lists or by themselves")
    found.add_argument("--tiny", action="store_true", help="a small demo and few steps")
    arguments = found.parse_args()
    if arguments.tiny:
        arguments.rates, arguments.epochs, arguments.negatives, arguments.batch_pairs = [1e-4], 1, 3, 64
    return arguments


def settings_of(arguments: argparse.Namespace) -> list[Setting]:
    """Return what is tried of sentence-transformers."""
    few = max(1, arguments.negatives // 3)
    return [
        Setting(loss, rate, arguments.epochs, arguments.negatives if loss == "lambda" else few, arguments.batch_pairs)
        for loss in arguments.losses
        for rate in arguments.rates
    ]


def trained_here(config: PipelineConfig, store: Store, inputs: Inputs) -> Trained:
    """Measure the listwise model on storage, and add up what its phases took."""
    manifests = {name: found.manifest for name in PHASES if (found := store.find(name, config))}
    model = load_reranker(store.require("listwise", config), config.strm, word_table_of(config, store)).to(DEVICE)
    dev = dev_of(inputs, inputs.scorer(Scorer(model, inputs.texts)), config)
    lists = config.listwise.positives + config.listwise.negatives
    pairs = sum(
        manifests[name]["num_steps"] * manifests[name]["batch_size"] * size
        for name, size in (("pointwise", 1), ("listwise", lists))
        if name in manifests
    )
    steps = sum(manifests[name]["train_seconds"] for name in ("pointwise", "listwise") if name in manifests)
    return Trained(dev, sum(each["seconds"] for each in manifests.values()), pairs / steps)


def dev_of(inputs: Inputs, scorer: Any, config: PipelineConfig) -> float:
    """Return the metric of all dev queries."""
    return dev_metric(inputs.data, inputs.data.splits["dev"], scorer, Measure.of(config))


def trained_there(setting: Setting, seed: int, config: PipelineConfig, store: Store, inputs: Inputs) -> Trained:
    """Train a CrossEncoder from the configuration's encoder, and measure it."""
    from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments

    texts = texts_of(config, store)
    with tempfile.TemporaryDirectory() as folder:
        save_encoder(folder, config)
        torch.manual_seed(seed)
        model = CrossEncoder(folder, num_labels=1, max_length=config.input.length, device=str(DEVICE))
        started = time.monotonic()
        data, pairs_of_row = examples_of(setting, seed, inputs, texts, folder)
        trainer = CrossEncoderTrainer(
            model=model,
            args=CrossEncoderTrainingArguments(
                output_dir=f"{folder}/out",
                num_train_epochs=setting.epochs,
                per_device_train_batch_size=max(1, setting.batch_pairs // pairs_of_row),
                learning_rate=setting.rate,
                warmup_steps=0.1,
                bf16=DEVICE.type == "cuda",
                seed=seed,
                save_strategy="no",
                logging_strategy="no",
                report_to="none",
                disable_tqdm=True,
            ),
            train_dataset=data,
            loss=loss_of(setting, model),
        )
        began = time.monotonic()
        trainer.train()
        ended = time.monotonic()

    def scores(queries: Rows, passages: Rows) -> np.ndarray:
        pairs = [(texts.queries[row], texts.passages[other]) for row, other in zip(queries, passages, strict=True)]
        found: np.ndarray = model.predict(pairs, batch_size=256, activation_fn=torch.nn.Identity())
        return found.astype(np.float32)

    read = len(data) * pairs_of_row * setting.epochs
    return Trained(dev_of(inputs, scores, config), ended - started, read / (ended - began))


def texts_of(config: PipelineConfig, store: Store) -> Texts:
    """Return the texts in the order of their rows in training."""
    corpus = store.require("corpus", config)
    shards = [corpus.read_table(name, ["text"])["text"].to_pylist() for name in corpus.manifest["shards"]]
    queries = corpus.read_table("queries.parquet", ["text"])["text"].to_pylist()
    return Texts(queries, [text for shard in shards for text in shard])


def save_encoder(folder: str, config: PipelineConfig) -> None:
    """Write the encoder that rayrank's training starts from as a folder that other libraries open."""
    load_encoder(config.encoder, None).base.save_pretrained(folder)
    load_tokenizer(config.text.tokenizer).save_pretrained(folder)


def examples_of(setting: Setting, seed: int, inputs: Inputs, texts: Texts, folder: str) -> tuple[Any, int]:
    """Return a dataset of labelled pairs or lists, and the number of pairs in a row of it."""
    from datasets import Dataset

    split = inputs.data.splits["train"]
    if setting.loss == "mined":
        pairs = [
            (texts.queries[query], texts.passages[row])
            for index, query in enumerate(split.queries)
            for row in split.positives[index]
        ]
        return mined(Dataset.from_dict(dict(zip(("query", "answer"), zip(*pairs, strict=True), strict=True))),
                     setting, texts, folder), 1  # fmt: skip
    rows: list[tuple[str, Any, Any]] = []
    for index, query in enumerate(split.queries):
        negatives = split.negatives(index)
        for positive in split.positives[index]:
            drawn = draw(negatives, setting.negatives, generator(seed, f"peer {positive}", 0, int(query)))
            passages = [texts.passages[row] for row in (positive, *drawn)]
            labels = [1.0] + [0.0] * len(drawn)
            if setting.loss == "lambda" and len(drawn):
                rows.append((texts.queries[query], passages, labels))
            elif setting.loss == "bce":
                rows += [(texts.queries[query], *each) for each in zip(passages, labels, strict=True)]
    columns = dict(zip(("query", "passage", "label"), map(list, zip(*rows, strict=True)), strict=True))
    return Dataset.from_dict(columns), 1 + setting.negatives if setting.loss == "lambda" else 1


def mined(positives: Any, setting: Setting, texts: Texts, folder: str) -> Any:
    """Return labelled pairs with the negatives that sentence-transformers finds in the corpus."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import mine_hard_negatives

    # An encoder without a pooling of its own gets the mean of its states.
    return mine_hard_negatives(
        positives,
        SentenceTransformer(folder, device=str(DEVICE)),
        corpus=texts.passages,
        num_negatives=setting.negatives,
        range_max=100,
        output_format="labeled-pair",
        verbose=False,
    )


def loss_of(setting: Setting, model: Any) -> Any:
    """Return the loss of a setting."""
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss, LambdaLoss

    if setting.loss == "lambda":
        return LambdaLoss(model)
    return BinaryCrossEntropyLoss(model, pos_weight=torch.tensor(float(setting.negatives)))


def report(found: dict[str, list[Trained]], config: PipelineConfig, arguments: argparse.Namespace) -> None:
    """Print a table, the peer's settings from the best to the worst, and write the figures."""
    mean = {name: statistics.mean(each.dev for each in trainings) for name, trainings in found.items()}
    order = [OURS, *sorted(found.keys() - {OURS}, key=lambda name: -mean[name])]
    print(f"{config.dataset.source}, {config.training.metric} on dev, {arguments.seeds} seeds, {DEVICE.type}\n")
    print(f"| system | {config.training.metric} (per seed) | seconds | pairs/s |\n|---|---:|---:|---:|")
    for name in order:
        devs = ", ".join(f"{each.dev:.4f}" for each in found[name])
        seconds, speed = (statistics.median(each[column] for each in found[name]) for column in (1, 2))
        print(f"| {name} | {mean[name]:.4f} ({devs}) | {seconds:,.0f} | {speed:,.0f} |")
    for best in order[1:2]:
        print(f"\nrayrank is {mean[OURS] - mean[best]:+.4f} against the best of the others, {best}")
    if arguments.json:
        figures = {name: [each._asdict() for each in trainings] for name, trainings in found.items()}
        Path(arguments.json).write_text(json.dumps({"metric": config.training.metric, "trainings": figures}, indent=2))


if __name__ == "__main__":
    main()
