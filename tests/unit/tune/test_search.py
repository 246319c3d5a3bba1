"""The search without Ray: which trial is started next, and how the end of a trial is recorded."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from optuna.study import Study
from ray.tune import TuneError

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig, ResourcesConfig
from rayrank.core.errors import StorageError
from rayrank.core.overrides import build
from rayrank.training.loop import Log
from rayrank.training.plan import Plan
from rayrank.training.ray_train import _explained
from rayrank.tune import results, trial
from rayrank.tune.execution import own_error, shared_artifacts
from rayrank.tune.halving import Rungs, early_stopping, restored_rungs
from rayrank.tune.placement import num_workers_that_fit
from rayrank.tune.search import StudySearch
from rayrank.tune.spaces import Changes, Space, open_space
from rayrank.tune.study import FILE, Record, enqueue, measurements, open_storage, open_study, records, trial_name
from rayrank.tune.trial import reason


def nothing(changes: Changes) -> set[tuple[str, str]]:
    return set()


def its_own(changes: Changes) -> set[tuple[str, str]]:
    return {("listwise", str(sorted(changes.items())))}


def search(folder: Artifact, space: Space, missing: Any = nothing) -> StudySearch:
    return StudySearch(space, open_storage(folder), cost=False, seed=13, missing=missing, dev="dev MRR@10")


def finished(dev: float) -> dict[str, Any]:
    return {"dev": dev, "epoch": 3, "outcome": "finished", "fact/seconds": 2.0}


def test_trials_of_a_killed_driver_are_resumed_under_their_numbers(folder: Artifact, space: Space) -> None:
    first = search(folder, space)
    asked = [first.suggest("a"), first.suggest("b"), first.suggest("c")]
    first.on_trial_complete("b", finished(0.5))

    second = search(folder, space)

    assert [second.suggest("d"), second.suggest("e")] == [asked[0], asked[2]]
    new = second.suggest("f")
    assert new not in asked
    assert [record.state for record in records(second.study)] == ["running", "finished", "running", "running"]


def test_a_trial_that_was_queued_but_has_no_values_gets_its_queued_values(folder: Artifact, space: Space) -> None:
    study = open_study(open_storage(folder), cost=False)
    study.enqueue_trial({"listwise.negatives": 7, "noise.threshold": 0.5, "listwise.lr": 1e-5})
    study.ask()

    assert search(folder, space).suggest("a") == {
        "listwise.negatives": 7, "noise.threshold": 0.5, "listwise.lr": 1e-5,
    }  # fmt: skip


def test_sampled_values_do_not_depend_on_restarts(tmp_path: Path, space: Space) -> None:
    unbroken = search(Artifact(str(tmp_path), "sweeps", "one"), space)
    expected = [unbroken.suggest(name) for name in "abcd"]
    found = []
    for name in "abcd":
        again = search(Artifact(str(tmp_path), "sweeps", "two"), space)
        again._waiting.clear()
        found.append(again.suggest(name))
    assert found == expected
    assert len({str(one) for one in found}) == 4


def test_an_incomplete_trial_gets_the_same_values_at_every_restart(folder: Artifact, space: Space) -> None:
    open_study(open_storage(folder), cost=False).ask()  # the driver is killed before the trial has all its values
    written = Path(folder.path(FILE)).read_bytes()

    drawn = []
    for _ in range(3):
        Path(folder.path(FILE)).write_bytes(written)
        drawn.append(search(folder, space).suggest("a"))

    assert drawn[0] == drawn[1] == drawn[2]


@pytest.mark.parametrize("seed", [13, 20_240_101])
def test_every_point_of_a_grid_is_queued_once_even_with_large_seeds(seed: int, folder: Artifact) -> None:
    config = build("demo", assignments=[f"training.seed={seed}"])
    points = open_space("n_minus", config).initial_points(config)
    study = open_study(open_storage(folder), cost=False)
    for _ in range(2):
        enqueue(study, points)

    assert [record.changes for record in records(study)] == points


def test_settings_that_cannot_be_used_together_fail_only_their_own_trial(tmp_path: Path) -> None:
    base, store = build("demo", assignments=["input.query_length=16"]), Store(str(tmp_path))
    together = {"input.length": 64, "input.query_length": 64}
    record = Record(0, "failed", together, None)

    assert trial.missing(together, base, store) == set()
    assert trial.missing({"input.length": 64}, base, store)
    file = tmp_path / "space.yaml"
    file.write_text("input.length: [64, 96]\ninput.query_length: [16, 64]")
    shared = shared_artifacts(open_space(str(file), base, grid=True), base)
    assert {(config.input.length, config.input.query_length) for _, config in shared} == {(64, 16), (96, 16), (96, 64)}
    results.remove_checkpoints([record], base, store)


def test_two_trials_never_make_the_same_artifact_at_once(
    folder: Artifact, config: PipelineConfig, tmp_path: Path
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text("listwise.head: [difference, fresh]")
    space = open_space(str(file), config)
    one = search(folder, space, its_own)
    for _ in range(2):
        one.study.enqueue_trial({"listwise.head": "fresh"})

    assert one.suggest("a") == {"listwise.head": "fresh"}
    assert one.suggest("b") is None
    one.on_trial_complete("a", finished(0.4))
    assert one.suggest("b") == {"listwise.head": "fresh"}


@pytest.mark.parametrize(
    ("result", "error", "state", "reason_part"),
    [
        (finished(0.5), False, "finished", ""),
        (finished(math.nan), False, "failed", "not a number"),
        ({"dev": math.nan, "outcome": "failed", "reason": "no room"}, False, "failed", "no room"),
        ({"dev": 0.2, "outcome": "stopped"}, False, "stopped early", ""),
        ({"dev": 0.2, "epoch": 1}, False, "running", ""),
        (None, True, "failed", "process died"),
        (None, False, "running", ""),
    ],
)
def test_the_end_of_a_trial_is_recorded_with_its_state_and_reason(
    result: dict[str, Any] | None, error: bool, state: str, reason_part: str, folder: Artifact, space: Space
) -> None:
    one = search(folder, space)
    one.suggest("a")
    one.on_trial_complete("a", result, error)

    (found,) = records(search(folder, space).study)
    assert found.state == state
    assert reason_part in found.reason


def test_a_trial_that_was_interrupted_too_often_fails_with_the_last_reason(folder: Artifact, space: Space) -> None:
    one = search(folder, space)
    one.suggest("a")
    one.on_trial_result("a", {"reason": "/tmp cannot be written: no room", "training_iteration": 1})
    assert records(one.study)[0].state == "running"
    one.on_trial_complete("a", None, error=True)

    (found,) = records(search(folder, space).study)
    assert (found.state, found.reason) == ("failed", "/tmp cannot be written: no room")


@pytest.mark.parametrize(
    "error",
    [
        StorageError("/tmp cannot be written: no room"),
        ray.exceptions.OutOfMemoryError("no memory"),
        ray.exceptions.NodeDiedError("gone"),
    ],
)
def test_an_error_that_may_pass_lets_tune_start_the_trial_again(
    error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr(trial.ray.tune, "report", reports.append)

    def figures(*_: Any) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(trial, "_figures", figures)
    with pytest.raises(type(error)):
        trial.run_trial({}, build("demo"), Store(str(tmp_path)), cost=False, rungs=None)

    assert reports == [{"reason": reason(error)}]


def test_a_resumed_trial_continues_its_epochs(folder: Artifact, space: Space) -> None:
    first = search(folder, space)
    first.suggest("a")
    first.on_trial_result("a", {"dev": 0.3, "epoch": 1, "training_iteration": 1})
    second = search(folder, space)
    second.suggest("b")
    second.on_trial_result("b", {"dev": 0.4, "epoch": 2, "training_iteration": 1})

    (trial,) = second.study.get_trials()
    assert trial.intermediate_values == {1: 0.3, 2: 0.4}


def test_measurements_before_a_restart_still_stop_weak_trials(study: Study, folder: Artifact, space: Space) -> None:
    for value in (0.40, 0.42, 0.44):
        trial = study.ask()
        space.suggest(trial)
        trial.report(value, 1)
        study.tell(trial, value)
    rungs = restored_rungs(folder, epochs=3)

    # A resumed trial reports an epoch again, and is not compared with its own earlier report.
    best = study.get_trials()[-1].params
    assert rungs.may_continue(trial_name(dict(reversed(best.items()))), 1, 0.1)
    assert not rungs.may_continue("weak", 1, 0.1)
    assert not rungs.may_continue("weak", 1, 0.1)
    assert rungs.may_continue("strong", 1, 0.5)
    assert rungs.may_continue("strong", 2, 0.5)


def test_measurements_are_restored_in_the_order_of_time(folder: Artifact, space: Space) -> None:
    study = open_study(open_storage(folder), cost=False)
    early, late = study.ask(), study.ask()
    for one in (early, late):
        space.suggest(one)
    made = [(early, 1, 0.3), (late, 1, 0.2), (late, 2, 0.25), (early, 2, 0.4)]
    for one, epoch, dev in made:
        one.report(dev, epoch)
    assert measurements(folder) == [(one.params, epoch, dev) for one, epoch, dev in made]


def test_a_trial_that_was_let_through_is_not_stopped_by_those_that_came_later(folder: Artifact, space: Space) -> None:
    study, rungs = open_study(open_storage(folder), cost=False), Rungs(4)
    later, first = study.ask(), study.ask()
    for one in (later, first):
        space.suggest(one)
    for one, dev in ((first, 0.2), (later, 0.5)):
        assert rungs.may_continue(trial_name(one.params), 1, dev)
        one.report(dev, 1)
    assert restored_rungs(folder, 4).may_continue(trial_name(first.params), 1, 0.2)


def test_grids_and_sweeps_with_two_objectives_stop_no_trial(
    folder: Artifact, config: PipelineConfig, space: Space
) -> None:
    assert early_stopping(open_space("n_minus", config), folder, 3, cost=False) is None
    assert early_stopping(space, folder, 3, cost=True) is None


@pytest.mark.parametrize("key", ["listwise.epochs", "listwise.max_steps"])
def test_a_sweep_over_the_length_of_the_training_stops_no_trial_and_says_so(
    key: str, folder: Artifact, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(f"{key}: {{low: 1, high: 4}}")
    space = open_space(str(file), build("demo", assignments=[f"{key}=3"]))

    assert early_stopping(space, folder, 3, cost=False) is None
    assert f"{key} is swept, so no trial is stopped early" in capsys.readouterr().err


@pytest.mark.parametrize(("changes", "epoch"), [({"listwise.epochs": 8}, 2), ({"listwise.lr": 1e-3}, 1)])
def test_a_trial_counts_epochs_by_its_own_number_of_epochs(
    changes: Changes, epoch: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr(trial.ray.tune, "report", reports.append)

    def figures(config: PipelineConfig, store: Store, cost: bool, follower: Callable[[Log], bool]) -> dict[str, Any]:
        assert follower(Log(step=10, num_steps=40, loss=1.0, lr=1e-4, grad_norm=1.0, examples_per_s=1.0, dev=0.3))
        return {"dev": 0.4}

    monkeypatch.setattr(trial, "_figures", figures)
    base = build("demo", assignments=["listwise.epochs=4"])
    trial.run_trial(changes, base, Store(str(tmp_path)), cost=False, rungs=None)

    assert reports == [{"dev": 0.3, "epoch": epoch}, {"dev": 0.4}]


def test_a_trial_reports_one_measurement_of_each_epoch_at_its_end_or_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    reports: list[dict[str, Any]] = []
    monkeypatch.setattr(trial.ray.tune, "report", reports.append)
    base = build("demo", assignments=["listwise.epochs=3", "listwise.min_steps=90"])
    # So little data that epochs are added, and eight measurements are spread over all of them.
    plan = Plan.of(4, base.listwise)
    assert len(plan.measured) == 8

    def figures(config: PipelineConfig, store: Store, cost: bool, follower: Callable[[Log], bool]) -> dict[str, Any]:
        for step in sorted(plan.measured):
            assert follower(Log(step, plan.num_steps, loss=1.0, lr=1e-4, grad_norm=1.0, examples_per_s=1.0, dev=step))
        return {"dev": 0.4, "epoch": 3}

    monkeypatch.setattr(trial, "_figures", figures)
    trial.run_trial({}, base, Store(str(tmp_path)), cost=False, rungs=None)

    parts = [report["dev"] / plan.num_steps for report in reports[:-1]]
    assert [report["epoch"] for report in reports] == [1, 2, 3]
    assert parts == pytest.approx([3 / 8, 6 / 8], abs=1 / plan.num_steps)  # a step is never a part


def test_a_trial_that_is_stopped_has_its_last_measurement_even_if_it_was_not_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trial.ray.tune, "report", lambda figures: None)
    reporter = trial._Reporter("some", 2, None)
    for step in (1, 5, 6):
        reporter(Log(step, 10, loss=1.0, lr=1e-4, grad_norm=1.0, examples_per_s=1.0, dev=step / 10))
    assert reporter.dev == 0.6


def test_of_two_sweeps_on_one_study_the_second_to_write_gets_an_error(folder: Artifact, space: Space) -> None:
    first = search(folder, space)
    first.suggest("a")
    written = Path(folder.path(FILE)).read_bytes()
    second = search(folder, space)
    # Opening the study does not write to it.
    assert Path(folder.path(FILE)).read_bytes() == written
    first.on_trial_complete("a", finished(0.5))

    second.suggest("b")
    with pytest.raises(StorageError, match=r"Another sweep writes to .*study\.jsonl: wait for it, or stop it\."):
        second.on_trial_complete("b", finished(0.3))

    assert [record.dev for record in records(search(folder, space).study)] == [0.5]


def test_a_running_trial_has_no_reason_even_if_a_killed_driver_wrote_one(folder: Artifact, space: Space) -> None:
    one = search(folder, space)
    one.suggest("a")
    one._ot_trials["a"].set_user_attr("reason", "killed before the trial ended")
    again = search(folder, space)
    again.suggest("b")
    again.on_trial_complete("b", finished(0.5))

    (found,) = records(again.study)
    assert (found.state, found.reason) == ("finished", "")


def test_our_own_error_behind_an_error_of_tune_is_shown() -> None:
    def failing(error: Exception) -> BaseException:
        try:
            try:
                raise error
            except Exception as inner:
                raise TuneError(str(inner))  # noqa: B904
        except TuneError as outer:
            return own_error(outer)

    full = StorageError("no room")
    assert failing(full) is full
    assert isinstance(failing(ValueError("odd")), TuneError)


@pytest.mark.parametrize(
    ("nodes", "size", "expected"),
    [
        ([{"CPU": 2}], {"CPU": 1}, 2),
        ([{"CPU": 2}], {"CPU": 3}, 0),
        ([{"CPU": 16, "GPU": 1}], {"CPU": 1, "GPU": 0.25}, 4),
        ([{"CPU": 3, "GPU": 1}], {"CPU": 1, "GPU": 0.25}, 3),
        # 0.3 GPUs fit three times on each GPU; the remainders of two GPUs cannot be combined.
        ([{"CPU": 16, "GPU": 2}], {"CPU": 1, "GPU": 0.3}, 6),
        ([{"CPU": 16, "GPU": 2}], {"CPU": 1, "GPU": 0.6}, 2),
        ([{"CPU": 8}, {"CPU": 8, "GPU": 4}], {"CPU": 1, "GPU": 1}, 4),
    ],
)
def test_workers_fit_on_nodes_with_enough_cores_and_gpus(
    nodes: list[dict[str, float]], size: dict[str, float], expected: int
) -> None:
    assert num_workers_that_fit(nodes, size) == expected


def test_a_reason_is_one_line() -> None:
    assert reason(ValueError("first\n  last one  \n")) == "ValueError: last one"
    assert reason(KeyError()) == "KeyError: no message"


def test_the_reason_of_an_exception_in_a_worker_is_its_cause() -> None:
    failed = RuntimeError("training failed on 1 worker")
    failed.worker_failures = {0: SimpleNamespace(cause=OSError("a long story\nthe file is damaged"))}  # type: ignore[attr-defined]
    assert reason(failed) == "OSError: the file is damaged"


def test_the_reason_of_a_lost_worker_has_no_advice_to_start_again() -> None:
    failure = ray.exceptions.RayActorError()
    lost = _explained(SimpleNamespace(worker_failures={0: failure}), ResourcesConfig(retries=0))  # type: ignore[arg-type]

    assert "run the same command again" in str(lost)
    assert reason(lost) == "A worker of the training died: it was killed, or the machine ran out of memory."
