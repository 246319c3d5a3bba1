"""Distillation: larger models score the student's candidates, and the student learns these scores besides the labels.

A teacher is a configuration of its own, whose artifacts lie on the same storage under their own keys. Its stored scores
become a run of kind `file` of the student's configuration, so the student's key depends on the scores alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.run_kinds import CANDIDATES
from rayrank.data.digests import varied
from rayrank.reports.ablation import Ablation
from rayrank.reports.costs import Part
from rayrank.stages import ablation
from rayrank.stages.ablation import RowSpec, configured, device_seconds, full_run, pairs_per_second
from rayrank.stages.graph import make_all

TEACHER, SHARED = "teacher", "student_candidates"
"""The names of the runs that are added: a teacher's scores, and the candidates that all configurations share."""
ALONE, TAUGHT = "student without teacher", "student with teacher"

Changes = Mapping[str, Any]


class Distilled(NamedTuple):
    """The table of first stage, teacher and students, what each stage took, and the student with its teacher."""

    table: Ablation
    parts: list[Part]
    student: PipelineConfig
    key: str
    """The digest of all evaluations."""


def run(
    config: PipelineConfig, teachers: Sequence[PipelineConfig], changes: Changes, seeds: Sequence[int], store: Store,
    parallel: int,
) -> Distilled:  # fmt: skip
    """Train the teachers, then the student with each seed, alone and with the teachers' scores; measure all of them.

    `changes` are settings of the student that learns from the teachers.
    """
    candidates = (flow.run_node(CANDIDATES, config), config)
    make_all([candidates], store, parallel)
    teachers = [_sharing_candidates(each, config, store) for each in teachers]
    scored = [(node, each) for each in teachers for node in _scored(each)]
    make_all(scored, store, parallel)
    base = _with_teacher(config, teachers, store)
    rows = _rows(base, changes)

    def configure(of: PipelineConfig, row: RowSpec, seed: int) -> PipelineConfig:
        # Where the first stage is trained, another seed would find other candidates than the teachers have scored.
        return _sharing_candidates(configured(of, row, seed), config, store)

    table = ablation.run(base, store, rows, seeds, parallel, ALONE, configure)
    students = {
        row.name: [(flow.run_node(row.run, each), each) for each in (configure(base, row, seed) for seed in seeds)]
        for row in rows
        if row.name in (ALONE, TAUGHT)
    }
    return Distilled(
        _costed(table, teachers, store),
        _parts({"first stage": [candidates], "teacher": scored, **students}, store),
        varied(base, rows[-1].changes),
        ablation.digest(base, rows, seeds, ALONE, configure),
    )


def check_student(config: PipelineConfig) -> None:
    """Raise ConfigError if a configuration has no listwise model to teach, no candidates to score, or a teacher."""
    settings: Any = config.runs
    _check_candidates(config)
    name = full_run(config)
    if settings[name].model not in ("listwise", "soup"):
        raise ConfigError(
            f"The run {name} ranks with the {settings[name].model} model, but only a listwise model learns from a "
            f"teacher: add a run, as in --set runs.student={{kind: rerank, model: listwise}}."
        )
    for name in (TEACHER, SHARED):
        if name in config.runs:
            raise ConfigError(f"runs.{name} exists already, but jobs.distil adds a run of this name: rename yours.")
    if config.listwise.teacher:
        raise ConfigError(
            f"listwise.teacher={config.listwise.teacher} cannot be used here: jobs.distil trains the teacher; leave it "
            f"empty."
        )


def _check_candidates(config: PipelineConfig) -> None:
    """Raise ConfigError if the rows of a query may lie in several files: those of a teacher would, too, and the run of
    kind `file` that its scores become needs them in one."""
    first, _, kind = flow.run_named(CANDIDATES, config)
    if kind.has_scores:
        return
    stages = [name for name in config.runs if flow.is_first_stage(name, config)]
    able = ", ".join(name for name in stages if flow.run_named(name, config)[2].has_scores)
    raise ConfigError(
        f"candidates.first_stage={first} cannot be used here: this run has no scores, so the rows of a query may lie "
        f"in several files, where a teacher's must not; choose one of {able} with --set candidates.first_stage=..."
    )


def teacher(config: PipelineConfig, encoder: str, changes: Changes, seed: int) -> PipelineConfig:
    """Return the configuration of a teacher with another encoder, which keeps all of its layers."""
    own = {"encoder.name": encoder, "text.tokenizer": encoder, "encoder.layers": None, "training.seed": seed}
    return varied(config, {**own, **changes})


def _sharing_candidates(found: PipelineConfig, config: PipelineConfig, store: Store) -> PipelineConfig:
    """Return a configuration that reads the candidates of another one, which must exist.

    With the same vocabulary, and seed if the first stage is trained, they are the same artifact anyway.
    """
    name, settings, _ = flow.run_named(CANDIDATES, config)
    if flow.key(CANDIDATES, found) == flow.key(CANDIDATES, config):
        return found
    run = {
        **_files([store.require(flow.run_node(name, config), config).url]),
        "depth": getattr(settings, "depth", None),
    }
    return varied(found, {f"runs.{SHARED}": run, "candidates.first_stage": SHARED})


def _scored(found: PipelineConfig) -> list[str]:
    """Return the nodes whose rows are a teacher's scores: of the training candidates, and of the held-out splits."""
    name = full_run(found)
    return [flow.run_node(name, found, train=True), flow.run_node(name, found)]


def _with_teacher(config: PipelineConfig, teachers: Sequence[PipelineConfig], store: Store) -> PipelineConfig:
    """Return the student's configuration with the teachers' stored scores as a run; several teachers are averaged."""
    urls = [[store.require(node, found).url for node in _scored(found)] for found in teachers]
    return varied(config, teacher_runs(config, [_files(each) for each in urls]))


def teacher_runs(config: PipelineConfig, files: Sequence[Changes]) -> dict[str, Any]:
    """Return the settings of the run of one teacher, or of the average of several."""
    depth = getattr(flow.run_named(CANDIDATES, config)[1], "depth", None)
    if len(files) == 1:
        return {f"runs.{TEACHER}": {**files[0], "depth": depth, "title": TEACHER}}
    names = [f"{TEACHER}-{number}" for number in range(1, len(files) + 1)]
    # Trainings differ in the scale of their scores, so these are made comparable in each query.
    average = {"kind": "interpolate", "of": names, "weight": [1] * len(names), "normalize": "z-score", "depth": depth}
    singles = {f"runs.{name}": {**each, "depth": depth} for name, each in zip(names, files, strict=True)}
    return {**singles, f"runs.{TEACHER}": {**average, "title": f"{len(names)} teachers"}}


def _rows(config: PipelineConfig, changes: Changes) -> list[RowSpec]:
    """Return the table's rows; `changes` are settings of the student that has a teacher."""
    student = full_run(config)
    return [
        RowSpec(flow.title(CANDIDATES, config), {}, CANDIDATES),
        RowSpec(TEACHER, {}, TEACHER),
        RowSpec(ALONE, {}, student),
        RowSpec(TAUGHT, {"listwise.teacher": TEACHER, **changes}, student),
    ]


def _costed(table: Ablation, teachers: Sequence[PipelineConfig], store: Store) -> Ablation:
    """Return the table with the device seconds of the teachers in their own row and in that of their student."""
    seconds, of_a_pair = 0.0, 0.0
    for found in teachers:
        train, held_out = _scored(found)
        seconds += device_seconds([found], store, train)
        if speed := pairs_per_second([found], store, held_out):
            of_a_pair += 1 / speed
    rate = 1 / of_a_pair if of_a_pair else None
    rows = []
    for row in table.rows:
        if row.name in (TEACHER, TAUGHT):
            row = replace(row, device_seconds=(row.device_seconds or 0) + seconds)
        rows.append(replace(row, pairs_per_second=rate) if row.name == TEACHER else row)
    return replace(table, rows=rows)


def _parts(groups: Mapping[str, Sequence[tuple[str, PipelineConfig]]], store: Store) -> list[Part]:
    """Return what each stage took; an artifact counts once, in the first group that needs it."""
    found: dict[tuple[str, str], list[float]] = {}
    seen: set[str] = set()
    for group, wanted in groups.items():
        for last, config in wanted:
            for node in flow.plan(last, config):
                artifact = store.require(node, config)
                if artifact.url not in seen:
                    seen.add(artifact.url)
                    name = node.removeprefix(flow.RUN)
                    found.setdefault((group, name), []).append(artifact.manifest["seconds"])
    return [Part(group, name, len(each), sum(each)) for (group, name), each in found.items()]


def _files(urls: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a run that reads the stored rows of other runs, all splits."""
    return {"kind": "file", "paths": [f"{url}/*/part-*.parquet" for url in urls]}
