"""The messages of refused requests: one sentence with the field, its value and the fix."""

from typing import Any

import pytest
import requests


def said(api: str, route: str, body: bytes) -> str:
    answer = requests.post(api + route, data=body, headers={"content-type": "application/json"}, timeout=10)
    assert answer.status_code == 422
    found = answer.json()
    return str(found.get("message") or found["error"])


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"query": None}, "query is null: send a text."),
        ({"query": ""}, "query is an empty text: send at least 1 character."),
        ({"documents": "a"}, "documents is a text: send a list."),
        ({"documents": []}, "documents has 0 entries: send at least 1."),
        ({"documents": ["a", 3]}, "documents.1 is 3: send a text."),
        (
            {"documents": ["a", {"text": "b", "fields": {f"f{number}": "x" for number in range(101)}}]},
            "documents.1.fields: 101 are too many; send at most 100 per document.",
        ),
        ({"top_n": "2"}, "top_n is a text: send a whole number."),
        ({"top_n": 1.5}, "top_n is 1.5: send a whole number."),
        ({"top_n": -1}, "top_n is -1, which is too small: send at least 0."),
        ({"first_stage_weight": 2}, "first_stage_weight is 2, which is too large: send at most 1."),
        ({"raw_scores": "yes"}, "raw_scores is a text: send true or false."),
        ({"deadline_ms": [1]}, "deadline_ms is a list: send a number."),
    ],
)  # fmt: skip
def test_messages_name_the_field_its_value_and_the_fix(api: str, field: dict[str, Any], message: str) -> None:
    answer = requests.post(f"{api}/v2/rerank", json={"query": "q", "documents": ["a"] * 5, **field}, timeout=10)
    assert answer.json()["message"] == message


def test_messages_about_the_body_and_choices_name_the_fix(api: str) -> None:
    assert said(api, "/v2/rerank", b"[]") == "The body is a list: send an object."
    assert said(api, "/v2/rerank", b'{"query": "q"}') == "documents is missing: send it."
    wrong = b'{"query": "q", "texts": ["a"], "truncation_direction": "up"}'
    assert said(api, "/rerank", wrong).startswith('truncation_direction is "up", which is unknown: send ')


def test_a_number_of_thousands_of_digits_is_quoted_in_part(api: str) -> None:
    for digits in (50, 4000, 4290):
        body = b'{"query": "q", "documents": ["a"], "top_n": -%s}' % (b"9" * digits)
        assert said(api, "/v2/rerank", body).startswith("top_n is -999999999")
    body = b'{"query": "q", "documents": ["a"], "top_n": -%s}' % (b"9" * 10_000)
    answer = requests.post(f"{api}/v2/rerank", data=body, headers={"content-type": "application/json"}, timeout=10)
    assert answer.status_code in (400, 422)
