"""The ablation as text, Markdown and LaTeX: per split one table of the main metric and one of the others."""

from collections.abc import Mapping

import rich.console
from rich.text import Text

from rayrank.reports.ablation import ALL, Ablation, AblationRow
from rayrank.reports.latex import latex_table
from rayrank.reports.table import MetricsTable, difference_text, mean_text, p_text

EMPTY_CELL = "-"
SIGNIFICANT = 0.05
"""Differences with a Holm-corrected p value below it are starred."""


def main_table(ablation: Ablation, split: str) -> MetricsTable:
    """Return the table of a split's main metric: mean, difference to the reference, slices, cost."""
    metric, interval = ablation.metrics[0], f"[{ablation.procedure.level:.0%} CI]"
    header = ["row", f"{metric} {interval}", f"against {ablation.reference} {interval}", "p"]
    seeds = any(row.num_seeds > 1 for row in ablation.rows)
    costs = any(row.device_seconds is not None for row in ablation.rows)
    header += ["seeds"] * seeds
    for part in ablation.slices:
        header.append(f"{part} ({_num_queries(ablation, split, part):,})")
    header += ["device seconds"] * costs
    rates = any(row.pairs_per_second is not None for row in ablation.rows)
    header += ["pairs/s"] * rates
    lines = []
    for row in ablation.rows:
        line = [row.name, *_main_cells(row, split, metric), *([_seeds(row, split, metric)] if seeds else [])]
        line += [_short(row, split, metric, part) for part in ablation.slices]
        line += [_number(row.device_seconds)] * costs + [_number(row.pairs_per_second)] * rates
        lines.append(line)
    return MetricsTable(header, lines, num_names=1)


def other_table(ablation: Ablation, split: str) -> MetricsTable:
    """Return the table of a split's other metrics, each with its difference to the reference."""
    metrics = ablation.metrics[1:]
    lines = [[row.name, *(_short(row, split, metric) for metric in metrics)] for row in ablation.rows]
    return MetricsTable(["row", *metrics], lines, num_names=1)


def caption(ablation: Ablation, split: str) -> str:
    """Return the caption of a split's tables: the number of queries, the tests and the signs used."""
    chosen, count = ablation.procedure, _num_queries(ablation, split)
    test = "paired randomisation test" if chosen.test == "randomisation" else "paired t-test"
    text = (
        f"{split} split, {count:,} queries. Intervals ({chosen.level:.0%}) by bootstrap over queries. p: {test} "
        f"against {ablation.reference}, two-sided, Holm-corrected over the {len(ablation.rows) - 1} other rows "
        f"within each column; * is p < {SIGNIFICANT}. In parentheses: the difference to {ablation.reference}."
    )
    if any(row.num_seeds > 1 for row in ablation.rows):
        text += " Several seeds are averaged query by query; seeds: their number and the lowest and highest mean."
    return text + about_failed(ablation.failed)


def about_failed(failed: Mapping[str, str]) -> str:
    """Return a sentence for each row that has no figures, from the reasons by row."""
    return "".join(f" The row {name} is missing, because its training failed: {why}" for name, why in failed.items())


def tables(ablation: Ablation, split: str) -> list[MetricsTable]:
    """Return the tables of a split."""
    return [main_table(ablation, split), *([other_table(ablation, split)] if len(ablation.metrics) > 1 else [])]


def plain(ablation: Ablation) -> rich.console.Group:
    """Return all tables for a terminal."""
    drawn: list[rich.console.RenderableType] = []
    for split in ablation.splits:
        drawn += [*(table.plain() for table in tables(ablation, split)), Text(caption(ablation, split) + "\n")]
    return rich.console.Group(*drawn)


def markdown(ablation: Ablation) -> str:
    """Return all tables as Markdown."""
    parts = []
    for split in ablation.splits:
        # Markdown would read a lone star as emphasis.
        escaped = caption(ablation, split).replace("*", r"\*")
        parts += [f"### {split}\n", *(table.markdown() for table in tables(ablation, split)), escaped + "\n"]
    return "\n".join(parts)


def latex(ablation: Ablation) -> str:
    """Return all tables as LaTeX; the preamble needs the packages booktabs and graphicx."""
    names = [row.name for row in ablation.rows]
    # A rule below the full model separates it from the rows that leave a part out.
    rule_after = names.index(ablation.reference)
    parts = []
    for split in ablation.splits:
        main, *others = tables(ablation, split)
        parts.append(latex_table(main, caption(ablation, split), f"tab:ablation-{split}", rule_after))
        parts += [
            latex_table(
                table, f"Other metrics of the same rows, {split} split.", f"tab:ablation-{split}-other", rule_after
            )
            for table in others
        ]
    return "\n".join(parts)


def _num_queries(ablation: Ablation, split: str, part: str = ALL) -> int:
    reference = next(row for row in ablation.rows if row.name == ablation.reference)
    figure = reference.figure(split, ablation.metrics[0], part)
    return figure.num_queries if figure else 0


def _main_cells(row: AblationRow, split: str, metric: str) -> list[str]:
    figure = row.figure(split, metric)
    if figure is None:
        return [EMPTY_CELL] * 3
    if figure.comparison is None or figure.p_holm is None:
        return [mean_text(figure.interval), "", ""]
    return [mean_text(figure.interval), difference_text(figure.comparison), p_text(figure.p_holm)]


def _number(value: float | None) -> str:
    return EMPTY_CELL if value is None else f"{value:,.0f}"


def _seeds(row: AblationRow, split: str, metric: str) -> str:
    figure = row.figure(split, metric)
    if figure is None or len(figure.seed_means) < 2:
        return EMPTY_CELL
    return f"{len(figure.seed_means)}: {min(figure.seed_means):.4f} to {max(figure.seed_means):.4f}"


def _short(row: AblationRow, split: str, metric: str, part: str = ALL) -> str:
    """Return a mean with its difference to the reference, starred if the difference is significant."""
    figure = row.figure(split, metric, part)
    if figure is None:
        return EMPTY_CELL
    text = f"{figure.interval.mean:.4f}"
    if figure.comparison is None or figure.p_holm is None:
        return text
    return f"{text} ({figure.comparison.difference:+.4f}){'*' * (figure.p_holm < SIGNIFICANT)}"
