"""What an endpoint carries: latency against load, and the requests a replica answers within a wanted p95."""

from html import escape

from rayrank.reports.page.axes import Scale, from_zero, plain
from rayrank.reports.page.chart import Chart, Plot
from rayrank.reports.page.document import Section, missing, paragraph, table
from rayrank.reports.page.facts import Facts

NAME, TITLE = "capacity", "Capacity"
MARKS = tuple(factor * 10.0**power for power in range(6) for factor in (1, 2, 5))
SERIES = 6
"""Colours of lines."""


def section(facts: Facts, command: str) -> Section:
    """Return the curves of p95 against load, and the loads within several limits of p95; `command` makes a report."""
    found = facts["capacity"]
    if not found:
        sentence = "No endpoint has been measured. With the model served by rayrank serve:"
        measure = "rayrank plan --measure http://localhost:8000"
        return missing(NAME, TITLE, sentence, f"{measure} && {command} --capacity capacity.json")
    caption = "p95 of the latency by the load on each replica of the model."
    return Section(NAME, TITLE, [_about(found), [Chart(NAME, _chart(found), caption)], _table(found)])


def _about(found: Facts) -> str:
    return paragraph(
        f"{escape(found['model'].value)} ({escape(found['backend'].value)}, {escape(found['dtype'].value)}) on "
        f"{'a GPU' if found['device'].value.startswith('cuda') else 'CPU cores'}, measured "
        f"{escape(found['created'].value)} with {escape(found['texts'].value)}: {found['words'].html('.0f')} words a "
        f"document on average."
    )


def _chart(found: Facts) -> str:
    lines = {
        f"{curve['documents'].value} documents": [
            (point["rps"].value / point["replicas"].value, 1000 * point["p95"].value) for point in curve["points"]
        ]
        for curve in found["curves"]
    }
    every = [value for line in lines.values() for _, value in line]
    x = from_zero("requests/s of a replica", [rate for line in lines.values() for rate, _ in line])
    y = Scale("p95, ms (log scale)", 0.8 * min(every), 1.25 * max(every), True, plain, _marks(every))
    plot = Plot("p95 by load", x, y, [(name, number) for number, name in enumerate(lines)])
    for number, (curve, line) in enumerate(zip(found["curves"], lines.values(), strict=True)):
        tips = [f"{point['num_requests'].value:,} requests" for point in curve["points"]]
        plot.line(line, number % SERIES, with_markers=True, tips=tips)
    return plot.svg()


def _marks(values: list[float]) -> tuple[float, ...]:
    """Return ticks within the values, or the closest ones around them."""
    low, high = 0.8 * min(values), 1.25 * max(values)
    return tuple(mark for mark in MARKS if low <= mark <= high) or (round(low), round(high))


def _table(found: Facts) -> str:
    limits = [f"p95 within {limit['p95'].value * 1000:g} ms" for limit in found["curves"][0]["carried"]]
    lines = [
        [curve["documents"].html(), *(limit["rps"].html(".3g") for limit in curve["carried"])]
        for curve in found["curves"]
    ]
    text = (
        "Requests per second that a replica was measured to carry; a dash: not even the lowest load stayed within the "
        "limit. For replicas: <code>rayrank plan --rps 40 --documents 25 --p95-ms 200</code>"
    )
    return table(["documents per request", *limits], lines) + paragraph(text)
