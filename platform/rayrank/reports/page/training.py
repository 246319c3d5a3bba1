"""How the trainings went: loss, dev metric, learning rate and speed of every phase."""

from collections.abc import Sequence
from html import escape

from rayrank.reports.page.axes import Scale, around, from_zero
from rayrank.reports.page.chart import Chart, Plot, Point
from rayrank.reports.page.document import Section, missing, paragraph, table
from rayrank.reports.page.facts import Facts

NAME, TITLE = "training", "Training"
TITLES = {"pretrain": "pre-training", "pointwise": "pointwise", "listwise": "listwise", "sdnet": "SDNet"}


def section(facts: Facts, command: str) -> Section:
    """Return the curves of every phase."""
    if not facts["phases"]:
        return missing(NAME, TITLE, "Nothing has been trained yet:", command)
    blocks: list[str | Sequence[Chart]] = [_table(facts["phases"])]
    for phase in facts["phases"]:
        blocks += [f"<h3>{escape(_title(phase).capitalize())}</h3>", paragraph(_about(phase)), _charts(phase, facts)]
    return Section(NAME, TITLE, blocks)


def _title(phase: Facts) -> str:
    name, _, seed = phase["name"].value.partition("@")
    title: str = TITLES.get(name, name.replace("_", " "))
    return f"{title}, seed {seed}" if seed else title


def _about(phase: Facts) -> str:
    settings = phase["settings"]
    if "positives" in settings:
        count = settings["positives"].value + settings["negatives"].value
        return f"An example is a query with up to {count} passages."
    return "An example is a query with one passage." if "pairs" in settings else "An example is one sequence."


def _table(phases: Facts) -> str:
    header = [
        "phase",
        "steps",
        "best step",
        "batch size",
        "epochs",
        "learning rate",
        "training, s",
        "workers",
        "device",
        "dev at the end",
    ]
    lines = [
        [
            escape(_title(phase)), *(phase.get(name).html(form) for name, form in (
                ("num_steps", ","), ("best_step", ","), ("batch_size", ","), ("epochs", ""), ("lr", "g"),
                ("train_seconds", ",.1f"), ("num_workers", ""), ("device", ""), ("dev", ".4f"))),
        ]
        for phase in phases
    ]  # fmt: skip
    return table(header, lines)


def _charts(phase: Facts, facts: Facts) -> list[Chart]:
    log, name = phase["log"].value, phase["name"].value
    steps = Scale("step", 0, max(1, phase["num_steps"].value))
    curves = (
        {each: [(line["step"], line[each]) for line in log if line[each] is not None] for each in log[0]} if log else {}
    )
    if not curves:
        return []
    losses = around("loss", [value for _, value in curves["loss"]])
    charts = [Chart(f"{name}-loss", _curve("Training loss", steps, losses, curves["loss"], 0), "Training loss.")]
    if name != "pretrain" and curves["dev"]:
        values = [value for _, value in curves["dev"]]
        first = phase.get("first_stage_dev").value
        y = around(f"dev {facts['metric'].value}", [*values, *([first] if first is not None else [])])
        plot = Plot("Dev metric", steps, y).line(curves["dev"], 2, with_markers=True)
        if first is not None:
            plot.rule(((0, first), (steps.high, first)), facts["first_stage"].value)
        charts.append(
            Chart(
                f"{name}-dev",
                plot.svg(),
                f"{y.label}, measured during training; dashed: the first stage on the same queries.",
            )
        )
    rates = from_zero("learning rate", [value for _, value in curves["lr"]], form=lambda value: f"{value:.2g}")
    charts.append(Chart(f"{name}-rate", _curve("Learning rate", steps, rates, curves["lr"], 3), "Learning rate."))
    speeds = from_zero("examples/s", [value for _, value in curves["examples_per_s"]])
    speed = _curve("Speed", steps, speeds, curves["examples_per_s"], 4)
    return [*charts, Chart(f"{name}-speed", speed, "Examples per second since the start.")]


def _curve(title: str, x: Scale, y: Scale, points: Sequence[Point], series: int) -> str:
    return Plot(title, x, y, height=210).line(points, series, with_markers=len(points) < 30).svg()
