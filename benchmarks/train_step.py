"""A listwise training step on packed batches beside the same step on padded ones, in one process.

    python -m benchmarks.train_step [--encoder large] [--lists 16] [--size 6] [--steps 20] [--repeats 3]

Each step is a forward, a backward, clipping and AdamW, in bfloat16 autocast on a GPU. `plain` pads a batch to its
longest pair, as a plain training loop does, and has no STRM: it is what all are compared with. `padded` has it;
`grouped` is this project's step where rows are not packed; `packed` is the step on a GPU. The sides take turns on the
same lists; `memory` is what a step takes beyond the weights and optimisers of all. On a CPU there is no packed side.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.made import ENCODERS, made_reranker, made_texts
from rayrank import losses
from rayrank.config import MINILM, StrmConfig
from rayrank.modeling.batches import PairTexts
from rayrank.modeling.reranker import Reranker
from rayrank.text.pairs import Rows
from rayrank.text.pieces import load_tokenizer
from rayrank.training.phases import pair_logits

Forward = Callable[[Reranker, PairTexts, Rows], Tensor]


def plain(model: Reranker, texts: PairTexts, rows: Rows) -> Tensor:
    """Return the logits of a model without STRM, padded as well."""
    return padded(model, texts, rows)


def padded(model: Reranker, texts: PairTexts, rows: Rows) -> Tensor:
    """Return the logits of one batch padded to its longest pair."""
    return model(texts.padded(rows, rows, next(model.parameters()).device))  # type: ignore[no-any-return]


def grouped(model: Reranker, texts: PairTexts, rows: Rows) -> Tensor:
    """Return them as training does where it does not pack."""
    model.encoder.packs = False
    return pair_logits(model, texts, rows, rows)


def packed(model: Reranker, texts: PairTexts, rows: Rows) -> Tensor:
    """Return them as training does on a GPU."""
    return pair_logits(model, texts, rows, rows)


def main() -> None:
    """Let the sides take turns, and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--encoder", choices=ENCODERS, default="large")
    options.add_argument("--strm", choices=("mask", "bias", "off"), default="mask")
    options.add_argument("--lists", type=int, default=16)
    options.add_argument("--size", type=int, default=6, help="passages a list")
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = load_tokenizer(MINILM)
    num_pairs = arguments.lists * arguments.size
    texts = made_texts(num_pairs * arguments.steps, tokenizer)
    # The packed step compiles its model, so each side has its own.
    sides: dict[Forward, Reranker] = {}
    for side in (plain, padded, grouped, packed) if device.type == "cuda" else (plain, padded, grouped):
        strm = StrmConfig(form="off" if side is plain else arguments.strm)
        sides[side] = made_reranker(arguments.encoder, tokenizer, strm).to(device).train()
    if packed in sides:
        sides[packed].encoder.compile_training()
    optimizers = {side: torch.optim.AdamW(model.parameters(), 1e-6, fused=True) for side, model in sides.items()}
    seconds: dict[str, list[float]] = {side.__name__: [] for side in sides}
    memory = {}
    for turn in range(arguments.repeats + 1):
        for side, model in sides.items():
            took, peak = run(side, model, texts, optimizers[side], arguments)
            print(f"turn {turn}: {side.__name__}, {took:.1f} s", file=sys.stderr)
            # The first turn compiles kernels.
            if turn:
                seconds[side.__name__].append(took)
                memory[side.__name__] = peak
    report(arguments, seconds, memory, texts)


def run(
    side: Forward, model: Reranker, texts: PairTexts, optimizer: torch.optim.AdamW, arguments: argparse.Namespace
) -> tuple[float, int]:
    """Return the seconds of all steps of one side, and the memory that one takes."""
    device = next(model.parameters()).device
    num_pairs = arguments.lists * arguments.size
    labels = torch.zeros(arguments.lists, arguments.size, dtype=torch.int64, device=device)
    labels[:, 0] = 1
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    _wait(device)
    before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    started = time.perf_counter()
    for step in range(arguments.steps):
        rows = np.arange(step * num_pairs, (step + 1) * num_pairs)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = losses.listwise(side(model, texts, rows).view(labels.shape), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    _wait(device)
    took = time.perf_counter() - started
    return took, torch.cuda.max_memory_allocated() - before if device.type == "cuda" else 0


def report(
    arguments: argparse.Namespace, seconds: dict[str, list[float]], memory: dict[str, int], texts: PairTexts
) -> None:
    """Print pairs a second and the ratio to the plain step."""
    count = arguments.lists * arguments.size * arguments.steps
    rows = np.arange(count)
    lengths = texts.lengths(rows, rows)
    print(f"{arguments.encoder}, STRM {arguments.strm}, {arguments.lists} lists of {arguments.size}", end=", ")
    print(f"mean length {lengths.mean():.0f} of at most {lengths.max()}")
    print(f"{'step':<10}{'pairs/s: median (range)':>28}{'of plain (range)':>26}{'padding':>10}{'memory':>11}")
    facts = {}
    wasted = 1 - lengths.sum() / (lengths.reshape(arguments.steps, -1).max(1).sum() * len(lengths) / arguments.steps)
    for name, took in seconds.items():
        rates = [count / value for value in took]
        ratios = [base / value for base, value in zip(seconds["plain"], took, strict=True)]
        facts[name] = {"pairs_per_s": rates, "ratios": ratios, "peak_bytes": memory[name]}
        rate, ratio = f"{statistics.median(rates):,.1f}", f"{statistics.median(ratios):.3f}"
        spread = f"({min(rates):,.1f}-{max(rates):,.1f})", f"({min(ratios):.3f}-{max(ratios):.3f})"
        empty = "" if name in ("grouped", "packed") else f"{wasted:.1%}"
        figures = f"{f'{rate} {spread[0]}':>28}{f'{ratio} {spread[1]}':>26}{empty:>10}"
        print(f"{name:<10}{figures}{memory[name] / 1e9:>8.1f} GB")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"settings": vars(arguments), "sides": facts}, indent=2))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
