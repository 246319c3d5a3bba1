"""The folder of a report on storage: its figures as JSON, its other files, and its table for the screen."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.leases import leased
from rayrank.stages.report.belonging import ABOUT, about

if TYPE_CHECKING:
    from rayrank.reports.comparison import ComparisonReport


def write_report(
    store: Store, place: tuple[str, str], figures: Mapping[str, Any], files: Mapping[str, bytes], shown: RenderableType,
    configs: Sequence[PipelineConfig] = (),
) -> dict[str, Any]:  # fmt: skip
    """Write a report to STORAGE/FOLDER/KEY, `place` being (folder, key), and return the facts for the summary.

    `figures` has one entry: its name is that of the JSON file, its value the content. The page of `rayrank report` on
    one of `configs` shows it.
    """
    folder = Artifact(store.root, *place)
    with leased(folder, "writing this report"):
        if configs:
            folder.write_json(ABOUT, about(*configs))
        for name, content in figures.items():
            folder.write_json(f"{name}.json", content)
        for name, content in files.items():
            with folder.create(name) as stream:
                stream.write(content)
    console = Console(width=160)
    with console.capture() as drawn:
        console.print(shown)
    return {**figures, "folder": folder.url, "findings": [drawn.get(), f"in {folder.url}"]}


def write_comparison(store: Store, key: str, report: "ComparisonReport") -> dict[str, Any]:
    """Write the comparison of two runs as JSON, Markdown and PNG, and return the facts for the summary."""
    from rayrank.reports import comparison_plot, comparison_table

    files = {
        "report.md": comparison_table.markdown(report).encode(),
        "differences.png": comparison_plot.differences_png(report),
        "groups.png": comparison_plot.groups_png(report),
    }
    return write_report(store, ("comparison", key), {"report": report.to_json()}, files, comparison_table.plain(report))
