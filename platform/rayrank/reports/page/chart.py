"""Charts as SVG with classes in place of colours, so that a style sheet can give them a light and a dark theme."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from rayrank.reports.page.axes import Scale

WIDTH = 440
"""The width of every chart in its own units, small enough for its text to be readable on a telephone."""
CHARACTER = 7.0
"""The mean width of a character of the charts' font size."""
MOST_POINTS = 400
"""Longer lines are thinned out, evenly; a chart has no more places."""

Point = tuple[float, float]


class Chart(NamedTuple):
    """A chart by the name of its file, with a sentence on what it shows."""

    name: str
    svg: str
    caption: str


def text_width(text: str) -> float:
    """Return the approximate width of a text in a chart."""
    return CHARACTER * len(text)


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> Sequence[Point]:
    """Return at most so many points, evenly spaced, with the first and the last."""
    if len(points) <= most:
        return points
    return [points[round(place * (len(points) - 1) / (most - 1))] for place in range(most)]


def label(x: float, y: float, text: str, anchor: str = "start", style: str = "") -> str:
    """Return a text of a chart."""
    kind = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{escape(text)}</text>'


def drawing(title: str, height: float, parts: Sequence[str]) -> str:
    """Return a chart's parts as an SVG image; the title is what screen readers say."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )


def legend(
    names: Sequence[tuple[str, int]], top: float, left: float = 8, is_filled: bool = False
) -> tuple[list[str], float]:
    """Return series by name and number in as few lines as they need, and the height of these lines."""
    parts, x, y = [], left, top + 12
    for name, series in names:
        width = 30 + text_width(name)
        if x + width > WIDTH and x > left:
            x, y = left, y + 17
        if is_filled:
            parts.append(f'<rect class="f{series}" x="{x:.1f}" y="{y - 9:.1f}" width="16" height="10"/>')
        else:
            parts.append(f'<path class="s{series}" d="M{x:.1f} {y - 4:.1f}h18"/>{marker(x + 9, y - 4, series)}')
        parts.append(label(x + 23, y, name))
        x += width + 10
    return parts, y + 8 - top if names else 0.0


def marker(x: float, y: float, series: int, size: float = 3.6, tip: str = "", is_open: bool = False) -> str:
    """Return a point of a series; each series has a shape of its own, as not everyone can tell the colours apart."""
    shapes = (
        f"M{x - size:.1f} {y:.1f}a{size} {size} 0 1 0 {2 * size:.1f} 0a{size} {size} 0 1 0 {-2 * size:.1f} 0z",
        f"M{x - size:.1f} {y - size:.1f}h{2 * size:.1f}v{2 * size:.1f}h{-2 * size:.1f}z",
        f"M{x:.1f} {y - 1.3 * size:.1f}l{1.3 * size:.1f} {1.3 * size:.1f}l{-1.3 * size:.1f} {1.3 * size:.1f}"
        f"l{-1.3 * size:.1f} {-1.3 * size:.1f}z",
        f"M{x:.1f} {y - 1.2 * size:.1f}l{1.2 * size:.1f} {2.1 * size:.1f}h{-2.4 * size:.1f}z",
    )
    style = f"s{series} open" if is_open else f"f{series}"
    note = f"<title>{escape(tip)}</title>" if tip else ""
    return f'<path class="{style}" d="{shapes[series % len(shapes)]}">{note}</path>'


class Plot:
    """A chart with two scales; lines and areas are added one by one."""

    def __init__(
        self, title: str, x: Scale, y: Scale, names: Sequence[tuple[str, int]] = (), height: float = 270
    ) -> None:
        self._title, self.x, self.y, self._height = title, x, y, height
        found, room = legend(names, 0)
        self._top = room + 24
        widest = max((text_width(y.form(tick)) for tick in y.ticks()), default=0.0)
        last = max((text_width(x.form(tick)) for tick in x.ticks()), default=0.0)
        self._left, self._right, self._bottom = widest + 14, WIDTH - 6 - last / 2, height - 40
        self._parts = [*found, *self._frame()]

    def line(
        self, points: Sequence[Point], series: int, with_markers: bool = False, tips: Sequence[str] = ()
    ) -> "Plot":
        """Add a line; with markers it shows where the points are."""
        places = [self._at(*point) for point in thinned(points)]
        if len(places) > 1:
            self._parts.append(f'<path class="s{series}" d="M{_path(places)}"/>')
        if with_markers or len(places) == 1:
            notes = list(tips) if len(tips) == len(places) else [""] * len(places)
            self._parts += [marker(*place, series, tip=tip) for place, tip in zip(places, notes, strict=True)]
        return self

    def dots(self, points: Sequence[Point], series: int) -> "Plot":
        """Add points without a line."""
        self._parts += [marker(*self._at(*point), series) for point in thinned(points)]
        return self

    def area(self, points: Sequence[Point], series: int, base: float = 0.0) -> "Plot":
        """Fill the space between a line and a base."""
        if points:
            places = [self._at(*point) for point in points]
            ends = self._at(points[-1][0], base), self._at(points[0][0], base)
            self._parts.append(f'<path class="f{series}" d="M{_path([*places, *ends])}z"/>')
        return self

    def rule(self, points: tuple[Point, Point], text: str = "") -> "Plot":
        """Add a thin dashed line, such as that of a threshold, and a text at its upper end."""
        places = [self._at(*point) for point in points]
        self._parts.append(f'<path class="rule" d="M{_path(places)}"/>')
        if text:
            x, y = min(places, key=lambda place: place[1])
            anchor = "end" if x > WIDTH / 2 else "start"
            # Beside a vertical line, above a horizontal one.
            above = -5 if places[0][1] == places[1][1] else 11
            self._parts.append(label(x + (-5 if anchor == "end" else 5), y + above, text, anchor, "muted"))
        return self

    def svg(self) -> str:
        return drawing(self._title, self._height, self._parts)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return (
            self._left + self.x.share(x) * (self._right - self._left),
            self._bottom - self.y.share(y) * (self._bottom - self._top),
        )

    def _frame(self) -> list[str]:
        parts = [label(2, self._top - 10, self.y.label, style="muted")]
        for tick in self.y.ticks():
            _, y = self._at(self.x.low, tick)
            parts.append(f'<path class="grid" d="M{self._left:.1f} {y:.1f}H{self._right:.1f}"/>')
            parts.append(label(self._left - 6, y + 4, self.y.form(tick), "end"))
        for tick in self.x.ticks():
            x, _ = self._at(tick, self.y.low)
            parts.append(f'<path class="grid" d="M{x:.1f} {self._top:.1f}V{self._bottom:.1f}"/>')
            parts.append(label(x, self._bottom + 16, self.x.form(tick), "middle"))
        parts.append(f'<path class="axis" d="M{self._left:.1f} {self._bottom:.1f}H{self._right:.1f}"/>')
        middle = (self._left + self._right) / 2
        return [*parts, label(middle, self._bottom + 34, self.x.label, "middle", "muted")]


def _path(places: Sequence[Point]) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
