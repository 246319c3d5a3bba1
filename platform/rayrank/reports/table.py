"""Tables of metrics, for a terminal or as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

import rich.table
from rich.text import Text

from rayrank.measure.significance import Comparison, Interval


@dataclass(frozen=True)
class Row:
    """One metric of one run, with its comparison to the baseline if there is one."""

    run: str
    metric: str
    interval: Interval
    comparison: Comparison | None = None


@dataclass(frozen=True)
class MetricsTable:
    """A header and lines of text; the first `num_names` columns are names, aligned to the left."""

    header: list[str]
    lines: list[list[str]]
    num_names: int = 2

    def plain(self, boxed: bool = True) -> rich.table.Table:
        """Return the table for a terminal."""
        table = rich.table.Table() if boxed else rich.table.Table(box=None, pad_edge=False)
        for index, title in enumerate(self.header):
            table.add_column(title, justify="left" if index < self.num_names else "right")
        for line in self.lines:
            table.add_row(*map(Text, line))  # rich would read brackets in a str as markup
        return table

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rule = ["---" if index < self.num_names else "---:" for index in range(len(self.header))]
        lines = [self.header, rule, *([cell.replace("|", r"\|") for cell in line] for line in self.lines)]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def metrics_table(rows: Sequence[Row], baseline: str = "", level: float = 0.95) -> MetricsTable:
    """Return rows as a table in their order, with columns for the baseline if any row has a comparison."""
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
    """Return a mean with its interval: `0.4120 [0.3950, 0.4300]`."""
    return f"{interval.mean:.4f} [{interval.low:.4f}, {interval.high:.4f}]"


def difference_text(comparison: Comparison) -> str:
    """Return a difference with its interval and signs: `+0.0210 [-0.0010, +0.0430]`."""
    return f"{comparison.difference:+.4f} [{comparison.low:+.4f}, {comparison.high:+.4f}]"


def p_phrase(p_value: float) -> str:
    """Return a p value for a sentence: `p < 0.001` or `p = 0.042`."""
    text = p_text(p_value)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def p_text(p_value: float) -> str:
    """Return a p value with three decimals, or as `< 0.001`."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"
