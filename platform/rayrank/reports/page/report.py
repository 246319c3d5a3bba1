"""The whole report: its page, and its charts as files."""

from collections.abc import Mapping
from html import escape
from typing import Any

from rayrank.reports.page import (
    calibration,
    capacity,
    cost,
    cut_words,
    differences,
    distillation,
    learning_curve,
    noise,
    parts,
    reach,
    summary,
    sweeps,
    training,
)
from rayrank.reports.page.document import Section, page, standalone
from rayrank.reports.page.facts import Facts

PAGE = "report.html"


def files(facts: Mapping[str, Any], options: str) -> dict[str, bytes]:
    """Return the page and its charts by their names; `options` are those of the command line that name the storage."""
    sections = _sections(Facts(facts), options)
    subtitle = (
        f"{escape(facts['dataset'])} · made {escape(facts['created'])} · revision {escape(facts['revision'][:12])}"
    )
    charts = {f"{chart.name}.svg": standalone(chart) for section in sections for chart in section.charts}
    return {PAGE: page(f"rayrank: {facts['dataset']}", subtitle, sections, facts).encode(), **charts}


def _sections(facts: Facts, options: str) -> list[Section]:
    def command(job: str) -> str:
        return f"rayrank {job} {options}".strip()

    pipeline = command("run")
    return [
        summary.section(facts, [pipeline, command("report")]),
        reach.section(facts, pipeline),
        parts.section(facts, command("ablate")),
        distillation.section(facts, f"{command('distil')} --teacher ENCODER"),
        differences.section(facts, pipeline),
        cut_words.section(facts, command("cut-words")),
        learning_curve.section(facts, command("learning-curve")),
        training.section(facts, pipeline),
        noise.section(facts, command("filter-noise")),
        calibration.section(facts, pipeline),
        sweeps.section(facts, command("sweep")),
        cost.section(facts, pipeline),
        capacity.section(facts, command("report")),
    ]
