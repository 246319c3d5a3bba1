import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import as_file, build, flatten
from rayrank.core.presets import PRESETS


def value(config: PipelineConfig, key: str) -> Any:
    return dict(flatten(config.model_dump()))[key]


def after(assignment: str) -> Any:
    return value(build("demo", assignments=[assignment]), assignment.partition("=")[0])


def complaint(preset: str = "demo", file: Path | str | None = None, assignments: tuple[str, ...] = ()) -> str:
    with pytest.raises(ConfigError) as caught:
        build(preset, str(file) if file else None, assignments)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "run.yaml"


def test_a_preset_without_overrides_is_returned_unchanged() -> None:
    for name, preset in PRESETS.items():
        assert build(name) == preset()


def test_a_file_overrides_the_preset_and_set_overrides_the_file(file: Path) -> None:
    file.write_text("candidates: {depth: 7}\nindex: {stemmer: krovetz}\n")
    config = build("demo", str(file), ["index.stemmer=none"])
    assert (config.candidates.depth, config.index.stemmer) == (7, "none")
    assert config.candidates.first_stage == PRESETS["demo"]().candidates.first_stage
    assert config.index.stopwords == PRESETS["demo"]().index.stopwords


def test_the_last_set_of_a_key_wins() -> None:
    assert build("demo", assignments=["candidates.depth=3", "candidates.depth=4"]).candidates.depth == 4


def test_only_the_named_key_changes() -> None:
    before, changed = PRESETS["paper"](), build("paper", assignments=["dataset.demo.subjects=30"])
    values = dict(flatten(changed.model_dump()))
    different = [key for key, old in flatten(before.model_dump()) if values[key] != old]
    assert different == ["dataset.demo.subjects"]


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("dataset.demo.subjects=30", 30),
        ("candidates.depth=1_000", 1000),
        ("pretrain.lr=1e-5", 1e-5),
        ("pretrain.lr=3.0e-06", 3e-6),
        ("runs.bm25.k1=1", 1.0),
        ("pretrain.max_steps=12", 12),
        ("pretrain.max_steps=null", None),
        ("pretrain.max_steps=~", None),
        ("resources.readers=", None),
        ("input.query_type=no", False),
        ("input.query_type=true", True),
        ("index.stemmer=none", "none"),
    ],
)
def test_a_value_is_converted_to_the_type_of_its_setting(assignment: str, expected: Any) -> None:
    found = after(assignment)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("index.stopwords=12", "12"),
        ("index.stopwords=no", "no"),
        ("index.stopwords=a,b", "a,b"),
        ("evaluate.run=2020", "2020"),
        ("evaluate.run=007", "007"),
        ("evaluate.run=2020-01-01", "2020-01-01"),
        ("evaluate.run=1e5", "1e5"),
        ("evaluate.run=runs/mine v2.trec", "runs/mine v2.trec"),
        ("evaluate.run='@x: y'", "@x: y"),
        ("evaluate.baseline=", ""),
        ("dataset.source=beir:/x=y", "beir:/x=y"),
        ("dataset.source=irds:msmarco-passage/dev", "irds:msmarco-passage/dev"),
        ('dataset.source="beir:/größe"', "beir:/größe"),
    ],
)
def test_a_text_setting_keeps_the_text_as_written(assignment: str, expected: str, file: Path) -> None:
    assert after(assignment) == expected
    key, _, text = assignment.partition("=")
    section, name = key.split(".")
    file.write_text(f"{section}:\n  {name}: {text or repr('')}\n", encoding="utf-8")
    assert value(build("demo", str(file)), key) == expected


@pytest.mark.parametrize("preset", PRESETS)
def test_a_configuration_written_to_a_file_is_read_back_equal(preset: str, file: Path) -> None:
    config = build(preset, assignments=["index.stopwords=12", "evaluate.run=null.trec", "pointwise.max_steps=5"])
    file.write_text(yaml.safe_dump(as_file(config)))
    assert build("demo", str(file)) == config


def test_a_file_may_write_keys_with_dots_and_share_settings(file: Path) -> None:
    file.write_text("pretrain: &phase {lr: 1e-4, epochs: 2}\npointwise: {<<: *phase, epochs: 3}\ncandidates.depth: 9\n")
    config = build("demo", str(file))
    assert (config.pretrain.lr, config.pointwise.lr) == (1e-4, 1e-4)
    assert (config.pretrain.epochs, config.pointwise.epochs) == (2, 3)
    assert config.candidates.depth == 9


def test_an_empty_file_changes_nothing(file: Path) -> None:
    file.write_text("# nothing yet\n")
    assert build("paper", str(file)) == PRESETS["paper"]()


def test_an_unknown_preset_lists_the_presets() -> None:
    sentence = complaint("large")
    assert "--preset large" in sentence
    for name in PRESETS:
        assert name in sentence


def test_an_unknown_section_lists_the_sections() -> None:
    sentence = complaint(assignments=("zzz.qqq=3",))
    assert "zzz.qqq" in sentence
    for section in PipelineConfig.model_fields:
        assert section in sentence


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("candidates.dept", "candidates.depth"),
        ("candidats.depth", "candidates.depth"),
        ("dataset.subjects", "dataset.demo.subjects"),
        ("k1", "runs.bm25.k1"),
        ("candidates.k1", "runs.bm25.k1"),
        ("depth", "candidates.depth"),
        ("fusion.weight", "runs.fused.weight"),
        ("dataset.demo.subjects.x", "dataset.demo.subjects"),
    ],
)
def test_a_misspelt_key_suggests_the_right_one(written: str, meant: str, file: Path) -> None:
    expected = f"The setting {written} does not exist: did you mean {meant}?"
    assert complaint(assignments=(f"{written}=3",)) == expected
    file.write_text(f"{written}: 3\n")
    assert complaint(file=file) == expected


@pytest.mark.parametrize("order", [1, -1])
def test_a_new_kind_keeps_the_settings_that_come_with_it_whatever_their_order(order: int, file: Path) -> None:
    settings = {"kind": "rrf", "k": 30, "of": ["drbert", "candidates"]}
    written = dict(list(settings.items())[::order])
    file.write_text(yaml.safe_dump({"runs": {"fused": written}}, sort_keys=False))

    by_set = build("demo", assignments=[f"runs.fused.{key}={value}" for key, value in written.items()])

    assert build("demo", str(file)) == by_set
    assert by_set.runs["fused"].model_dump(exclude={"title", "depth"}) == {**settings, "of": ("drbert", "candidates")}


def test_a_run_of_a_file_can_be_removed_on_the_command_line(file: Path) -> None:
    file.write_text("runs: {fused: {depth: 3, kind: rrf, of: [drbert, candidates]}}")
    assert "fused" not in build("demo", str(file), ["runs.fused="]).runs


@pytest.mark.parametrize(
    ("assignment", "fix"),
    [
        ("candidates.depth", "write --set candidates.depth=VALUE"),
        ("", "write --set KEY=VALUE"),
        ("=3", "write --set KEY=VALUE"),
        (" = 3", "write --set KEY=VALUE"),
        ("evaluate.run=[", "put quotes around it"),
        ("evaluate.run=@x", "put quotes around it"),
        ("evaluate.run=!!python/object:os.system x", "put quotes around it"),
    ],
)
def test_a_malformed_assignment_says_what_to_write(assignment: str, fix: str) -> None:
    sentence = complaint(assignments=(assignment,))
    assert assignment in sentence
    assert fix in sentence


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        ("candidates.depth=-1", "greater than or equal to 1"),
        ("candidates.depth=10001", "less than or equal to 10000"),
        ("candidates.depth=many", "valid integer"),
        ("candidates.depth=2.5", "valid integer"),
        ("candidates.depth=true", "valid integer"),
        ("candidates.depth=[1, 2]", "valid integer"),
        ("candidates.depth=null", "valid integer"),
        ("runs.bm25.k1=inf", "finite"),
        ("runs.bm25.k1=nan", "finite"),
        ("runs.bm25.k1=high", "valid number"),
        ("candidates.first_stage=splade", "there is no such run; choose one of bm25, rm3,"),
        ("dataset.demo.subjects=3", "greater than or equal to 20"),
        ("dataset.on_error=ignore", "'stop' or 'skip'"),
        ("input.query_type=maybe", "valid boolean"),
        ("encoder.dropout=1.0", "less than 1"),
        ("pretrain.max_steps=0", "greater than or equal to 1"),
        ("index.stopwords=null", "valid string"),
        ("dataset.relevant_from=0", "greater than or equal to 1"),
        ("evaluate.resamples=3", "greater than or equal to 100"),
    ],
)
def test_a_value_that_cannot_be_used_names_key_value_reason_and_fix(assignment: str, reason: str) -> None:
    key, _, text = assignment.partition("=")
    sentence = complaint(assignments=(assignment,))
    shown = "['1', '2']" if text == "[1, 2]" else text
    assert sentence.startswith(f"{key}={shown} cannot be used: ")
    assert reason in sentence
    assert f"--set {key}=" in sentence


def test_a_list_for_a_text_setting_is_refused(file: Path) -> None:
    file.write_text("index: {stopwords: [a, b]}\n")
    assert complaint(file=file).startswith("index.stopwords=['a', 'b'] cannot be used: input should be a valid string")


def test_a_value_of_several_lines_is_quoted_on_one_line(file: Path) -> None:
    file.write_text('candidates: {depth: "a\\nb"}\n')
    assert complaint(file=file).startswith("candidates.depth=a b cannot be used")


@pytest.mark.parametrize(
    "assignments", [("input.query_length=200",), ("input.length=39",), ("input.length=100", "input.query_length=92")]
)
def test_settings_that_contradict_each_other_name_the_ones_to_change(assignments: tuple[str, ...]) -> None:
    sentence = complaint(assignments=assignments)
    for assignment in assignments:
        assert assignment in sentence
    assert "lower input.query_length or raise input.length" in sentence


def test_settings_that_fit_only_together_can_be_set_in_any_order() -> None:
    together = ["input.query_length=300", "input.length=512"]
    assert build("demo", assignments=together) == build("demo", assignments=together[::-1])


@pytest.mark.parametrize("text", ["5", "null", "", "[]"])
def test_a_section_cannot_be_set_as_a_whole(text: str, file: Path) -> None:
    file.write_text(f"candidates: {text}\n")
    for sentence in (complaint(assignments=(f"candidates={text}",)), complaint(file=file)):
        assert sentence.startswith("candidates is a section, not a setting: set ")
        assert "candidates.depth" in sentence
        assert "pretrain" not in sentence


def test_a_section_within_a_section_cannot_be_set_as_a_whole(file: Path) -> None:
    file.write_text("dataset: {demo: }\n")
    for sentence in (complaint(assignments=("dataset.demo=3",)), complaint(file=file)):
        assert sentence.startswith(
            "dataset.demo is a section, not a setting: set dataset.demo.categories or dataset.demo.seed"
        )


def test_a_config_file_that_cannot_be_read_is_named(file: Path, tmp_path: Path) -> None:
    assert complaint(file=file) == f"--config {file} cannot be read: No such file or directory."
    assert complaint(file=tmp_path) == f"--config {tmp_path} cannot be read: Is a directory."


@pytest.mark.parametrize("content", [b"candidates: [", b"a: b: c", b"\xff\xfe\x00", b"--- a\n--- b\n", b"x: \x00"])
def test_a_config_file_that_is_not_yaml_is_named(content: bytes, file: Path) -> None:
    file.write_bytes(content)
    assert complaint(file=file).startswith(f"--config {file} is not YAML: ")


@pytest.mark.parametrize("content", ["- candidates\n", "candidates\n", "12\n"])
def test_a_config_file_without_sections_shows_how_one_looks(content: str, file: Path) -> None:
    file.write_text(content)
    assert complaint(file=file) == (
        f"--config {file} must map sections to settings, as in 'candidates: {{depth: 100}}'."
    )


@pytest.mark.parametrize(
    ("content", "key"), [("colour: red\n", "colour"), ("candidates: {3: 4}\n", "candidates.3"), ("3: 4\n", "3")]
)
def test_an_unknown_key_of_a_config_file_is_named(content: str, key: str, file: Path) -> None:
    file.write_text(content)
    assert complaint(file=file).startswith(f"The setting {key} does not exist: ")


def test_every_dotted_key_can_be_set_to_its_own_value() -> None:
    config = PRESETS["paper"]()
    for key, current in flatten(config.model_dump()):
        assert build("paper", assignments=[f"{key}={json.dumps(current)}"]) == config
