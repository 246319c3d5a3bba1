"""From texts to a run file: rayrank compared with sentence-transformers' CrossEncoder on the same candidates.

    python -m benchmarks.end_to_end [--data ../shared/data/insuranceqa] [--queries 20] [--depth 30] [--repeats 3]

Every system starts with the texts of queries and candidate passages in memory, and ends with a TREC run on disk. The
passages come from a small pool, because a first stage retrieves the same passages for many queries: rayrank tokenises
each text once, CrossEncoder once per pair. The model is MiniLM-L6 with an untrained head, or has BERT-large's shape; it
scores in bfloat16 on a GPU, and on a CPU in float32 and in int8. Candidates are random. The systems alternate in one
process; those without STRM must agree in their scores. All are compared with CrossEncoder at its best batch size.
"""

import argparse
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder

from benchmarks.pairs import read_pairs
from benchmarks.score import PEER, Side, exported, report, take_turns
from benchmarks.synthetic import ENCODERS
from rayrank.bundle.export import Bundle, export
from rayrank.bundle.text_scorer import pair_texts, scorer_of
from rayrank.core.config import StrmConfig
from rayrank.core.records import CANDIDATES
from rayrank.data.run_files import write_trec
from rayrank.models.inference.onnx_graph import int8, onnx_graph
from rayrank.models.inference.onnx_scorer import OnnxScorer
from rayrank.models.inference.prepare import compile_for_scoring
from rayrank.models.inference.scorer import Scorer
from rayrank.text.ragged import Rows


class Work(NamedTuple):
    """Texts, and the candidates as rows of the query and the passage."""

    queries: list[str]
    passages: list[str]
    query_rows: Rows
    passage_rows: Rows
    source: str


def main() -> None:
    """Run the systems in alternation, and print a table."""
    batch_sizes = [512, 1024, 2048] if torch.cuda.is_available() else [8, 32]
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--data", default="../shared/data/insuranceqa", help="a BEIR folder; if missing, texts are generated"
    )
    options.add_argument("--encoder", choices=ENCODERS, default="minilm")
    options.add_argument("--queries", type=int, default=20)
    options.add_argument("--depth", type=int, default=30)
    options.add_argument("--pool", type=int, default=300, help="number of passages from which candidates are drawn")
    options.add_argument("--length", type=int, default=180)
    options.add_argument("--batch-sizes", type=int, nargs="+", default=batch_sizes, help="batch sizes of CrossEncoder")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    work = build_work(arguments)
    with tempfile.TemporaryDirectory() as folder:
        sides = [*peer_sides(arguments, work, Path(folder)), *our_sides(arguments, work, Path(folder) / "ours.trec")]
        scores = [side.run() for side in sides]
        for side, found in zip(sides, scores, strict=True):
            # The untrained model has other scores with STRM's attention.
            alike = "STRM" in side.name or np.corrcoef(scores[0], found)[0, 1] > 0.98
            assert alike, f"{side.name} does not score as CrossEncoder does"
        take_turns(sides, arguments.repeats)
    what = f"{len(work.query_rows):,} candidates of {work.source}, {len(work.passages):,} passages"
    report(arguments, sides, what, len(work.query_rows))


def build_work(arguments: argparse.Namespace) -> Work:
    """Return queries with candidates drawn from the pool."""
    texts = read_pairs(arguments.data, max(arguments.queries, arguments.pool))
    rng = np.random.default_rng(13)
    drawn = [rng.choice(arguments.pool, arguments.depth, replace=False) for _ in range(arguments.queries)]
    query_rows = np.repeat(np.arange(arguments.queries), arguments.depth)
    queries, passages = texts.queries[: arguments.queries], texts.passages[: arguments.pool]
    return Work(queries, passages, query_rows, np.concatenate(drawn), texts.source)


def peer_sides(arguments: argparse.Namespace, work: Work, folder: Path) -> Iterator[Side]:
    """Yield CrossEncoder at each batch size."""
    plain = exported(arguments.length, StrmConfig(form="off"), arguments.encoder)
    export(str(folder / "model"), plain)
    on_gpu = torch.cuda.is_available()
    half = {"torch_dtype": torch.bfloat16} if on_gpu else {}
    peer = CrossEncoder(str(folder / "model"), device="cuda" if on_gpu else "cpu", model_kwargs=half)
    for size in arguments.batch_sizes:
        yield Side(f"{PEER}, batch {size}", partial(cross_encoder_run, peer, work, size, folder / "theirs.trec"))


def our_sides(arguments: argparse.Namespace, work: Work, file: Path) -> Iterator[Side]:
    """Yield rayrank's scorers with full attention and with STRM."""
    for strm in (StrmConfig(form="off"), StrmConfig()):
        ours = exported(arguments.length, strm, arguments.encoder)
        mark = "" if strm.form == "off" else ", STRM"
        no_texts = pair_texts(ours, [], [])
        if torch.cuda.is_available():
            compile_for_scoring(ours.model.cuda())
        else:
            small = OnnxScorer(int8(onnx_graph(ours.model)), no_texts)
            yield Side(f"rayrank, onnx-int8{mark}", partial(rayrank_run, ours, small, work, file))
        yield Side(f"rayrank{mark}", partial(rayrank_run, ours, scorer_of(ours, no_texts), work, file))


def cross_encoder_run(peer: CrossEncoder, work: Work, batch_size: int, file: Path) -> NDArray[np.float32]:
    """Score pairs of texts, sort the candidates of each query, and write one line per candidate."""
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


def rayrank_run(ours: Bundle, scorer: Scorer | OnnxScorer, work: Work, file: Path) -> NDArray[np.float32]:
    """Tokenise every text once, score pairs of rows, and write the run as the evaluation does."""
    texts = pair_texts(ours, work.queries, work.passages)
    scores = scorer.with_texts(texts)(work.query_rows, work.passage_rows)
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


if __name__ == "__main__":
    main()
