"""Attention between the pieces of a query and those of a passage, as a chart of shaded cells."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rayrank.reports.page.chart import WIDTH, drawing, text_width

ROW, WIDEST = 17, 34
"""The height of a cell, and its largest width."""
NARROWEST = 15.0
"""Columns are at least this wide, or their labels would touch; a longer query is shown as far as it fits."""
FAINTEST = 0.04
"""Smaller shares of the highest weight are not drawn."""


def attention_chart(
    title: str, found: Mapping[str, Any], weights: Sequence[Sequence[float]], highest: float
) -> str:  # fmt: skip
    """Draw weights from the query's pieces, one column each, to the passage's, one row each."""
    rows, columns = found["passage_pieces"], found["query_pieces"]
    left = _width(rows)
    columns = columns[: int((WIDTH - left - 4) / NARROWEST)]
    width = min(WIDEST, (WIDTH - left - 4) / max(1, len(columns)))
    top = _width(columns)
    parts = []
    for place, piece in enumerate(columns):
        x = left + (place + 0.5) * width + 4
        parts.append(
            _text(x, top - 6, piece, place in found["marked_query"], f' transform="rotate(-90 {x:.1f} {top - 6:.1f})"')
        )
    for place, piece in enumerate(rows):
        y = top + place * ROW
        parts.append(_text(left - 6, y + 12.5, piece, place in found["marked_passage"], ' text-anchor="end"'))
        parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f}h{width * len(columns):.1f}"/>')
        for column in range(len(columns)):
            share = weights[column][place] / (highest or 1.0)
            if share >= FAINTEST:
                x = left + column * width
                parts.append(
                    f'<rect class="f0" fill-opacity="{share:.2f}" x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" '
                    f'width="{width - 1:.1f}" height="{ROW - 1}"/>'
                )
    return drawing(title, top + ROW * len(rows) + 4, parts)


def _width(pieces: Sequence[str]) -> float:
    """Return the room for labels; marked ones are bold, and # is a wide character."""
    return 1.3 * max(map(text_width, pieces), default=0.0) + 12


def _text(x: float, y: float, text: str, is_marked: bool, more: str) -> str:
    style = ' font-weight="bold" text-decoration="underline"' if is_marked else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{style}{more}>{escape(text)}</text>'
