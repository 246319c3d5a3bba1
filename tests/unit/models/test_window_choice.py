"""The window to train on is the one that shares most with the query."""

import numpy as np
import pytest
import torch

from rayrank.core.config import InputConfig
from rayrank.models.pair_texts import PairTexts
from rayrank.models.window_choice import WindowChoice
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.text.windows import PassageWindows
from rayrank.text.words import STARTS

CLS, SEP, TYPE, COMMON, RARE, OTHER = 101, 102, 7, 8, 9, 10
INPUTS = InputConfig(length=16, query_length=4, long_passages="windows", window_length=4, window_stride=4)


def choice(*passages: list[int], query: list[int]) -> WindowChoice:
    template = Template(CLS, SEP, 0, INPUTS.length, INPUTS.query_length, has_type=True)
    prefixes = template.prefixes(Ragged.of([[OTHER], query]), Ragged.of([[TYPE], [TYPE]]))
    windows = PassageWindows.of(Ragged.of(passages), INPUTS, np.full(200, STARTS, np.int8))
    return WindowChoice(PairTexts(prefixes, windows.windows, template), windows)


@pytest.mark.parametrize(
    ("passage", "wanted"),
    [
        ([1, 1, 1, 1, 1, 1, RARE, 1, 1, 1, 1, 1], 1),
        ([1, 1, COMMON, 1, 1, 1, 1, 1, 1, RARE, 1, 1], 2),  # the rare piece counts more
        ([COMMON, COMMON, COMMON, 1, RARE, COMMON, 1, 1], 1),  # a piece counts once
        ([1, 1, 1, 1, TYPE, TYPE, TYPE, TYPE], 0),  # the type is not part of the query
        ([1, 1, 1, 1, OTHER, 1, 1, 1], 0),  # nor are the pieces of another query
        ([RARE, 1, 1, 1, RARE, 1, 1, 1], 0),  # of equal windows the first
        ([1, 2, 3], 0),
        ([], 0),
    ],
)
@pytest.mark.parametrize("streams", [False, True])
def test_the_window_with_most_of_the_query_is_chosen(
    passage: list[int], wanted: int, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PairTexts, "_streams", lambda *_: streams)
    before = [COMMON] * 40  # ten windows, of which max_windows keeps eight
    chosen = choice(before, passage, query=[COMMON, RARE, COMMON])

    found = chosen(np.array([1, 1]), np.array([1, 0]), torch.device("cpu"))

    assert (found - [INPUTS.max_windows, 0]).tolist() == [wanted, 0]
