"""One command from data to a student that has learnt from a larger model."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from rayrank.core.artifacts import Store
from rayrank.core.run_kinds import CANDIDATES
from tests.cluster.conftest import FORKS, command, configured, encoder


@pytest.mark.slow
def test_a_student_learns_the_scores_of_a_teacher_and_a_second_run_trains_nothing(
    trained: Path, joining: dict[str, str], tmp_path: Path
) -> None:
    storage, summary = tmp_path / "storage", tmp_path / "summary.json"
    shutil.copytree(trained, storage)
    short = [f"{phase}.max_steps=10" for phase in ("pretrain", "pointwise", "listwise")]
    teacher = ("--teacher", encoder(), *(part for step in short for part in ("--teacher-set", step)), "--parallel", "2")
    learning = ("--set", "listwise.temperature=2", "--student-set", "noise.run=teacher")
    order = command("distil", storage, *teacher, *learning, "--json", str(summary))

    for _ in range(2):
        models = set(storage.glob("*/*/model"))
        answer = FORKS.run(order, joining)
        assert answer.returncode == 0, answer.stderr
    assert set(storage.glob("*/*/model")) == models

    facts = json.loads(summary.read_text())
    rows = {row["name"]: row for row in facts["distillation"]["table"]["rows"]}
    assert list(rows) == ["BM25", "teacher", "student without teacher", "student with teacher"]
    assert rows["student with teacher"]["figures"]["dev"]["MRR@10"]["all"]["comparison"]
    seconds = {name: row["device_seconds"] for name, row in rows.items()}
    assert seconds["student with teacher"] > seconds["teacher"] > seconds["BM25"] == 0
    parts = {(part["of"], part["name"]) for part in facts["distillation"]["parts"]}
    assert {("first stage", "corpus"), ("teacher", "listwise"), ("student with teacher", "listwise")} <= parts

    # The student without a teacher is the model that was there before, and the one with a teacher read its scores.
    store, config = Store(str(storage)), configured()
    assert store.find("listwise", config)
    manifests = [json.loads(path.read_text()) for path in storage.glob("listwise/*/manifest.json")]
    (taught,) = [each["taught"] for each in manifests if "taught" in each]
    assert taught["negatives"] == 1.0
    # The teacher's vocabulary is in another place, so it has a corpus of its own, but the student's candidates.
    shared = [json.loads(path.read_text()) for path in storage.glob("file/*/manifest.json")]
    of_student = store.require(CANDIDATES, config).manifest["num_candidates"]
    assert [each["num_candidates"] for each in shared] == [of_student] * 2
    settings = yaml.safe_load(Path(facts["folder"], "student.yaml").read_text())
    assert settings["listwise"]["teacher"] == "teacher"
