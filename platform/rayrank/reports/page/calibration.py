"""What a score means: how often a passage with a probability is relevant, and where to cut to be right that often."""

from html import escape

from rayrank.reports.page.axes import Scale, percent
from rayrank.reports.page.chart import Chart, Plot
from rayrank.reports.page.document import Section, missing, paragraph, table
from rayrank.reports.page.facts import Facts

NAME, TITLE = "calibration", "Calibration"
KINDS = {"isotonic": "An isotonic", "platt": "Platt's"}


def section(facts: Facts, command: str) -> Section:
    """Return the reliability diagram and the table of thresholds."""
    found = facts["calibration"]
    if not found:
        return missing(NAME, TITLE, "No calibration: it needs a ranker's scores of judged dev queries.", command)
    caption = "Share of relevant candidates among those of a probability; on the dashed line both are equal."
    return Section(NAME, TITLE, [_about(found), [Chart("reliability", _diagram(found), caption)], _thresholds(found)])


def _about(found: Facts) -> str:
    return paragraph(
        f"{KINDS[found['kind'].value]} curve turns scores of {escape(found['title'].value)} into probabilities. It "
        f"was fitted to {found['num_pairs'].html(',')} candidates of {found['num_queries'].html(',')} dev queries, and "
        f"is measured on queries that it was not fitted to: expected calibration error "
        f"{found['ece_before'].html('.4f')} → "
        f"{found['ece_after'].html('.4f')}, log loss {found['log_loss_before'].html('.4f')} → "
        f"{found['log_loss_after'].html('.4f')}."
    )


def _diagram(found: Facts) -> str:
    x, y = (Scale(text, 0, 1, form=percent) for text in ("predicted probability", "relevant"))
    names = [(name, number) for number, name in enumerate(found["reliability"].value)]
    plot = Plot("Reliability", x, y, names, height=300).rule(((0, 0), (1, 1)))
    for number, bins in enumerate(found["reliability"].value.values()):
        tips = [f"{each['count']:,} candidates" for each in bins]
        plot.line([(each["predicted"], each["relevant"]) for each in bins], number, with_markers=True, tips=tips)
    return plot.svg()


def _thresholds(found: Facts) -> str:
    header = ["to be right", "probability from", "queries that keep an answer", "right [95% interval]"]
    lines = [_line(each) for each in found["thresholds"]]
    return paragraph(
        f"Keep only passages with at least this probability, and this share of what is left is relevant, measured on "
        f"queries that did not choose the threshold (the endpoint's field min_precision does it). Without a threshold "
        f"the first passage is relevant for {found['precision_of_all'].html('.1%')} of the "
        f"{found['num_top'].html(',')} dev queries."
    ) + table(header, lines) + "".join(map(_reason, found["thresholds"]))  # fmt: skip


def _line(level: Facts) -> list[str]:
    if level["logit"].value is None:
        return [level["wanted"].html(".0%"), "–", "–", "–"]
    right = f"{level['precision'].html('.1%')} [{level['low'].html('.1%')}, {level['high'].html('.1%')}]"
    return [level["wanted"].html(".0%"), level["probability"].html(".3f"), level["kept"].html(".1%"), right]


def _reason(level: Facts) -> str:
    reason = level["reason"].value
    return paragraph(f"No threshold for {level['wanted'].html('.0%')}: {escape(reason)}.") if reason else ""
