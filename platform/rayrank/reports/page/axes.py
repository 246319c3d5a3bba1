"""Scales of charts: from values to places in a chart, with ticks at round numbers."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass


def plain(value: float) -> str:
    """Return a tick's number, with thousands as k and millions as M."""
    for limit, unit in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else 1e6):g}{unit}"
    return f"{value:g}"


def percent(value: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * value:g} %"


@dataclass(frozen=True)
class Scale:
    """A range of values, linear or logarithmic, and how its numbers are written."""

    label: str
    low: float
    high: float
    is_log: bool = False
    form: Callable[[float], str] = plain
    marks: tuple[float, ...] = ()
    """Places of the ticks; round numbers if empty."""

    def share(self, value: float) -> float:
        """Return where a value lies: 0 at the low end, 1 at the high end; values beyond lie at the ends."""
        low, high = self._place(self.low), self._place(self.high)
        return min(1.0, max(0.0, (self._place(value) - low) / ((high - low) or 1.0)))

    def ticks(self, most: int = 6) -> list[float]:
        """Return at most about so many round numbers within the range."""
        if self.marks:
            return [mark for mark in self.marks if self.low <= mark <= self.high]
        return _powers(self.low, self.high, most) if self.is_log else _round_numbers(self.low, self.high, most)

    def _place(self, value: float) -> float:
        return math.log10(max(value, self.low)) if self.is_log else value


def around(label: str, values: Iterable[float], form: Callable[[float], str] = plain) -> Scale:
    """Return a linear scale that holds all values, with some room on both sides."""
    found = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(found), max(found)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return Scale(label, low - room, high + room, form=form)


def from_zero(label: str, values: Iterable[float], form: Callable[[float], str] = plain) -> Scale:
    """Return a linear scale from 0 to a little above the largest value."""
    return Scale(
        label, 0.0, 1.06 * max((value for value in values if math.isfinite(value)), default=1.0) or 1.0, form=form
    )


def _round_numbers(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough)) if rough > 0 else 1.0
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _powers(low: float, high: float, most: int) -> list[float]:
    powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    every = -(-len(powers) // most) or 1
    found = [10.0**power for power in powers[::every]]
    if len(found) > 2 or high / low < 2:
        return found
    return [
        value
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for value in (10.0**power, 2 * 10.0**power, 5 * 10.0**power)
        if low <= value <= high
    ]
