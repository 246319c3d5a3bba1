"""The facts of a report as a JSON value that knows where each of its parts lies, so that a page can say so."""

from collections.abc import Iterator
from html import escape
from typing import Any

from rayrank.reports.table import p_text


class Facts:
    """A part of the report's facts, and its place among them."""

    def __init__(self, value: Any, path: str = "") -> None:
        self.value = value
        self.path = path

    def __getitem__(self, key: str | int) -> "Facts":
        key = len(self.value) + key if isinstance(key, int) and key < 0 else key
        return Facts(self.value[key], f"{self.path}/{str(key).replace('~', '~0').replace('/', '~1')}")

    def __iter__(self) -> Iterator["Facts"]:
        """Yield the elements of a list, or the values of an object."""
        yield from (self[key] for key in (self.value if isinstance(self.value, dict) else range(len(self.value))))

    def __bool__(self) -> bool:
        return bool(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def get(self, key: str) -> "Facts":
        """Return a value of an object; None if the object does not have it."""
        return self[key] if key in self.value else Facts(None)

    def items(self) -> Iterator[tuple[str, "Facts"]]:
        yield from ((key, self[key]) for key in self.value)

    def text(self, form: str = "") -> str:
        """Return the value as text: in a format of Python, or `p` for a p value."""
        if self.value is None:
            return "–"
        return p_text(self.value) if form == "p" else format(self.value, form)

    def html(self, form: str = "") -> str:
        """Return the value as an element that names its place as a JSON pointer; a dash if it is not known."""
        if self.value is None:
            return self.text()
        return (
            f'<data value="{escape(str(self.value))}" data-path="{escape(self.path)}">{escape(self.text(form))}</data>'
        )


def mean_html(found: Facts) -> str:
    """Return a mean with its interval: `0.4120 [0.3950, 0.4300]`."""
    return f"{found['mean'].html('.4f')} [{found['low'].html('.4f')}, {found['high'].html('.4f')}]"


def difference_html(found: Facts) -> str:
    """Return a difference with its interval and signs: `+0.0210 [-0.0010, +0.0430]`."""
    return f"{found['difference'].html('+.4f')} [{found['low'].html('+.4f')}, {found['high'].html('+.4f')}]"
