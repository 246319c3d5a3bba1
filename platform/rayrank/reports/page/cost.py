"""What everything cost: time and device seconds of every stage and run."""

from html import escape

from rayrank.reports.page.axes import from_zero
from rayrank.reports.page.chart import Chart
from rayrank.reports.page.document import Section, missing, paragraph, table
from rayrank.reports.page.facts import Facts
from rayrank.reports.page.rows import Bar, bar_chart

NAME, TITLE = "cost", "Cost"


def section(facts: Facts, command: str) -> Section:
    """Return the seconds of every artifact."""
    found = facts["cost"]
    if not found:
        return missing(NAME, TITLE, "Nothing has been made yet:", command)
    rows = [Bar(_name(each), [(each["seconds"].value, 0)], f"{each['seconds'].value:,.1f}") for each in found]
    scale = from_zero("seconds", [each["seconds"].value for each in found])
    charts = [Chart("cost", bar_chart("Seconds by stage", rows, scale), "Seconds that each stage and run took.")]
    lines = [
        [
            escape(_name(each)), each["seconds"].html(",.1f"), each["device_seconds"].html(",.1f"),
            each["pairs_per_second"].html(",.0f"),
            each["device"].html(), each["artifact"].html(),
        ]
        for each in found
    ]  # fmt: skip
    total = sum(each["seconds"].value for each in found)
    on_devices = sum(each["device_seconds"].value or 0 for each in found)
    about = (
        f"{total:,.0f} s in all, of which models were trained or scored for {on_devices:,.0f} device seconds. A "
        f"fraction of a GPU counts as that fraction."
    )
    return Section(
        NAME,
        TITLE,
        [
            paragraph(about),
            charts,
            table(
                ["stage or run", "seconds", "device seconds", "pairs/s of a device", "device", "folder on storage"],
                lines,
            ),
        ],
    )


def _name(each: Facts) -> str:
    name, _, train = each["node"].value.removeprefix("run:").partition("@")
    return f"run {name}{', train' if train else ''}" if each["node"].value.startswith("run:") else str(name)
