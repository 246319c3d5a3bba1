"""How the data stages grow: time, memory and storage for generated corpora, and what MS MARCO would take.

    python -m benchmarks.scale [--passages 10000 30000 100000] [--output docs] [--alone]

A corpus of N passages (about 80 word pieces each) has N / 50 training queries with 1,000 candidates each, as one
million passages with 20,000 queries. Each stage runs in a process of its own, on a Ray that has started. CPU seconds
and peak memory are those of this process and all below it, Ray's included; memory is the sum of their proportional set
sizes, in which shared memory counts once. The fit uses CPU seconds, which other work on the machine hardly changes. The
scores that the noise filter reads are random: scoring is measured by `benchmarks.noise`. The command writes
`scale.json`, `scale.md` and `scale.png`. With `--alone` no Ray is started: the corpus is read by its worker in this
process, random candidates are generated, and the stages `index` and `candidates` are left out.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
import pyarrow as pa

from benchmarks.noise import write_candidates
from benchmarks.scale_table import report
from benchmarks.synthetic import write_beir
from rayrank.cluster.connection import start_ray
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import CandidatesConfig, DatasetConfig, InputConfig, PipelineConfig, PretrainConfig
from rayrank.data.ids import PairLookup
from rayrank.data.sources import fingerprint, open_source
from rayrank.stages.corpus import PassageWriter, save_tokenizer
from rayrank.stages.make import make
from rayrank.text.pieces import load_tokenizer

PER_QUERY, DEPTH = 50, 1_000
"""Passages for each query, and candidates of each query."""

ASSEMBLED = 200_000
"""The most pairs that are put together as scoring batches; the time of each does not depend on their number."""


class Work(NamedTuple):
    """What a stage did: how many units, and where its result lies."""

    units: int
    made: Artifact | None = None


class Meter:
    """Watches this process and all below it from `start` on."""

    def __init__(self) -> None:
        self._before: dict[tuple[int, float], float] = {}
        self._cpu: dict[tuple[int, float], float] = {}
        self._peak, self._ended, self._began = 0, threading.Event(), 0.0
        self._watcher = threading.Thread(target=self._watch)

    def start(self) -> None:
        """Begin to count, after imports and the start of Ray."""
        self._look()
        self._before, self._peak = dict(self._cpu), 0
        self._began = time.perf_counter()
        self._watcher.start()

    def stop(self) -> dict[str, float]:
        """Return the seconds, CPU seconds and peak memory since the start."""
        seconds = time.perf_counter() - self._began
        self._ended.set()
        self._watcher.join()
        self._look()
        cpu = sum(value - self._before.get(process, 0.0) for process, value in self._cpu.items())
        return {"seconds": seconds, "cpu_seconds": cpu, "peak_mb": self._peak / 1e6}

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self._look()

    def _look(self) -> None:
        total, own = 0, psutil.Process()
        for process in (own, *own.children(recursive=True)):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                times = process.cpu_times()
                self._cpu[process.pid, process.create_time()] = times.user + times.system
                total += process.memory_full_info().pss
        self._peak = max(self._peak, total)


Stage = Callable[[PipelineConfig, Store, Meter], Work]


def main() -> None:
    """Generate each corpus, run its stages one after another, and report after each of them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--passages", type=int, nargs="+", default=[10_000, 30_000, 100_000])
    options.add_argument("--output", default=".", metavar="FOLDER")
    options.add_argument("--alone", action="store_true", help="without Ray, index and candidates")
    options.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.stage:
        sys.stdout.write(json.dumps(measured(arguments.stage, Path(arguments.folder), arguments.alone)) + "\n")
        return
    stages = [stage for stage in STAGES if not arguments.alone or stage not in ("index", "candidates")]
    found = []
    for size in sorted(arguments.passages):
        with tempfile.TemporaryDirectory() as folder:
            write_dataset(Path(folder) / "data", size)
            for stage in stages:
                found.append({"stage": stage, "passages": size, **in_process(stage, folder, arguments.alone)})
                print(json.dumps(found[-1]), flush=True)
        report(found, Path(arguments.output))


def in_process(stage: str, folder: str, alone: bool) -> dict[str, float]:
    """Run a stage in a new process, and return its figures."""
    order = [sys.executable, "-m", "benchmarks.scale", "--stage", stage, "--folder", folder]
    answer = subprocess.run([*order, *(["--alone"] if alone else [])], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def measured(stage: str, folder: Path, alone: bool) -> dict[str, float]:
    """Return the figures of a stage, run in this process."""
    dataset = DatasetConfig(source=f"beir:{folder / 'data'}")
    config = PipelineConfig(
        dataset=dataset.model_copy(update={"fingerprint": fingerprint(open_source(dataset))}),
        candidates=CandidatesConfig(depth=DEPTH),
        input=InputConfig(query_type=False),
        pretrain=PretrainConfig(enabled=False),
    )
    store = Store(str(folder / "storage"))
    meter = Meter()
    work = (read_alone if alone and stage == "corpus" else STAGES[stage])(config, store, meter)
    figures = meter.stop()
    files = Path(work.made.url).rglob("*") if work.made else ()
    stored = sum(file.stat().st_size for file in files if file.is_file())
    return {"units": work.units, **figures, "stored_mb": stored / 1e6}


def of_stage(name: str, count: str) -> Stage:
    """Return a function that makes a node of the flow; `count` is the fact that counts its units."""

    def run(config: PipelineConfig, store: Store, meter: Meter) -> Work:
        start_ray()
        meter.start()
        made = make(name, config, store)
        return Work(made.manifest[count], made)

    return run


def read_alone(config: PipelineConfig, store: Store, meter: Meter) -> Work:
    """Make the corpus in this process: the stage needs no Ray for files that exist."""
    artifact, source = store.artifact("corpus", config), open_source(config.dataset)
    save_tokenizer(load_tokenizer(config.text.tokenizer), artifact)
    meter.start()
    writer = PassageWriter(artifact, config.dataset, config.text)
    for number, part in enumerate(source.parts(config.dataset.part_bytes)):
        writer.make({"name": f"passages/part-{number:05d}.parquet", "part": list(part)})
    made = make("corpus", config, store)
    return Work(made.manifest["num_passages"], made)


def filter_noise(config: PipelineConfig, store: Store, meter: Meter) -> Work:
    """Read the scores of all training candidates and leave out those above the threshold."""
    from rayrank.training.noise import filtered_candidates

    if not store.find("candidates", config):
        num_passages = store.require("corpus", config).manifest["num_passages"]
        sizes = argparse.Namespace(passages=num_passages, depth=DEPTH)
        write_candidates(config, store, num_passages // PER_QUERY, sizes)
    candidates, noise = store.require("candidates", config), store.artifact("noise", config)
    rng = np.random.default_rng(7)
    for name in candidates.names("train"):
        rows = candidates.read_table(name)
        scores = pa.array(rng.normal(-4, 3, len(rows)).astype(np.float32))
        noise.write_table(name, rows.set_column(3, "score", scores))
    store.finish(noise, config, time.monotonic(), {}, "noise")
    meter.start()
    kept = sum(map(len, filtered_candidates(config, store)))
    assert kept
    return Work(num_rows(noise), noise)


def build_lists(config: PipelineConfig, store: Store, meter: Meter) -> Work:
    """Join the filtered candidates to the corpus and draw the lists of one epoch, as every training worker does."""
    from rayrank.training.data import inputs_of
    from rayrank.training.noise import training_candidates
    from rayrank.training.phases.listwise import Listwise

    meter.start()
    inputs = inputs_of(config, store, {"train": training_candidates(config, store)})
    lists = Listwise(inputs, config.listwise, config.training).examples(0)
    assert lists
    return Work(num_rows(store.require("noise", config)))


def assemble(config: PipelineConfig, store: Store, meter: Meter) -> Work:
    """Put pairs together as padded batches of a CPU's size, as a scoring actor does before the model reads them."""
    import torch

    from rayrank.models.inference.scorer import CPU_TOKENS, length_sorted_batches
    from rayrank.training.data import inputs_of

    inputs, candidates = inputs_of(config, store, {}), store.require("candidates", config)
    rows = candidates.read_table(candidates.names("train")[0], ["query_id", "passage_id"]).slice(0, ASSEMBLED)
    queries, passages = PairLookup(inputs.data.query_ids, inputs.data.passage_ids)(rows)
    meter.start()
    for chosen in length_sorted_batches(inputs.texts.lengths(queries, passages), CPU_TOKENS):
        inputs.texts.padded(queries[chosen], passages[chosen], torch.device("cpu"))
    return Work(len(queries))


def num_rows(artifact: Artifact) -> int:
    """Return how many training rows a run has."""
    return sum(map(artifact.num_rows, artifact.names("train")))


STAGES: dict[str, Stage] = {
    "corpus": of_stage("corpus", "num_passages"),
    "index": of_stage("index", "num_passages"),
    "candidates": of_stage("candidates", "num_candidates"),
    "noise filter": filter_noise,
    "lists": build_lists,
    "batches": assemble,
}


def write_dataset(folder: Path, num_passages: int) -> None:
    """Write a BEIR folder of Zipf-distributed words, of which one in seven has several word pieces."""
    rng = random.Random(7)
    words = list(vocabulary(rng))
    weights = list(accumulate(1 / (rank + 10) for rank in range(len(words))))

    def text(length: int) -> str:
        return " ".join(rng.choices(words, cum_weights=weights, k=length))

    passages = (text(min(200, int(rng.gammavariate(6, 10)) + 8)) for _ in range(num_passages))
    queries = (text(rng.randint(3, 9)) for _ in range(max(1, num_passages // PER_QUERY)))
    write_beir(folder, "train", list(passages), list(queries))


def vocabulary(rng: random.Random) -> Iterator[str]:
    """Yield words of the tokenizer, every seventh of them joined to a second one."""
    pieces = load_tokenizer(PipelineConfig().text.tokenizer).get_vocab()
    whole = sorted(piece for piece in pieces if piece.isascii() and piece.isalpha() and len(piece) > 2)
    rng.shuffle(whole)
    for number, word in enumerate(whole):
        yield word if number % 7 else word + rng.choice(whole)


if __name__ == "__main__":
    main()
