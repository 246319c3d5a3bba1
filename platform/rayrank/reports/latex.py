"""Tables for LaTeX documents."""

import re

from rayrank.reports.table import MetricsTable

ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def escaped(text: str) -> str:
    """Return text with LaTeX's special characters escaped; a hyphen before a number becomes a minus sign."""
    written = "".join(ESCAPES.get(sign, sign) for sign in text)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", written)


def latex_table(table: MetricsTable, caption: str, label: str, rule_after: int | None = None) -> str:
    """Return a booktabs table scaled to the text width, with a rule after line `rule_after`."""
    columns = "".join("l" if index < table.num_names else "r" for index in range(len(table.header)))
    body = []
    for number, line in enumerate(table.lines):
        body.append(_line(line))
        if number == rule_after and number + 1 < len(table.lines):
            body.append(r"\midrule")
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escaped(caption)}}}",
        rf"\label{{{label}}}",
        r"\resizebox{\textwidth}{!}{%",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _line(table.header),
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    # After a line break LaTeX would read a bracket or a star at the start of a cell as its option.
    written = " & ".join(f"{{}}{escaped(cell)}" if cell.startswith(("[", "*")) else escaped(cell) for cell in cells)
    return written + r" \\"
