"""Write a report on all that storage has about a configuration: one HTML page that needs no other file.

It shows how good every run is and against what, where the best one wins and loses, how the trainings went, what scores
mean and what everything cost. Nothing is trained or made: the section of a missing result says what to run.
"""

from typing import Any

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.jobs.entry import Arguments, options_of, parser, run_task

CASES = 20
"""Gains and losses that the report shows, as many of each."""


def write(arguments: Arguments, config: PipelineConfig, store: Store) -> str:
    """Write report.html, report.json and the charts as SVG files; return the URL of the page."""
    from rayrank.reports.page.report import PAGE, files
    from rayrank.stages.report.collect import collect, folder

    facts, place = collect(config, store, CASES), folder(config, store)
    place.write_json("report.json", facts)
    for name, content in files(facts, options_of(arguments)).items():
        with place.create(name) as stream:
            stream.write(content)
    return f"{place.url}/{PAGE}"


def run(arguments: Arguments, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Write the report and return where it is."""
    url = write(arguments, config, store)
    return {"report": url, "findings": [f"report: {url}"]}


if __name__ == "__main__":
    arguments = parser(__doc__).parse_args()
    run_task(arguments, lambda config, store: run(arguments, config, store))
