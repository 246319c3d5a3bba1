"""Charts with one line of text per row: means with intervals, and bars of one or several parts."""

from collections.abc import Sequence
from typing import NamedTuple

from rayrank.reports.page.axes import Scale
from rayrank.reports.page.chart import WIDTH, drawing, label, legend, marker, text_width

LINE = 24
"""The height of a row."""


class Interval(NamedTuple):
    """A row with a mean and its interval; `note` stands at the right end."""

    name: str
    mean: float
    low: float
    high: float
    note: str
    series: int = 0
    is_open: bool = False


class Bar(NamedTuple):
    """A row with a bar of one or several parts, each with the number of its colour."""

    name: str
    parts: Sequence[tuple[float, int]]
    note: str = ""


def interval_chart(
    title: str, rows: Sequence[Interval], x: Scale, band: tuple[float, float] | None = None, line: float | None = None
) -> str:
    """Draw a point and its interval in every row; a band and a vertical line mark what the rows are compared with."""
    frame = _Frame(x, [row.name for row in rows], [row.note for row in rows], 4)
    parts = []
    if band:
        left, right = frame.at(band[0]), frame.at(band[1])
        parts.append(
            f'<rect class="band" x="{left:.1f}" y="4" width="{right - left:.1f}" height="{frame.bottom - 4:.1f}"/>'
        )
    parts += frame.parts
    if line is not None:
        parts.append(f'<path class="axis" d="M{frame.at(line):.1f} 4V{frame.bottom:.1f}"/>')
    for place, row in enumerate(rows):
        y = frame.line(place)
        tip = f"{row.name}: {row.mean:.4f} [{row.low:.4f}, {row.high:.4f}]"
        parts.append(
            f'<path class="s{row.series} whole" d="M{frame.at(row.low):.1f} {y:.1f}H{frame.at(row.high):.1f}"/>'
        )
        parts.append(marker(frame.at(row.mean), y, row.series, 4.4, tip, row.is_open))
    return drawing(title, frame.height, parts)


def bar_chart(title: str, rows: Sequence[Bar], x: Scale, names: Sequence[tuple[str, int]] = ()) -> str:
    """Draw a bar in every row, with its parts side by side."""
    found, room = legend(names, 0, is_filled=True)
    frame = _Frame(x, [row.name for row in rows], [row.note for row in rows], room + 4)
    parts = [*found, *frame.parts]
    for place, row in enumerate(rows):
        y, start = frame.line(place) - 7.5, x.low
        for value, series in row.parts:
            left, right = frame.at(start), frame.at(start + value)
            parts.append(f'<rect class="f{series}" x="{left:.1f}" y="{y:.1f}" width="{right - left:.1f}" height="15"/>')
            start += value
    return drawing(title, frame.height, parts)


class _Frame:
    """The names on the left, the notes on the right, and the grid between them."""

    def __init__(self, x: Scale, names: Sequence[str], notes: Sequence[str], top: float) -> None:
        self._x, self._top = x, top
        self._left = min(170.0, max(map(text_width, names), default=0.0)) + 14
        self._right = WIDTH - 22 - max(map(text_width, notes), default=0.0)
        self.bottom = top + LINE * len(names) + 4
        self.height = self.bottom + 42
        most = max(2, int((self._right - self._left) / 52))
        self.parts = []
        for tick in x.ticks(most):
            place = self.at(tick)
            self.parts.append(f'<path class="grid" d="M{place:.1f} {top:.1f}V{self.bottom:.1f}"/>')
            self.parts.append(label(place, self.bottom + 16, x.form(tick), "middle"))
        self.parts.append(label((self._left + self._right) / 2, self.bottom + 34, x.label, "middle", "muted"))
        for number, (name, note) in enumerate(zip(names, notes, strict=True)):
            y = self.line(number) + 4
            self.parts.append(label(self._left - 8, y, _cut(name), "end"))
            self.parts += [label(WIDTH - 4, y, note, "end", "muted")] if note else []

    def at(self, value: float) -> float:
        return self._left + self._x.share(value) * (self._right - self._left)

    def line(self, place: int) -> float:
        return self._top + LINE * (place + 0.5)


def _cut(name: str) -> str:
    return name if len(name) <= 24 else name[:23] + "…"
