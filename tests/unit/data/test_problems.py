import pytest

from rayrank.core.config import DatasetConfig
from rayrank.core.errors import DatasetError, ProblemsFound
from rayrank.core.records import Malformed
from rayrank.data.problems import EXAMPLES, KINDS, Problems

SETTINGS = ("on_error", "on_duplicate", "on_empty", "on_unknown", "on_shared")


def dataset(**decisions: str) -> DatasetConfig:
    return DatasetConfig.model_validate({"source": "beir:/data/mine", **decisions})


def stopped(problems: Problems) -> str:
    with pytest.raises(ProblemsFound) as caught:
        problems.stop_if_decided()
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_every_setting_applies_to_some_kind_of_problem() -> None:
    assert {kind.setting for kind in KINDS.values()} == set(SETTINGS)


@pytest.mark.parametrize("kind", KINDS)
def test_stop_names_the_dataset_an_example_and_the_setting(kind: str) -> None:
    problems = Problems(dataset())
    problems.add(kind, ["row 17"])
    assert problems.stops_at(kind)
    sentence = stopped(problems)
    assert sentence.startswith(f"The dataset beir:/data/mine has 1 {KINDS[kind].one} (row 17); ")
    assert sentence.endswith(f"--set dataset.{KINDS[kind].setting}=skip.")


@pytest.mark.parametrize("kind", KINDS)
def test_with_skip_reading_continues_and_problems_are_reported(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    problems = Problems(dataset(**{KINDS[kind].setting: "skip"}))
    problems.add(kind, ["row 17", "row 18"])
    assert not problems.stops_at(kind)
    problems.stop_if_decided()
    assert problems.report() == {kind: {"count": 2, "examples": ["row 17", "row 18"]}}
    assert f"2 {KINDS[kind].many} (such as row 17; row 18)" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_each_setting_applies_to_its_own_kinds_of_problems_only(kind: str) -> None:
    others = {setting: "skip" for setting in SETTINGS if setting != KINDS[kind].setting}
    problems = Problems(dataset(**others))
    for name in KINDS:
        problems.add(name, [f"example of {name}"])
    same = {name for name in KINDS if KINDS[name].setting == KINDS[kind].setting}
    assert {name for name in KINDS if problems.stops_at(name)} == same
    assert stopped(problems).endswith(f"--set dataset.{KINDS[kind].setting}=skip.")


def test_many_problems_are_counted_and_a_few_are_shown() -> None:
    problems = Problems(dataset())
    problems.add("empty_passages", [f"p{i}" for i in range(3)], count=1200)
    problems.add("empty_passages", [f"q{i}" for i in range(40)])
    sentence = stopped(problems)
    assert "1,240 passages without text (such as p0; p1; p2)" in sentence
    assert "leave them out" in sentence
    report = problems.report()["empty_passages"]
    assert report == {"count": 1240, "examples": ["p0", "p1", "p2", "q0", "q1"]}
    assert len(report["examples"]) == EXAMPLES


def test_without_problems_nothing_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    problems = Problems(dataset())
    problems.add("shared_queries", [])
    problems.stop_if_decided()
    assert problems.report() == {}
    assert capsys.readouterr().err == ""


def test_a_malformed_line_stops_at_once_with_its_place() -> None:
    problems = Problems(dataset())
    with pytest.raises(ProblemsFound, match=r"\(corpus\.jsonl line 3: not JSON\)"):
        problems.add_malformed(Malformed("corpus.jsonl", 3, "not JSON"))


def test_with_skip_malformed_lines_are_counted() -> None:
    problems = Problems(dataset(on_error="skip"))
    for line in range(1, 4):
        problems.add_malformed(Malformed("corpus.jsonl", line, "not JSON"))
    assert problems.report()["malformed"]["count"] == 3


def test_problems_are_an_error_of_the_dataset() -> None:
    assert issubclass(ProblemsFound, DatasetError)
