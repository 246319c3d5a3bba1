"""Scoring pairs of rows with ONNX Runtime on a CPU: one float32 score per pair, in the caller's order."""

import copy
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from rayrank.models.inference.scorer import length_sorted_batches
from rayrank.models.pair_texts import PairTexts
from rayrank.text.ragged import Rows

TOKENS = 512
"""Approximate tokens per batch; `budget` adjusts the number so that all threads finish at about the same time."""

_CPU = torch.device("cpu")


class OnnxScorer:
    """Scores pairs with a re-ranker's ONNX graph in batches of a token budget; it has the interface of `Scorer`.

    Each thread scores its own batch: threads that share one batch wait for each other after every node of the graph.
    int8 activations are scaled per batch, so a pair's int8 score depends slightly on the other pairs of its batch, and
    thus on the number of threads.
    """

    def __init__(self, graph: bytes | str, texts: PairTexts, tokens: int | None = None) -> None:
        """Load a graph, given as its bytes or as the path of its file."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        # An encoder without token types has no input for them.
        self._inputs = [entry.name for entry in self._session.get_inputs()]
        self._texts, self.tokens = texts, tokens or TOKENS
        # Processes that share a machine, such as scoring actors, limit their threads through torch.
        self._num_threads = torch.get_num_threads()
        # The attention weights of masked keys underflow to denormals, with which CPUs are slow.
        self._threads = ThreadPoolExecutor(self._num_threads, "scoring", torch.set_flush_denormal, (True,))

    @property
    def parallel_tokens(self) -> int:
        """The number of tokens that keeps every thread busy: one batch per thread."""
        return self.tokens * self._num_threads

    def with_texts(self, texts: PairTexts) -> "OnnxScorer":
        """Return a scorer for other texts with the same session, which takes a second to create."""
        other = copy.copy(self)
        other._texts = texts
        return other

    def __call__(self, query_rows: Rows, passage_rows: Rows) -> NDArray[np.float32]:
        """Return the score of each (query row, passage row)."""
        return self.begin(query_rows, passage_rows)()

    def begin(self, query_rows: Rows, passage_rows: Rows) -> Callable[[], NDArray[np.float32]]:
        """Queue the pairs for the threads and return a function that waits for the scores."""
        inputs = self._texts.inputs(query_rows, passage_rows, _CPU)
        scores = np.empty(len(query_rows), np.float32)

        def run(chosen: Rows) -> None:
            batch = inputs.padded(chosen)
            (scores[chosen],) = self._session.run(None, {name: getattr(batch, name).numpy() for name in self._inputs})

        # Before the threads need them: the first access converts the texts to tensors.
        self._texts.ids_on(_CPU)
        batches = self._threads.map(run, length_sorted_batches(inputs.lengths, self.budget(inputs.lengths)))

        def wait() -> NDArray[np.float32]:
            # Consume all results, which raises the exception of any thread here.
            deque(batches, maxlen=0)
            return scores

        return wait

    def budget(self, lengths: Rows) -> int:
        """Return the tokens per batch with which all threads get the same number of batches."""
        if not len(lengths):
            return self.tokens
        batches = self._num_threads * math.ceil(lengths.sum() / self.parallel_tokens)
        # One pair more: a batch ends before the pair that does not fit, which would leave a small extra batch.
        return int(lengths.sum() / batches + lengths.mean())
