"""How fast pairs become batches: passages in the process's own memory, mapped from a file, and copied batch by batch.

    python -m benchmarks.assembly [--passages 1000000] [--pairs 200000] [--repeats 5] [--device cuda]

`own` reads Parquet into memory, as every process did before; `mapped` is what training and scoring do; `streamed`
copies the passages of each batch first, as for a corpus that is too large to be kept on a GPU. They take turns and make
the same batches, which is checked. The memory is what a process has for itself alone; a file's pages are shared.
"""

import argparse
import ctypes
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from benchmarks.tables import spread
from rayrank.core.artifacts import MANIFEST, Artifact
from rayrank.core.config import InputConfig, PipelineConfig
from rayrank.core.records import PASSAGES
from rayrank.models.inference.scorer import CPU_TOKENS, GPU_TOKENS, length_sorted_batches
from rayrank.models.pair_texts import PairTexts
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged, Rows, join
from rayrank.text.stored_passages import stored_passages
from rayrank.text.template import Template

SHARD = 100_000
"""Passages of a file."""


def main() -> None:
    """Generate a corpus, let the three take turns, and print their speed and the memory that each added."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--passages", type=int, default=1_000_000)
    options.add_argument("--pairs", type=int, default=200_000)
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--device", default="cpu")
    arguments = options.parse_args()
    device, rng = torch.device(arguments.device), np.random.default_rng(7)
    template = Template.of(load_tokenizer(PipelineConfig().text.tokenizer), InputConfig(length=180, query_type=False))
    queries = Ragged.of([rng.integers(1000, 30_000, 8) for _ in range(1000)])
    prefixes = template.prefixes(queries)
    with tempfile.TemporaryDirectory() as folder:
        corpus = written(Path(folder), arguments.passages, rng)
        mapped, of_mapped = added(lambda: stored_passages(corpus).pieces)
        own, of_own = added(lambda: in_memory(corpus))
        texts = {"own": own, "mapped": mapped, "streamed": mapped}
        memory = {"own": of_own, "mapped": of_mapped, "streamed": of_mapped}
        rows = rng.integers(0, len(queries), arguments.pairs), rng.integers(0, arguments.passages, arguments.pairs)
        rates: dict[str, list[float]] = {name: [] for name in texts}
        for _ in range(arguments.repeats):
            sums = set()
            for name, passages in texts.items():
                source = PairTexts(prefixes, passages, template)
                seconds, total = assemble(source, *rows, device, streams=name == "streamed")
                rates[name].append(arguments.pairs / seconds)
                sums.add(total)
            assert len(sums) == 1
        print(f"{arguments.passages:,} passages, {len(own.values):,} pieces, on {device}")
        for name, values in rates.items():
            print(f"{name:<10}{spread(values, 0):>32} pairs/s, {memory[name]:,.0f} MB")


def written(folder: Path, num_passages: int, rng: np.random.Generator) -> Artifact:
    """Write a corpus of random ids, about 80 a passage."""
    corpus, shards = Artifact(str(folder), "corpus", "key"), []
    for first in range(0, num_passages, SHARD):
        count = min(SHARD, num_passages - first)
        offsets = np.concatenate([[0], np.cumsum(np.minimum(rng.gamma(6, 12, count).astype(np.int64) + 8, 256))])
        ids = pa.array(rng.integers(1000, 30_000, offsets[-1], np.int32))
        names = pa.array(np.arange(first, first + count).astype(str))
        texts = pa.array([""] * count, pa.large_string())
        shards.append(f"passages/part-{first:09d}.parquet")
        table = pa.table([names, texts, pa.LargeListArray.from_arrays(offsets, ids)], schema=PASSAGES)
        corpus.write_table(shards[-1], table)
    corpus.write_json(MANIFEST, {"shards": shards})
    return corpus


def in_memory(corpus: Artifact) -> Ragged:
    """Return the pieces of all passages in this process's memory."""
    tables = [corpus.read_table(name, ["piece_ids"]) for name in corpus.manifest["shards"]]
    return Ragged.from_arrow(pa.concat_tables(tables)["piece_ids"])


def added(read: Callable[[], Ragged]) -> tuple[Ragged, float]:
    """Return what a function reads, and by how many MB this process's own memory grew."""
    before = own_memory()
    found = read()
    return found, (own_memory() - before) / 1e3


def own_memory() -> int:
    """Return the kilobytes of memory that belong to this process alone and to no file."""
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))


def assemble(texts: PairTexts, queries: Rows, passages: Rows, device: torch.device, streams: bool) -> tuple[float, int]:
    """Return the seconds in which all pairs become batches, and the sum of all ids."""
    on_gpu, total = device.type == "cuda", torch.zeros((), dtype=torch.int64, device=device)
    if not streams:
        texts.ids_on(device)
    started = time.perf_counter()
    for chosen in length_sorted_batches(texts.lengths(queries, passages), GPU_TOKENS if on_gpu else CPU_TOKENS):
        source, rows = texts, (queries[chosen], passages[chosen])
        if streams:
            source = PairTexts(join(texts.prefixes.take(rows[0])), join(texts.passages.take(rows[1])), texts.template)
            rows = np.arange(len(chosen)), np.arange(len(chosen))
        made = source.packed_for_training(*rows, device) if on_gpu else source.padded(*rows, device)
        total += made.ids.sum()
    result = int(total)
    return time.perf_counter() - started, result


if __name__ == "__main__":
    main()
