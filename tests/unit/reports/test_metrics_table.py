import io

import pytest
from rich.console import Console

from rayrank.measure.significance import Comparison, Interval
from rayrank.reports.table import Row, metrics_table, p_text

ROWS = [
    Row("bm25", "MRR@10", Interval(0.412, 0.395, 0.43)),
    Row("dr|bert [red]", "MRR@10", Interval(0.63004, 0.6, 0.66), Comparison(0.218, -0.19, 0.24, 0.0001)),
]


def drawn(table):
    stream = io.StringIO()
    Console(file=stream, width=120).print(table.plain())
    return stream.getvalue()


def test_the_exact_text_of_a_markdown_table():
    assert metrics_table(ROWS, baseline="bm25").markdown() == (
        "| run | metric | mean [95% CI] | against bm25 [95% CI] | p |\n"
        "| --- | --- | ---: | ---: | ---: |\n"
        "| bm25 | MRR@10 | 0.4120 [0.3950, 0.4300] |  |  |\n"
        "| dr\\|bert [red] | MRR@10 | 0.6300 [0.6000, 0.6600] | +0.2180 [-0.1900, +0.2400] | < 0.001 |\n"
    )


def test_plain_text_shows_the_same_cells():
    table = metrics_table(ROWS, baseline="bm25")
    text = drawn(table)
    for cell in [*table.header, *(cell for line in table.lines for cell in line)]:
        assert cell in text


def test_without_a_comparison_there_are_no_columns_for_one():
    table = metrics_table(ROWS[:1], level=0.9)
    assert table.header == ["run", "metric", "mean [90% CI]"]
    assert table.lines == [["bm25", "MRR@10", "0.4120 [0.3950, 0.4300]"]]


@pytest.mark.parametrize(
    ("p_value", "text"), [(1.0, "1.000"), (0.0456, "0.046"), (0.001, "0.001"), (0.00099, "< 0.001"), (0.0, "< 0.001")]
)
def test_small_p_values_are_bounded_not_rounded_to_zero(p_value, text):
    assert p_text(p_value) == text
