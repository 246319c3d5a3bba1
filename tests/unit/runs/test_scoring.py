"""A run that scores compiles its model only if enough pairs are left to score."""

from types import SimpleNamespace

import numpy as np
import pytest

from rayrank.runs import scoring
from rayrank.runs.scoring import WORTH_COMPILING, PairScorer


class Clocked:
    """Scores at a rate, by a clock of its own; the first time it waits for kernels, too."""

    def __init__(self, rate: float, kernels: float) -> None:
        self.now, self.model = 0.0, object()
        self._rate, self._kernels = rate, kernels

    def __call__(self, queries: np.ndarray, passages: np.ndarray) -> np.ndarray:
        self.now += len(queries) / self._rate + self._kernels
        self._kernels = 0.0
        return np.zeros(len(queries), np.float32)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([0.5, 0.4, 0.3], []), ([0.9], []), ([3, 2.5, 2, 1.5], [2]), ([1.5, 1.2, 0.9, 0.6], [])],
    ids=["little to do", "one slice", "much to do, once, after two slices", "too little left after two"],
)
def test_a_model_is_compiled_once_and_only_if_enough_pairs_are_left(
    seconds: list[float], expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rate, slices, compiled = 1000.0, [], []
    clock = Clocked(rate, kernels=30.0)
    monkeypatch.setattr(scoring, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(scoring, "compile_for_scoring", lambda model: compiled.append(len(slices)))
    worker = PairScorer.__new__(PairScorer)
    worker._scorer, worker._rates, worker._is_compiled = clock, [], False  # type: ignore[assignment]
    for left in seconds:
        rows = np.arange(500)
        _, took = worker._score(rows, rows, left=left * WORTH_COMPILING * rate)
        assert took == pytest.approx(0.5)  # the wait for kernels is none of it
        slices.append(left)

    assert compiled == expected
