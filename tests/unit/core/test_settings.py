"""Settings as jobs.settings shows them, and as they go on from one job to the next."""

import shlex
from pathlib import Path

import pytest

from jobs.entry import parser
from jobs.run_pipeline import next_steps
from jobs.settings import lines
from rayrank.core.overrides import build
from rayrank.core.presets import PRESETS


@pytest.mark.parametrize("preset", PRESETS)
def test_what_is_shown_of_a_preset_can_be_given_back(preset: str, tmp_path: Path) -> None:
    file = tmp_path / "shown.yaml"
    file.write_text("\n".join(lines(build(preset))))
    other = next(name for name in PRESETS if name != preset)

    assert build(other, str(file)) == build(preset)


def test_a_setting_is_shown_with_what_it_means() -> None:
    shown = list(lines(build("minilm", assignments=["noise.threshold=0.7"])))

    (threshold,) = (line for line in shown if line.strip().startswith("threshold:"))
    assert threshold.split(maxsplit=2) == ["threshold:", "0.7", "# 1 keeps everything"]


def test_the_next_steps_of_a_pipeline_have_its_settings() -> None:
    options = parser("")
    given = ["--preset", "minilm", "--dataset", "beir:my data", "--storage", "s", "--set", "listwise.lr=1e-4"]

    export, serve = next_steps(options.parse_args(given))

    assert shlex.split(export)[3:] == [*given, "--output", "models/new"]
    assert serve.endswith("model=models/new")
