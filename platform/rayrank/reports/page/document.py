"""The page: sections of text, tables and charts in one HTML file that needs no other file and no network."""

import json
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from rayrank.reports.page.chart import Chart
from rayrank.reports.page.style import CHART_STYLE, PAGE_STYLE, SAVE_SCRIPT


class Section(NamedTuple):
    """A section by the name of its anchor: HTML, and rows of charts that stand side by side where there is room."""

    name: str
    title: str
    blocks: Sequence[str | Sequence[Chart]]

    @property
    def charts(self) -> list[Chart]:
        return [chart for block in self.blocks if not isinstance(block, str) for chart in block]


def missing(name: str, title: str, sentence: str, command: str) -> Section:
    """Return the section of a result that storage does not have: what to run to get it."""
    return Section(name, title, [f"<p>{escape(sentence)} <code>{escape(command)}</code></p>"])


def paragraph(html: str) -> str:
    """Return a paragraph of HTML."""
    return f"<p>{html}</p>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], num_names: int = 1) -> str:
    """Return a table from a header of text and cells of HTML; the first `num_names` columns are names."""
    kinds = [' class="name"' if place < num_names else "" for place in range(len(header))]
    head = "".join(f"<th{kind}>{escape(cell)}</th>" for kind, cell in zip(kinds, header, strict=True))
    lines = ["".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def standalone(chart: Chart) -> bytes:
    """Return a chart as an SVG file, which brings the colours of both themes."""
    start, end, rest = chart.svg.partition(">")
    return f"{start}{end}<style>{CHART_STYLE}</style>{rest}\n".encode()


def page(title: str, subtitle: str, sections: Sequence[Section], facts: Any) -> str:
    """Return the whole page; it also holds the facts that its figures come from."""
    links = "".join(f'<a href="#{each.name}">{escape(each.title)}</a>' for each in sections)
    # In a script element only this character could end the element early.
    data = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f'<style id="chart-style">{CHART_STYLE}</style><style>{PAGE_STYLE}</style></head>\n<body>\n'
        f"<header><h1>{escape(title)}</h1><p>{subtitle}</p></header>\n<nav>{links}</nav>\n<main>\n"
        + "\n".join(map(_section, sections))
        + f'\n</main>\n<script type="application/json" id="facts">{data}</script>\n<script>{SAVE_SCRIPT}</script>\n'
        "</body></html>\n"
    )


def _section(section: Section) -> str:
    blocks = [block if isinstance(block, str) else _charts(block) for block in section.blocks]
    return f'<section id="{section.name}"><h2>{escape(section.title)}</h2>\n' + "\n".join(blocks) + "</section>"


def _charts(charts: Sequence[Chart]) -> str:
    return f'<div class="charts">{"".join(map(_figure, charts))}</div>'


def _figure(chart: Chart) -> str:
    button = f'<button type="button" data-name="{escape(chart.name)}.svg">SVG</button>'
    return f"<figure>{chart.svg}<figcaption>{escape(chart.caption)} {button}</figcaption></figure>"
