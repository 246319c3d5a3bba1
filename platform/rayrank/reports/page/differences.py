"""Where the best run wins and loses against the first stage: query by query, by groups, and the extreme cases."""

from collections.abc import Sequence
from html import escape

from rayrank.reports.page.axes import Scale, around
from rayrank.reports.page.chart import Chart, Plot
from rayrank.reports.page.document import Section, missing, paragraph, table
from rayrank.reports.page.facts import Facts, difference_html
from rayrank.reports.page.rows import Interval, interval_chart

NAME, TITLE = "differences", "Where it wins and loses"
OPEN_CARDS = 6
"""Gains and losses that are shown at once; the others open on request."""
SHOWN_CHARACTERS = 320
"""Longer passages are cut in the cards; the facts have them whole."""


def section(facts: Facts, command: str) -> Section:
    """Return the differences between the run that dev chose and the first stage."""
    found = facts["comparison"]
    if not found:
        return missing(NAME, TITLE, "Only the first stage has been made so far; to train a ranker:", command)
    run, first = found["run"].value, found["baseline"].value
    what = f"{found['metric'].value} of {run} minus that of {first}"
    split = found["split"].value
    level = found["procedure"]["level"].value
    charts = [
        Chart(
            "differences",
            difference_curve(found["differences"], found["overall"]["num_queries"].value),
            f"Every {split} query by {what}, the largest gain first.",
        )
    ]
    for name, rows in found["tables"].items():
        caption = f"By {name}: mean difference, {level:.0%} interval, and the number of queries."
        charts.append(Chart(f"differences-by-{_slug(name)}", _groups(rows, what), caption))
    tables = "".join(_table(name, rows, run, first) for name, rows in found["tables"].items())
    blocks: list[str | Sequence[Chart]] = [
        _about(found),
        charts,
        f"<details><summary>All figures as tables</summary>{tables}</details>",
    ]
    for heading, cases in (("Largest gains", found["gains"]), ("Largest losses", found["losses"])):
        if cases:
            cards = [_card(case, found) for case in cases]
            blocks.append(f"<h3>{heading}</h3>{_cards(cards[:OPEN_CARDS])}")
            if more := cards[OPEN_CARDS:]:
                blocks.append(f"<details><summary>{len(more)} more</summary>{_cards(more)}</details>")
    return Section(NAME, TITLE, blocks)


def _about(found: Facts) -> str:
    whole, run, first = found["overall"], escape(found["run"].value), escape(found["baseline"].value)
    return paragraph(
        f"Of {whole['num_queries'].html(',')} queries, {run} is better than {first} on {whole['wins'].html(',')}, "
        f"equal on {whole['ties'].html(',')} and worse on {whole['losses'].html(',')}. Mean difference in "
        f"{escape(found['metric'].value)}: {difference_html(whole['comparison'])}, "
        f"p {whole['comparison']['p_value'].html('p')} (two-sided, {found['procedure']['resamples'].html(',')} "
        f"resamples; Holm-corrected within each group below)."
    )


def difference_curve(differences: Facts, num_queries: int) -> str:
    """Draw the difference of every query, the largest gain first."""
    points = [(each["query"], each["difference"]) for each in differences.value]
    x = Scale("queries, by difference", 1, max(2, num_queries))
    plot = Plot("Difference by query", x, Scale("difference", -1, 1), [("better", 0), ("worse", 1)])
    plot.area([(query, max(0.0, value)) for query, value in points], 0)
    return plot.area([(query, min(0.0, value)) for query, value in points], 1).svg()


def _groups(rows: Facts, what: str) -> str:
    shown = []
    for row in rows.value:
        found = row["comparison"]
        values = (found["difference"], found["low"], found["high"])
        series = 0 if found["difference"] >= 0 else 1
        shown.append(Interval(row["name"], *values, f"{row['num_queries']:,}", series))
    scale = around("mean difference", [0.0, *(end for row in shown for end in (row.low, row.high))])
    return interval_chart(what, shown, scale, line=0.0)


def _slug(name: str) -> str:
    """Return what queries are grouped by as a part of a file name, such as first-stage-rank."""
    return name.partition(",")[0].partition(" of ")[0].replace(" ", "-")


def _table(heading: str, rows: Facts, run: str, first: str) -> str:
    header = [heading, "queries", run, first, "difference [95 % CI]", "p", "better", "equal", "worse"]
    lines = []
    for row in rows:
        means = (row["mean"].html(".4f"), row["baseline"].html(".4f"))
        tested = (difference_html(row["comparison"]), row["comparison"]["p_value"].html("p"))
        counts = (row[name].html(",") for name in ("wins", "ties", "losses"))
        lines.append([escape(row["name"].value), row["num_queries"].html(","), *means, *tested, *counts])
    return table(header, lines)


def _cards(cards: list[str]) -> str:
    return f'<div class="cards">{"".join(cards)}</div>'


def _card(case: Facts, found: Facts) -> str:
    run, first = found["run"].value, found["baseline"].value
    kind = f" · {case['query_type'].value}" if case["query_type"] else ""
    parts = [
        f"<h4>{escape(case['query'].value)}</h4>",
        f'<p class="muted">{escape(case["query_id"].value + kind)} · {escape(found["metric"].value)} '
        f"{case['baseline'].html('.3f')} → {case['value'].html('.3f')}</p>",
    ]
    for name, hits in ((first, case["baseline_top"]), (run, case["top"])):
        parts.append(f"<p><b>{escape(name)}</b></p><ol>{''.join(map(_hit, hits))}</ol>")
    if case["relevant"]:
        ranks = f"{first}: {_rank(case['baseline_rank'])}, {run}: {_rank(case['rank'])}"
        shown = {hit["passage_id"].value for hits in (case["top"], case["baseline_top"]) for hit in hits}
        text = "" if case["relevant"]["passage_id"].value in shown else _relevant(case["relevant"])
        parts.append(f'<p class="muted">Judged relevant ({escape(ranks)})</p>{text}')
    return f'<article class="card">{"".join(parts)}</article>'


def _relevant(hit: Facts) -> str:
    return f"<mark>{escape(_cut(hit['text'].value))}</mark>"


def _hit(hit: Facts) -> str:
    text = escape(_cut(hit["text"].value) or f"{hit['passage_id'].value} (not in the corpus)")
    return f"<li>{f'<mark>{text}</mark>' if hit['is_relevant'] else text}</li>"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def _rank(rank: Facts) -> str:
    return f"rank {rank.value:,}" if rank else "not found"
