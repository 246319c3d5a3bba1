import os
import re
import subprocess
import sys

import pytest

from rayrank.core import flow
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import build, flatten
from rayrank.core.run_kinds import RunKind, RunSettings, kind_named

FIRST_STAGES = ("bm25", "rm3", "deepct", "doc2query", "dense", "trained_dense", "hybrid", "trained_hybrid", "provided")
RUNS = (
    *(f"run:{name}" for name in FIRST_STAGES),
    *("run:pointwise", "run:pointwise@train", "run:drbert", "run:fused"),
)
# The soup has no members by default, see tests/unit/stages/test_soup.py.
NODES = (*(name for name in flow.STAGES if name != "soup"), *RUNS)
MODELS = {"pointwise", "noise_report", "listwise", "run:pointwise", "run:pointwise@train", "run:drbert", "run:fused"}
LISTWISE = {"listwise", "run:drbert", "run:fused"}
PRETRAINED = {"pretrain"} | MODELS
DEEPCT_INDEX = {"deepct_index", "run:deepct"}
DEEPCT = {"train_deepct", "deepct_documents"} | DEEPCT_INDEX
DOC2QUERY_INDEX = {"doc2query_index", "run:doc2query"}
DOC2QUERY_DOCUMENTS = {"doc2query_documents"} | DOC2QUERY_INDEX
DOC2QUERY = {"train_doc2query"} | DOC2QUERY_DOCUMENTS
TRAINED_VECTORS = {"trained_embeddings", "run:trained_dense", "run:trained_hybrid"}
TRAIN_DENSE = {"train_dense"} | TRAINED_VECTORS
DENSE = {"run:dense", "run:hybrid"}
VECTORS = {"embeddings"} | DENSE | TRAINED_VECTORS
SDNET = {"sdnet"}
SEEDED = {"query_typer"} | PRETRAINED | DEEPCT | DOC2QUERY | TRAIN_DENSE | SDNET
ENCODER = {"query_typer"} | PRETRAINED | DEEPCT
CHOSEN = {"evaluate"} | MODELS | SDNET
CANDIDATES = {"run:bm25", "run:hybrid"} | TRAIN_DENSE | CHOSEN
INDEX = {"index"} | CANDIDATES
ANALYSIS = {"rm3_index", "run:rm3"} | INDEX | DEEPCT_INDEX | DOC2QUERY_INDEX
EVALUATE = {"evaluate"}
CORPUS = set(NODES)
QUERIES = CORPUS - {"domain_report", "index", "rm3_index", "pretrain"}
NOTHING: set[str] = set()

# For every setting another value than the default, and the results that are others then.
CHANGES: dict[str, tuple[str, set[str]]] = {
    "dataset.source": ("beir:/data", NOTHING),
    "dataset.on_error": ("skip", CORPUS),
    "dataset.on_duplicate": ("skip", CORPUS),
    "dataset.on_empty": ("skip", CORPUS),
    "dataset.on_unknown": ("skip", QUERIES),
    "dataset.on_shared": ("skip", QUERIES),
    "dataset.type_field": ("domain", QUERIES),
    "dataset.types_file": ("types.tsv", NOTHING),
    "dataset.group_field": ("domain", QUERIES),
    "dataset.train_queries": (100, QUERIES),
    "dataset.train_seed": (1, QUERIES),
    "dataset.passage_template": ("'{text}'", CORPUS),
    "dataset.fields": ("[price]", {"passage_fields"}),
    "dataset.holdout": ("0.3", QUERIES),
    "dataset.part_bytes": ("4096", CORPUS),
    "dataset.relevant_from": ("2", QUERIES),
    "dataset.demo.seed": ("14", CORPUS),
    "dataset.demo.subjects": ("30", CORPUS),
    "dataset.demo.categories": ("3", CORPUS),
    "dataset.demo.unlabelled": ("0.5", CORPUS),
    "dataset.fingerprint": ("abc", CORPUS),
    "text.tokenizer": ("bert-base-uncased", CORPUS),
    "text.passage_pieces": ("128", CORPUS),
    "text.query_pieces": ("32", CORPUS),
    "text.fingerprint": ("abc", CORPUS),
    "index.language": ("de", ANALYSIS | DEEPCT | {"query_types"}),
    "index.stemmer": ("krovetz", ANALYSIS),
    "index.stopwords": ("none", ANALYSIS),
    "candidates.first_stage": ("provided", CHOSEN),
    "candidates.depth": ("7", {"run:rm3", "run:deepct", "run:doc2query", "run:dense"} | CANDIDATES),
    "candidates.train_depth": ("7", {"run:rm3", "run:deepct", "run:doc2query", "run:dense"} | CANDIDATES),
    "runs.bm25.kind": ("provided", CANDIDATES),
    "runs.bm25.title": ("Lucene", NOTHING),
    "runs.bm25.k1": ("0.8", CANDIDATES),
    "runs.bm25.b": ("0.7", CANDIDATES),
    "runs.bm25.partition_queries": ("10", CANDIDATES),
    "runs.bm25.index": ("deepct", CANDIDATES),
    "runs.bm25.depth": ("7", CANDIDATES),
    "runs.bm25.rm3": ("true", CANDIDATES),
    "runs.bm25.rm3_terms": ("7", NOTHING),  # no query is expanded, so nothing depends on how
    "runs.bm25.rm3_passages": ("7", NOTHING),
    "runs.bm25.rm3_weight": ("0.7", NOTHING),
    "runs.dense.kind": ("search", DENSE),
    "runs.dense.title": ("vectors", NOTHING),
    "runs.dense.trained": ("true", DENSE),
    "runs.dense.depth": ("7", DENSE),
    "runs.dense.partition_queries": ("10", DENSE),
    "runs.dense.exact_up_to": ("7", DENSE),
    "runs.dense.recall": ("0.5", DENSE),
    "runs.trained_dense.kind": ("search", {"run:trained_dense", "run:trained_hybrid"}),
    "runs.trained_dense.title": ("vectors", NOTHING),
    "runs.trained_dense.trained": ("false", {"run:trained_dense", "run:trained_hybrid"}),
    "runs.trained_dense.depth": ("7", {"run:trained_dense", "run:trained_hybrid"}),
    "runs.trained_dense.partition_queries": ("10", {"run:trained_dense", "run:trained_hybrid"}),
    "runs.trained_dense.exact_up_to": ("7", {"run:trained_dense", "run:trained_hybrid"}),
    "runs.trained_dense.recall": ("0.5", {"run:trained_dense", "run:trained_hybrid"}),
    "runs.provided.kind": ("search", {"run:provided"}),
    "runs.provided.title": ("given", NOTHING),
    "runs.provided.fingerprint": ("abc", {"run:provided"}),
    "runs.pointwise.kind": (
        "tests.unit.core.test_flow:Given",
        {"noise_report", "run:pointwise", "run:pointwise@train"} | LISTWISE,
    ),
    "runs.pointwise.title": ("BERT", NOTHING),
    "runs.pointwise.of": ("provided", {"noise_report", "run:pointwise", "run:pointwise@train"} | LISTWISE),
    "runs.drbert.kind": ("search", {"run:drbert", "run:fused"}),
    "runs.drbert.title": ("ours", NOTHING),
    "runs.drbert.of": ("pointwise", {"run:drbert", "run:fused"}),
    "runs.drbert.model": ("pointwise", {"run:drbert", "run:fused"}),
    "runs.fused.kind": ("search", {"run:fused"}),
    "runs.fused.title": ("both", NOTHING),
    "runs.fused.of": ("[pointwise, bm25]", {"run:fused"}),
    "runs.hybrid.of": ("[dense, rm3]", {"run:hybrid"}),
    "runs.trained_hybrid.of": ("[trained_dense, rm3]", {"run:trained_hybrid"}),
    "evaluate.run": ("mine.trec", EVALUATE),
    "evaluate.baseline": ("bm25", EVALUATE),
    "evaluate.split": ("dev", EVALUATE),
    "evaluate.fingerprint": ("abc", EVALUATE),
    "evaluate.resamples": ("200", EVALUATE),
    "evaluate.test": ("t", EVALUATE),
    "evaluate.seed": ("14", EVALUATE),
    "encoder.name": ("bert-base-uncased", ENCODER | SDNET),
    "encoder.layers": ("3", ENCODER | SDNET),
    "encoder.dropout": ("0.2", ENCODER),
    "encoder.fingerprint": ("abc", ENCODER | SDNET),
    "strm.form": ("bias", PRETRAINED),
    "strm.representative": ("first", PRETRAINED),
    "strm.first_layer": ("1", PRETRAINED),
    "strm.last_layer": ("1", PRETRAINED),
    "input.length": ("200", MODELS),
    "input.query_length": ("40", MODELS),
    "input.query_type": ("false", MODELS),
    "input.markers": ("4", MODELS),
    "input.marker_stems": ("false", MODELS),
    "input.marker_stop_words": ("true", MODELS),
    "input.long_passages": ("windows", MODELS),
    "input.window_length": ("20", MODELS),
    "input.window_stride": ("10", MODELS),
    "input.max_windows": ("3", MODELS),
    "query_types.ignore_labels": ("true", {"query_types"} | MODELS),
    "query_types.predict": ("trained", {"query_types"} | MODELS),
    "query_types.abbreviation": ("true", {"query_types"} | MODELS),
    "training.seed": ("14", SEEDED),
    "training.dev_queries": ("7", MODELS | TRAIN_DENSE | SDNET),
    "training.evaluations": ("7", SEEDED),
    "training.patience": ("7", SEEDED),
    "training.metric": ("nDCG@10", MODELS | EVALUATE | TRAIN_DENSE | SDNET | {"run:hybrid"}),
    "typer.labels": ("labels.txt", {"query_typer"}),
    "typer.fingerprint": ("abc", {"query_typer"}),
    "pretrain.enabled": ("false", PRETRAINED),
    "pretrain.length": ("80", PRETRAINED),
    "pretrain.masked": ("0.2", PRETRAINED),
    "pointwise.negatives": ("2", MODELS),
    "pointwise.pairs": ("judged", MODELS),
    "noise.threshold": ("0.5", {"noise_report"} | LISTWISE),
    "noise.margin": ("1", {"noise_report"} | LISTWISE),
    "noise.relabel": ("0.99", {"noise_report"} | LISTWISE),
    "pointwise.layer_decay": ("0.9", MODELS),
    "pointwise.seed": ("14", MODELS),
    "listwise.seed": ("14", LISTWISE),
    "listwise.soup": ("[13, 14]", NOTHING),
    "pointwise.freeze_embeddings": ("true", MODELS),
    "listwise.layer_decay": ("0.9", LISTWISE),
    "listwise.freeze_embeddings": ("true", LISTWISE),
    "listwise.start": ("encoder", LISTWISE),
    "listwise.head": ("fresh", LISTWISE),
    "listwise.positives": ("2", LISTWISE),
    "listwise.negatives": ("2", LISTWISE),
    "listwise.loss": ("lambda", LISTWISE),
    "pointwise.teacher_weight": ("0.1", NOTHING),
    "pointwise.temperature": ("3", NOTHING),
    "listwise.teacher": ("pointwise", LISTWISE),
    "listwise.teacher_loss": ("margin_mse", NOTHING),  # without a teacher nothing depends on how it teaches
    "listwise.teacher_weight": ("0.1", NOTHING),
    "listwise.temperature": ("3", NOTHING),
    "listwise.negatives_from": ("pointwise", LISTWISE),
    "listwise.rounds": ("2", {"noise_report"} | LISTWISE),
    "listwise.continued": ("true", NOTHING),  # there is one round
    "listwise.negative_ranks": ("[2, 9]", LISTWISE),
    "sdnet.dropout": ("0.3", SDNET),
    "sdnet.length": ("80", SDNET),
    "sdnet.layers": ("3", SDNET),
    "sdnet.hidden": ("7", SDNET),
    "sdnet.signals": ("7", SDNET),
    "sdnet.match": ("softmax", SDNET),
    "sdnet.negatives": ("7", SDNET),
    "dense.encoder": ("bert-base-uncased", VECTORS | TRAIN_DENSE),
    "dense.pooling": ("cls", VECTORS | TRAIN_DENSE),
    "dense.normalize": ("false", VECTORS | TRAIN_DENSE),
    "dense.query_prefix": ("find", VECTORS | TRAIN_DENSE),
    "dense.passage_prefix": ("found", VECTORS | TRAIN_DENSE),
    "dense.length": ("80", VECTORS | TRAIN_DENSE),
    "dense.partition_texts": ("7", VECTORS),
    "dense.fingerprint": ("abc", VECTORS | TRAIN_DENSE),
    "train_dense.first_stage": ("rm3", TRAIN_DENSE),
    "train_dense.noise_run": ("pointwise", TRAIN_DENSE),
    "train_dense.noise_threshold": ("0.5", TRAIN_DENSE),
    "train_dense.negatives": ("3", TRAIN_DENSE),
    "train_dense.temperature": ("0.3", TRAIN_DENSE),
    "deepct.length": ("80", DEEPCT),
    "deepct.scale": ("7", DEEPCT - {"train_deepct"}),
    "doc2query.model": ("t5-base", DOC2QUERY),
    "doc2query.length": ("80", DOC2QUERY),
    "doc2query.query_length": ("80", DOC2QUERY),
    "doc2query.queries": ("3", DOC2QUERY_DOCUMENTS),
    "doc2query.top_k": ("3", DOC2QUERY_DOCUMENTS),
    "doc2query.fingerprint": ("abc", DOC2QUERY),
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
    "resources.labels": ("[gpu=a]", NOTHING),
    "resources.checkpoint_steps": ("2", NOTHING),
    "resources.retries": ("2", NOTHING),
}
PHASE = {
    "epochs": "9",
    "max_steps": "9",
    "min_steps": "9",
    "smallest_batch": "9",
    "batch_size": "9",
    "lr": "9e-6",
    "warmup": "0.3",
    "lr_end": "0.3",
    "weight_decay": "0.3",
    "clip": "0.3",
    "micro_batch_size": "9",
}
RM3 = {"rm3_terms": "7", "rm3_passages": "7", "rm3_weight": "0.7"}
SEARCH = {"kind": "dense", "k1": "0.8", "b": "0.7", "depth": "7", "partition_queries": "10"}
INTERPOLATE = {"kind": "search", "weight": "0.3", "depth": "7", "normalize": "z-score"}
for section, after in (
    ("typer", {"query_typer"}),
    ("pretrain", PRETRAINED),
    ("pointwise", MODELS),
    ("listwise", LISTWISE),
    ("sdnet", SDNET),
    ("train_dense", TRAIN_DENSE),
    ("deepct", DEEPCT),
    ("doc2query", DOC2QUERY),
):
    CHANGES |= {f"{section}.{name}": (text, after) for name, text in PHASE.items()}
for run, index, rm3 in (("rm3", "deepct", "false"), ("deepct", "plain", "true"), ("doc2query", "plain", "true")):
    searched = {**SEARCH, "index": index, "rm3": rm3}
    CHANGES |= {f"runs.{run}.{name}": (text, {f"run:{run}"}) for name, text in searched.items()}
    CHANGES |= {f"runs.{run}.{name}": (text, {"run:rm3"} if run == "rm3" else NOTHING) for name, text in RM3.items()}
for run in ("fused", "hybrid", "trained_hybrid"):
    CHANGES |= {f"runs.{run}.{name}": (text, {f"run:{run}"}) for name, text in INTERPOLATE.items()}
for run in ("rm3", "deepct", "doc2query", "hybrid", "trained_hybrid"):
    CHANGES[f"runs.{run}.title"] = ("another", NOTHING)


def keys(config: PipelineConfig) -> dict[str, str]:
    return {node: flow.key(node, config) for node in NODES}


def changed(before: PipelineConfig, after: PipelineConfig) -> set[str]:
    return {node for node in NODES if flow.key(node, before) != flow.key(node, after)}


@pytest.mark.parametrize("key", CHANGES)
def test_a_setting_changes_exactly_the_results_that_depend_on_it(key: str) -> None:
    text, expected = CHANGES[key]
    config = build("demo", assignments=[f"{key}={text}"])
    assert config != build("demo")
    assert changed(build("demo"), config) == expected


def test_every_section_and_every_setting_of_a_stage_is_in_the_table() -> None:
    assert {key.split(".")[0] for key in CHANGES} == set(PipelineConfig.model_fields)
    # Any other model of the run `pointwise` would make a cycle with the noise filter, and no other run of the preset
    # has scores for the noise filter, or can be a teacher of the pointwise phase.
    apart = {"runs.pointwise.model", "pointwise.teacher", "noise.run"}
    assert {key for key, _ in flatten(build("demo").model_dump())} - apart <= set(CHANGES)


def test_the_run_that_the_noise_filter_reads_is_in_the_key_of_what_it_filters() -> None:
    large = "runs.large={kind: file, paths: large.parquet}"
    own, other = build("demo", assignments=[large]), build("demo", assignments=[large, "noise.run=large"])
    assert changed(own, other) == {"noise_report"} | LISTWISE


def test_a_teacher_of_the_pointwise_phase_is_in_the_key_of_its_student() -> None:
    large = "runs.large={kind: file, paths: large.parquet}"
    alone, taught = build("demo", assignments=[large]), build("demo", assignments=[large, "pointwise.teacher=large"])
    assert changed(alone, taught) == MODELS
    assert flow.inputs("pointwise", taught)[-1] == "run:large"
    for key in ("teacher_weight=0.1", "temperature=3"):
        more = build("demo", assignments=[large, "pointwise.teacher=large", f"pointwise.{key}"])
        assert changed(taught, more) == MODELS


@pytest.mark.parametrize("key", ["teacher_loss=margin_mse", "teacher_weight=0.1", "temperature=3"])
def test_how_a_teacher_teaches_is_in_the_key_of_its_student(key: str) -> None:
    taught = ["listwise.teacher=pointwise"]
    assert changed(build("demo", assignments=taught), build("demo", assignments=[*taught, f"listwise.{key}"])) == (
        LISTWISE
    )


@pytest.mark.parametrize(("setting", "reads"), [("noise.margin=1", True), ("noise.relabel=0.9", True), ("", False)])
def test_lists_read_noise_scores_only_if_a_rule_uses_them(setting: str, reads: bool) -> None:
    config = build("demo", assignments=["noise.threshold=1", *([setting] if setting else [])])
    assert ("run:pointwise@train" in flow.inputs("listwise", config)) == reads


def test_a_student_reads_its_teachers_scores_of_the_training_queries() -> None:
    both = "runs.both={kind: interpolate, of: [pointwise, bm25], weight: 0.5}"
    config = build("demo", assignments=[both, "listwise.teacher=both", "noise.threshold=1"])
    assert flow.inputs("listwise", config)[-1] == "run:both@train"
    assert flow.inputs("run:both@train", config) == ("corpus", "run:pointwise@train", "run:bm25")
    assert "both" in flow.used_runs(config)


@pytest.mark.parametrize("key", ["index.stemmer", "index.stopwords"])
def test_provided_candidates_do_not_depend_on_the_index(key: str) -> None:
    provided = "candidates.first_stage=provided"
    config = build("demo", assignments=[provided, f"{key}={CHANGES[key][0]}"])
    assert changed(build("demo", assignments=[provided]), config) == ANALYSIS - CHOSEN
    assert flow.inputs("candidates", config) == ("corpus",)


def test_keys_are_the_same_in_another_process() -> None:
    script = (
        "from rayrank.core import flow, presets\n"
        "config = presets.demo()\n"
        f"import sys; sys.stdout.write(repr({{node: flow.key(node, config) for node in {NODES}}}))"
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
    first = build("demo", assignments=["runs.bm25.k1=1", "pretrain.lr=1e-5", "runs.bm25.b=0.5"])
    second = build("demo", assignments=["runs.bm25.b=5e-1", "pretrain.lr=0.00001", "runs.bm25.k1=1.0"])
    assert keys(first) == keys(second)


def test_computing_a_key_does_not_change_the_configuration() -> None:
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
    monkeypatch.setitem(flow.STAGES, "index", flow.STAGES["index"]._replace(version=99))
    after = keys(build("demo"))
    assert {node for node in NODES if before[node] != after[node]} == INDEX


def test_a_new_version_of_a_kind_changes_its_runs_and_what_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys(build("demo"))
    monkeypatch.setattr(type(kind_named("interpolate")), "version", 99)
    interpolated = {"run:fused", "run:hybrid", "run:trained_hybrid"}
    assert {node for node, key in keys(build("demo")).items() if key != before[node]} == interpolated


def test_inputs_come_before_the_stages_that_read_them() -> None:
    for first_stage in ("bm25", "provided"):
        config = build("demo", assignments=[f"candidates.first_stage={first_stage}"])
        for last in NODES:
            seen: set[str] = set()
            for node in flow.plan(last, config):
                assert set(flow.inputs(node, config)) <= seen
                seen.add(node)


def test_a_description_has_plain_values_of_the_stages_own_sections() -> None:
    config = build("demo")
    assert flow.describe("index", config).settings == {"index": config.index.model_dump(mode="json")}
    assert set(flow.describe("corpus", config).settings) == {"dataset", "text"}


def test_runs_with_equal_settings_and_different_names_have_one_key() -> None:
    config = build("demo", assignments=["runs.other={kind: rerank, model: listwise, title: Other}"])
    assert flow.key("run:other", config) == flow.key("run:drbert", config)


def test_a_model_can_rerank_the_run_of_another_model() -> None:
    config = build("demo", assignments=["runs.drbert.of=pointwise"])
    assert flow.inputs("drbert", config)[-2:] == ("listwise", "run:pointwise")


def test_a_run_of_sdnet_depends_on_neither_query_types_nor_strm_nor_the_inputs_of_pairs() -> None:
    run = "runs.sdnet={kind: rerank, model: sdnet}"
    config = build("demo", assignments=[run])
    assert flow.inputs("run:sdnet", config) == ("corpus", "sdnet", "run:bm25")
    for key in ("query_types.abbreviation", "strm.form", "input.length", "pretrain.lr"):
        other = build("demo", assignments=[run, f"{key}={CHANGES[key][0]}"])
        assert flow.key("run:sdnet", other) == flow.key("run:sdnet", config)
    other = build("demo", assignments=[run, "sdnet.hidden=7"])
    assert flow.key("run:sdnet", other) != flow.key("run:sdnet", config)


def test_training_queries_are_in_the_first_stages_run_but_in_a_separate_run_of_a_ranker() -> None:
    config = build("demo")
    assert flow.run_node("candidates", config, train=True) == "run:bm25"
    assert flow.node("noise", config) == flow.run_node("pointwise", config, train=True) == "run:pointwise@train"


def test_candidates_come_from_a_run_that_has_training_queries() -> None:
    by_length = "runs.longest={kind: 'tests.unit.core.test_flow:Reordered', of: bm25}"
    with pytest.raises(ConfigError, match=r"candidates.first_stage=longest cannot be used: this run is no first stage"):
        build("demo", assignments=[by_length, "candidates.first_stage=longest"])


class Given(RunKind):
    """A kind of first stage without settings, whose scores may be logits."""

    Settings = RunSettings

    def is_first_stage(self, settings: RunSettings, config: PipelineConfig) -> bool:
        return True

    def inputs(self, settings: RunSettings, config: PipelineConfig) -> tuple[str, ...]:
        return ("corpus",)


class Reordered(RunKind):
    """A kind of run that reads another one."""

    class Settings(RunSettings):
        of: str

    def inputs(self, settings: Settings, config: PipelineConfig) -> tuple[str, ...]:
        return ("corpus",)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("runs.bm25.k2=1", "runs.bm25.k2 does not exist: a run of kind search has kind, title, depth, index, k1"),
        ("runs.bm25.b=7", "runs.bm25.b=7 cannot be used: input should be less than or equal to 1"),
        ("runs.mine.of=bm25", "The run mine has no kind: set runs.mine.kind to one of search,"),
        ("runs.mine=5", "The run mine has no kind"),
        ("runs.mine.kind=rerank", "runs.mine.model is missing: a run of kind rerank needs it"),
        ("runs.mine.kind=bm25", "bm25 is no kind of run: choose one of search,"),
        ("runs.mine.kind=no.such:Kind", "no.such:Kind of a run cannot be imported"),
        ("runs.mine.kind=os:path", "os:path is no kind of run"),
        ("runs.drbert.model=corpus", "cannot have model=corpus: choose one of pointwise, listwise, soup, sdnet"),
        ("runs.drbert.of=bm52", "runs.drbert.of=bm52 cannot be used: there is no such run; the runs are candidates,"),
        ("runs.drbert.of=fused", "drbert -> fused -> drbert is a cycle"),
        ("runs.pointwise.model=listwise", "pointwise@train -> listwise -> pointwise@train is a cycle"),
        ("runs.candidates.kind=search", "A run cannot be called 'candidates'"),
        ("runs.a/b.kind=search", "A run cannot be called 'a/b'"),
        ("runs.hybrid.of=[dense, trained_hybrid, hybrid]", "hybrid -> hybrid is a cycle"),
        ("runs.hybrid.of=[dense, bm52]", "runs.hybrid.of=bm52 cannot be used: there is no such run"),
        ("runs.mine={kind: rrf, of: [bm25]}", "runs.mine.of=['bm25'] cannot be used"),
        ("runs.bm25.depth=0", "runs.bm25.depth=0 cannot be used: input should be greater than or equal to 1"),
        ("runs.bm25.rm3_passages=51", "runs.bm25.rm3_passages=51 cannot be used: input should be less than or equal"),
        ("candidates.first_stage=bm52", "candidates.first_stage=bm52 cannot be used: there is no such run"),
        ("noise.run=bm52", "noise.run=bm52 cannot be used: there is no such run"),
        ("noise.run=hybrid", "noise.run=hybrid cannot be used: its scores are no logits"),
    ],
)
def test_a_run_that_cannot_be_made_is_one_sentence(setting: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        build("demo", assignments=[setting])
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("train_dense.first_stage=pointwise", "cannot be used: it is no first stage"),
        ("train_dense.first_stage=none", "cannot be used: it is no first stage"),
        ("train_dense.noise_run=bm25", "cannot be used: name a run of kind rerank"),
    ],
)
def test_a_run_that_cannot_train_a_dense_encoder_is_refused(change: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{change} {words}")):
        flow.plan("trained_dense", build("demo", None, [change]))


def test_runs_that_a_dense_training_reads_are_used_runs() -> None:
    config = build("demo", None, ["candidates.first_stage=trained_dense", "train_dense.first_stage=provided"])
    assert "provided" in flow.used_runs(config)


@pytest.mark.parametrize("phase", ["pointwise", "listwise"])
def test_new_markers_are_not_frozen(phase: str) -> None:
    with pytest.raises(ConfigError, match=rf"{phase}\.freeze_embeddings=true cannot be used with input\.markers=8"):
        build("demo", assignments=["input.markers=8", f"{phase}.freeze_embeddings=true"])


@pytest.mark.parametrize("key", ["noise.run", "train_dense.noise_run"])
def test_scores_of_sdnet_cannot_filter_noise(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}=sdnet cannot be used"):
        flow.key("drbert", build("minilm", assignments=["runs.sdnet={kind: rerank, model: sdnet}", f"{key}=sdnet"]))


def test_only_marked_models_have_the_version_of_the_later_markers() -> None:
    plain, marked = (build("demo", assignments=[f"input.markers={number}"]) for number in (0, 4))
    for stage in ("pointwise", "listwise"):
        assert flow.describe(stage, plain).version == flow.STAGES[stage].version < flow.describe(stage, marked).version
    assert flow.describe("corpus", marked).version == flow.STAGES["corpus"].version
