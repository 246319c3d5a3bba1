import io

import numpy as np
import pyarrow as pa
import pytest

from rayrank.core.errors import DatasetError
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.data import run_files
from rayrank.data.run_files import read_trec, write_msmarco, write_trec
from rayrank.measure.metrics import per_query

SMALL = pa.table(
    [["q2", "q2", "q1"], ["b", "a", "ü"], [1, 2, 1], [1.5, 0.1, -2e-8]],
    schema=CANDIDATES,
)
LINE = "q1 Q0 p1 1 2.5 bm25\n"


def trec_bytes(table, tag="bm25"):
    stream = io.BytesIO()
    write_trec(table, stream, tag)
    return stream.getvalue()


def read(text):
    return read_trec(io.BytesIO(text.encode()), "my.run")


def random_run(seed, num_queries=30, depth=50):
    """Scores over many magnitudes, neighbouring floats and exact ties."""
    rng = np.random.default_rng(seed)
    count = num_queries * depth
    scores = (rng.normal(size=count) * 10.0 ** rng.integers(-30, 30, count)).astype(np.float32)
    scores[1::3] = np.nextafter(scores[0::3], np.float32(np.inf))
    scores[2::3] = scores[0::3]
    scores[rng.integers(0, count, 20)] = 0.0
    passages = np.concatenate([rng.choice(200, depth, replace=False) for _ in range(num_queries)])
    return pa.table(
        [
            np.repeat([f"q{i}" for i in rng.permutation(num_queries)], depth).tolist(),
            [f"p{p}" for p in passages],
            np.tile(np.arange(1, depth + 1, dtype=np.int32), num_queries),
            scores,
        ],
        schema=CANDIDATES,
    )


def test_the_exact_bytes_of_a_trec_file():
    assert trec_bytes(SMALL, tag="my run").decode() == (
        "q2 Q0 b 1 1.5 my-run\nq2 Q0 a 2 0.1 my-run\nq1 Q0 ü 1 -2e-8 my-run\n"
    )


def test_the_exact_bytes_of_an_msmarco_file():
    stream = io.BytesIO()
    write_msmarco(SMALL, stream)
    assert stream.getvalue().decode() == "q2\tb\t1\nq2\ta\t2\nq1\tü\t1\n"


def test_files_are_ordered_by_query_as_in_the_table_then_rank(monkeypatch):
    monkeypatch.setattr(run_files, "ROWS_AT_ONCE", 2)
    interleaved = SMALL.take(pa.array([1, 2, 0]))
    assert trec_bytes(interleaved) == trec_bytes(SMALL)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rows_at_once", [7, 200_000])
def test_runs_round_trip_to_the_last_bit(seed, rows_at_once, monkeypatch):
    monkeypatch.setattr(run_files, "ROWS_AT_ONCE", rows_at_once)
    run = random_run(seed)
    # A slice of a longer table: offsets that do not start at 0.
    run = pa.concat_tables([run, run]).slice(3, run.num_rows - 10)
    back = read_trec(io.BytesIO(trec_bytes(run)), "my.run")
    assert back.schema == CANDIDATES
    assert back.equals(run)


def test_an_empty_run_round_trips():
    assert trec_bytes(CANDIDATES.empty_table()) == b""
    assert read("").equals(CANDIDATES.empty_table())
    assert read("\n \n").equals(CANDIDATES.empty_table())


@pytest.mark.parametrize("seed", range(5))
def test_trec_eval_on_the_written_file_gives_our_figures(seed):
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="pytrec_eval has no wheel for this machine")
    run = random_run(seed)
    rng = np.random.default_rng(seed + 100)
    judged = run.take(pa.array(np.sort(rng.choice(run.num_rows, 300, replace=False))))
    grades = rng.integers(0, 4, judged.num_rows).astype(np.int32)
    split = ["test"] * judged.num_rows
    qrels = pa.table([judged["query_id"], judged["passage_id"], pa.array(grades), split], schema=JUDGMENTS)
    ours = per_query(qrels, run)

    lines = trec_bytes(run).decode().splitlines()
    rows = zip(qrels["query_id"].to_pylist(), qrels["passage_id"].to_pylist(), grades, strict=True)
    qrel_lines = [f"{query_id} 0 {passage_id} {grade}" for query_id, passage_id, grade in rows]
    evaluator = pytrec_eval.RelevanceEvaluator(pytrec_eval.parse_qrel(qrel_lines), {"map", "ndcg_cut_10", "P_10"})
    theirs = evaluator.evaluate(pytrec_eval.parse_run(lines))
    for name, trec in {"MAP": "map", "nDCG@10": "ndcg_cut_10", "P@10": "P_10"}.items():
        assert ours.values[name].tolist() == pytest.approx([theirs[q][trec] for q in ours.query_ids], abs=1e-9)

    back = per_query(qrels, read_trec(io.BytesIO(trec_bytes(run)), "my.run"))
    assert back.means() == ours.means()


def test_any_white_space_blank_lines_and_a_missing_last_newline_are_accepted():
    table = read("q1\tQ0\tp1  1 2.5 bm25\r\n\n  q1 Q0 p2 2 -inf bm25")
    assert table.to_pylist() == [
        {"query_id": "q1", "passage_id": "p1", "rank": 1, "score": 2.5},
        {"query_id": "q1", "passage_id": "p2", "rank": 2, "score": -np.inf},
    ]


def test_ranks_from_0_become_ranks_from_1():
    assert read("q Q0 a 0 2 t\nq Q0 b 1 1 t\n")["rank"].to_pylist() == [1, 2]


@pytest.mark.parametrize("rows_at_once", [1, 2, 200_000])
@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("q1 Q0 p2 2 1.5", "5 fields, not the 6 of 'query Q0 passage rank score tag'"),
        ("q1 Q0 p2 2 1.5 my run", "7 fields, not the 6 of 'query Q0 passage rank score tag'"),
        ("q1 Q0 p2 2 high bm25", "the score 'high' is not a number"),
        ("q1 Q0 p2 2 NaN bm25", "the score is NaN"),
        ("q1 Q0 p2 two 1.5 bm25", "the rank 'two' is not a whole number from 0 on"),
        ("q1 Q0 p2 -1 1.5 bm25", "the rank '-1' is not a whole number from 0 on"),
        (f"q1 Q0 p2 {2**31} 1.5 bm25", "the rank '2147483648' is not a whole number from 0 on"),
        (f"q1 Q0 p2 {2**64} 1.5 bm25", f"the rank '{2**64}' is not a whole number from 0 on"),
        ("q1 Q0 p1 2 1.5 bm25", "the passage 'p1' occurs twice for the query 'q1'"),
    ],
)
def test_a_malformed_line_is_named(bad, reason, rows_at_once, monkeypatch):
    monkeypatch.setattr(run_files, "ROWS_AT_ONCE", rows_at_once)
    with pytest.raises(DatasetError) as caught:
        read(f"{LINE}\nq0 Q0 p1 1 2.5 bm25\n{bad}\nq9 Q0 p1 1 2.5 bm25\n")
    assert str(caught.value) == f"The run file my.run cannot be used: line 4: {reason}."


def test_fields_are_counted_line_by_line():
    with pytest.raises(DatasetError, match="line 1: 5 fields"):
        read("q1 Q0 p1 1 2.5\nbm25 q1 Q0 p2 2 1.5 bm25\n")


def test_bytes_that_are_not_text_are_named():
    with pytest.raises(DatasetError, match="line 2: an id is not UTF-8"):
        read_trec(io.BytesIO(LINE.encode() + b"q1 Q0 \xff 2 1.5 bm25\n"), "my.run")


@pytest.mark.parametrize("passage_id", ["a b", "", "a\nb"])
def test_an_id_a_run_file_cannot_hold_is_refused(passage_id):
    table = pa.table([["q"], [passage_id], [1], [1.0]], schema=CANDIDATES)
    with pytest.raises(DatasetError, match=r"passage id .* is empty or has white space"):
        trec_bytes(table)


@pytest.mark.parametrize(
    "row", [(None, "p", 1, 1.0), ("q", "p", None, 1.0), ("q", "p", 1, None), ("q", "p", 1, np.nan)]
)
def test_a_row_with_a_null_value_is_refused(row):
    with pytest.raises(DatasetError, match="without an id, a rank or a score"):
        trec_bytes(pa.table([[value] for value in row], schema=CANDIDATES))


def test_a_blank_tag_still_makes_a_readable_file():
    assert read(trec_bytes(SMALL, tag=" ").decode()).equals(SMALL)
