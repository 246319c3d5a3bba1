import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8"))
    return content


@pytest.fixture
def prepared(written: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The file as `ray up` sees it: with Ray's defaults, run from the root."""
    monkeypatch.chdir(ROOT)
    config: dict[str, Any] = prepare_config(copy.deepcopy(written))
    return config


def test_ray_accepts_the_file_and_would_refuse_a_misspelt_key(prepared: dict[str, Any]) -> None:
    validate_config(prepared)
    with pytest.raises(Exception, match="max_wrokers"):
        validate_config({**prepared, "max_wrokers": 3})


def test_the_head_takes_no_work_from_the_workers(written: dict[str, Any]) -> None:
    head = written["available_node_types"][written["head_node_type"]]
    assert head["max_workers"] == 0
    assert head["resources"] == {"CPU": 0}


@pytest.mark.parametrize("name", ["cpu_worker", "gpu_worker"])
def test_workers_start_when_needed_and_have_a_limit(written: dict[str, Any], name: str) -> None:
    worker = written["available_node_types"][name]
    assert worker["min_workers"] == 0
    assert 0 < worker["max_workers"] <= written["max_workers"]


def test_all_workers_fit_the_clusters_limit(written: dict[str, Any]) -> None:
    limits = [node["max_workers"] for node in written["available_node_types"].values()]
    assert sum(limits) == written["max_workers"]
    assert written["idle_timeout_minutes"] > 0


def test_cpu_and_gpu_workers_are_different_machines(written: dict[str, Any]) -> None:
    types = {name: node["node_config"]["InstanceType"] for name, node in written["available_node_types"].items()}
    assert types["cpu_worker"].startswith(("c", "m", "r"))
    assert types["gpu_worker"].startswith(("p", "g"))


def test_every_node_installs_the_versions_that_were_tested(written: dict[str, Any]) -> None:
    installs = [command for command in written["setup_commands"] if "pip install" in command]
    assert installs
    for command in installs:
        assert "-c ~/rayrank/constraints.txt" in command
    assert written["file_mounts"]["~/rayrank/constraints.txt"] == "./constraints.txt"


def test_everything_the_install_reads_is_mounted_and_exists(written: dict[str, Any]) -> None:
    mounts = written["file_mounts"]
    local = [source for source in mounts.values() if not source.startswith("~")]
    for source in local:
        assert (ROOT / source).exists(), source
    # pip reads the project's own table, its readme and its packages from the mounted copy.
    for name in ("pyproject.toml", "constraints.txt", "README.md", "platform", "jobs", "serve", "tune"):
        assert mounts[f"~/rayrank/{name}"] == f"./{name}"


def test_every_node_requires_token_authentication(written: dict[str, Any]) -> None:
    for kind in ("head", "worker"):
        starts = [command for command in written[f"{kind}_start_ray_commands"] if "ray start" in command]
        assert len(starts) == 1
        assert "RAY_AUTH_MODE=token" in starts[0]
    assert "~/.ray/auth_token" in written["file_mounts"]
