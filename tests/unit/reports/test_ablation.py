import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from rayrank.core.errors import ConfigError, DatasetError
from rayrank.measure.metrics import PerQuery
from rayrank.measure.significance import compare, holm, mean_interval
from rayrank.reports import ablation_table
from rayrank.reports.ablation import Ablation, Procedure, Variant, ablate
from rayrank.reports.ablation_plot import ablation_png
from rayrank.reports.latex import escaped, latex_table
from rayrank.reports.table import MetricsTable

QUICK = Procedure(resamples=500)
FULL = "DR-BERT"
IDS = [f"q{i}" for i in range(60)]
RARE = {"rare words": set(IDS[:20]), "plain_words": set(IDS[20:]), "of no split": {"elsewhere"}}


def values(shift, seed=0):
    rng = np.random.default_rng(seed)
    return np.clip(np.linspace(0, 1, len(IDS)) * 0.8 + rng.normal(0, 0.02, len(IDS)) + shift, 0, 2)


def run(mrr, ids=IDS):
    return PerQuery(list(ids), {"MRR@10": mrr, "nDCG@10": mrr / 2}, 0)


def variants():
    return [
        Variant("BM25 & co", {"dev": [run(values(0.0))], "test": [run(values(0.0, 1))]}),
        Variant(FULL, {"dev": [run(values(0.3, s)) for s in (2, 3)], "test": [run(values(0.3, 4))]}, 1234.5),
        Variant("without 10% | x_y", {"dev": [run(values(0.31, s)) for s in (5, 6, 7)]}, 10.0),
    ]


@pytest.fixture(scope="module")
def table():
    return ablate(variants(), FULL, RARE, QUICK)


def rows_of(table):
    return {row.name: row for row in table.rows}


def test_holm_on_known_examples():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.01, 0.02, 0.03]) == pytest.approx([0.03, 0.04, 0.04])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


@pytest.mark.parametrize("seed", range(5))
def test_holm_keeps_the_order_and_lies_between_no_correction_and_bonferroni(seed):
    p_values = np.random.default_rng(seed).beta(0.3, 1, 9)
    corrected = np.array(holm(p_values.tolist()))
    assert (corrected >= p_values).all()
    assert (corrected <= np.minimum(1, 9 * p_values) + 1e-12).all()
    assert (np.diff(corrected[np.argsort(p_values)]) >= 0).all()


def test_a_row_worse_than_the_reference_has_a_negative_difference(table):
    worse, better = rows_of(table)["BM25 & co"], rows_of(table)["without 10% | x_y"]
    for metric in ("MRR@10", "nDCG@10"):
        figure = worse.figure("dev", metric)
        assert figure.comparison.difference < 0
        assert figure.comparison.high < 0
        assert figure.p_holm < 0.05
    assert better.figure("dev", "MRR@10").comparison.difference > 0
    assert rows_of(table)[FULL].figure("dev", "MRR@10").comparison is None


def test_intervals_and_p_values_use_the_mean_over_seeds_of_each_query(table):
    bm25, full, other = variants()
    full_values = np.mean([seed.values["MRR@10"] for seed in full.runs["dev"]], axis=0)
    other_values = np.mean([seed.values["MRR@10"] for seed in other.runs["dev"]], axis=0)
    figure = rows_of(table)[other.name].figure("dev", "MRR@10")
    assert figure.interval == mean_interval(other_values, 500, 13)
    assert figure.comparison == compare(other_values, full_values, "randomisation", 500, 13)
    assert figure.seed_means == [seed.values["MRR@10"].mean() for seed in other.runs["dev"]]
    bm25_p = compare(bm25.runs["dev"][0].values["MRR@10"], full_values, "randomisation", 500, 13).p_value
    expected = holm([bm25_p, figure.comparison.p_value])
    assert [rows_of(table)[v.name].figure("dev", "MRR@10").p_holm for v in (bm25, other)] == expected


def test_a_slice_measures_only_its_queries(table):
    full, bm25 = (rows_of(table)[name] for name in (FULL, "BM25 & co"))
    for name, chosen in (("rare words", slice(0, 20)), ("plain_words", slice(20, 60))):
        mean = np.mean([values(0.3, s)[chosen] for s in (2, 3)], axis=0)
        assert full.figure("dev", "MRR@10", name).interval.mean == pytest.approx(mean.mean())
        figure = bm25.figure("dev", "MRR@10", name)
        assert figure.num_queries == len(mean)
        assert figure.comparison.difference == pytest.approx((values(0.0)[chosen] - mean).mean())
    assert full.figure("dev", "MRR@10", "of no split") is None


def test_runs_are_joined_by_query_id_not_by_position():
    order = np.random.default_rng(0).permutation(len(IDS))
    plain = [Variant(FULL, {"dev": [run(values(0.3))]}), Variant("row", {"dev": [run(values(0.2, 1))]})]
    shuffled = run(values(0.2, 1)[order], [IDS[i] for i in order])
    mixed = [plain[0], Variant("row", {"dev": [shuffled]})]
    assert ablate(mixed, FULL, RARE, QUICK) == ablate(plain, FULL, RARE, QUICK)


def test_rows_that_cannot_be_compared_are_refused():
    one, short = Variant("a", {"dev": [run(values(0))]}), Variant("b", {"dev": [run(values(0)[:5], IDS[:5])]})
    with pytest.raises(DatasetError, match="'b' has other dev queries"):
        ablate([one, short], "a", procedure=QUICK)
    with pytest.raises(ConfigError, match="'DR-BERT' is not among the rows"):
        ablate([one], FULL)
    with pytest.raises(ConfigError, match="its own name"):
        ablate([one, one], "a")
    with pytest.raises(DatasetError, match="has the split test"):
        ablate([one, Variant("c", {"dev": one.runs["dev"], "test": one.runs["dev"]})], "a")
    with pytest.raises(ConfigError, match="'all'"):
        ablate([one], "a", {"all": set(IDS)})


def test_json_round_trip(table):
    assert Ablation.from_json(json.loads(json.dumps(table.to_json()))) == table


def test_every_line_of_a_markdown_table_has_the_same_number_of_cells(table):
    text = ablation_table.markdown(table)
    blocks = [block for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) == 4
    for block in blocks:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in block.strip().splitlines()}
        assert len(widths) == 1
        assert len(block.strip().splitlines()) == 2 + 3
    assert "Holm-corrected over the 2 other rows" in text
    assert "| 2: " in text  # the seeds of the reference
    assert "1,234" in text


def test_latex_has_as_many_cells_as_columns_and_nothing_unescaped(table):
    text = ablation_table.latex(table)
    bodies = re.findall(r"\\begin\{tabular\}\{(l+r+)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL)
    assert len(bodies) == 4
    for columns, body in bodies:
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        assert len(lines) == 1 + 3
        for line in lines:
            assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1
        assert body.count(r"\midrule") == 2
    assert r"BM25 \& co" in text
    assert r"without 10\% | x\_y" in text
    assert r"plain\_words" in text
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (r"a\b~c^d", r"a\textbackslash{}b\textasciitilde{}c\textasciicircum{}d"),
        ("{50%} #1 $x_i & y", r"\{50\%\} \#1 \$x\_i \& y"),
        ("-0.1 [-0.2, +0.3]", "$-$0.1 [$-$0.2, +0.3]"),
        ("pre-training 2019-2020 < 0.001", "pre-training 2019-2020 $<$ 0.001"),
    ],
)
def test_latex_escapes(text, written):
    assert escaped(text) == written


def test_latex_does_not_read_a_leading_bracket_or_star_as_an_option():
    text = latex_table(MetricsTable(["[row]", "x"], [["[a]", "1"], ["*b", "2"]], num_names=1), "caption", "tab:x")
    assert r"{}[a] & 1 \\" in text
    assert r"{}*b & 2 \\" in text
    assert text.count(r"\midrule") == 1


def test_the_terminal_shows_every_cell(table):
    stream = io.StringIO()
    Console(file=stream, width=250).print(ablation_table.plain(table))
    for split in table.splits:
        for part in ablation_table.tables(table, split):
            assert {len(line) for line in part.lines} == {len(part.header)}
            for cell in [*part.header, *(cell for line in part.lines for cell in line)]:
                assert cell in stream.getvalue()


def test_columns_without_content_are_left_out():
    plain = ablate([Variant(FULL, {"dev": [run(values(0.3))]}), Variant("b", {"dev": [run(values(0))]})], FULL)
    assert ablation_table.main_table(plain, "dev").header == [
        "row",
        "MRR@10 [95% CI]",
        "against DR-BERT [95% CI]",
        "p",
    ]
    assert "seeds" not in ablation_table.caption(plain, "dev")


def test_the_plot_is_a_png(table):
    for split in table.splits:
        assert ablation_png(table, split).startswith(b"\x89PNG")


def test_a_row_whose_training_failed_is_named_below_the_table(table):
    without = replace(table, failed={"SDNet": "The scores collapsed."})

    assert ablation_table.caption(without, "dev").endswith(
        " The row SDNet is missing, because its training failed: The scores collapsed."
    )
    assert Ablation.from_json(without.to_json()) == without
