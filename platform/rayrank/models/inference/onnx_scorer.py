"""Scoring with ONNX Runtime, for CPUs: pairs of rows in, one float32 score each out, in the caller's order."""

import copy
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from rayrank.models.batches import PairTexts
from rayrank.models.inference.scorer import pools
from rayrank.text.ragged import Rows

TOKENS = 512
"""A batch, or what is nearest to it and has every thread end at about the same time."""

_CPU = torch.device("cpu")


class OnnxScorer:
    """Runs a re-ranker's ONNX graph over pairs in batches of a token budget; called as `Scorer` is.

    Each thread has a batch of its own: threads that share one wait for each other after every node, the longer the more
    else the machine has to do. How eight bits round depends on what else is in a batch, and so a little on the threads.
    """

    def __init__(self, graph: bytes | str, texts: PairTexts, tokens: int | None = None) -> None:
        """Take the graph itself, or the path of its file."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        # An encoder without token types has no input for them.
        self._inputs = [entry.name for entry in self._session.get_inputs()]
        self._texts, self.tokens = texts, tokens or TOKENS
        # Who shares a machine says so to torch, as the scoring actors do.
        self._num_threads = torch.get_num_threads()
        # What may not be seen gets a weight of nearly nothing, and processors are slow with numbers that small.
        self._threads = ThreadPoolExecutor(self._num_threads, "scoring", torch.set_flush_denormal, (True,))

    @property
    def at_once(self) -> int:
        """Tokens that keep every thread busy."""
        return self.tokens * self._num_threads

    def over(self, texts: PairTexts) -> "OnnxScorer":
        """Return a scorer of other texts by the same session, which takes a second to build."""
        other = copy.copy(self)
        other._texts = texts
        return other

    def __call__(self, query_rows: Rows, passage_rows: Rows) -> NDArray[np.float32]:
        """Return the score of each (query row, passage row)."""
        return self.begin(query_rows, passage_rows)()

    def begin(self, query_rows: Rows, passage_rows: Rows) -> Callable[[], NDArray[np.float32]]:
        """Let the threads begin to score, behind what they have already, and return what waits for the scores."""
        lengths = self._texts.lengths(query_rows, passage_rows)
        scores = np.empty(len(query_rows), np.float32)

        def run(chosen: Rows) -> None:
            batch = self._texts.padded(query_rows[chosen], passage_rows[chosen], _CPU)
            inputs = {name: getattr(batch, name).numpy() for name in self._inputs}
            (scores[chosen],) = self._session.run(None, inputs)

        # Before the threads do: the first to read them puts them together.
        self._texts.ids_on(_CPU)
        batches = self._threads.map(run, pools(lengths, self.budget(lengths)))

        def wait() -> NDArray[np.float32]:
            # To the end, so that what went wrong in a thread is raised here.
            deque(batches, maxlen=0)
            return scores

        return wait

    def budget(self, lengths: Rows) -> int:
        """Return the tokens of a batch, so that all threads have as many batches."""
        if not len(lengths):
            return self.tokens
        batches = self._num_threads * math.ceil(lengths.sum() / self.at_once)
        # A batch ends before the pair that does not fit; without this there would be one more, of leftovers.
        return int(lengths.sum() / batches + lengths.mean())
