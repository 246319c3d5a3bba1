"""Teachers and students: what a small model gains from a larger one's scores, and what that cost."""

from collections.abc import Sequence
from html import escape

from rayrank.reports.page.chart import Chart
from rayrank.reports.page.document import Section, missing, table
from rayrank.reports.page.facts import Facts
from rayrank.reports.page.parts import ablation_blocks

NAME, TITLE = "distillation", "Teacher and student"


def section(facts: Facts, command: str) -> Section:
    """Return every table of `jobs.distil`, with the seconds of each part."""
    if not facts["distillations"]:
        sentence = "No distillation of this model is on storage; to train a teacher, and a student of its scores:"
        return missing(NAME, TITLE, sentence, command)
    blocks: list[str | Sequence[Chart]] = []
    for number, found in enumerate(facts["distillations"], 1):
        blocks += ablation_blocks(found["table"], f"{NAME}-{number}", TITLE)
        blocks.append(_costs(found["parts"]))
    return Section(NAME, TITLE, blocks)


def _costs(parts: Facts) -> str:
    lines = [
        [escape(each["of"].value), escape(each["name"].value), each["num_artifacts"].html(","),
         each["seconds"].html(",.0f")]
        for each in parts
    ]  # fmt: skip
    total = f"{sum(each['seconds'].value for each in parts):,.0f}"
    shown = table(["part", "stage or run", "artifacts", "seconds"], lines, num_names=2)
    return f"<details><summary>What each part took: {total} s in all</summary>{shown}</details>"
