"""The noise stage, from Parquet to Parquet, compared with its scorer alone in one process on a part of the pairs.

    python -m benchmarks.noise [--pairs 4000000] [--depth 1000] [--passages 20000] [--strm off] [--json FILE]

The corpus is generated, with about a hundred word pieces per pair. The model is MiniLM-L6 with an untrained head, and
the candidates are random. `whole` is the speed of the whole stage on a running Ray, including loading the model and,
with enough pairs, compilation. `running` is the speed of the second half of its files. The scorer alone is measured
after compilation.
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import ray
import torch

from benchmarks.synthetic import write_beir
from rayrank.cluster.connection import start_ray
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import DatasetConfig, InputConfig, PipelineConfig, PretrainConfig, StrmConfig
from rayrank.core.records import CANDIDATES
from rayrank.data.ids import PairLookup
from rayrank.data.sources import fingerprint, open_source
from rayrank.models.encoder import load_encoder
from rayrank.models.inference.prepare import compile_for_scoring
from rayrank.models.inference.scorer import Scorer
from rayrank.models.reranker import Reranker
from rayrank.models.saved import load_reranker, save
from rayrank.stages import corpus
from rayrank.stages.make import make
from rayrank.text.words import word_table
from rayrank.training.data import inputs_of, tokenizer_of

LENGTH = 180


def main() -> None:
    """Prepare the inputs, measure the stage and then its scorer alone, and print both."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--pairs", type=int, default=4_000_000)
    options.add_argument("--alone", type=int, default=300_000, help="pairs for the scorer alone")
    options.add_argument("--depth", type=int, default=1_000)
    options.add_argument("--passages", type=int, default=20_000)
    options.add_argument("--strm", choices=("mask", "bias", "off"), default="off")
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    if not arguments.passages >= arguments.depth <= arguments.pairs:
        options.error("--depth is at most --passages and at most --pairs")
    with tempfile.TemporaryDirectory() as folder:
        config, store = prepared(arguments, Path(folder))
        started = time.time()
        scores = make("noise", config, store)
        whole = time.time() - started
        ray.shutdown()
        lone, length = scorer_rate(config, store, arguments.alone)
        report(arguments, whole, files_of(scores, started), lone, length)


def prepared(arguments: argparse.Namespace, folder: Path) -> tuple[PipelineConfig, Store]:
    """Return the settings, and a storage with all inputs of the stage."""
    num_queries = arguments.pairs // arguments.depth
    write_dataset(folder / "data", arguments.passages, num_queries)
    dataset = DatasetConfig(source=f"beir:{folder / 'data'}")
    config = PipelineConfig(
        dataset=dataset.model_copy(update={"fingerprint": fingerprint(open_source(dataset))}),
        input=InputConfig(length=LENGTH, query_type=False),
        strm=StrmConfig(form=arguments.strm),
        pretrain=PretrainConfig(enabled=False),
    )
    store = Store(str(folder / "storage"))
    start_ray()
    corpus.run(config, store)
    write_candidates(config, store, num_queries, arguments)
    words = word_table(tokenizer_of(config, store))
    model = Reranker(load_encoder(config.encoder, words, config.strm), num_outputs=2)
    pointwise = store.artifact("pointwise", config)
    save(pointwise, model.encoder.base.config, model.state_dict(), model.description())
    store.finish(pointwise, config, time.monotonic(), {})
    return config, store


def write_dataset(folder: Path, num_passages: int, num_queries: int) -> None:
    """Write a BEIR folder of texts; most words are one word piece, some are two."""
    rng = random.Random(7)
    words = "insurance policy cover doctor claim health plan water house money pay cost life year benefit".split()
    words += ["reinsured", "annuity", "premiums"]

    def text(length: int) -> str:
        return " ".join(rng.choices(words, k=length))

    passages = [text(min(180, int(rng.gammavariate(4, 19)) + 4)) for _ in range(num_passages)]
    write_beir(folder, "train", passages, [text(rng.randint(4, 10)) for _ in range(num_queries)])


def write_candidates(config: PipelineConfig, store: Store, num_queries: int, arguments: argparse.Namespace) -> None:
    """Write random candidates in the format of the candidates stage."""
    artifact, rng = store.artifact("candidates", config), np.random.default_rng(7)
    each = 1000
    for number, first in enumerate(range(0, num_queries, each)):
        queries = np.arange(first, min(num_queries, first + each))
        # Consecutive passages from a random start, so that no query has a passage twice.
        places = rng.integers(0, arguments.passages, len(queries))[:, None] + np.arange(arguments.depth)
        count = len(queries) * arguments.depth
        table = pa.table(
            {
                "query_id": np.char.add("q", np.repeat(queries, arguments.depth).astype(str)),
                "passage_id": np.char.add("p", (places % arguments.passages).ravel().astype(str)),
                "rank": np.tile(np.arange(1, arguments.depth + 1, dtype=np.int32), len(queries)),
                "score": rng.random(count, np.float32),
            },
            schema=CANDIDATES,
        )
        artifact.write_table(f"train/part-{number:05d}.parquet", table)
    store.finish(artifact, config, time.monotonic(), {}, "candidates")


def files_of(scores: Artifact, started: float) -> list[tuple[float, int]]:
    """Return, for each file, the seconds from the start until it was written, and its number of pairs."""
    files = [Path(scores.local(name)) for name in scores.names("train")]
    sizes = [len(scores.read_table(name, ["rank"])) for name in scores.names("train")]
    return sorted((file.stat().st_mtime - started, size) for file, size in zip(files, sizes, strict=True))


def scorer_rate(config: PipelineConfig, store: Store, count: int) -> tuple[float, float]:
    """Return the pairs per second of the scorer in this process, and the mean length of a pair."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    words, inputs = word_table(tokenizer_of(config, store)), inputs_of(config, store, {})
    model = load_reranker(store.require("pointwise", config), config.strm, words).to(device)
    compile_for_scoring(model)
    scorer, candidates = Scorer(model, inputs.texts), store.require("candidates", config)
    rows = candidates.read_table(candidates.names("train")[0], ["query_id", "passage_id"])
    queries, passages = PairLookup(inputs.data.query_ids, inputs.data.passage_ids)(rows)
    again = -(-count // len(queries))
    queries, passages = np.tile(queries, again)[:count], np.tile(passages, again)[:count]
    scorer(queries[:5000], passages[:5000])
    started = time.perf_counter()
    scorer(queries, passages)
    rate = count / (time.perf_counter() - started)
    return rate, float(inputs.texts.lengths(queries, passages).mean())


def report(
    arguments: argparse.Namespace, whole: float, files: list[tuple[float, int]], lone: float, length: float
) -> None:
    """Print the rates, and write them together with the times of all files."""
    count, half = sum(size for _, size in files), len(files) // 2
    seconds = files[-1][0] - files[half - 1][0] if half else float("nan")
    running = sum(size for _, size in files[half:]) / seconds
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} threads"
    print(f"{count:,} pairs of mean length {length:.0f}, STRM {arguments.strm}, {where}")
    print(f"whole:   {count / whole:>12,.0f} pairs/s, {whole:.1f} s, the first file after {files[0][0]:.1f} s")
    print(f"running: {running:>12,.0f} pairs/s, {running / lone:.2f} of the scorer alone ({lone:,.0f} pairs/s)")
    if arguments.json:
        rates = {"whole": count / whole, "running": running, "alone": lone}
        facts = {
            "settings": vars(arguments),
            "where": where,
            "mean_length": length,
            "pairs_per_s": rates,
            "files": files,
        }
        Path(arguments.json).write_text(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main()
