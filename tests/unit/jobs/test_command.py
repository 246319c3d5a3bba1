import re
import subprocess
import sys
from pathlib import Path

import pytest

from rayrank.command import COMMANDS, overview

ROOT = Path(__file__).resolve().parents[3]
HEAVY = {"ray", "torch", "transformers", "pydantic", "rich", "numpy"}
MAIN = "from rayrank.command import main; main()"


def rayrank(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", MAIN, *words], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def completing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the script that completes commands in bash."""
    written = rayrank("completion", "bash")
    assert written.returncode == 0, written.stderr
    script = tmp_path_factory.mktemp("completion") / "rayrank"
    script.write_text(written.stdout, encoding="utf-8")
    return script


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    line = " ".join(f"'{word}'" for word in words)
    asked = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _rayrank; echo ${{COMPREPLY[@]}}"
    return subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True).stdout.split()


def test_every_job_and_the_sweep_are_commands() -> None:
    files = [path for folder in ("jobs", "tune") for path in (ROOT / folder).glob("*.py")]
    jobs = {f"rayrank.{path.parent.name}.{path.stem}" for path in files if "__main__" in path.read_text("utf-8")}
    assert jobs <= {command.runs for command in COMMANDS}


def test_the_overview_has_an_example_of_every_command() -> None:
    for command in COMMANDS:
        assert re.search(f"^  {command.name} +{re.escape(command.summary)}\n +rayrank {command.name}", overview(), re.M)


def test_the_options_of_every_example_exist(completing: Path) -> None:
    for command in COMMANDS:
        offered = completed(completing, "rayrank", command.name, "--")
        assert set(re.findall(r"--[a-z-]+", command.example)) <= set(offered), command


def test_the_help_of_a_command_is_that_of_its_job_and_begins_with_the_example() -> None:
    shown = rayrank("build_index", "--help").stdout
    assert shown.startswith("example: rayrank build-index --dataset beir:path/to/folder")
    assert "usage: rayrank build-index [-h]" in shown


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("exprot", "did you mean `rayrank export`?"),
        ("first_stage", "did you mean `rayrank first-stages`?"),
        ("--storage", "`rayrank --help` lists all commands."),
    ],
)
def test_a_mistyped_command_is_refused_in_one_sentence(typed: str, advice: str) -> None:
    finished = rayrank(typed, "--dataset", "demo")
    assert finished.returncode == 2
    assert finished.stderr == f"error: {typed!r} is not a command of rayrank: {advice}\n"


def test_the_overview_needs_no_package_that_is_slow_to_import() -> None:
    script = f"import sys; sys.argv[1:] = ['--help']; {MAIN}; sys.exit(' '.join(sys.modules))"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert finished.stdout == overview()
    assert HEAVY.isdisjoint(finished.stderr.split())


def test_a_setting_of_the_endpoint_without_a_value_is_refused() -> None:
    finished = rayrank("serve", "--model", "models/new", "scaling.max")
    assert finished.returncode == 2
    assert "write KEY=VALUE, as in scaling.max=4" in finished.stderr


def test_bash_completes_commands_and_their_options(completing: Path) -> None:
    assert completed(completing, "rayrank", "ex") == ["export"]
    assert completed(completing, "rayrank", "export", "--li") == ["--license"]
    assert completed(completing, "rayrank", "export", "--output", "mo") == []
