"""What is wrong with a field, in one sentence with the field, its value and the fix."""

import json
from collections.abc import Mapping
from typing import Any

MAX_SHOWN = 40
"""Characters of a value that a message quotes."""

_EXPECTED = {
    "string_type": "a text", "list_type": "a list", "int_type": "a whole number", "float_type": "a number",
    "bool_type": "true or false", "finite_number": "a finite number", "model_type": "an object",
    "model_attributes_type": "an object", "dict_type": "an object", "int_from_float": "a whole number",
}  # fmt: skip
"""What to send, by the type of pydantic's error."""

_BOUNDS = {
    "greater_than": ("small", "more than", "gt"), "greater_than_equal": ("small", "at least", "ge"),
    "less_than": ("large", "less than", "lt"), "less_than_equal": ("large", "at most", "le"),
}  # fmt: skip


def sentence(field: str, error: Mapping[str, Any]) -> str:
    """Return the sentence about one of pydantic's errors; `field` is empty for the whole body."""
    kind, value, context, name = error["type"], error.get("input"), error.get("ctx", {}), field or "The body"
    if expected := _EXPECTED.get(kind):
        return f"{name} is {_shown(value)}: send {expected}."
    if kind in _BOUNDS:
        adjective, bound, key = _BOUNDS[kind]
        return f"{name} is {_shown(value)}, which is too {adjective}: send {bound} {context[key]:g}."
    match kind:
        case "missing":
            return f"{name} is missing: send it."
        case "too_short" | "too_long":
            number, bound = (
                (context["min_length"], "at least") if kind == "too_short" else (context["max_length"], "at most")
            )
            return f"{name} has {context['actual_length']} entries: send {bound} {number}."
        case "string_too_short":
            return f"{name} is an empty text: send at least {context['min_length']} character."
        case "string_too_long":
            return f"{name} has {len(error['input'])} characters: send at most {context['max_length']}."
        case "literal_error":
            return f"{name} is {_shown(value, quotes=True)}, which is unknown: send {context['expected']}."
        case "value_error":
            return f"{name} is {_shown(value)}: {str(context['error']).rstrip('.')}."
    return f"{name} is {_shown(value)}, which does not fit: send what this route takes."


def _shown(value: Any, quotes: bool = False) -> str:
    """Return a value for a message, which does not repeat the client's texts unless it may quote one of few words."""
    match value:
        case str():
            return _cut(json.dumps(value, ensure_ascii=False)) if quotes else "a text"
        case list():
            return "a list"
        case dict():
            return "an object"
        case None | bool():
            return json.dumps(value)
    return _cut(repr(value))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]} ..."
