import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

FOLDERS = {"platform", "jobs", "serve", "tune", "tests"}
BESIDES = {"deploy", "docs", "benchmarks"}
FILES = {"CHANGELOG.md", "cluster.yaml", "pyproject.toml", "constraints.txt", "Makefile", "README.md", "LICENSE"}

HEAVY = {"ray", "torch", "transformers", "pyserini", "jnius", "pandas"}


def python(script: str, folder: Path = ROOT) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"}
    command = [sys.executable, "-c", script]
    answer = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def required() -> list[Requirement]:
    project = PYPROJECT["project"]
    extras = [text for group in project["optional-dependencies"].values() for text in group]
    found = map(Requirement, project["dependencies"] + extras)
    return [requirement for requirement in found if normal(requirement.name) != normal(project["name"])]


def pinned() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.partition("==") for line in lines if line and not line.startswith("#")]
    return {normal(name): version for name, _, version in pins}


def test_the_source_root_does_not_shadow_pythons_platform() -> None:
    assert not (ROOT / "platform" / "__init__.py").exists()
    script = "import platform, sys; sys.stdout.write(platform.python_version())"
    environment = {**os.environ, "PYTHONPATH": "platform"}
    command = [sys.executable, "-c", script]
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout == ".".join(map(str, sys.version_info[:3]))


def test_the_top_level_has_the_agreed_folders_and_files() -> None:
    answer = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if answer.returncode:
        pytest.skip("not a git checkout")
    tracked = [name for name in answer.stdout.splitlines() if not name.startswith(".")]
    folders = {name.split("/")[0] for name in tracked if "/" in name}
    assert folders >= FOLDERS
    assert folders <= FOLDERS | BESIDES
    assert {name for name in tracked if "/" not in name} >= FILES


def test_no_module_is_named_utils_or_similar() -> None:
    vague = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            assert not vague & {path.stem, *path.relative_to(ROOT).parts[:-1]}, path


def test_test_files_have_names_of_their_own() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))


def test_the_import_contracts_hold() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    environment = {**os.environ, "PYTHONPATH": "platform:."}
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout
    assert f"Contracts: {len(PYPROJECT['tool']['importlinter']['contracts'])} kept, 0 broken." in answer.stdout


@pytest.mark.parametrize("module", ["config", "records", "errors", "flow", "presets", "overrides", "progress"])
def test_settings_and_records_import_no_heavy_packages(module: str) -> None:
    loaded = python(f"import sys, rayrank.core.{module}; sys.stdout.write(' '.join(sys.modules))").split()
    assert f"rayrank.core.{module}" in loaded
    assert HEAVY.isdisjoint(loaded)


def test_artifacts_can_be_read_without_ray_or_torch() -> None:
    loaded = python("import sys, rayrank.core.artifacts; sys.stdout.write(' '.join(sys.modules))").split()
    assert {"ray", "torch", "transformers"}.isdisjoint(loaded)


def test_no_module_writes_or_connects_at_import(tmp_path: Path) -> None:
    script = """
import importlib, pkgutil, sys, pydantic
WATCHED = {"open", "os.listdir", "os.mkdir", "os.putenv", "socket.connect", "subprocess.Popen"}
ours = []
def watch(event, arguments):
    if event not in WATCHED:
        return
    frame = sys._getframe(1)
    # Up to the import that is going on: what a library does when it is loaded is not this project's matter.
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        # Torch reads the lines that register a step of its graphs: a module's own source, and nothing else.
        reads_itself = event == "open" and arguments[:2] == (frame.f_code.co_filename, "r")
        if "/platform/rayrank/" in frame.f_code.co_filename and not reads_itself:
            ours.append((frame.f_code.co_filename, event, arguments))
        frame = frame.f_back
# pydantic looks for its plug-ins when it meets the first model.
class First(pydantic.BaseModel): pass
sys.addaudithook(watch)
import rayrank
names = [module.name for module in pkgutil.walk_packages(rayrank.__path__, "rayrank.")]
for name in names:
    importlib.import_module(name)
assert len(names) > 20
assert not ours, ours
import ray
assert not ray.is_initialized()
"""
    python(script, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_importing_lucene_starts_no_jvm() -> None:
    script = "import sys, rayrank.retrieval.lucene; sys.stdout.write(' '.join(sys.modules))"
    assert {"jnius", "pyserini"}.isdisjoint(python(script).split())


@pytest.mark.parametrize("requirement", required(), ids=str)
def test_every_dependency_has_a_lower_bound_and_a_pin_within_its_bounds(requirement: Requirement) -> None:
    assert any(bound.operator == ">=" for bound in requirement.specifier)
    assert requirement.specifier.contains(pinned()[normal(requirement.name)])


def test_constraints_are_exact_versions_each_once() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    for line in pins:
        assert re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!-]+", line), line
    assert len(pinned()) == len(pins)
