"""A listwise training step on packed batches compared with the same step on padded batches.

    python -m benchmarks.train_step [--encoder large] [--lists 16] [--size 6] [--steps 20] [--repeats 3]

A step is a forward and a backward pass, gradient clipping and AdamW, in bfloat16 autocast on a GPU. The baseline
`plain` pads a batch to its longest pair, as a usual training loop does, and has no STRM. `padded` is the same with
STRM; `grouped` is rayrank's step for models that cannot be packed; `packed` is rayrank's step on a GPU, compiled and
with CUDA graphs. The steps alternate on the same lists. `memory` is the peak of a step's tensors beyond the memory that
was allocated before it. On a CPU there is no packed step.
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
from torch import Tensor, nn

from benchmarks.synthetic import ENCODERS, build_reranker, random_texts
from rayrank.core.config import MINILM, ListwiseConfig, StrmConfig
from rayrank.models.batches import PackedBatch
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Rows
from rayrank.training import list_losses
from rayrank.training.phases.fine_tuning import PairGroups, collate_pairs, pair_logits
from rayrank.training.phases.listwise import LabelledLists
from rayrank.training.steps import TrainStep

WARM_UP = 2
"""Rounds before the measurement, in which kernels are compiled and CUDA graphs captured."""

Step = Callable[[Rows], object]


class Lists:
    """Lists of passages, of which the first is relevant, in the form of a training phase."""

    def __init__(self, texts: PairTexts, size: int) -> None:
        """Take the texts and the number of passages per list."""
        self._texts, self._size = texts, size

    def prepare(self, model: nn.Module, examples: Rows) -> LabelledLists:
        """Return the pairs of some rows, packed or in groups of similar length."""
        return self._labelled(model, examples, collate_pairs(model, self._texts, examples, examples))

    def padded(self, model: nn.Module, examples: Rows) -> LabelledLists:
        """Return the pairs of some rows, padded to the longest."""
        positions = torch.arange(len(examples), device=_device(model))
        return self._labelled(
            model, examples, PairGroups((self._texts.padded(examples, examples, positions.device),), positions)
        )

    def loss(self, model: nn.Module, prepared: LabelledLists) -> tuple[Tensor, Tensor]:
        """Return the loss of the lists."""
        scores = pair_logits(model, prepared.inputs)[:, 0]
        return list_losses.softmax(scores[prepared.pair_indices], prepared.labels), scores

    def _labelled(self, model: nn.Module, examples: Rows, inputs: PackedBatch | PairGroups) -> LabelledLists:
        pair_indices = torch.arange(len(examples), device=_device(model)).view(-1, self._size)
        return LabelledLists(inputs, (pair_indices % self._size == 0).long(), pair_indices)


def usual_step(
    model: Reranker, lists: Lists, prepare: Callable[[nn.Module, Rows], LabelledLists]
) -> Callable[[Rows], None]:
    """Return the step of a usual training loop."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-6, fused=True)
    device = _device(model)

    def step(rows: Rows) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss, _ = lists.loss(model, prepare(model, rows))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def packed_step(model: Reranker, lists: Lists) -> Callable[[Rows], Tensor]:
    """Return rayrank's training step on a GPU, compiled from the start."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-6, fused=True)
    step = TrainStep(model, lists, optimizer, ListwiseConfig())
    step.compile()
    return lambda rows: step(rows, seed=int(rows[0]))


def main() -> None:
    """Run the steps in alternation, and print a table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--encoder", choices=ENCODERS, default="large")
    options.add_argument("--strm", choices=("mask", "bias", "off"), default="mask")
    options.add_argument("--lists", type=int, default=16)
    options.add_argument("--size", type=int, default=6, help="passages per list")
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = load_tokenizer(MINILM)
    num_pairs = arguments.lists * arguments.size
    texts = random_texts(num_pairs * arguments.steps, tokenizer)
    lists = Lists(texts, arguments.size)
    # Each step has its own model, because one is compiled and one has no STRM.
    sides: dict[str, Step] = {}
    for name in ("plain", "padded", "grouped", "packed") if device.type == "cuda" else ("plain", "padded", "grouped"):
        strm = StrmConfig(form="off" if name == "plain" else arguments.strm)
        model = build_reranker(arguments.encoder, tokenizer, strm).to(device).train()
        if name == "packed":
            sides[name] = packed_step(model, lists)
        else:
            model.encoder.packs = False
            sides[name] = usual_step(model, lists, lists.prepare if name == "grouped" else lists.padded)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    memory = {}
    for turn in range(-WARM_UP, arguments.repeats):
        for name, step in sides.items():
            took, peak = run(step, device, num_pairs, arguments.steps)
            print(f"round {turn}: {name}, {took:.1f} s", file=sys.stderr)
            if turn >= 0:
                seconds[name].append(took)
            # A CUDA graph allocates its memory when it is captured, and none afterwards.
            memory[name] = max(peak, memory.get(name, 0))
    report(arguments, seconds, memory, texts)


def run(step: Step, device: torch.device, num_pairs: int, num_steps: int) -> tuple[float, int]:
    """Return the seconds of all steps, and their peak memory."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    _wait(device)
    before = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    started = time.perf_counter()
    for number in range(num_steps):
        step(np.arange(number * num_pairs, (number + 1) * num_pairs))
    _wait(device)
    took = time.perf_counter() - started
    return took, torch.cuda.max_memory_allocated() - before if device.type == "cuda" else 0


def report(
    arguments: argparse.Namespace, seconds: dict[str, list[float]], memory: dict[str, int], texts: PairTexts
) -> None:
    """Print pairs per second and the ratio to the baseline."""
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
        share = None if name in ("grouped", "packed") else float(wasted)
        facts[name] = {"pairs_per_s": rates, "ratios": ratios, "padding": share, "peak_bytes": memory[name]}
        rate, ratio = f"{statistics.median(rates):,.1f}", f"{statistics.median(ratios):.3f}"
        spread = f"({min(rates):,.1f}-{max(rates):,.1f})", f"({min(ratios):.3f}-{max(ratios):.3f})"
        empty = "" if share is None else f"{share:.1%}"
        figures = f"{f'{rate} {spread[0]}':>28}{f'{ratio} {spread[1]}':>26}{empty:>10}"
        print(f"{name:<10}{figures}{memory[name] / 1e9:>8.1f} GB")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps({"settings": vars(arguments), "sides": facts}, indent=2))


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
