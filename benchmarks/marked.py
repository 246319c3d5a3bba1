"""Pairs scored per second with and without MarkedBERT's markers, by the same model in turns.

The pairs are queries and passages about the same generated subjects, so that every passage has terms of its query. With
markers an input is longer; the second table row shows by how much.
"""

import argparse
import time
from collections.abc import Sequence
from itertools import count

import numpy as np
import torch

from benchmarks.synthetic import ENCODERS, build_reranker
from benchmarks.tables import spread
from rayrank.core.config import MINILM, InputConfig, StrmConfig
from rayrank.data.sources.demo.writing import write
from rayrank.models.inference.prepare import compile_for_scoring, to_bfloat16
from rayrank.models.inference.scorer import Scorer
from rayrank.models.pair_texts import PairTexts
from rayrank.text.markers import num_ids
from rayrank.text.pieces import PieceEncoder, load_tokenizer
from rayrank.text.ragged import Ragged, Rows
from rayrank.text.template import Template

MARKERS = 32


def main() -> None:
    """Measure in turns and print a table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--encoder", choices=ENCODERS, default="minilm")
    options.add_argument("--pairs", type=int, default=20_000)
    options.add_argument("--turns", type=int, default=5)
    arguments = options.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = load_tokenizer(MINILM)
    encode = PieceEncoder(tokenizer.backend_tokenizer.to_str(), 180)
    queries, passages, rows = same_subject_pairs(arguments.pairs)
    inputs = {name: InputConfig(length=180, query_type=False, markers=each) for name, each in FORMS.items()}
    model = build_reranker(arguments.encoder, tokenizer, StrmConfig(form="off")).eval()
    model.encoder.add_ids(num_ids(tokenizer, inputs["marked"]), 2 * MARKERS)
    to_bfloat16(model.to(device))
    compile_for_scoring(model)
    scorers, lengths = {}, {}
    for name, each in inputs.items():
        template = Template.of(tokenizer, each)
        texts = PairTexts(template.prefixes(_ragged(encode, queries)), _ragged(encode, passages), template)
        scorers[name], lengths[name] = Scorer(model, texts), texts.lengths(*rows.T)
        scorers[name](*rows.T)
    rates: dict[str, list[float]] = {name: [] for name in inputs}
    for _ in range(arguments.turns):
        for name, scorer in scorers.items():
            started = time.monotonic()
            scorer(*rows.T)
            rates[name].append(len(rows) / (time.monotonic() - started))
    print(f"{arguments.encoder} on {torch.cuda.get_device_name() if device.type == 'cuda' else 'the CPU'}:")
    for name in inputs:
        tokens = [rate * lengths[name].mean() for rate in rates[name]]
        print(f"{name:8} {spread(rates[name], 0)} pairs/s, mean length {lengths[name].mean():.1f}, ", end="")
        print(f"{spread(tokens, 0)} tokens/s")
    print(f"marked / plain: {np.median(rates['marked']) / np.median(rates['plain']):.3f} of the pairs")


FORMS = {"plain": 0, "marked": MARKERS}


def same_subject_pairs(num_pairs: int) -> tuple[list[str], list[str], Rows]:
    """Return queries, passages and pairs of their rows: every query with every passage of its subject."""
    queries: list[str] = []
    passages: list[str] = []
    pairs: list[tuple[int, int]] = []
    for subject in count():
        written = write(13, subject, 10)
        pairs += [
            (len(queries) + query, len(passages) + passage)
            for query in range(len(written.queries))
            for passage in range(len(written.passages))
        ]
        queries += [query.text for query in written.queries]
        passages += [passage.text for passage in written.passages]
        if len(pairs) >= num_pairs:
            return queries, passages, np.array(pairs[:num_pairs], np.int64)
    raise AssertionError


def _ragged(encode: PieceEncoder, texts: Sequence[str]) -> Ragged:
    lists = encode(texts)
    return Ragged(lists.values.to_numpy(), lists.offsets.to_numpy())


if __name__ == "__main__":
    main()
