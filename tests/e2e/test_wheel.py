"""A wheel, built and installed outside the checkout, has everything: the command, jobs, sweeps, the endpoint."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
SMALL = ("--set", "dataset.demo.subjects=20")

Rayrank = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an installation: its packages, and `bin/rayrank`."""
    source, folder = (tmp_path_factory.mktemp(name) for name in ("source", "installed"))
    # A copy, because setuptools leaves its own files beside what it packs. Links stay links, as in the checkout.
    for name in ("platform", "jobs", "serve", "tune"):
        shutil.copytree(
            ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    made = source / "made"
    subprocess.run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", made, source], check=True)
    subprocess.run([*PIP, "install", "--no-deps", "--no-index", "--target", folder, *made.iterdir()], check=True)
    return folder


@pytest.fixture
def rayrank(installed: Path, tmp_path: Path) -> Rayrank:
    """The installed command, in an empty folder."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(installed / "bin/rayrank"), *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def test_jobs_sweeps_and_the_endpoint_are_parts_of_rayrank(installed: Path) -> None:
    names = {path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"rayrank", "bin"}


def test_every_file_of_the_packages_is_installed(installed: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "platform", "jobs", "serve", "tune"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if tracked.returncode:
        pytest.skip("not a git checkout")
    wanted = [name.removeprefix("platform/rayrank/") for name in tracked.stdout.splitlines()]
    assert [name for name in wanted if not (installed / "rayrank" / name).exists()] == []


def test_the_help_and_the_version_need_no_checkout(rayrank: Rayrank) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert rayrank("--version").stdout == f"rayrank {version}\n"
    assert "rayrank sweep --dataset" in rayrank("--help").stdout
    assert "# Runs by name" in rayrank("settings").stdout


@pytest.mark.slow
def test_a_job_makes_its_artifact(rayrank: Rayrank, tmp_path: Path) -> None:
    finished = rayrank("demo", "--until", "corpus", *SMALL)
    assert finished.returncode == 0, finished.stderr
    assert len([*(tmp_path / ".rayrank/corpus").glob("*/manifest.json")]) == 1


def test_the_endpoint_refuses_a_folder_without_a_model(rayrank: Rayrank) -> None:
    finished = rayrank("serve", "--model", "none", "scaling.max=2")
    assert finished.returncode == 2
    assert "none is no exported model" in finished.stderr
