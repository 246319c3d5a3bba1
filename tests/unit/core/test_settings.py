"""Settings as jobs.settings prints them, and in the commands suggested as next steps."""

import shlex
from pathlib import Path

import pytest

from rayrank.core.errors import ConfigError
from rayrank.core.overrides import build
from rayrank.core.presets import PRESETS
from rayrank.jobs.entry import parser
from rayrank.jobs.run_pipeline import serving
from rayrank.jobs.settings import lines


@pytest.mark.parametrize("preset", PRESETS)
def test_printed_settings_can_be_read_as_a_config_file(preset: str, tmp_path: Path) -> None:
    file = tmp_path / "shown.yaml"
    file.write_text("\n".join(lines(build(preset))))
    other = next(name for name in PRESETS if name != preset)

    assert build(other, str(file)) == build(preset)


def test_a_setting_is_printed_with_its_description() -> None:
    shown = list(lines(build("minilm", assignments=["noise.threshold=0.7"])))

    (threshold,) = (line for line in shown if line.strip().startswith("threshold:"))
    description = "candidates with a higher probability are left out; 1 keeps all"
    assert threshold.split(maxsplit=2) == ["threshold:", "0.7", f"# {description}"]


def test_labels_of_nodes_are_given_as_ray_writes_selectors() -> None:
    labels = build("demo", assignments=["resources.labels=[ray.io/accelerator-type=H200, 'pool=!in(spot, test)']"])
    assert labels.resources.label_selector() == {"ray.io/accelerator-type": "H200", "pool": "!in(spot, test)"}

    for wrong in ("H200", "=H200", "gpu=", "gpu=a b", "gpu=!!a"):
        with pytest.raises(ConfigError, match=rf"resources\.labels=.* '{wrong}' is not KEY=VALUE"):
            build("demo", assignments=[f"resources.labels=['{wrong}']"])


def test_one_label_needs_no_brackets_and_a_key_is_named_once() -> None:
    assert build("demo", assignments=["resources.labels=gpu=!a"]).resources.label_selector() == {"gpu": "!a"}
    with pytest.raises(ConfigError, match=r"gpu is named twice: give it once, for several values as gpu=in\(A, B\)"):
        build("demo", assignments=["resources.labels=[gpu=a, gpu=b]"])


def test_the_suggested_next_commands_have_the_settings_of_the_pipeline() -> None:
    options = parser("")
    given = ["--preset", "minilm", "--dataset", "beir:my data", "--storage", "s", "--set", "listwise.lr=1e-4"]

    export, serve = serving(options.parse_args(given))

    assert shlex.split(export)[2:] == [*given, "--output", "models/new"]
    assert serve == "rayrank serve --model models/new"
