"""Which studies a report shows: those of its own configuration, and what their figures are."""

import io
from pathlib import Path

import optuna
import pyarrow as pa
import yaml
from optuna.importance import FanovaImportanceEvaluator, get_param_importances

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.overrides import as_file, build
from rayrank.jobs.report_folder import write_report
from rayrank.stages.report.belonging import studies_of
from rayrank.stages.report.studies import ablations, sweeps
from rayrank.tune.study import open_storage, open_study


def config_of(*changes: str) -> PipelineConfig:
    return build("demo", assignments=list(changes))


def table(rows: list[str], num_seeds: int = 1) -> dict[str, object]:
    return {"reference": "DR-BERT", "rows": [{"name": name, "num_seeds": num_seeds} for name in rows]}


def test_ablations_with_rows_of_ones_own_are_found_and_those_of_other_models_are_not(tmp_path: Path) -> None:
    store, config = Store(str(tmp_path)), config_of()
    found = {
        "a": (config, table(["DR-BERT", "- STRM"])),
        "b": (config, table(["DR-BERT", "late STRM"])),
        "c": (config_of("listwise.negatives=7"), table(["DR-BERT", "other"])),
        "d": (config_of("evaluate.resamples=100"), table(["DR-BERT", "- STRM"], num_seeds=3)),
    }
    for key, (of, figures) in found.items():
        write_report(store, ("ablation", key), {"table": figures}, {}, "", [of])

    # The same rows with three seeds take the place of those with one.
    assert ablations(config, store) == [found["d"][1], found["b"][1]]


def test_the_newest_study_comes_first(tmp_path: Path) -> None:
    store, config = Store(str(tmp_path)), config_of()
    for key in ("b", "a"):
        write_report(store, ("learning_curve", key), {"curve": {"key": key}}, {}, "", [config])

    assert studies_of("learning_curve", "curve.json", config, store) == [{"key": "a"}, {"key": "b"}]


def test_the_importance_of_settings_is_that_of_the_sweeps_own_plot(tmp_path: Path) -> None:
    store, config = Store(str(tmp_path)), config_of()
    folder = Artifact(store.root, "sweeps", "0")
    study = open_study(open_storage(folder), cost=False)
    keys = ["listwise.lr", "noise.threshold"]
    space = dict.fromkeys(keys, optuna.distributions.FloatDistribution(0.0, 1.0))
    for number in range(8):
        values = {keys[0]: number / 8, keys[1]: number * 3 % 8 / 8}
        study.add_trial(optuna.trial.create_trial(params=values, distributions=space, value=values[keys[0]]))
    rows = [{"trial": 0, "state": "finished", "dev MRR@10": 0.5, **dict.fromkeys(keys, 0.5)},
            {"trial": 1, "state": "stopped early", "dev MRR@10": 0.9, **dict.fromkeys(keys, 0.5)}]  # fmt: skip
    folder.write_table("trials.parquet", pa.Table.from_pylist(rows))
    with folder.create("best.yaml") as stream:
        yaml.safe_dump(as_file(config), io.TextIOWrapper(stream, write_through=True))

    (sweep,) = sweeps(config, store)

    expected = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0), params=keys)
    assert sweep["importance"] == dict(expected)
    assert sweep["importance"]["listwise.lr"] > 0.8
    assert [each["trial"] for each in sweep["trials"]] == [0]
