"""The candidates stage compared with a pyserini batch_search loop: same index, queries, depth and threads.

    python -m benchmarks.candidates [--passages 200000] [--queries 4000] [--depth 1000] [--threads 2] [--repeats 3]

Both systems search all queries in batches, read every hit and write (query_id, passage_id, rank, score) to Parquet. The
stage, including its startup, is compared with three parts of the loop: with the whole process including startup, with
the loop without imports and JVM startup, and with the batch_search calls alone, whose hits are neither read nor
written. Peak memory is the largest resident size of the searching process.
"""

import argparse
import json
import multiprocessing
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.synthetic import write_beir
from benchmarks.tables import spread
from rayrank.core.artifacts import Store
from rayrank.core.config import CandidatesConfig, DatasetConfig, PipelineConfig, ResourcesConfig
from rayrank.core.records import CANDIDATES
from rayrank.data.sources import fingerprint, open_source
from rayrank.retrieval.lucene import java
from rayrank.stages import candidates, corpus, index
from rayrank.stages.cluster import start_ray

VOCABULARY = 50_000


def main() -> None:
    """Build the corpus once, then run the two systems in alternation."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--passages", type=int, default=200_000)
    options.add_argument("--queries", type=int, default=4_000)
    options.add_argument("--depth", type=int, default=1_000)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = compare(arguments, Path(folder))
    report(arguments, rounds)


def compare(arguments: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Return one measurement per system and round, and check that both find the same candidates."""
    write_dataset(folder / "data", arguments.passages, arguments.queries)
    start_ray()
    dataset = DatasetConfig(source=f"beir:{folder / 'data'}")
    config = PipelineConfig(
        dataset=dataset.model_copy(update={"fingerprint": fingerprint(open_source(dataset))}),
        candidates=CandidatesConfig(depth=arguments.depth),
        resources=ResourcesConfig(search_actors=1, search_threads=arguments.threads),
    )
    store = Store(str(folder / "storage"))
    corpus.run(config, store)
    built = index.run(config, store)
    lucene = built.local(built.manifest["lucene"])
    texts = corpus.run(config, store).read_table("queries.parquet", ["query_id", "text"])
    plain_file = folder / "plain.parquet"
    rounds = []
    for number in range(arguments.repeats):
        plain = (lucene, texts["query_id"].to_pylist(), texts["text"].to_pylist(), arguments, plain_file)
        rounds.append({"side": "plain", "round": number, **measured(partial(in_process, plain_loop, *plain))})
        shutil.rmtree(store.artifact("candidates", config).url, ignore_errors=True)
        rounds.append({"side": "stage", "round": number, **measured(partial(candidates.run, config, store))})
        seconds = json.loads(plain_file.with_suffix(".seconds").read_text())
        rounds[-2]["loop_seconds"], rounds[-2]["search_seconds"] = seconds
        found = store.artifact("candidates", config)
        ours = pa.concat_tables([found.read_table(name) for name in found.names("test")])
        assert ours.equals(pq.read_table(plain_file)), "the two systems found different candidates"
        print(json.dumps(rounds[-2]), json.dumps(rounds[-1]), sep="\n", flush=True)
    return rounds


def in_process(work: Callable[..., None], *arguments: Any) -> None:
    """Run a function in a new process, so that its imports are measured too."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{work.__name__} ended with exit code {process.exitcode}")


def plain_loop(lucene: str, query_ids: list[str], texts: list[str], arguments: argparse.Namespace, file: Path) -> None:
    """Search as a pyserini user would."""
    java("java.lang.String")  # starts the JVM
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(lucene)
    searcher.set_bm25(0.9, 0.4)
    started = time.perf_counter()
    searched = 0.0
    with pq.ParquetWriter(file, CANDIDATES) as writer:
        for start in range(0, len(texts), 1000):
            ids = query_ids[start : start + 1000]
            began = time.perf_counter()
            hits = searcher.batch_search(texts[start : start + 1000], ids, k=arguments.depth, threads=arguments.threads)
            searched += time.perf_counter() - began
            rows = [
                (query_id, hit.docid, rank, hit.score) for query_id in ids for rank, hit in enumerate(hits[query_id], 1)
            ]
            columns = zip(zip(*rows, strict=True), CANDIDATES, strict=True)
            arrays = [pa.array(column, field.type) for column, field in columns]
            writer.write_table(pa.Table.from_arrays(arrays, schema=CANDIDATES))
    file.with_suffix(".seconds").write_text(json.dumps([time.perf_counter() - started, searched]))


def measured(work: Callable[[], object]) -> dict[str, float]:
    """Return the seconds that a function took, and the peak memory of its largest child process."""
    peak = 0
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak
        own = psutil.Process()
        while not ended.wait(0.2):
            for child in own.children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    peak = max(peak, child.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    try:
        work()
    finally:
        seconds = time.perf_counter() - started
        ended.set()
        watcher.join()
    return {"seconds": seconds, "peak_mb": peak / 1e6}


def write_dataset(folder: Path, num_passages: int, num_queries: int) -> None:
    """Write a BEIR folder of texts with Zipf-distributed words."""
    rng = random.Random(7)
    words = [f"word{i}" for i in range(VOCABULARY)]
    weights = list(accumulate(1 / (i + 10) for i in range(VOCABULARY)))

    def text(length: int) -> str:
        return " ".join(rng.choices(words, cum_weights=weights, k=length))

    passages = [text(rng.randint(30, 80)) for _ in range(num_passages)]
    write_beir(folder, "test", passages, [text(rng.randint(3, 9)) for _ in range(num_queries)])


def report(arguments: argparse.Namespace, rounds: list[dict[str, Any]]) -> None:
    """Print the table, and write the same figures as JSON."""
    plain, stage = ([entry for entry in rounds if entry["side"] == side] for side in ("plain", "stage"))
    sides = {
        "plain loop, cold": ([entry["seconds"] for entry in plain], plain),
        "plain loop alone": ([entry["loop_seconds"] for entry in plain], plain),
        "its batch_search": ([entry["search_seconds"] for entry in plain], plain),
        "stage, cold": ([entry["seconds"] for entry in stage], stage),
    }
    ours = sides["stage, cold"][0]
    facts = []
    print(f"\n{'system':<18}{'queries/s: median (range)':>30}{'peak MB':>10}{'stage / system: median (range)':>32}")
    for name, (seconds, entries) in sides.items():
        rates = [arguments.queries / value for value in seconds]
        ratios = [theirs / mine for theirs, mine in zip(seconds, ours, strict=True)]
        peak = max(entry["peak_mb"] for entry in entries)
        facts.append({"side": name, "queries_per_s": rates, "ratios": ratios, "peak_mb": peak})
        print(f"{name:<18}{spread(rates, 1):>30}{peak:>10,.0f}{spread(ratios, 2):>32}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"settings": vars(arguments), "rounds": rounds, "sides": facts}))


if __name__ == "__main__":
    main()
