"""Words that the tokenizer cuts into pieces: what they do to a re-ranker without STRM, and what STRM changes."""

from collections.abc import Sequence
from html import escape

from rayrank.reports.cut_words import WITH, WITHOUT
from rayrank.reports.page.attention import attention_chart
from rayrank.reports.page.chart import Chart
from rayrank.reports.page.document import Section, missing, paragraph, table
from rayrank.reports.page.facts import Facts, difference_html

NAME, TITLE = "cut-words", "Cut words"


def section(facts: Facts, command: str) -> Section:
    """Return DR-BERT's Table 3 and Figure 4 on this data."""
    found = facts["cut_words"]
    if not found:
        sentence = "No report on cut words of this model is on storage; to train it with and without STRM:"
        return missing(NAME, TITLE, sentence, command)
    blocks: list[str | Sequence[Chart]] = [_about(found), _queries(found), _ranks(found)]
    lower, higher = found["groups"][1]["num_lower"], found["groups"][2]["num_higher"]
    top = found["top"].html()
    for cases, text in (
        (found["lowered"], f"Ranked lower with STRM: the clearest of {lower.html(',')} in the top {top} {WITHOUT}"),
        (found["raised"], f"Ranked higher with STRM: the clearest of {higher.html(',')} in the top {top} {WITH}"),
    ):
        if cases:
            blocks += [f"<h3>{text}</h3>", _cases(cases)]
    every = [*found["lowered"], *found["raised"]]
    for number, (case, attention) in enumerate(zip(every, found["attention"], strict=False), 1):
        if number == 1:
            blocks.append(f"<h3>Attention between pieces</h3>{paragraph(_legend(found))}")
        blocks.append(_pictures(number, case, attention))
    return Section(NAME, TITLE, blocks)


def _about(found: Facts) -> str:
    return paragraph(
        f"{escape(found['run'].value)} with STRM (strm.form={escape(found['form'].value)}) and without, each trained "
        f"with its own attention, on {escape(found['split'].value)}. A cut word is a word of the query that the "
        f"tokenizer cuts into several pieces. A passage that has one of these pieces, but not the word, may mislead a "
        f"model without STRM."
    )


def _queries(found: Facts) -> str:
    header = ["queries", "count", WITHOUT, WITH, "difference [95 % CI]", "p", "better", "equal", "worse"]
    lines = [
        [escape(row["name"].value), row["num_queries"].html(","), row["baseline"].html(".4f"), row["mean"].html(".4f"),
         difference_html(row["comparison"]), row["comparison"]["p_value"].html("p"),
         *(row[name].html(",") for name in ("wins", "ties", "losses"))]
        for row in found["queries"]
    ]  # fmt: skip
    return f"<h3>{escape(found['metric'].value)} of both models</h3>{table(header, lines)}"


def _ranks(found: Facts) -> str:
    header = ["passages that are not relevant", "pairs", f"mean rank {WITHOUT}", f"mean rank {WITH}"]
    header += ["STRM lower", "equal", "STRM higher"]
    lines = [
        [escape(row["name"].value), row["num_pairs"].html(","), row["plain_mean_rank"].html(".2f"),
         row["mean_rank"].html(".2f"), *(row[name].html(",") for name in ("num_lower", "num_equal", "num_higher"))]
        for row in found["groups"]
    ]  # fmt: skip
    text = (
        "What one model ranks high another ranks lower on average, so compare passages that share pieces with others."
    )
    return f"<h3>Ranks of passages that share a piece</h3>{table(header, lines)}{paragraph(text)}"


def _cases(cases: Facts) -> str:
    header = ["query", "cut word", "in the passage", f"rank {WITHOUT}", f"rank {WITH}"]
    header += [f"probability {WITHOUT}", f"probability {WITH}"]
    lines = []
    for case in cases:
        words = "; ".join(f"{each['word'].value}: {' '.join(each['pieces'].value)}" for each in case["words"])
        others = "; ".join(", ".join(" ".join(other) for other in each["others"].value) for each in case["words"])
        ranks = [case["plain_rank"].html(","), case["rank"].html(",")]
        probabilities = [case[name].html("p") for name in ("plain_probability", "probability")]
        lines.append([escape(case["query"].value), escape(words), escape(others), *ranks, *probabilities])
    shown = table(header, lines, num_names=3)
    return shown.replace('<td class="name">', '<td class="long">')


def _legend(found: Facts) -> str:
    layers = "the last layer" if found["layers"].value == "last" else "all layers"
    return (
        f"From the query's pieces (columns) to the passage's (rows), mean over the heads of {layers}: the stronger "
        f"the colour, the more attention. Underlined: the pieces of the cut word, and those that the passage shares."
    )


def _pictures(number: int, case: Facts, attention: Facts) -> list[Chart]:
    """Return the attention of one pair without and with STRM, on one scale."""
    both = [attention["plain_weights"].value, attention["weights"].value]
    highest = max(value for weights in both for row in weights for value in row)
    charts = []
    for kind, weights, rank in zip((WITHOUT, WITH), both, (case["plain_rank"], case["rank"]), strict=True):
        caption = f"Case {number} {kind}: rank {rank.value:,}, {case['query'].value}"
        svg = attention_chart(f"Attention {kind}", attention.value, weights, highest)
        charts.append(Chart(f"attention-{number}-{kind.replace(' ', '-').lower()}", svg, caption))
    return charts
