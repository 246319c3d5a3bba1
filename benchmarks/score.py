"""rayrank's scorers on a CPU compared with sentence-transformers' CrossEncoder: the same weights and the same pairs.

    python -m benchmarks.score [--data ../shared/data/insuranceqa] [--pairs 512] [--length 180] [--repeats 5]

The model is MiniLM-L6 with an untrained head, exported as a folder that both libraries can load. CrossEncoder scores
from text; every system is compared with the fastest of its batch sizes. The same model, quantized to int8 by ONNX
Runtime's own tools (`benchmarks.onnx_peer`), also scores from text. rayrank's scorers use stored ids, as every stage
does; one of them starts from text. The systems alternate in one process. Each must agree with CrossEncoder: up to 1e-3,
or for int8 with a correlation of 0.98. CrossEncoder only has full attention, so systems with STRM have the same weights
but other scores.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import CrossEncoder

from benchmarks.onnx_peer import OnnxPeer
from benchmarks.pairs import TextPairs, read_pairs
from benchmarks.synthetic import build_reranker
from benchmarks.tables import spread
from rayrank.bundle.export import Bundle, export, settings_of
from rayrank.bundle.text_scorer import pair_texts, score
from rayrank.core.config import MINILM, InputConfig, QueryTypesConfig, StrmConfig
from rayrank.models.inference.onnx_graph import int8, onnx_graph
from rayrank.models.inference.onnx_scorer import OnnxScorer
from rayrank.models.inference.scorer import CPU_TOKENS, Scorer, length_sorted_batches
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Rows

PEER, ONNX_PEER = "CrossEncoder", "ONNX Runtime int8"
BATCH_SIZES = (8, 16, 32, 64, 128)
"""Batch sizes of the two baselines; CrossEncoder's default is 32."""

Scores = NDArray[np.float32]


@dataclass
class Side:
    """One of the compared systems."""

    name: str
    run: Callable[[], Scores]
    padding: float | None = None
    """Share of padding in the computed positions, if known."""
    same: float | None = 1e-3
    """Largest accepted difference from CrossEncoder's scores; None for int8 and for STRM."""
    seconds: list[float] = field(default_factory=list)


def main() -> None:
    """Build all systems, run them in alternation, and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--data", default="../shared/data/insuranceqa", help="a BEIR folder; if missing, texts are generated"
    )
    options.add_argument("--pairs", type=int, default=512)
    options.add_argument("--length", type=int, default=180, help="maximum word pieces of a pair")
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument(
        "--tokens", type=int, help="token budget of rayrank's batches; chosen by each scorer if left out"
    )
    options.add_argument("--batch-sizes", type=int, nargs="+", default=BATCH_SIZES, help="batch sizes of the baselines")
    options.add_argument(
        "--only", nargs="*", metavar="NAME", help="measure only systems whose names contain one of these"
    )
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    pairs = read_pairs(arguments.data, arguments.pairs)
    with tempfile.TemporaryDirectory() as folder:
        sides = [*peer_sides(arguments, pairs, f"{folder}/model"), *our_sides(arguments, pairs)]
        check(sides, {side.name: side.run() for side in sides})
        if arguments.only:
            sides = [side for side in sides if any(part in side.name for part in [PEER, *arguments.only])]
        take_turns(sides, arguments.repeats)
    report(arguments, sides, f"{len(pairs.queries):,} pairs of {pairs.source}", len(pairs.queries))


def take_turns(sides: list[Side], repeats: int) -> None:
    """Run each system once per round, so that a machine that becomes slower affects all of them."""
    for _ in range(repeats):
        for side in sides:
            started = time.perf_counter()
            side.run()
            side.seconds.append(time.perf_counter() - started)


def exported(length: int, strm: StrmConfig, encoder: str = "minilm") -> Bundle:
    """Return the model of the benchmark; only its attention depends on the arguments."""
    tokenizer = load_tokenizer(MINILM)
    model = build_reranker(encoder, tokenizer, strm).cpu().eval()
    inputs = InputConfig(length=length, query_type=False)
    return Bundle(model, tokenizer, settings_of(model, inputs, QueryTypesConfig(), []))


def peer_sides(arguments: argparse.Namespace, pairs: TextPairs, folder: str) -> Iterator[Side]:
    """Yield CrossEncoder and ONNX Runtime's int8 at each batch size."""
    plain = exported(arguments.length, StrmConfig(form="off"))
    export(folder, plain)
    peer = CrossEncoder(folder, device="cpu")
    texts = list(zip(pairs.queries, pairs.passages, strict=True))
    seen: list[torch.Tensor] = []
    paddings: dict[int, float] = {}
    peer.register_forward_pre_hook(lambda module, given: seen.append(given[0]["attention_mask"]))
    for size in arguments.batch_sizes:
        seen.clear()
        peer.predict(texts, batch_size=size)
        paddings[size] = 1 - sum(int(mask.sum()) for mask in seen) / sum(mask.numel() for mask in seen)
        yield Side(f"{PEER}, batch {size}", partial(peer.predict, texts, batch_size=size), paddings[size])
    other = OnnxPeer(folder)
    for size, share in paddings.items():
        yield Side(f"{ONNX_PEER}, batch {size}", partial(other.predict, texts, batch_size=size), share, None)


def our_sides(arguments: argparse.Namespace, pairs: TextPairs) -> Iterator[Side]:
    """Yield torch, ONNX Runtime and its int8, with full attention and with STRM."""
    for strm in (StrmConfig(form="off"), StrmConfig()):
        ours = exported(arguments.length, strm)
        texts = pair_texts(ours, pairs.queries, pairs.passages)
        rows = np.arange(len(pairs.queries))
        lengths = texts.lengths(rows, rows)
        graph = onnx_graph(ours.model)
        small = int8(graph)
        mark, same = ("", 1e-3) if strm.form == "off" else (", STRM", None)
        tokens = arguments.tokens
        scorers: list[tuple[str, Scorer | OnnxScorer, float | None]] = [
            ("torch", Scorer(ours.model, texts, tokens), same),
            ("onnx fp32", OnnxScorer(graph.SerializeToString(), texts, tokens), same),
            ("onnx-int8", OnnxScorer(small, texts, tokens), None),
        ]
        for name, scorer, near in scorers:
            budget = scorer.budget(lengths) if isinstance(scorer, OnnxScorer) else scorer.tokens
            share = padding(lengths, length_sorted_batches(lengths, budget))
            yield Side(name + mark, partial(scorer, rows, rows), share, near)
    from_text = partial(score, ours, pairs.queries, pairs.passages)
    share = padding(lengths, length_sorted_batches(lengths, CPU_TOKENS))
    yield Side("torch, STRM, from text", from_text, share, None)


def padding(lengths: Rows, batches: Iterable[Rows]) -> float:
    """Return the share of padding in batches that are padded to their longest."""
    return 1 - float(lengths.sum()) / sum(len(chosen) * int(lengths[chosen].max()) for chosen in batches)


def check(sides: list[Side], scores: dict[str, Scores]) -> None:
    """Raise an error if two systems give different scores."""
    first = scores[sides[0].name]
    for side in sides:
        if side.same is not None:
            assert np.allclose(scores[side.name], first, atol=side.same), f"{side.name} gives other scores"
    for side in sides:
        if "int8" in side.name:
            full = scores["torch, STRM" if "STRM" in side.name else "torch"]
            found = np.corrcoef(full, scores[side.name])[0, 1]
            assert found > 0.98, f"{side.name} correlates with torch by {found:.3f} only"


def report(arguments: argparse.Namespace, sides: list[Side], what: str, num_pairs: int) -> None:
    """Print the table, and write the same figures as JSON."""
    peers = [side for side in sides if side.name.startswith(PEER)]
    best = min(peers, key=lambda side: statistics.median(side.seconds))
    facts: list[dict[str, Any]] = []
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} threads"
    print(f"{what}, {where}, best: {best.name}\n")
    print(f"{'system':<30}{'pairs/s: median (range)':>28}{f'of {best.name}':>28}{'at its fastest':>16}{'padding':>10}")
    for side in sides:
        rates = [num_pairs / value for value in side.seconds]
        ratios = [theirs / mine for theirs, mine in zip(best.seconds, side.seconds, strict=True)]
        # On a shared machine, the fastest round is the one that others disturbed least.
        fastest = min(min(other.seconds) for other in peers) / min(side.seconds)
        facts.append({"side": side.name, "pairs_per_s": rates, "ratios": ratios, "fastest": fastest})
        facts[-1]["padding"] = side.padding
        padding_text = "" if side.padding is None else f"{side.padding:.1%}"
        print(f"{side.name:<30}{spread(rates, 1):>28}{spread(ratios, 2):>28}{fastest:>16.2f}{padding_text:>10}")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"settings": vars(arguments), "best": best.name, "sides": facts}))


if __name__ == "__main__":
    main()
