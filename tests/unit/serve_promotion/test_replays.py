"""Replayed queries, the comparison of two models on them, and the reasons to refuse a model."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rayrank.bundle.dev_sample import JudgedDocument, JudgedQuery, from_lines, to_lines
from rayrank.bundle.golden import GoldenPair
from rayrank.core.config import EvaluateConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.measure.metrics import Measure
from rayrank.serve.live_endpoint import Scores
from rayrank.serve.promotion import difference, promoted, rolled_back, served_scores
from rayrank.serve.replays import Replay, dev_replays, golden_replays, read_replays
from rayrank.serve.targets import LiveModel

CONFIG = EvaluateConfig(resamples=500)
RNG = np.random.default_rng(0)
LIVE = RNG.normal(size=(40, 10)).tolist()
JUDGED = [Replay("q", [""] * 10, relevance=[int(place == np.argmax(scores)) for place in range(10)]) for scores in LIVE]
UNJUDGED = [Replay("q", [""] * 10)] * 40


def write(file: Path, *entries: object) -> str:
    file.write_text("\n".join(json.dumps(entry) for entry in entries) + "\n\n")
    return str(file)


def test_queries_are_read_with_documents_and_judgments(tmp_path: Path) -> None:
    file = write(
        tmp_path / "queries.jsonl",
        {"query": "who", "documents": ["a", {"id": 7, "text": "b"}], "relevance": [0, 2]},
        {"query": "where", "documents": ["c"], "query_type": "location", "first_stage_scores": [12]},
        {
            "query": "when",
            "documents": [
                "d",
                {"text": "e", "fields": {"price": "3", "date": "1970-01-02", "colour": "red", "stock": None}},
            ],
        },
    )

    assert read_replays(file, None) == [
        Replay("who", ["a", "b"], relevance=[0, 2]),
        Replay("where", ["c"], "location", first_stage_scores=[12.0]),
        # As the endpoint reads fields: dates as days since 1970, and nothing but numbers and dates.
        Replay("when", ["d", "e"], fields=[{}, {"price": 3.0, "date": 1.0}]),
    ]


def test_a_line_separator_within_a_text_ends_no_line(tmp_path: Path) -> None:
    text = "one\u2028two\x85three"
    (tmp_path / "queries.jsonl").write_text(f'{{"query": "{text}", "documents": ["a"]}}\r\n', encoding="utf-8")

    assert read_replays(str(tmp_path / "queries.jsonl"), None) == [Replay(text, ["a"])]


def test_judgments_of_a_qrels_file_are_joined_by_id(tmp_path: Path) -> None:
    documents = [{"id": "p1", "text": "a"}, {"id": "p2", "text": "b"}]
    file = write(tmp_path / "queries.jsonl", {"query_id": "q1", "query": "who", "documents": documents})
    (tmp_path / "qrels").write_text("q1 0 p2 3\nq1 0 p9 1\nq2 0 p1 1\n")

    assert read_replays(file, str(tmp_path / "qrels")) == [Replay("who", ["a", "b"], relevance=[0, 3])]


def test_a_new_model_is_compared_by_the_metric_and_the_grade_of_the_configuration() -> None:
    # Live ranks grades 3, 0, 1, new ranks 1, 0, 3: from grade 1 on both are right at rank 1.
    replays = [Replay("q", ["a", "b", "c"], relevance=[3, 0, 1])] * 30 + [Replay("q", ["a"], relevance=[1])]
    live, new = [[3.0, 2.0, 1.0]] * 30 + [[0.0]], [[1.0, 2.0, 3.0]] * 30 + [[0.0]]

    by_rank, by_gain, strict = (
        difference(replays, live, new, CONFIG, measure)
        for measure in (Measure(), Measure("nDCG@5"), Measure("MRR@10", 2))
    )

    assert not by_rank.objection()
    ideal = 3 + 1 / np.log2(3)
    drop = ((3 + 1 / 2) - (1 + 3 / 2)) / ideal
    assert f"nDCG@5 falls by {drop * 30 / 31:.4f}" in by_gain.objection()
    # The last query has no passage of grade 2 and is not judged.
    assert (by_gain.num_judged, strict.num_judged) == (31, 30)
    assert "MRR@10 1.0000 -> 0.3333 on 30 judged queries" in strict.finding()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "Expecting property name"),
        ('{"query": "q"}', "'documents' is missing"),
        ('{"query": "q", "documents": []}', "documents is empty"),
        ('{"query": "q", "documents": "a"}', "documents is no list"),
        ('{"query": "q", "documents": ["a", 3]}', "documents.1 is 3, neither a text nor an object with a `text`"),
        ('{"query": "q", "documents": [{"id": 3}]}', "'text' is missing"),
        ('{"query": "q", "documents": [{"text": "a", "fields": [3]}]}', r"documents.0.fields is \[3\], no object such"),
        (
            json.dumps({"query": "q", "documents": [{"text": "a", "fields": {str(n): n for n in range(101)}}]}),
            "documents.0.fields has 101 entries, more than 100",
        ),
        ('{"query": "q", "documents": ["a"], "relevance": [1, 0]}', "relevance has 2 values for 1 documents"),
        ('{"query": "q", "documents": ["a"], "first_stage_scores": []}', "first_stage_scores has 0 values for 1 doc"),
        ('{"query": "q", "documents": ["a"], "first_stage_scores": ["x"]}', "could not convert string to float"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(line: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text('{"query": "q", "documents": ["a"]}\n' + line)

    with pytest.raises(DatasetError, match=f"line 2 cannot be read: {reason}"):
        read_replays(str(file), None)


def test_missing_and_empty_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "qrels").write_text("q1 p1 1\n")
    with pytest.raises(DatasetError, match=r"--queries .*/nothing cannot be read: No such file"):
        read_replays(str(tmp_path / "nothing"), None)
    with pytest.raises(DatasetError, match=r"--queries .*/empty has no queries"):
        read_replays(str(tmp_path / "empty"), None)
    with pytest.raises(DatasetError, match=r"--judgments .*/qrels, line 1 cannot be read"):
        read_replays(str(tmp_path / "empty"), str(tmp_path / "qrels"))


def test_golden_pairs_are_grouped_by_query() -> None:
    pairs = [GoldenPair(query=query, query_type="person", passage=text, score=0) for query, text in ("qa", "qb", "rc")]

    assert golden_replays(pairs) == [Replay("q", ["a", "b"], "person"), Replay("r", ["c"], "person")]


def test_a_model_that_ranks_worse_on_judged_queries_is_refused_and_a_better_one_is_not() -> None:
    reversed_ = (-np.array(LIVE)).tolist()

    worse, better = difference(JUDGED, LIVE, reversed_, CONFIG), difference(JUDGED, reversed_, LIVE, CONFIG)

    # The relevant passage moves from rank 1 to rank 10.
    assert worse.comparison is not None
    assert worse.comparison.difference == pytest.approx(0.1 - 1)
    assert "MRR@10 falls by 0.9000 (p 0.002)" in worse.objection()
    assert "MRR@10 1.0000 -> 0.1000 on 40 judged queries" in worse.finding()
    # The agreement is as low, but with enough judgments only the metric decides.
    assert better.tau == worse.tau == pytest.approx(-1)
    assert not better.objection()


def test_a_model_is_refused_if_too_few_queries_are_judged_however_much_it_agrees() -> None:
    slightly = (np.array(LIVE) + RNG.normal(0, 0.1, (40, 10))).tolist()

    few = difference([*JUDGED[:19], *UNJUDGED[19:]], LIVE, slightly, CONFIG)
    enough = difference([*JUDGED[:20], *UNJUDGED[20:]], LIVE, slightly, CONFIG)
    none = difference(UNJUDGED, LIVE, slightly, CONFIG)

    assert few.tau == none.tau > 0.8
    assert "it cannot be judged (Kendall's tau with the live model is 0." in few.objection()
    assert "because 19 of 40 replayed queries have a passage judged relevant and 20 are needed" in few.objection()
    assert "because 0 of 40 replayed queries" in none.objection()
    assert not enough.objection()


def test_unrelated_models_agree_less_than_two_trainings_of_one() -> None:
    slightly = (np.array(LIVE) + RNG.normal(0, 0.3, (40, 10))).tolist()
    unrelated = RNG.normal(size=(40, 10)).tolist()

    like, unlike = (difference(UNJUDGED, LIVE, scores, CONFIG) for scores in (slightly, unrelated))

    assert like.tau > 0.6 > 0.3 > unlike.tau
    assert like.overlap > unlike.overlap
    assert difference(UNJUDGED, LIVE, np.ones((40, 10)).tolist(), CONFIG).tau == 0


def test_the_dev_sample_of_an_export_is_replayed_with_its_judgments_and_first_stage_scores(tmp_path: Path) -> None:
    a, b, aged = JudgedDocument(text="a"), JudgedDocument(text="b"), JudgedDocument(text="é", fields={"age": 3.0})
    sample = (
        JudgedQuery(query="who", documents=(a, b), relevance=(0, 2), first_stage_scores=(3.5, 1.0)),
        JudgedQuery(query="wo", query_type="location", documents=(aged,), relevance=(1,), first_stage_scores=(2.0,)),
    )
    lines = to_lines(sample)

    assert from_lines(lines) == sample
    assert dev_replays(sample) == [
        Replay("who", ("a", "b"), None, (0, 2), (3.5, 1.0)),
        Replay("wo", ("é",), "location", (1,), (2.0,), [{"age": 3.0}]),
    ]
    # The file is in the format of --queries.
    (tmp_path / "dev.jsonl").write_bytes(lines)
    replayed = read_replays(str(tmp_path / "dev.jsonl"), None)[1]
    assert replayed == Replay("wo", ["é"], "location", [1], [2.0], [{"age": 3.0}])


def test_a_dev_sample_whose_documents_are_texts_is_read() -> None:
    line = b'{"query": "who", "query_type": null, "documents": ["a"], "relevance": [1], "first_stage_scores": [2.0]}'

    (found,) = from_lines(line)

    assert found.documents == (JudgedDocument(text="a"),)


def test_each_model_is_compared_with_its_own_first_stage_weight() -> None:
    answered = [int(np.argmax(scores)) for scores in LIVE]
    # The first stage ranks the relevant passage last; both models' logits rank it first.
    first = [[float(place != answer) for place in range(10)] for answer in answered]
    replays = [replace(replay, first_stage_scores=scores) for replay, scores in zip(JUDGED, first, strict=True)]

    logits = [Scores(scores) for scores in LIVE]
    found = difference(replays, served_scores(replays, logits, 0.0), served_scores(replays, logits, 1.0), CONFIG)

    assert "MRR@10 falls by 0.9000" in found.objection()
    assert served_scores(JUDGED, logits, 1.0) == LIVE


def test_equal_scores_keep_the_order_of_the_request() -> None:
    tied = difference([Replay("q", ["a", "b"], relevance=[1, 0])] * 2, [[0, 0]] * 2, [[0, 1]] * 2, CONFIG)

    assert tied.live is not None
    assert tied.new is not None
    assert (tied.live.mean, tied.new.mean) == (1.0, 0.5)


def test_rolling_back_twice_restores_the_promoted_model() -> None:
    first = LiveModel({"model": "/m/one", "name": "one", "backend": "torch"}, "")

    second = LiveModel(promoted(first, "/m/two"), "")
    back = LiveModel(rolled_back(second), "")

    assert second.settings == {"model": "/m/two", "name": "two", "backend": "torch", "previous": "/m/one"}
    assert back.settings == {"model": "/m/one", "name": "one", "backend": "torch", "previous": "/m/two"}
    assert rolled_back(back) == second.settings


def test_a_name_that_the_user_has_set_is_kept() -> None:
    assert promoted(LiveModel({"model": "/m/one", "name": "our-ranker"}, ""), "/m/two")["name"] == "our-ranker"


def test_the_live_model_and_a_missing_previous_one_cannot_be_promoted() -> None:
    with pytest.raises(ConfigError, match="is already the live model"):
        promoted(LiveModel({"model": "/m/one"}, ""), "/m/one/")
    with pytest.raises(ConfigError, match="--back has no previous model: no promotion has replaced /m/one yet"):
        rolled_back(LiveModel({"model": "/m/one"}, ""))
