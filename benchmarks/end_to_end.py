"""From texts to a run file: ours beside sentence-transformers' CrossEncoder, in one process, on the same candidates.

    python -m benchmarks.end_to_end [--data ../shared/data/insuranceqa] [--queries 20] [--depth 30] [--repeats 3]

Every side starts with the texts of queries, passages and candidates in memory and ends with a TREC run on disk. The
passages are drawn from a pool, as a first stage finds the same ones for many queries: ours takes each text apart once,
CrossEncoder once for each pair it is in. The model is MiniLM-L6 with a fresh head, in bfloat16 on a GPU; candidates
are random, so the scores mean nothing. The sides take turns; the plain ones must agree.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder

from benchmarks.pairs import read_pairs
from benchmarks.score import exported
from rayrank.config import StrmConfig
from rayrank.evaluation.run_files import write_trec
from rayrank.modeling.export import Exported, export
from rayrank.modeling.scorer import Scorer, hasten
from rayrank.modeling.text_scorer import pair_texts
from rayrank.records import CANDIDATES
from rayrank.text.pairs import Rows


class Work(NamedTuple):
    """Texts, and which passages are candidates of which query."""

    queries: list[str]
    passages: list[str]
    query_rows: Rows
    passage_rows: Rows
    source: str


def main() -> None:
    """Let the sides take turns, and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="../shared/data/insuranceqa", help="a BEIR folder; generated if missing")
    options.add_argument("--queries", type=int, default=20)
    options.add_argument("--depth", type=int, default=30)
    options.add_argument("--pool", type=int, default=300, help="passages that candidates are drawn from")
    options.add_argument("--length", type=int, default=180)
    options.add_argument("--batch-size", type=int, default=32, help="of CrossEncoder; 32 is its default")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    work = made_work(arguments)
    with tempfile.TemporaryDirectory() as folder:
        sides = sides_of(arguments, work, Path(folder))
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        found = {name: run() for name, run in sides.items()}
        # Random weights that STRM's attention goes through score otherwise.
        assert np.corrcoef(found["CrossEncoder"], found["rayrank"])[0, 1] > 0.98, "the sides do not score alike"
        for _ in range(arguments.repeats):
            for name, run in sides.items():
                started = time.perf_counter()
                run()
                seconds[name].append(time.perf_counter() - started)
    report(arguments, work, seconds)


def made_work(arguments: argparse.Namespace) -> Work:
    """Return queries with candidates drawn from the pool."""
    texts = read_pairs(arguments.data, max(arguments.queries, arguments.pool))
    rng = np.random.default_rng(13)
    drawn = [rng.choice(arguments.pool, arguments.depth, replace=False) for _ in range(arguments.queries)]
    query_rows = np.repeat(np.arange(arguments.queries), arguments.depth)
    queries, passages = texts.queries[: arguments.queries], texts.passages[: arguments.pool]
    return Work(queries, passages, query_rows, np.concatenate(drawn), texts.source)


def sides_of(
    arguments: argparse.Namespace, work: Work, folder: Path
) -> dict[str, Callable[[], NDArray[np.float32]]]:  # fmt: skip
    """Return each side as what it does from start to end."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plain = exported(arguments.length, StrmConfig(form="off"))
    export(str(folder / "model"), plain.model, plain.tokenizer, plain.settings, "")
    half = {"torch_dtype": torch.bfloat16} if device == "cuda" else {}
    peer = CrossEncoder(str(folder / "model"), device=device, model_kwargs=half)
    masked = exported(arguments.length, StrmConfig())
    for ours in (plain, masked):
        hasten(ours.model.to(device))
    return {
        "CrossEncoder": lambda: theirs(peer, work, arguments.batch_size, folder / "theirs.trec"),
        "rayrank": lambda: ours_of(plain, work, folder / "ours.trec"),
        "rayrank, STRM": lambda: ours_of(masked, work, folder / "strm.trec"),
    }


def theirs(peer: CrossEncoder, work: Work, batch_size: int, file: Path) -> NDArray[np.float32]:
    """Score pairs of texts, sort each query's, and write a line a candidate."""
    pairs = [
        (work.queries[query], work.passages[passage])
        for query, passage in zip(work.query_rows, work.passage_rows, strict=True)
    ]
    scores = peer.predict(pairs, batch_size=batch_size)
    with file.open("w") as stream:
        for query in range(len(work.queries)):
            rows = np.flatnonzero(work.query_rows == query)
            for rank, row in enumerate(rows[np.argsort(-scores[rows])], 1):
                stream.write(f"q{query} Q0 p{work.passage_rows[row]} {rank} {scores[row]} peer\n")
    return np.asarray(scores, np.float32)


def ours_of(ours: Exported, work: Work, file: Path) -> NDArray[np.float32]:
    """Take every text apart once, score pairs of rows, and write the run as the evaluation does."""
    texts = pair_texts(ours, work.queries, work.passages)
    scores = Scorer(ours.model, texts)(work.query_rows, work.passage_rows)
    order = np.lexsort([-scores, work.query_rows])
    starts = np.searchsorted(work.query_rows, work.query_rows)
    table = pa.table(
        {
            "query_id": [f"q{row}" for row in work.query_rows[order]],
            "passage_id": [f"p{row}" for row in work.passage_rows[order]],
            "rank": (np.arange(len(order)) - starts + 1).astype(np.int32),
            "score": scores[order],
        },
        schema=CANDIDATES,
    )
    with file.open("wb") as stream:
        write_trec(table, stream, "rayrank")
    return scores


def report(arguments: argparse.Namespace, work: Work, seconds: dict[str, list[float]]) -> None:
    """Print pairs a second and the ratio to CrossEncoder."""
    count = len(work.query_rows)
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} threads"
    print(f"{count:,} candidates of {work.source}, {len(work.passages):,} passages, {where}")
    print(f"{'side':<18}{'pairs/s: median (range)':>30}{'of CrossEncoder (range)':>28}")
    for name, took in seconds.items():
        rates = [count / value for value in took]
        ratios = [base / value for base, value in zip(seconds["CrossEncoder"], took, strict=True)]
        rate = f"{statistics.median(rates):,.1f} ({min(rates):,.1f}-{max(rates):,.1f})"
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print(f"{name:<18}{rate:>30}{ratio:>28}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"settings": vars(arguments), "seconds": seconds}, indent=2))


if __name__ == "__main__":
    main()
