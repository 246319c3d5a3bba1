"""The candidates stage beside a plain pyserini batch_search loop: same index, queries, depth and threads.

    python -m benchmarks.candidates [--passages 200000] [--queries 4000] [--depth 1000] [--threads 2] [--repeats 3]

Both sides start cold (their JVM included), search every query in batches, read every hit and write
(query_id, passage_id, rank, score) to Parquet. Peak memory is the largest resident size of the process
that searches, and of all processes of that side together.
"""

import argparse
import json
import multiprocessing
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from rayrank.artifacts import Store
from rayrank.config import CandidatesConfig, DatasetConfig, ResourcesConfig, RunConfig
from rayrank.datasets import fingerprint, open_source
from rayrank.records import CANDIDATES
from rayrank.retrieval.lucene import java
from rayrank.stages import candidates, corpus, index
from rayrank.stages.cluster import start_ray

VOCABULARY = 50_000


def main() -> None:
    """Build the corpus once, then let the two sides take turns."""
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
    """Return one measurement a side and round, and check that the two sides agree."""
    write_dataset(folder / "data", arguments.passages, arguments.queries)
    start_ray()
    dataset = DatasetConfig(source=f"beir:{folder / 'data'}")
    config = RunConfig(
        dataset=dataset.model_copy(update={"fingerprint": fingerprint(open_source(dataset))}),
        candidates=CandidatesConfig(depth=arguments.depth),
        resources=ResourcesConfig(search_actors=1, search_threads=arguments.threads),
    )
    store = Store(str(folder / "storage"))
    corpus.run(config, store)
    lucene = index.run(config, store).local("lucene")
    texts = corpus.run(config, store).read_table("queries.parquet", ["query_id", "text"])
    plain_file = folder / "plain.parquet"
    rounds = []
    for number in range(arguments.repeats):
        plain = (lucene, texts["query_id"].to_pylist(), texts["text"].to_pylist(), arguments, plain_file)
        rounds.append({"side": "plain", "round": number, **measured(partial(in_process, plain_loop, *plain))})
        shutil.rmtree(store.artifact("candidates", config).url, ignore_errors=True)
        rounds.append({"side": "stage", "round": number, **measured(partial(candidates.run, config, store))})
        found = store.artifact("candidates", config)
        ours = pa.concat_tables([found.read_table(name) for name in found.names("test")])
        assert ours.equals(pq.read_table(plain_file)), "the two sides found different candidates"
        print(json.dumps(rounds[-2]), json.dumps(rounds[-1]), sep="\n", flush=True)
    return rounds


def in_process(work: Callable[..., None], *arguments: Any) -> None:
    """Run work in a process of its own, which starts with nothing loaded."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
    process.start()
    process.join()


def plain_loop(lucene: str, query_ids: list[str], texts: list[str], arguments: argparse.Namespace, file: Path) -> None:
    """Search as a pyserini user would."""
    java("java.lang.String")  # starts the JVM
    from pyserini.search.lucene import LuceneSearcher

    searcher = LuceneSearcher(lucene)
    searcher.set_bm25(0.9, 0.4)
    rows: list[tuple[str, str, int, float]] = []
    for start in range(0, len(texts), 1000):
        ids = query_ids[start : start + 1000]
        hits = searcher.batch_search(texts[start : start + 1000], ids, k=arguments.depth, threads=arguments.threads)
        for query_id in ids:
            rows += [(query_id, hit.docid, rank, hit.score) for rank, hit in enumerate(hits[query_id], 1)]
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), CANDIDATES, strict=True)]
    pq.write_table(pa.Table.from_arrays(columns, schema=CANDIDATES), file)


def measured(work: Callable[[], object]) -> dict[str, float]:
    """Return the seconds work took and the peak memory of the processes it used."""
    peaks = {"process": 0, "all": 0}
    ended = threading.Event()

    def watch() -> None:
        own = psutil.Process()
        while not ended.wait(0.2):
            sizes = []
            for child in own.children(recursive=True):
                try:
                    sizes.append(child.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
            peaks["process"] = max([peaks["process"], *sizes])
            peaks["all"] = max(peaks["all"], sum(sizes))

    watcher = threading.Thread(target=watch)
    watcher.start()
    started = time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    ended.set()
    watcher.join()
    return {"seconds": seconds, "peak_process_mb": peaks["process"] / 1e6, "peak_all_mb": peaks["all"] / 1e6}


def write_dataset(folder: Path, num_passages: int, num_queries: int) -> None:
    """Write a BEIR folder of Zipf-distributed words."""
    (folder / "qrels").mkdir(parents=True)
    rng = random.Random(7)
    words = [f"word{i}" for i in range(VOCABULARY)]
    weights = list(accumulate(1 / (i + 10) for i in range(VOCABULARY)))

    def text(length: int) -> str:
        return " ".join(rng.choices(words, cum_weights=weights, k=length))

    with (folder / "corpus.jsonl").open("w") as stream:
        for i in range(num_passages):
            stream.write(json.dumps({"_id": f"p{i}", "text": text(rng.randint(30, 80))}) + "\n")
    with (folder / "queries.jsonl").open("w") as stream:
        for i in range(num_queries):
            stream.write(json.dumps({"_id": f"q{i}", "text": text(rng.randint(3, 9))}) + "\n")
    with (folder / "qrels" / "test.tsv").open("w") as stream:
        stream.writelines(f"q{i}\tp{i % num_passages}\t1\n" for i in range(num_queries))


def report(arguments: argparse.Namespace, rounds: list[dict[str, Any]]) -> None:
    """Print the table, and the same facts as JSON."""
    rates = {
        side: [arguments.queries / entry["seconds"] for entry in rounds if entry["side"] == side]
        for side in ("plain", "stage")
    }
    ratios = [ours / plain for ours, plain in zip(rates["stage"], rates["plain"], strict=True)]
    print(f"\n{'side':<8}{'queries/s: median (range)':>32}{'searching process MB':>24}{'all processes MB':>20}")
    for side, values in rates.items():
        peak = max(entry["peak_process_mb"] for entry in rounds if entry["side"] == side)
        total = max(entry["peak_all_mb"] for entry in rounds if entry["side"] == side)
        spread = f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"
        print(f"{side:<8}{spread:>32}{peak:>24,.0f}{total:>20,.0f}")
    print(f"ratio stage / plain: median {statistics.median(ratios):.2f}, range {min(ratios):.2f}-{max(ratios):.2f}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"settings": vars(arguments), "rounds": rounds, "ratios": ratios}))


if __name__ == "__main__":
    main()
