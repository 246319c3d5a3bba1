"""Write a report on all that storage has about a configuration: one HTML page that needs no other file.

It shows how good every run is and against what, where the best one wins and loses, how the trainings went, what scores
mean and what everything cost. Nothing is trained or made: the section of a missing result says what to run. With
--against the page compares this report with another one, query by query where both measured the same queries:

  --capacity capacity.json
  --against other_storage    --against other_storage/report/KEY
"""

from typing import Any

from rayrank.capacity.records import read_capacity
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.leases import leased
from rayrank.jobs.entry import Arguments, options_of, parser, run_task

CASES = 20
"""Gains and losses that the report shows, as many of each."""


def write(arguments: Arguments, config: PipelineConfig, store: Store) -> str:
    """Write report.html, report.json and the charts as SVG files; return the URL of the page."""
    from rayrank.reports.page.report import PAGE, files
    from rayrank.stages.report.collect import collect, folder

    facts, place = collect(config, store, CASES), folder(config, store)
    _write(place, "report", facts, files(facts, options_of(arguments)))
    return f"{place.url}/{PAGE}"


def write_against(arguments: Arguments, other: Artifact, config: PipelineConfig, store: Store) -> str:
    """Write the comparison with another report, as against-KEY.html beside report.html; return its URL."""
    from rayrank.reports.page.against import files
    from rayrank.stages.report.against import collect_against
    from rayrank.stages.report.collect import folder

    place = folder(config, store)
    facts = collect_against(place.read_json("report.json"), place, other, config)
    name = f"against-{other.key}"
    command = f"rayrank report {options_of(arguments)} --against {arguments.against}"
    _write(place, name, facts, files(facts, name, command))
    return f"{place.url}/{name}.html"


def _write(place: Artifact, name: str, facts: dict[str, Any], found: dict[str, bytes]) -> None:
    with leased(place, "writing this report"):
        place.write_json(f"{name}.json", facts)
        for file, content in found.items():
            with place.create(file) as stream:
                stream.write(content)


def run(arguments: Arguments, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Write the report, and the comparison that is asked for, and return where they are."""
    from rayrank.stages.report.against import other_report
    from rayrank.stages.report.collect import CAPACITY, folder

    # A report that cannot be read is reported before anything is written.
    other = other_report(arguments.against, folder(config, store)) if arguments.against else None
    if arguments.capacity:
        # It stays beside the report, so that later reports show it, too.
        folder(config, store).write_json(CAPACITY, read_capacity("--capacity", arguments.capacity).model_dump())
    facts = {"report": write(arguments, config, store)}
    if other:
        facts["comparison"] = write_against(arguments, other, config, store)
    return {**facts, "findings": [f"{name}: {url}" for name, url in facts.items()]}


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--capacity", metavar="FILE", help="show this measurement of rayrank plan --measure")
    options.add_argument("--against", metavar="STORAGE", help="compare with the newest report of this storage")
    arguments = options.parse_args()
    run_task(
        arguments,
        lambda config, store: run(arguments, config, store),
        # A file that cannot be read is reported before anything is written.
        lambda config: arguments.capacity and read_capacity("--capacity", arguments.capacity),
    )
