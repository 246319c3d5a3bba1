import pytest

from rayrank.presets import PRESETS
from rayrank.stages.ablation import FULL, table_one


def names(preset: str) -> list[str]:
    return [row.name for row in table_one(PRESETS[preset]())]


def test_the_paper_has_all_rows_of_its_table() -> None:
    parts = ["pre-training", "pointwise", "query type", "noise reduction", "listwise", "STRM"]
    assert names("paper") == ["BM25", "+ BERT", FULL, *(f"- {part}" for part in parts)]


@pytest.mark.parametrize(
    ("preset", "missing"), [("minilm", {"STRM"}), ("monobert", {"STRM", "pre-training", "query type", "listwise"})]
)
def test_a_row_that_measures_what_another_does_is_left_out(preset: str, missing: set[str]) -> None:
    assert set(names("paper")) - set(names(preset)) == {f"- {part}" for part in missing}
