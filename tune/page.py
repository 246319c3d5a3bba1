"""The HTML report of a sweep: findings, plots and every trial in one self-contained file."""

import base64
from collections.abc import Mapping, Sequence
from html import escape

TITLES = {
    "best_so_far": "Best so far",
    "pareto": "Quality against cost",
    "n_minus": "Number of negatives (Figure 5 of the paper)",
    "threshold": "Noise threshold: negatives removed, and dev metric",
    "importances": "Importance of the settings",
    "coordinates": "Settings and result of every trial",
}

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2 { font-weight: 600; } img { max-width: 100%; }
table { border-collapse: collapse; font-size: 13px; } td, th { padding: .25rem .6rem; text-align: left; }
tr:nth-child(even) { background: #f4f7fa; } th { border-bottom: 2px solid #0072B2; }
tr.failed td { color: #B23C00; } tr.stopped td { color: #595959; }
@media (max-width: 40rem) { table { display: block; overflow-x: auto; } }
"""


def page(lines: Sequence[str], pictures: Mapping[str, bytes], trials: Sequence[Sequence[str]]) -> str:
    """Return the page with the plots embedded."""
    parts = ["<h1>Sweep</h1>", *(f"<p>{escape(line)}</p>" for line in lines)]
    for name, picture in pictures.items():
        title, data = escape(TITLES[name]), base64.b64encode(picture).decode()
        parts.append(f'<h2>{title}</h2>\n<img alt="{title}" src="data:image/png;base64,{data}">')
    parts += ["<h2>Trials</h2>", _table(trials)]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Sweep</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def _table(trials: Sequence[Sequence[str]]) -> str:
    header, *rows = trials
    lines = ["<table>", "<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in header) + "</tr>"]
    for row in rows:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in row)
        lines.append(f'<tr class="{row[1].split()[0]}">{cells}</tr>')
    return "\n".join([*lines, "</table>"])
