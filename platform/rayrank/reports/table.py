"""Figures for people: one table, as plain text or as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

import rich.table
from rich.text import Text

from rayrank.measure.significance import Comparison, Interval


@dataclass(frozen=True)
class Row:
    """One metric of one run, and how it compares with the baseline, if there is one."""

    run: str
    metric: str
    interval: Interval
    comparison: Comparison | None = None


@dataclass(frozen=True)
class MetricsTable:
    """A header and lines of text, ready to be drawn; the first columns are names."""

    header: list[str]
    lines: list[list[str]]
    num_names: int = 2

    def plain(self) -> rich.table.Table:
        """Draw for a terminal."""
        table = rich.table.Table()
        for index, title in enumerate(self.header):
            table.add_column(title, justify="left" if index < self.num_names else "right")
        for line in self.lines:
            table.add_row(*map(Text, line))  # Text, so that brackets are not taken for markup
        return table

    def markdown(self) -> str:
        """Draw for a README or a report."""
        rule = ["---" if index < self.num_names else "---:" for index in range(len(self.header))]
        lines = [self.header, rule, *([cell.replace("|", r"\|") for cell in line] for line in self.lines)]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def metrics_table(rows: Sequence[Row], baseline: str = "", level: float = 0.95) -> MetricsTable:
    """Lay out rows, in their order; columns against the baseline appear if any row has a comparison."""
    interval = f"[{level:.0%} CI]"
    header = ["run", "metric", f"mean {interval}"]
    compared = any(row.comparison for row in rows)
    if compared:
        header += [f"against {baseline or 'baseline'} {interval}", "p"]
    lines = []
    for row in rows:
        line = [row.run, row.metric, mean_text(row.interval)]
        if compared:
            line += [difference_text(row.comparison), p_text(row.comparison.p_value)] if row.comparison else ["", ""]
        lines.append(line)
    return MetricsTable(header, lines)


def mean_text(interval: Interval) -> str:
    """Write a mean with its interval: `0.4120 [0.3950, 0.4300]`."""
    return f"{interval.mean:.4f} [{interval.low:.4f}, {interval.high:.4f}]"


def difference_text(comparison: Comparison) -> str:
    """Write a difference with its interval, signs shown: `+0.0210 [-0.0010, +0.0430]`."""
    return f"{comparison.difference:+.4f} [{comparison.low:+.4f}, {comparison.high:+.4f}]"


def p_text(p_value: float) -> str:
    """Write a p value with three decimals, or as `< 0.001`."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"
