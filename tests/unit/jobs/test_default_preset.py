"""Without --preset, a dataset of one's own gets an encoder that knows more than the demo's words."""

import pytest

from rayrank.jobs.entry import parser, preset_of


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], "demo"),
        (["--dataset", "demo"], "demo"),
        (["--dataset", "beir:mine"], "minilm"),
        (["--dataset", "beir:mine", "--preset", "demo"], "demo"),
        (["--preset", "paper"], "paper"),
    ],
)
def test_the_default_preset_fits_the_dataset(given: list[str], expected: str) -> None:
    assert preset_of(parser("").parse_args(given)) == expected
