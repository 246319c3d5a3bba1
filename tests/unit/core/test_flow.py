import os
import subprocess
import sys

import pytest

from rayrank.core import flow
from rayrank.core.config import PipelineConfig
from rayrank.core.overrides import build, dotted_keys

MODELS = {"pointwise", "noise", "noise_report", "listwise", "rank_pointwise", "rank_listwise", "rank_fused"}
LISTWISE = {"listwise", "rank_listwise", "rank_fused"}
PRETRAINED = {"pretrain"} | MODELS
ENCODER = {"query_typer"} | PRETRAINED
CANDIDATES = {"candidates", "evaluate"} | MODELS
INDEX = {"index"} | CANDIDATES
EVALUATE = {"evaluate"}
CORPUS = set(flow.FLOW)
NOTHING: set[str] = set()

# For every setting another value than the default, and the results that are others then.
CHANGES: dict[str, tuple[str, set[str]]] = {
    "dataset.source": ("beir:/data", NOTHING),
    "dataset.on_error": ("skip", CORPUS),
    "dataset.on_duplicate": ("skip", CORPUS),
    "dataset.on_empty": ("skip", CORPUS),
    "dataset.on_unknown": ("skip", CORPUS),
    "dataset.on_shared": ("skip", CORPUS),
    "dataset.type_field": ("domain", CORPUS),
    "dataset.part_bytes": ("4096", CORPUS),
    "dataset.relevant_from": ("2", CORPUS),
    "dataset.demo.seed": ("14", CORPUS),
    "dataset.demo.subjects": ("30", CORPUS),
    "dataset.demo.categories": ("3", CORPUS),
    "dataset.demo.unlabelled": ("0.5", CORPUS),
    "dataset.fingerprint": ("abc", CORPUS),
    "text.tokenizer": ("bert-base-uncased", CORPUS),
    "text.passage_pieces": ("128", CORPUS),
    "text.query_pieces": ("32", CORPUS),
    "text.fingerprint": ("abc", CORPUS),
    "index.stemmer": ("krovetz", INDEX),
    "index.stopwords": ("none", INDEX),
    "candidates.first_stage": ("provided", CANDIDATES),
    "candidates.depth": ("7", CANDIDATES),
    "candidates.k1": ("0.8", CANDIDATES),
    "candidates.b": ("0.7", CANDIDATES),
    "candidates.partition_queries": ("10", CANDIDATES),
    "fusion.weight": ("0.3", {"rank_fused"}),
    "evaluate.run": ("mine.trec", EVALUATE),
    "evaluate.baseline": ("bm25", EVALUATE),
    "evaluate.split": ("dev", EVALUATE),
    "evaluate.fingerprint": ("abc", EVALUATE),
    "evaluate.resamples": ("200", EVALUATE),
    "evaluate.test": ("t", EVALUATE),
    "evaluate.seed": ("14", EVALUATE),
    "encoder.name": ("bert-base-uncased", ENCODER),
    "encoder.layers": ("3", ENCODER),
    "encoder.dropout": ("0.2", ENCODER),
    "encoder.fingerprint": ("abc", ENCODER),
    "strm.form": ("bias", PRETRAINED),
    "strm.representative": ("first", PRETRAINED),
    "strm.first_layer": ("1", PRETRAINED),
    "strm.last_layer": ("1", PRETRAINED),
    "input.length": ("200", MODELS),
    "input.query_length": ("40", MODELS),
    "input.query_type": ("false", MODELS),
    "query_types.ignore_labels": ("true", {"query_types"} | MODELS),
    "query_types.predict": ("trained", {"query_types"} | MODELS),
    "query_types.abbreviation": ("true", {"query_types"} | MODELS),
    "training.seed": ("14", ENCODER),
    "training.dev_queries": ("7", MODELS),
    "training.evaluations": ("7", ENCODER),
    "training.metric": ("nDCG@10", MODELS | EVALUATE),
    "typer.labels": ("labels.txt", {"query_typer"}),
    "typer.fingerprint": ("abc", {"query_typer"}),
    "pretrain.enabled": ("false", PRETRAINED),
    "pretrain.length": ("80", PRETRAINED),
    "pretrain.masked": ("0.2", PRETRAINED),
    "pointwise.negatives": ("2", MODELS),
    "noise.threshold": ("0.5", {"noise_report"} | LISTWISE),
    "listwise.enabled": ("false", {"rank_fused"}),
    "listwise.start": ("encoder", LISTWISE),
    "listwise.head": ("fresh", LISTWISE),
    "listwise.positives": ("2", LISTWISE),
    "listwise.negatives": ("2", LISTWISE),
    "scorer.backend": ("onnx-int8", NOTHING),
    "domain.words": ("500", {"domain_report"}),
    "domain.language": ("de", {"domain_report"}),
    "domain.reference": ("books.txt", NOTHING),
    "domain.fingerprint": ("abc", {"domain_report"}),
    "resources.readers": ("2", NOTHING),
    "resources.index_threads": ("2", NOTHING),
    "resources.search_actors": ("2", NOTHING),
    "resources.search_threads": ("2", NOTHING),
    "resources.train_workers": ("2", NOTHING),
    "resources.train_cpus": ("2", NOTHING),
    "resources.train_gpus": ("0.5", NOTHING),
    "resources.score_actors": ("2", NOTHING),
    "resources.checkpoint_steps": ("2", NOTHING),
    "resources.retries": ("2", NOTHING),
}
PHASE = {
    "epochs": "9",
    "max_steps": "9",
    "batch_size": "9",
    "lr": "9e-6",
    "warmup": "0.3",
    "lr_end": "0.3",
    "weight_decay": "0.3",
    "clip": "0.3",
    "micro_batch_size": "9",
}
for section, after in (
    ("typer", {"query_typer"}),
    ("pretrain", PRETRAINED),
    ("pointwise", MODELS),
    ("listwise", LISTWISE),
):
    CHANGES |= {f"{section}.{name}": (text, after) for name, text in PHASE.items()}


def keys(config: PipelineConfig) -> dict[str, str]:
    return {stage: flow.key(stage, config) for stage in flow.FLOW}


def changed(before: PipelineConfig, after: PipelineConfig) -> set[str]:
    return {stage for stage in flow.FLOW if flow.key(stage, before) != flow.key(stage, after)}


@pytest.mark.parametrize("key", CHANGES)
def test_a_setting_changes_exactly_the_results_that_depend_on_it(key: str) -> None:
    text, expected = CHANGES[key]
    config = build("demo", assignments=[f"{key}={text}"])
    assert config != build("demo")
    assert changed(build("demo"), config) == expected


def test_every_section_and_every_setting_of_a_stage_is_in_the_table() -> None:
    assert {key.split(".")[0] for key in CHANGES} == set(PipelineConfig.model_fields)
    used = {section for step in flow.FLOW.values() for section in step.sections}
    assert {key for key in dotted_keys(PipelineConfig) if key.split(".")[0] in used | {"resources"}} <= set(CHANGES)


@pytest.mark.parametrize("key", ["index.stemmer", "index.stopwords"])
def test_provided_candidates_do_not_depend_on_the_index(key: str) -> None:
    provided = "candidates.first_stage=provided"
    config = build("demo", assignments=[provided, f"{key}={CHANGES[key][0]}"])
    assert changed(build("demo", assignments=[provided]), config) == {"index"}
    assert flow.inputs("candidates", config) == ("corpus",)


def test_keys_are_the_same_in_another_process() -> None:
    script = (
        "from rayrank.core import flow, presets\n"
        "config = presets.demo()\n"
        "import sys; sys.stdout.write(repr({stage: flow.key(stage, config) for stage in flow.FLOW}))"
    )
    command = [sys.executable, "-c", script]
    answers = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert answers == {repr(keys(build("demo")))}


def test_a_key_depends_on_values_and_not_on_how_they_were_written() -> None:
    first = build("demo", assignments=["candidates.k1=1", "pretrain.lr=1e-5", "candidates.b=0.5"])
    second = build("demo", assignments=["candidates.b=5e-1", "pretrain.lr=0.00001", "candidates.k1=1.0"])
    assert keys(first) == keys(second)


def test_asking_for_a_key_changes_nothing() -> None:
    config = build("demo")
    before = config.model_dump()
    assert keys(config) == keys(config)
    assert config.model_dump() == before


def test_keys_of_different_stages_differ_and_can_name_folders() -> None:
    found = list(keys(build("demo")).values())
    assert len(set(found)) == len(found)
    for key in found:
        assert len(key) == 16
        assert set(key) <= set("0123456789abcdef")


def test_a_new_version_of_a_stage_changes_it_and_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys(build("demo"))
    monkeypatch.setitem(flow.FLOW, "index", flow.FLOW["index"]._replace(version=99))
    after = keys(build("demo"))
    assert {stage for stage in flow.FLOW if before[stage] != after[stage]} == INDEX


def test_inputs_come_before_the_stages_that_read_them() -> None:
    for first_stage in ("bm25", "provided"):
        config = build("demo", assignments=[f"candidates.first_stage={first_stage}"])
        seen: set[str] = set()
        for stage in flow.FLOW:
            assert set(flow.inputs(stage, config)) <= seen
            seen.add(stage)


def test_settings_are_plain_values_of_the_stages_own_sections() -> None:
    config = build("demo")
    assert flow.settings("candidates", config) == {"candidates": config.candidates.model_dump(mode="json")}
    assert set(flow.settings("corpus", config)) == {"dataset", "text"}
