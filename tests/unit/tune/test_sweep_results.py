import re
import shlex
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from optuna.distributions import CategoricalDistribution
from optuna.study import Study
from optuna.trial import TrialState

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.leases import leased
from rayrank.core.overrides import apply, build
from rayrank.data.digests import digested
from rayrank.jobs.ablate import changes_of
from rayrank.stages.ablation import table_one
from rayrank.training.ray_train import CHECKPOINTS
from rayrank.tune import plots, results
from rayrank.tune.gpu_usage import GpuUsage
from rayrank.tune.spaces import Changes, Space, open_space
from rayrank.tune.study import (
    FILE,
    Record,
    add_gpu_usage,
    best,
    num_ended,
    open_storage,
    open_study,
    records,
    trainings,
)
from rayrank.tune.sweep import run


def record(number: int, dev: float | None, state: str = "finished", **changes: Any) -> Record:
    return Record(number, state, {key.replace("__", "."): value for key, value in changes.items()}, dev)


def test_a_reopened_study_has_the_same_trials(study: Study, folder: Artifact) -> None:
    again = open_study(open_storage(folder), cost=False)
    assert records(again) == records(study)
    assert num_ended(again) == 7


def test_records_have_the_state_the_dev_metric_and_the_reason_of_each_trial(study: Study) -> None:
    found = records(study)
    assert [record.state for record in found] == ["finished"] * 5 + ["stopped early", "failed", "running"]
    assert [record.dev for record in found] == [0.41, 0.40, 0.44, 0.43, 0.42, 0.2, None, None]
    assert found[6].reason.startswith("The loss at step 3 is nan")


def test_the_best_is_a_finished_trial() -> None:
    ends = [(0.4, "finished"), (0.9, "stopped early"), (0.5, "finished"), (None, "failed")]
    found = [record(number, *end, listwise__negatives=number + 1) for number, end in enumerate(ends)]
    assert best(found) is found[2]
    assert best(found[3:]) is None


def test_settings_with_several_seeds_are_compared_by_their_mean() -> None:
    found = [
        record(0, 0.50, training__seed=13, listwise__negatives=1),
        record(1, 0.10, training__seed=14, listwise__negatives=1),
        record(2, 0.41, training__seed=13, listwise__negatives=2),
        record(3, 0.43, training__seed=14, listwise__negatives=2),
    ]
    winner = best(found)
    assert winner is not None
    assert winner.changes["listwise.negatives"] == 2


def test_trials_with_equal_settings_count_as_one_training(space: Space, config: PipelineConfig) -> None:
    found = [record(number, 0.4, listwise__negatives=3, listwise__lr=1e-4) for number in range(3)]

    assert "mean of" not in results.findings(found, space, config)[0]
    assert trainings(found) == found[:1]


def test_trials_with_equal_results_have_a_report_without_importances(
    folder: Artifact, space: Space, config: PipelineConfig, tmp_path: Path
) -> None:
    study = open_study(open_storage(folder), cost=False)
    for _ in range(plots.MIN_TRIALS + 1):
        trial = study.ask()
        space.suggest(trial)
        study.tell(trial, 1.0)

    results.write(folder, study, space, config, Store(str(tmp_path)))

    assert folder.exists("report.html")
    assert not folder.exists("plots/importances.png")


def test_best_yaml_is_the_configuration_of_the_best_trial(study: Study, config: PipelineConfig, tmp_path: Path) -> None:
    config = apply(config.model_dump(), {"candidates.depth": 7, "resources.train_cpus": 1, "encoder.layers": None})
    winner = best(records(study))
    assert winner is not None
    file = tmp_path / "best.yaml"
    file.write_text(results.best_yaml(config, winner.changes, "best: trial 2"))

    again = build("paper", str(file))

    assert flow.key("listwise", again) == flow.key("listwise", apply(config.model_dump(), winner.changes))
    assert again.resources.train_cpus is None
    assert "listwise.lr: " in file.read_text().split("dataset:")[0]


def test_all_results_are_written_and_the_report_is_self_contained(
    study: Study, folder: Artifact, space: Space, config: PipelineConfig, tmp_path: Path
) -> None:
    lines = results.write(folder, study, space, config, Store(str(tmp_path)))

    assert lines[0].startswith("best: trial 2, dev MRR@10 0.4400, unchanged settings 0.4100: listwise.negatives=")
    name, changes = changes_of(shlex.split(lines[1])[-1])
    winner = best(records(study))
    assert winner is not None
    assert name == "best"
    assert apply(config.model_dump(), changes) == apply(config.model_dump(), winner.changes)
    assert "trials: 5 finished, 1 stopped early, 1 failed" in lines
    place = Path(folder.path(""))
    html = (place / "report.html").read_text()
    sources = re.findall(r'(?:src|href)="([^"]{0,40})', html)
    assert len(sources) == 5
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "&lt;lower&gt;" in html
    assert {path.stem for path in (place / "plots").iterdir()} == {
        "best_so_far", "n_minus", "threshold", "importances", "coordinates",
    }  # fmt: skip
    table = pq.read_table(place / "trials.parquet").to_pylist()
    assert [row["state"] for row in table].count("finished") == 5
    assert table[2]["dev MRR@10"] == 0.44
    assert table[0]["listwise.negatives"] == 5
    assert "nan" in table[6]["reason"]


def test_unchanged_settings_that_are_the_best_are_not_compared_again(space: Space, config: PipelineConfig) -> None:
    (own,) = space.initial_points(config)
    assert not any(
        "rayrank ablate" in line for line in results.findings([Record(0, "finished", own, 0.4)], space, config)
    )


@pytest.mark.parametrize(
    ("changes", "ending"),
    [
        ({"noise.threshold": 0.99997, "listwise.max_steps": None}, "--row 'best: noise.threshold=0.99997'"),
        ({"noise.threshold": 0.6, "listwise.epochs": 7}, "--row 'best: listwise.epochs=7'"),
        ({"encoder.layers": None}, "--row 'best: encoder.layers=null'"),
    ],
)
def test_the_advice_to_compare_again_has_the_exact_settings_that_differ(
    changes: Changes, ending: str, config: PipelineConfig
) -> None:
    config = apply(config.model_dump(), {"encoder.layers": 2})
    space = Space("some", dict.fromkeys(changes, CategoricalDistribution([1])))
    assert results.findings([Record(0, "finished", changes, 0.4)], space, config)[1].endswith(ending)


def test_the_advice_is_a_command_that_ablate_understands() -> None:
    config = build("monobert", assignments=["runs.pointwise.title=my model"])
    changes: Changes = {"listwise.negative_ranks": [1, 10], "encoder.layers": None, "noise.run": "pointwise"}
    space = Space("some", dict.fromkeys(changes, CategoricalDistribution([1])))

    (advice,) = (
        line for line in results.findings([Record(0, "finished", changes, 0.4)], space, config) if "--row" in line
    )

    words = shlex.split(advice.partition("your options and ")[2])
    assert words[words.index("--only") + 1] in [row.name for row in table_one(config)]
    _, read = changes_of(words[-1])
    assert apply(config.model_dump(), read) == apply(config.model_dump(), changes)


def test_best_yaml_has_no_digests_of_files(study: Study, config: PipelineConfig, tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_text("q 0 p 1 2.0 mine\n")
    own = apply(config.model_dump(), {"runs.mine": {"kind": "file", "paths": str(tmp_path / "run.trec")}})
    digests = {
        "runs.mine.fingerprint": "a digest",
        "dense.fingerprint": "a digest",
        "doc2query.fingerprint": "a digest",
    }

    text = results.best_yaml(apply(own.model_dump(), digests), {}, "best: trial 2")

    assert "fingerprint" not in text
    assert "run.trec" in text


def test_checkpoints_that_another_process_trains_with_are_kept(config: PipelineConfig, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    artifact = store.artifact("listwise", config)
    failed = Record(0, "failed", {}, None)
    ended = ThreadPoolExecutor(1)  # a lease belongs to a thread

    def remove() -> bool:
        ended.submit(results.remove_checkpoints, [failed], config, store).result(60)
        return not artifact.exists(CHECKPOINTS)

    Path(artifact.path(CHECKPOINTS)).mkdir(parents=True)
    with leased(artifact, "training the listwise model"):
        assert not remove()
    assert remove()
    assert artifact.names("", ".json") == []


def test_gpu_usage_is_summed_over_all_starts(
    study: Study, folder: Artifact, space: Space, config: PipelineConfig
) -> None:
    assert not any("GPU" in line for line in results.write(folder, study, space, config, Store(folder.root)))
    add_gpu_usage(study, GpuUsage(3.0, 4))
    add_gpu_usage(study, GpuUsage(0.0, 0))
    add_gpu_usage(study, GpuUsage(1.0, 4))
    assert "GPU utilization: 50% in 8 samples" in results.write(folder, study, space, config, Store(folder.root))


def test_a_grid_has_no_plot_of_the_best_so_far(
    study: Study, folder: Artifact, space: Space, config: PipelineConfig
) -> None:
    results.write(folder, study, replace(space, grid=True), config, Store(folder.root))

    assert folder.exists("plots/n_minus.png")
    assert not folder.exists("plots/best_so_far.png")


def test_a_sweep_without_a_finished_trial_lists_the_reasons(
    folder: Artifact, space: Space, config: PipelineConfig
) -> None:
    study = open_study(open_storage(folder), cost=False)
    trial = study.ask()
    space.suggest(trial)
    trial.set_user_attr("reason", "out of memory")
    study.tell(trial, state=TrialState.FAIL)

    lines = results.write(folder, study, space, config, Store(folder.root))

    assert lines[:3] == ["No trial finished.", "trials: 1 failed", "trial 0 failed: out of memory"]
    assert not folder.exists("best.yaml")


def test_two_objectives_have_a_pareto_front(folder: Artifact, space: Space, config: PipelineConfig) -> None:
    study = open_study(open_storage(folder), cost=True)
    for values in ([0.4, 20.0], [0.5, 40.0], [0.3, 50.0]):
        trial = study.ask()
        space.suggest(trial)
        study.tell(trial, values)
    space.suggest(study.ask())

    lines = results.write(folder, study, space, config, Store(folder.root))

    assert "Pareto front: trial 0 (0.4000, 20 ms), trial 1 (0.5000, 40 ms)" in lines
    assert folder.exists("plots/pareto.png")
    rows = pq.read_table(folder.path("trials.parquet")).to_pylist()
    assert [row["ms_per_query"] for row in rows] == [20.0, 40.0, 50.0, None]
    assert [row["pareto"] for row in rows] == [True, True, False, False]
    header, first, *_, running = results.table_lines(records(study), list(space.dimensions), "MRR@10")
    assert first[header.index("ms per query")] == "20"
    assert running[header.index("ms per query")] == ""


def test_a_sweep_names_the_metric_that_it_was_selected_by(
    study: Study, folder: Artifact, space: Space, config: PipelineConfig
) -> None:
    by_gain = apply(config.model_dump(), {"training.metric": "nDCG@10"})

    lines = results.write(folder, study, space, by_gain, Store(folder.root))

    assert "dev nDCG@10 0.4400" in lines[0]
    assert "dev nDCG@10" in pq.read_table(folder.path("trials.parquet")).column_names
    assert results.table_lines(records(study), [], "nDCG@10")[0][2] == "dev nDCG@10"
    assert results.sweep_folder(space, by_gain, False, Store(folder.root)) != results.sweep_folder(
        space, config, False, Store(folder.root)
    )


def test_one_objective_has_no_pareto_front(study: Study, space: Space) -> None:
    table = results.trials_table(records(study), list(space.dimensions), "MRR@10", study)
    assert table["pareto"].null_count == len(table)
    assert "ms per query" not in results.table_lines(records(study), [], "MRR@10")[0]


def test_a_start_without_remaining_trials_removes_the_files_of_a_killed_one(
    study: Study, folder: Artifact, space: Space, config: PipelineConfig, tmp_path: Path
) -> None:
    store = Store(str(tmp_path))
    place = results.sweep_folder(space, config, cost=False, store=store)
    Path(place.path("tune")).mkdir(parents=True)
    Path(folder.path(FILE)).rename(place.path(FILE))
    left = {}
    for record in records(study):
        left[record.state] = Path(
            store.artifact("listwise", apply(config.model_dump(), record.changes)).path(CHECKPOINTS)
        )
        left[record.state].mkdir(parents=True)

    arguments = Namespace(space="default", grid=False, trials=7, parallel=None, cost=False)

    assert run(arguments, config, store)["num_trials"] == 7
    assert {state for state, path in left.items() if path.exists()} == {"running"}
    assert place.exists("tune")

    open_study(open_storage(place), cost=False).tell(7, 0.4)
    assert run(arguments, config, store)["num_trials"] == 8
    assert not any(path.exists() for path in left.values())
    assert not place.exists("tune")


def test_a_threshold_removes_the_negatives_that_score_above_it() -> None:
    histogram = {"edges": [0.0, 0.5, 1.0], "negatives": [75, 25]}
    assert plots.removed_shares(histogram) == ([0.0, 0.5, 1.0], [1.0, 0.25, 0.0])


def test_the_interval_of_a_few_trainings_uses_students_t() -> None:
    # Three values with mean 2 and standard error 0.5774; t(0.975, 2) = 4.3027.
    assert plots.half_intervals([[1.0, 2.0, 3.0]]) == pytest.approx([2.4841], abs=1e-4)


def test_the_variance_is_pooled_over_all_groups() -> None:
    # Sums of squares 2 + 8 + 0 over 2 + 2 + 0 degrees of freedom; t(0.975, 4) = 2.7764.
    halves = plots.half_intervals([[1.0, 2.0, 3.0], [10.0, 12.0, 14.0], [7.0]])
    assert halves == pytest.approx([2.5346, 2.5346, 4.3900], abs=1e-4)
    assert plots.half_intervals([[1.0], [2.0]]) == []


def test_the_live_table_has_the_best_and_the_latest_trials(study: Study, space: Space) -> None:
    table = results.live_table(study, list(space.dimensions), "MRR@10", trials=9, most=3)
    assert table.title == "7 of 9 trials ended; best: trial 2, 0.4400"
    assert table.row_count == 3


def test_a_sweep_over_encoder_folders_has_another_folder_when_their_files_change(
    config: PipelineConfig, tmp_path: Path
) -> None:
    places, store = [], Store(str(tmp_path / "storage"))
    for content in ("one", "other"):
        for name in "ab":
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "config.json").write_text(content)
        file = tmp_path / "space.yaml"
        file.write_text(f"encoder.name: [{tmp_path / 'a'}, {tmp_path / 'b'}]")
        digested(config)  # as a job does at its start
        places.append(results.sweep_folder(open_space(str(file), config), config, False, store).key)

    assert places[0] != places[1]


def test_the_folder_of_a_sweep_does_not_depend_on_resources(config: PipelineConfig, tmp_path: Path) -> None:
    space = open_space("default", config)
    store = Store(str(tmp_path))
    assert results.sweep_folder(space, config, False, store) == results.sweep_folder(
        open_space("default", config), apply(config.model_dump(), {"resources.train_cpus": 1}), False, store
    )
    other = apply(config.model_dump(), {"listwise.epochs": 2})
    assert results.sweep_folder(space, config, False, store) != results.sweep_folder(space, other, False, store)
