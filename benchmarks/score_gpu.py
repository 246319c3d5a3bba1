"""The packed scorer compared with sentence-transformers' CrossEncoder and with padded batches, on one GPU.

    python -m benchmarks.score_gpu [--encoder large] [--pairs 20000] [--repeats 3] [--json FILE]

All systems score the same pairs, of mean length 102 and at most 180, with the same weights: BERT-large's shape with
random weights, or MiniLM-L6. They compute in bfloat16, or in fp8 if their name says so. CrossEncoder and the systems
named `from text` start from text; the others use the stored ids of the same word pieces. Without STRM the scores must
agree with CrossEncoder's. `of ceiling` is a system's speed in operations per second, divided by that of a large
bfloat16 matrix product on the same GPU; `padding` is the share of padding in the computed positions; `memory` is the
peak beyond the weights of all models. The systems alternate. At the end, 10,000 pairs of random lengths are scored, and
the number of graphs that are compiled for them is printed.
"""

import argparse
import copy
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import CrossEncoder
from torch._dynamo.utils import counters
from transformers import PreTrainedTokenizerFast

from benchmarks.score import exported, padding
from benchmarks.synthetic import ENCODERS, build_reranker, decoded_pairs, random_texts
from benchmarks.tables import spread
from rayrank.bundle.export import Bundle, export, settings_of
from rayrank.bundle.text_scorer import score
from rayrank.core.config import MINILM, InputConfig, QueryTypesConfig, StrmConfig
from rayrank.models.inference.prepare import compile_for_scoring
from rayrank.models.inference.scorer import Scorer, row_length
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Rows

BATCH_SIZES = (128, 512, 1024, 2048)
"""Batch sizes of CrossEncoder, whose default is 32; all systems are compared with the fastest."""

LENGTH = 180
"""Maximum word pieces of a pair."""

CHECKED = 512
"""Pairs whose scores are compared with CrossEncoder's."""

TextPairs = list[tuple[str, str]]


@dataclass
class Side:
    """One of the compared systems."""

    name: str
    run: Callable[[], object]
    padding: float
    seconds: list[float] = field(default_factory=list)
    peak: int = 0


def main() -> None:
    """Build all systems, run them in alternation, and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--encoder", choices=ENCODERS, default="large")
    options.add_argument("--pairs", type=int, default=20_000)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--batch-sizes", type=int, nargs="+", default=BATCH_SIZES, help="batch sizes of CrossEncoder")
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    tokenizer = load_tokenizer(MINILM)
    texts, rows = random_texts(arguments.pairs, tokenizer, length=LENGTH), np.arange(arguments.pairs)
    scorers = our_scorers(arguments.encoder, tokenizer, texts)
    with tempfile.TemporaryDirectory() as folder:
        peer = peer_of(arguments.encoder, folder)
    words, lengths = decoded_pairs(texts, tokenizer), texts.lengths(rows, rows)
    check(peer, scorers["packed"], words, rows)
    sides = [*peer_sides(arguments.batch_sizes, peer, words, lengths), *our_sides(scorers, words, lengths, tokenizer)]
    take_turns(sides, arguments.repeats, len(rows))
    report(arguments, sides, texts, rows, scorers["packed, STRM"])


def peer_sides(batch_sizes: Sequence[int], peer: CrossEncoder, words: TextPairs, lengths: Rows) -> Iterator[Side]:
    """Yield CrossEncoder at each batch size."""
    for size in batch_sizes:
        share = padding(lengths, sorted_batches(lengths, size))
        yield Side(f"CrossEncoder, batch {size}, from text", partial(peer.predict, words, batch_size=size), share)


def our_sides(
    scorers: dict[str, Scorer], words: TextPairs, lengths: Rows, tokenizer: PreTrainedTokenizerFast
) -> Iterator[Side]:
    """Yield all scorers from ids, and the packed ones with STRM also from text."""
    rows, shares = np.arange(len(words)), {name: padding_share(scorer, lengths) for name, scorer in scorers.items()}
    for name, scorer in scorers.items():
        yield Side(name, partial(scorer, rows, rows), shares[name])
    for name in ("packed, STRM", "packed, STRM, fp8"):
        yield Side(f"{name}, from text", partial(from_text, scorers[name].model, words, tokenizer), shares[name])


def take_turns(sides: list[Side], repeats: int, num_pairs: int) -> None:
    """Run each system once per round; the first round compiles and is not measured."""
    for turn in range(repeats + 1):
        for side in sides:
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            started = time.perf_counter()
            side.run()
            torch.cuda.synchronize()
            took = time.perf_counter() - started
            print(f"round {turn}: {side.name}, {num_pairs / took:,.0f} pairs/s", file=sys.stderr)
            if turn:
                side.seconds.append(took)
                side.peak = torch.cuda.max_memory_allocated() - before


def our_scorers(encoder: str, tokenizer: PreTrainedTokenizerFast, texts: PairTexts) -> dict[str, Scorer]:
    """Return rayrank's scorers: padded batches of a token budget, and packed batches, with and without STRM."""
    found = {}
    for mark, strm in ((", STRM", StrmConfig()), ("", StrmConfig(form="off"))):
        model = build_reranker(encoder, tokenizer, strm).cuda().eval()
        padded: Reranker = copy.deepcopy(model)
        padded.encoder.bfloat16().packs = False
        small = copy.deepcopy(model) if strm.form != "off" else None
        compile_for_scoring(model)
        found[f"padded, token budget{mark}"] = Scorer(padded, texts)
        found[f"packed{mark}"] = Scorer(model, texts)
        if small is not None:
            compile_for_scoring(small, fp8=True)
            found[f"packed{mark}, fp8"] = Scorer(small, texts)
    return found


def peer_of(encoder: str, folder: str) -> CrossEncoder:
    """Return CrossEncoder with the same weights."""
    plain = exported(LENGTH, StrmConfig(form="off"), encoder)
    export(folder, plain)
    return CrossEncoder(folder, device="cuda", model_kwargs={"torch_dtype": torch.bfloat16})


def check(peer: CrossEncoder, plain: Scorer, words: TextPairs, rows: Rows) -> None:
    """Raise an error if the two give different scores."""
    theirs = peer.predict(words[:CHECKED], activation_fn=torch.nn.Identity())
    found = np.corrcoef(theirs, plain(rows[:CHECKED], rows[:CHECKED]))[0, 1]
    assert found > 0.98, f"CrossEncoder gives other scores: a correlation of {found:.3f}"


def sorted_batches(lengths: Rows, size: int) -> Iterator[Rows]:
    """Yield batches of a fixed size, the longest pairs first, as CrossEncoder does."""
    order = np.argsort(-lengths, kind="stable")
    yield from (order[start : start + size] for start in range(0, len(order), size))


def padding_share(scorer: Scorer, lengths: Rows) -> float:
    """Return the share of padding in a scorer's positions."""
    batches = list(scorer.batches(lengths))
    if not scorer.packs:
        return padding(lengths, batches)
    return 1 - float(lengths.sum()) / sum(row_length(int(lengths[chosen].sum())) for chosen in batches)


def from_text(model: Reranker, words: TextPairs, tokenizer: PreTrainedTokenizerFast) -> object:
    """Tokenise the pairs and score them."""
    settings = settings_of(model, InputConfig(length=LENGTH, query_type=False), QueryTypesConfig(), ())
    return score(Bundle(model, tokenizer, settings), *map(list, zip(*words, strict=True)))


def ceiling() -> float:
    """Return the floating-point operations per second of a large matrix product."""
    left, right = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    rates = []
    for _ in range(20):
        torch.cuda.synchronize()
        started = time.perf_counter()
        left @ right
        torch.cuda.synchronize()
        rates.append(2 * 8192**3 / (time.perf_counter() - started))
    return statistics.median(rates)


def operations(model: Reranker, lengths: Rows) -> float:
    """Return the floating-point operations of scoring pairs: products with weights, and attention within each pair."""
    shape = model.encoder.base.config
    weights = sum(weight.numel() for weight in model.encoder.base.encoder.parameters() if weight.ndim == 2)
    attention = 4 * shape.hidden_size * shape.num_hidden_layers * float((lengths.astype(np.float64) ** 2).sum())
    return 2 * weights * float(lengths.sum()) + attention


def compiled_for_random_lengths(scorer: Scorer, tokenizer: PreTrainedTokenizerFast) -> int:
    """Return how many graphs are compiled for 10,000 pairs of new lengths, some of them in short rows."""
    texts, rows = random_texts(10_000, tokenizer, mean=60, length=150), np.arange(10_000)
    before = counters["stats"]["unique_graphs"]
    for part in np.split(rows, [1, 4, 14, 100, 1_000, 4_000]):
        Scorer(scorer.model, texts)(part, part)
    return int(counters["stats"]["unique_graphs"] - before)


def report(arguments: argparse.Namespace, sides: list[Side], texts: PairTexts, rows: Rows, packed: Scorer) -> None:
    """Print the table, and write the same figures as JSON."""
    lengths = texts.lengths(rows, rows)
    top, needed = ceiling(), operations(packed.model, lengths)
    best = min(sides[: len(arguments.batch_sizes)], key=lambda side: statistics.median(side.seconds))
    plain, strm = (next(side for side in sides if side.name == name) for name in ("packed", "packed, STRM"))
    facts = []
    print(
        f"{torch.cuda.get_device_name()}, {arguments.encoder}, {len(rows):,} pairs of mean length {lengths.mean():.0f}"
    )
    titles = f"{'of best CrossEncoder':>24}{'of ceiling':>12}{'padding':>10}{'memory':>10}"
    print(f"{'system':<36}{'pairs/s: median (range)':>30}{titles}")
    for side in sides:
        rates = [len(rows) / value for value in side.seconds]
        ratios = [theirs / mine for theirs, mine in zip(best.seconds, side.seconds, strict=True)]
        share = statistics.median(rates) * needed / len(rows) / top
        facts.append(
            {
                "side": side.name,
                "pairs_per_s": rates,
                "ratios": ratios,
                "of_ceiling": share,
                "padding": side.padding,
                "peak": side.peak,
            }
        )
        figures = f"{spread(rates, 0):>30}{spread(ratios, 2):>24}{share:>12.1%}{side.padding:>10.1%}"
        print(f"{side.name:<36}{figures}{side.peak / 1e9:>7.1f} GB")
    costs = [mine / theirs - 1 for mine, theirs in zip(strm.seconds, plain.seconds, strict=True)]
    graphs = compiled_for_random_lengths(packed, load_tokenizer(MINILM))
    print(f"ceiling {top / 1e12:.0f} TFLOP/s, {needed / len(rows) / 1e9:.1f} GFLOP a pair")
    print(f"STRM costs {statistics.median(costs):.1%}; 10,000 pairs of random lengths compiled {graphs} graphs")
    if arguments.json:
        found = {"settings": vars(arguments), "sides": facts, "strm_costs": costs, "graphs": graphs, "ceiling": top}
        Path(arguments.json).write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
