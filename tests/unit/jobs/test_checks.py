"""What `jobs.doctor` finds in reports of machines, without Ray."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rayrank.jobs import checks
from rayrank.jobs.checks import Finding
from rayrank.jobs.node_report import NodeReport, node_report
from rayrank.training.worker_size import TrainingSize

GB = 10**9
SOUND = NodeReport("3.11.9", {"torch": "2.9.0", "ray": "2.60.0"}, "21.0.8", "", 1, (90 * GB, 100 * GB), 24 * GB, 0.0)
RESOURCES = {"CPU": 8.0, "GPU": 1.0, "object_store_memory": 8.0 * GB}


def problems(found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.level != "ok"]


def test_a_sound_node_has_no_problem_and_every_check_says_what_it_found() -> None:
    found = list(checks.node("n1", SOUND, SOUND, RESOURCES))
    assert problems(found) == []
    assert [finding.what for finding in found] == [
        "Java 21.0.8 on n1",
        "1 GPUs on n1",
        "Ray's temporary folder on n1 has 90 of 100 GB free",
        "the object store of n1 has 8.0 GB",
    ]


@pytest.mark.parametrize(
    ("change", "level", "what"),
    [
        ({"java": "", "java_fault": "no such file"}, "problem", "Java does not start on n1: no such file"),
        ({"java": "17.0.2"}, "problem", "Java 17.0.2 on n1: Lucene needs 21"),
        ({"packages": {"ray": "2.60.0"}}, "warning", "torch missing (here: 2.9.0)"),
        ({"python": "3.12.1"}, "warning", "python 3.12.1 (here: 3.11.9)"),
        ({"torch_gpus": 0}, "problem", "Ray counts 1 GPUs on n1, torch can use 0"),
        ({"torch_gpus": 2}, "warning", "torch can use 2 GPUs on n1, of which Ray counts 1"),
        ({"disk": (4 * GB, 100 * GB)}, "problem", "has 4 of 100 GB free"),
        ({"disk": (9 * GB, 100 * GB)}, "warning", "has 9 of 100 GB free"),
        ({"shared_memory": GB}, "warning", "but /dev/shm has 1.0 GB"),
    ],
)
def test_what_is_wrong_on_a_node_is_one_finding_with_a_fix(change: dict[str, object], level: str, what: str) -> None:
    (finding,) = problems(list(checks.node("n1", replace(SOUND, **change), SOUND, RESOURCES)))  # type: ignore[arg-type]
    assert finding.level == level
    assert what in finding.what
    assert finding.fix
    assert "\n" not in str(finding)


def test_a_clock_within_the_time_of_the_question_is_right_and_one_beyond_it_is_not() -> None:
    assert list(checks.clock("n1", theirs=105.0, asked=100.0, answered=110.0)) == []
    for theirs in (90.0, 120.0):
        (finding,) = checks.clock("n1", theirs, asked=100.0, answered=110.0)
        assert "differs by at least 10 s" in finding.what


def test_packages_are_compared_with_the_constraints(tmp_path: Path) -> None:
    file = tmp_path / "constraints.txt"
    file.write_text("# tested\nray==2.60.0\ntorch==2.9.0\nnot-installed==1.0\n")
    pinned = checks.pins(file)
    assert pinned == {"ray": "2.60.0", "torch": "2.9.0", "not-installed": "1.0"}
    (fine,) = checks.python_packages(pinned, {"ray": "2.60.0", "torch": "2.9.0"})
    assert fine.level == "ok"
    (other,) = checks.python_packages(pinned, {"ray": "2.50.0", "torch": "2.9.0"})
    assert (other.level, other.fix) == ("warning", "pip install -c constraints.txt -e .")
    assert "ray 2.50.0 (tested: 2.60.0)" in other.what


@pytest.mark.parametrize(("version", "level"), [((3, 10), "problem"), ((3, 13), "ok"), ((3, 14), "problem")])
def test_the_supported_versions_of_python_are_those_of_the_package(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int], level: str
) -> None:
    monkeypatch.setattr(checks.sys, "version_info", (*version, 0))
    assert [finding.level for finding in checks.python_packages({}, {})] == [level]


def test_the_token_is_needed_where_the_cluster_asks_for_it(tmp_path: Path) -> None:
    assert checks.token({}, tmp_path).level == "ok"
    joined = {"RAY_ADDRESS": "head:6379", "RAY_AUTH_MODE": "token"}
    assert checks.token({"RAY_ADDRESS": "head:6379"}, tmp_path).level == "warning"
    assert checks.token(joined, tmp_path).level == "problem"
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("secret")
    assert checks.token(joined, tmp_path).level == "ok"
    assert checks.token({"RAY_ADDRESS": "head:6379"}, tmp_path).level == "ok"
    assert checks.token({**joined, "RAY_AUTH_MODE": "disabled"}, tmp_path).level == "warning"
    assert checks.token({**joined, "RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}, tmp_path).level == "problem"


def test_work_that_does_not_fit_is_a_problem_here_and_waits_on_a_cluster_that_grows() -> None:
    fits, too_large = TrainingSize(2, 4, 1.0, room=2), TrainingSize(4, 4, 1.0, room=2)
    threads = {"resources.search_threads": 16, "resources.index_threads": None}
    assert problems(list(checks.placement(fits, 16, threads, grows=False))) == []
    here = problems(list(checks.placement(too_large, 8, threads, grows=False)))
    assert [finding.level for finding in here] == ["problem", "problem"]
    assert "4 training workers with 4 cores and 1 GPUs each: the cluster has room for 2" in here[0].what
    assert here[1].fix == "lower it with --set resources.search_threads=8"
    growing = problems(list(checks.placement(too_large, 8, threads, grows=True)))
    assert [finding.level for finding in growing] == ["warning", "warning"]


def test_this_machines_report_has_its_real_python_java_and_disk(tmp_path: Path) -> None:
    report = node_report(["pyarrow", "no-such-package"], str(tmp_path / "not" / "made"))
    assert report.python == ".".join(map(str, sys.version_info[:3]))
    assert report.packages.keys() == {"pyarrow"}
    assert report.java.startswith("21")
    assert 0 < report.disk[0] < report.disk[1]
