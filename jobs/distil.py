"""Train a large model, the teacher, and a small one, the student, that learns the teacher's scores besides the labels.

The teacher is trained with the student's settings, changed by --teacher-set, and re-ranks the student's candidates. The
table compares the first stage, the teacher, and the student with and without the teacher. Several encoders, or several
seeds of one, are a teacher together: their scores are averaged. How the student learns is a setting:

  --set listwise.teacher_loss=margin_mse --set listwise.teacher_weight=0.8 --set listwise.temperature=2

Settings of the student with the teacher alone may name the run `teacher`:

  --student-set noise.run=teacher --student-set pointwise.teacher=teacher
"""

from typing import Any

import yaml

from rayrank.core import overrides
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.jobs.ablate import refuse_shared
from rayrank.jobs.entry import Arguments, add_repeat_options, check_seeds, parser, run_task, seeds_of

STUDENT = "student.yaml"


def changes_of(arguments: Arguments) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of the teachers, and those of the student that learns from them."""
    found = []
    for option, assignments in (("--teacher-set", arguments.teacher_set), ("--student-set", arguments.student_set)):
        changes = overrides.assigned(assignments, option)
        refuse_shared(option, changes)
        if shared := next((key for key in changes if key.startswith("candidates.")), ""):
            raise ConfigError(f"{option} cannot change {shared}: a teacher scores the student's candidates; use --set.")
        found.append(changes)
    return found[0], found[1]


def teachers_of(arguments: Arguments, config: PipelineConfig) -> list[PipelineConfig]:
    """Return the configuration of each teacher: one for each encoder and seed."""
    from rayrank.stages import distillation

    if arguments.teacher_seeds < 1:
        raise ConfigError(f"--teacher-seeds {arguments.teacher_seeds} cannot be used: it must be at least 1.")
    changes, _ = changes_of(arguments)
    if arguments.teacher_seeds > 1:
        check_seeds("--teacher-seeds", config)
    seeds = [config.training.seed + number for number in range(arguments.teacher_seeds)]
    return [distillation.teacher(config, encoder, changes, seed) for encoder in arguments.teacher for seed in seeds]


def check(arguments: Arguments, config: PipelineConfig) -> None:
    """Raise ConfigError for unusable options before anything is trained."""
    from rayrank.stages import distillation

    seeds_of(arguments, config)
    distillation.check_student(config)
    teachers = teachers_of(arguments, config)
    _, changes = changes_of(arguments)
    # Files that do not exist yet stand for the teachers' scores, which only the flow's checks read here.
    runs = distillation.teacher_runs(config, [{"kind": "file", "paths": ["later"]}] * len(teachers))
    overrides.apply(config.model_dump(), {**runs, "listwise.teacher": distillation.TEACHER, **changes})


def run(arguments: Arguments, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Train teacher and students, write the tables, and return them as text."""
    from rich.console import Group

    from rayrank.jobs.report_folder import write_report
    from rayrank.reports import ablation_table
    from rayrank.reports.ablation_plot import ablation_png
    from rayrank.reports.costs import costs_table
    from rayrank.stages import distillation

    teachers, (_, changes) = teachers_of(arguments, config), changes_of(arguments)
    found = distillation.run(config, teachers, changes, seeds_of(arguments, config), store, arguments.parallel)
    costs = costs_table(found.parts)
    files = {
        "table.md": f"{ablation_table.markdown(found.table)}\n### Cost\n\n{costs.markdown()}".encode(),
        "table.png": ablation_png(found.table, found.table.splits[0]),
        STUDENT: yaml.safe_dump(overrides.as_file(found.student), sort_keys=False, allow_unicode=True).encode(),
    }
    figures = {"table": found.table.to_json(), "parts": [each._asdict() for each in found.parts]}
    shown = Group(ablation_table.plain(found.table), costs.plain())
    place, configs = ("distillation", found.key), [config, found.student]
    facts = write_report(store, place, {"distillation": figures}, files, shown, configs)
    facts["findings"].append(f"the student's settings, for --config of other jobs: {facts['folder']}/{STUDENT}")
    return facts


if __name__ == "__main__":
    options = parser(__doc__)
    add_repeat_options(options, "student")
    options.add_argument(
        "--teacher", action="append", required=True, metavar="ENCODER",
        help="the teacher's encoder: a hub name, a folder, or package:MODULE/FOLDER; may be repeated",
    )  # fmt: skip
    options.add_argument(
        "--teacher-set", action="append", default=[], metavar="KEY=VALUE",
        help="a setting of the teacher alone, as in listwise.lr=2e-5",
    )  # fmt: skip
    options.add_argument("--teacher-seeds", type=int, default=1, help="trainings of each teacher, averaged")
    options.add_argument(
        "--student-set", action="append", default=[], metavar="KEY=VALUE",
        help="a setting of the student with the teacher alone, as in noise.run=teacher",
    )  # fmt: skip
    arguments = options.parse_args()
    run_task(arguments, lambda config, store: run(arguments, config, store), lambda config: check(arguments, config))
