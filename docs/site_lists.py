"""A hook of mkdocs: items of lists go on after two spaces, as code hosts read them; Python's Markdown asks for four."""

import re
from collections.abc import Iterator
from typing import Any

FENCE = re.compile(r" *```")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page as Python's Markdown reads it."""
    return "\n".join(_indented(markdown.split("\n")))


def _indented(lines: list[str]) -> Iterator[str]:
    fenced: int | None = None
    for line in lines:
        spaces = len(line) - len(line.lstrip(" "))
        # Code keeps its own indentation, beyond that of its fence.
        base = spaces if fenced is None else min(spaces, fenced)
        # Three spaces go on after a number.
        yield " " * (4 * (base // 2) - base) + line
        if FENCE.match(line):
            fenced = spaces if fenced is None else None
