"""The files of deploy/ name what exists; hadolint checks the Dockerfile's own rules, and Docker is not needed here."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from rayrank.command import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = (ROOT / "deploy/Dockerfile").read_text(encoding="utf-8")
STAGES = dict(re.findall(r"^FROM \S+ AS (\w+)\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))
    return content


def test_everything_that_is_copied_exists_and_the_wheel_gets_all_it_is_built_from() -> None:
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE) for word in line.split()
    ]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    links = {path.name for path in (ROOT / "platform/rayrank").iterdir() if path.is_symlink()}
    assert links | {"platform", "pyproject.toml", "README.md"} <= set(copied)


@pytest.mark.parametrize("stage", ["cpu", "cuda"])
def test_an_image_has_the_tested_versions_and_does_not_run_as_root(stage: str) -> None:
    installs = re.findall(r"pip install [^&]*", STAGES[stage])
    assert installs
    assert all("-c /opt/rayrank/constraints.txt" in install for install in installs)
    assert re.findall(r"^USER (\S+)", STAGES[stage], re.MULTILINE)[-1] not in ("root", "0")
    assert re.search(rf"^FROM base AS {stage}$", DOCKERFILE, re.MULTILINE)
    assert "HEALTHCHECK" in STAGES["base"]


def test_the_services_run_commands_of_rayrank_in_an_image_that_is_built(compose: dict[str, Any]) -> None:
    known = {command.name for command in COMMANDS}
    for service in compose["services"].values():
        assert service["build"]["target"] in STAGES
        words = " ".join([*service.get("entrypoint", ["rayrank serve"]), *service.get("command", [])])
        assert set(re.findall(r"rayrank ([a-z-]+)", words)) & known
    assert re.search(r'^ENTRYPOINT \["rayrank", "serve"', DOCKERFILE, re.MULTILINE)
