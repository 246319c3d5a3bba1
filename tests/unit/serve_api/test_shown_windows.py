"""A request asks the model for the windows that its answer can show, and for no more."""

from typing import Any

import pytest
import requests

TEXTS = ["bread needs yeast", "whales breathe air", "whales sing"]


@pytest.mark.parametrize(
    ("route", "body", "wanted"),
    [
        ("/v1/rerank", {"documents": TEXTS}, 3),
        ("/v2/rerank", {"documents": TEXTS, "top_n": 2}, 2),
        ("/rerank", {"documents": TEXTS, "top_n": 0}, 3),
        ("/rerank", {"texts": TEXTS}, 0),
        ("/score", {"text_1": "q", "text_2": TEXTS}, 0),
    ],
)
def test_only_answers_that_show_windows_ask_for_them(
    api: str, scorer: Any, route: str, body: dict[str, Any], wanted: int
) -> None:
    assert requests.post(api + route, json={"query": "how do whales breathe", **body}, timeout=10).status_code == 200
    assert scorer.asks[-1].num_windows == wanted
