from argparse import Namespace
from pathlib import Path

import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import apply, build
from rayrank.core.presets import PRESETS
from rayrank.jobs.ablate import changes_of, run
from rayrank.stages.ablation import (
    RowSpec,
    configured,
    device_seconds,
    full_run,
    pairs_per_second,
    rankers_table,
    table_one,
)


def names(preset: str) -> list[str]:
    return [row.name for row in table_one(PRESETS[preset]())]


def test_the_paper_preset_has_all_rows_of_the_papers_table_and_one_with_bm25_scores() -> None:
    parts = ["pre-training", "pointwise", "query type", "noise reduction", "listwise", "STRM"]
    assert names("paper") == ["BM25", "+ BERT", "DR-BERT", *(f"- {part}" for part in parts), "+ BM25 score"]


def test_a_row_has_the_grammar_of_set() -> None:
    row = "late: listwise.negative_ranks=[1,10] runs.drbert.title='two words' encoder.layers= listwise.lr=1e-4"

    name, changes = changes_of(row)

    assert name == "late"
    assignments = [
        "listwise.negative_ranks=[1,10]",
        "runs.drbert.title=two words",
        "encoder.layers=",
        "listwise.lr=1e-4",
    ]
    assert apply(PRESETS["demo"]().model_dump(), changes) == build("demo", assignments=assignments)


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("strm.first_layer=2", "write --row 'NAME: KEY=VALUE ...'"),
        (": strm.first_layer=2", "write --row 'NAME: KEY=VALUE ...'"),
        ("late:", "write --row 'NAME: KEY=VALUE ...'"),
        ("late: runs.drbert.title='two", "no closing quotation; close the quote"),
        ("late: strm.first_layer", r"--row 'late' strm.first_layer has no value: write --row 'late' .*=VALUE"),
    ],
)
def test_a_row_that_cannot_be_read_says_what_to_write(row: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        changes_of(row)


def test_a_row_that_equals_another_row_is_left_out() -> None:
    assert set(names("paper")) - set(names("minilm")) == {"- STRM", "+ BM25 score"}
    assert names("minilm")[-1] == "+ trained hybrid score"


def test_sdnet_is_the_full_model_only_if_there_is_no_other_and_has_a_row_besides() -> None:
    both = apply(PRESETS["minilm"]().model_dump(), {"runs.sdnet": {"kind": "rerank", "model": "sdnet"}})
    assert full_run(both) == "drbert"
    assert [row.name for row in table_one(both)][-2:] == ["+ trained hybrid score", "sdnet"]
    assert names("sdnet") == ["BM25", "SDNet", "SDNet + BM25"]


def test_the_row_of_the_full_model_has_the_title_of_its_run() -> None:
    assert names("monobert") == ["BM25", "monoBERT", "+ BM25 score"]


def test_the_row_with_the_first_stage_adds_its_scores_to_the_full_model() -> None:
    for preset, full in (("paper", "run:drbert"), ("monobert", "run:pointwise")):
        row = next(row for row in table_one(PRESETS[preset]()) if row.name == "+ BM25 score")
        config = apply(PRESETS[preset]().model_dump(), {**row.changes, "evaluate.run": row.run})
        assert flow.inputs(row.run, config) == ("corpus", full, "run:bm25")


def test_candidates_without_scores_have_no_interpolation_row() -> None:
    config = apply(PRESETS["paper"]().model_dump(), {"candidates.first_stage": "provided"})
    assert not [row for row in table_one(config) if row.run == "fused"]


def test_without_the_pointwise_phase_the_listwise_phase_gets_its_epochs() -> None:
    row = next(row for row in table_one(PRESETS["paper"]()) if row.name == "- pointwise")
    assert row.changes["listwise.epochs"] == 6
    alone = apply(PRESETS["paper"]().model_dump(), {"listwise.start": "encoder"})
    assert "- pointwise" not in [row.name for row in table_one(alone)]


def test_the_row_without_noise_reduction_filters_nothing() -> None:
    config = apply(PRESETS["paper"]().model_dump(), {"noise.margin": 1.0, "noise.relabel": 0.99})
    row = next(row for row in table_one(config) if row.name == "- noise reduction")
    assert config.noise.reads_scores
    assert not apply(config.model_dump(), row.changes).noise.reads_scores


@pytest.mark.parametrize(("ranks", "rounds"), [([2, 30], 3), (None, 1)])
def test_without_noise_reduction_rounds_stay_if_they_refresh_the_negatives(
    ranks: list[int] | None, rounds: int
) -> None:
    changes = {"listwise.rounds": 3, "listwise.negative_ranks": ranks}
    config = apply(PRESETS["paper"]().model_dump(), changes)
    row = next(row for row in table_one(config) if row.name == "- noise reduction")
    assert configured(config, row, 0).listwise.rounds == rounds


def test_a_soup_as_the_full_model_has_the_rows_of_the_listwise_phase() -> None:
    config = build("demo", assignments=["listwise.soup=[13, 14]", "runs.soup={kind: rerank, model: soup}"])
    assert full_run(config) == "soup"
    assert {"- pointwise", "- noise reduction", "- listwise"} <= {row.name for row in table_one(config)}


def test_an_additional_run_in_the_configuration_is_an_additional_row() -> None:
    more = {"runs.half.kind": "interpolate", "runs.half.of": ["drbert", "bm25"], "runs.half.title": "half and half"}
    config = apply(PRESETS["paper"]().model_dump(), {**more, "runs.half.weight": 0.5})
    assert [row.name for row in table_one(config)] == [*names("paper"), "half and half"]


def test_runs_without_a_trained_model_have_no_ablation() -> None:
    config = apply(
        PRESETS["monobert"]().model_dump(), {"runs.fused": None, "runs.pointwise": {"kind": "file", "paths": "x"}}
    )
    with pytest.raises(ConfigError, match="has no run of kind rerank"):
        table_one(config)


def test_the_rankers_of_the_papers_read_the_same_candidates() -> None:
    config = PRESETS["minilm"]()
    rows = {row.name: row for row in rankers_table(config)}

    assert list(rows) == [
        *("BM25", "DeepCT", "hybrid", "trained hybrid", "monoBERT", "MarkedBERT", "SDNet"),
        *("SDNet + trained hybrid score", "DR-BERT"),
    ]
    for name in ("monoBERT", "MarkedBERT", "SDNet", "DR-BERT"):
        assert "run:trained_hybrid" in flow.inputs(rows[name].run, configured(config, rows[name], 1)), name
    plain, marked = (configured(config, rows[name], 1) for name in ("monoBERT", "MarkedBERT"))
    assert not plain.pretrain.enabled
    assert marked.model_copy(update={"input": plain.input}) == plain
    assert marked.input.markers == config.input.query_length


@pytest.mark.parametrize("preset", ["monobert", "markedbert"])
def test_a_ranker_that_is_the_full_model_has_one_row_and_monobert_no_markers(preset: str) -> None:
    config = PRESETS[preset]()
    rows = rankers_table(config)

    assert len({row.name for row in rows}) == len(rows)
    assert configured(config, next(row for row in rows if row.name == "monoBERT"), 1).input.markers == 0


def test_files_that_a_row_names_enter_keys_by_their_content(tmp_path: Path) -> None:
    config, keys = PRESETS["demo"](), []
    for content in ("LOC:city where is it", "HUM:ind who was it"):
        (tmp_path / "labels").write_text(content)
        labels = {"query_types.predict": "trained", "typer.labels": str(tmp_path / "labels")}
        keys.append(flow.key("listwise", configured(config, RowSpec("typed", labels, "drbert"), 13)))
    assert keys[0] != keys[1]
    with pytest.raises(ConfigError, match=r"The run fuzed cannot be read: No such file .* or one of bm25,"):
        configured(config, RowSpec("blended", {}, "fuzed"), 13)


@pytest.mark.parametrize("key", ["training.seed", "training.metric", "dataset.source"])
def test_a_row_cannot_change_what_all_rows_share(key: str, tmp_path: Path) -> None:
    arguments = Namespace(seeds=1, parallel=1, only=None, row=[f"other: {key}=7"], compare=[], rankers=False)
    with pytest.raises(
        ConfigError, match=f"'other' cannot change {key}: all rows have the same data, metric and seeds"
    ):
        run(arguments, PRESETS["demo"](), Store(str(tmp_path)))


def test_device_seconds_count_a_share_of_a_gpu_as_that_share(tmp_path: Path) -> None:
    config = apply(PRESETS["demo"]().model_dump(), {"evaluate.run": "drbert", "evaluate.baseline": ""})
    store = Store(str(tmp_path))
    facts = {
        "pointwise": {"train_seconds": 40.0, "num_workers": 2, "gpus": 0.25},
        "listwise": {"train_seconds": 30.0, "num_workers": 1, "gpus": 0},
        "run:pointwise@train": {"score_seconds": 8.0, "gpus": 0.5},
    }
    for stage in flow.plan("evaluate", config):
        store.finish(store.artifact(stage, config), config, 0.0, facts.get(stage, {}), stage)

    assert device_seconds([config], store) == pytest.approx(2 * 40 / 4 + 30 + 8 / 2)
    assert pairs_per_second([config], store) is None  # only scores of the training queries were counted


def test_scoring_speed_is_that_of_a_whole_device(tmp_path: Path) -> None:
    config = apply(PRESETS["demo"]().model_dump(), {"evaluate.run": "pointwise", "evaluate.baseline": ""})
    store, facts = Store(str(tmp_path)), {"num_candidates": 300, "score_seconds": 2.0, "gpus": 0.5}
    for stage in flow.plan("run:pointwise", config):
        store.finish(store.artifact(stage, config), config, 0.0, facts if stage == "run:pointwise" else {}, stage)

    assert pairs_per_second([config], store) == pytest.approx(300)
