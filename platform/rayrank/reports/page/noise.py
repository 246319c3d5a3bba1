"""What the noise filter takes out of the training candidates."""

from html import escape

from rayrank.reports.page.axes import Scale, from_zero, percent
from rayrank.reports.page.chart import Chart, Plot, Point
from rayrank.reports.page.document import Section, missing, paragraph, table
from rayrank.reports.page.facts import Facts

NAME, TITLE = "noise", "Noise in the judgments"
GROUPS = {
    "negatives": ("not judged relevant", 0),
    "positives": ("judged relevant", 1),
    "hidden": ("relevant but unjudged", 2),
}


def section(facts: Facts, command: str) -> Section:
    """Return the scores of the training candidates, the threshold, and the most suspicious pairs."""
    noise = facts["noise"]
    if not noise:
        return missing(
            NAME, TITLE, "No noise report is on storage, or the settings of noise filter nothing; to make it:", command
        )
    scores = (
        "Training candidates by the probability that the pointwise model gives them. Unjudged candidates right of the "
        "threshold are left out of the lists."
    )
    charts = [
        Chart("noise-scores", _histogram(noise), scores),
        Chart("noise-threshold", _removed(noise), "Share of the negatives that each threshold removes."),
    ]
    return Section(NAME, TITLE, [_about(noise), charts, *_suspicious(noise)])


def _about(noise: Facts) -> str:
    found = noise["at_threshold"]
    text = (
        f"The threshold {noise['threshold'].html('g')} removes {found['num_removed'].html(',')} of "
        f"{noise['num_negatives'].html(',')} negatives ({found['share_removed'].html('.2%')}) and leaves "
        f"{found['mean_negatives_left'].html('.1f')} per query."
    )
    if noise["hidden"] and found["precision"].value is not None:
        text += (
            f" This dataset knows which unjudged passages are answers: {found['precision'].html('.1%')} of the removed "
            f"ones are (chance: {noise['hidden']['base_rate'].html('.1%')}), and {found['recall'].html('.1%')} of "
            f"those answers are removed."
        )
    if near := noise["at_margin"]:
        text += (
            f" The margin {noise['margin'].html('g')} below the best positive removes {near['num_removed'].html(',')} "
            f"negatives."
        )
    if sure := noise["at_relabel"]:
        text += (
            f" From the probability {noise['relabel'].html('g')} on, {sure['num_removed'].html(',')} unjudged "
            f"candidates become positives."
        )
    return paragraph(text)


def _histogram(noise: Facts) -> str:
    histogram = noise["histogram"].value
    names = [(label, series) for name, (label, series) in GROUPS.items() if name in histogram]
    largest = max(max(histogram[name]) for name in GROUPS if name in histogram)
    # Half a candidate stands for none: a log scale has no zero.
    y = Scale("candidates (log scale)", 0.5, max(10, 1.5 * largest), is_log=True)
    plot = Plot("Scores of the training candidates", Scale("probability of relevance", 0, 1), y, names)
    for name, (_, series) in GROUPS.items():
        if name in histogram:
            plot.line(_steps(histogram["edges"], histogram[name]), series)
    threshold = noise["threshold"].value
    return plot.rule(((threshold, 0.5), (threshold, y.high)), f"threshold {threshold:g}").svg()


def _steps(edges: list[float], counts: list[int]) -> list[Point]:
    return [
        point
        for left, right, count in zip(edges, edges[1:], counts, strict=False)
        for point in ((left, count), (right, count))
    ]


def _removed(noise: Facts) -> str:
    points = [(point["threshold"], point["share_removed"] or 0.0) for point in noise["grid"].value]
    x = Scale("threshold", min(place for place, _ in points), 1.0)
    y = from_zero("negatives removed", [value for _, value in points], form=percent)
    threshold = noise["threshold"].value
    plot = Plot("Negatives removed by threshold", x, y).line(points, 0, with_markers=True)
    return plot.rule(((threshold, 0.0), (threshold, y.high)), f"{threshold:g}").svg()


def _suspicious(noise: Facts) -> list[str]:
    rows = []
    for row in noise["suspicious"]:
        probability = f"{float(row['probability'].value):.3f}"
        rows.append([escape(row["query"].value), probability, row["rank"].html(), escape(row["passage"].value)])
    if not rows:
        return []
    text = table(["query", "probability", "rank", "passage without a relevant judgment"], rows)
    text = text.replace("<td>", '<td class="long">')
    return [f"<details><summary>The {len(rows)} most suspicious pairs, for relabelling</summary>{text}</details>"]
