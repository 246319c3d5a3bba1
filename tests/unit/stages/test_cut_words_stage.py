"""Passages that share pieces are found in stored runs, with the ranks and scores that the runs have."""

import time
from pathlib import Path

import pyarrow as pa
import pytest
from transformers import BertTokenizer

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import InputConfig, PipelineConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.core.records import CANDIDATES, JUDGMENTS, PASSAGES, QUERIES
from rayrank.reports.cut_words import CutWordsReport
from rayrank.stages.cut_words import Options, report, strm_sides
from rayrank.text.pieces import PieceEncoder, load_tokenizer, save_tokenizer

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] what is a the bog ##ue ##us fish claim far away .".split()
QUERIES_TEXTS = {"q1": "what is a bogue", "q2": "what is a fish"}
TEXTS = {
    "answer": "the bogue is a fish .",
    "bogus": "a bogus claim .",
    "unread": f"{'far away ' * 20} bog",
    "fish": "the fish is far away .",
}
# Ranks with STRM: answer 1, fish 2, unread 3, bogus 4. Without: bogus 1, answer 2; fish and unread have equal scores,
# which trec_eval orders by descending id: unread 3, fish 4.
WITH = {"answer": 2.0, "fish": 1.0, "unread": 0.5, "bogus": -3.0}
PLAIN = {"bogus": 3.0, "answer": 2.0, "fish": -1.0, "unread": -1.0}


JUDGED = [("q1", "answer", 1, "test"), ("q1", "bogus", 0, "test"), ("q2", "fish", 1, "test")]
OPTIONS = Options(num_cases=5, num_pictures=0, top=2, layers="last")


def configured(form: str = "mask") -> PipelineConfig:
    return PipelineConfig(input=InputConfig(length=24, query_length=8, query_type=False), strm=StrmConfig(form=form))


def write_run(store: Store, config: PipelineConfig, scores: dict[str, float]) -> None:
    node = flow.run_node("drbert", config)
    run = store.artifact(node, config)
    rows = [
        (query, passage, rank, score)
        for query in QUERIES_TEXTS
        for rank, (passage, score) in enumerate(scores.items(), 1)
    ]
    columns = dict(zip(CANDIDATES.names, zip(*rows, strict=True), strict=True))
    run.write_table("test/part.parquet", pa.table({name: list(column) for name, column in columns.items()}, CANDIDATES))
    store.finish(run, config, time.monotonic(), {}, node)


def filled(folder: Path, judged: list[tuple[str, str, int, str]]) -> Store:
    """Return a storage with the texts, the judgments and both runs."""
    (folder / "tokenizer").mkdir()
    (folder / "storage").mkdir()
    BertTokenizer(vocab={piece: row for row, piece in enumerate(VOCABULARY)}).save_pretrained(str(folder / "tokenizer"))
    store, config = Store(str(folder / "storage")), configured()
    tokenizer = load_tokenizer(str(folder / "tokenizer"))
    encode = PieceEncoder(tokenizer.backend_tokenizer.to_str(), 64)
    corpus = store.artifact("corpus", config)
    save_tokenizer(tokenizer, corpus)
    passages = [list(TEXTS), list(TEXTS.values()), encode(list(TEXTS.values()))]
    corpus.write_table("passages/part.parquet", pa.table(dict(zip(PASSAGES.names, passages, strict=True)), PASSAGES))
    texts = list(QUERIES_TEXTS.values())
    queries = [list(QUERIES_TEXTS), ["test"] * 2, [""] * 2, texts, encode(texts)]
    corpus.write_table("queries.parquet", pa.table(dict(zip(QUERIES.names, queries, strict=True)), QUERIES))
    judgments = [list(column) for column in zip(*judged, strict=True)]
    corpus.write_table("judgments.parquet", pa.table(dict(zip(JUDGMENTS.names, judgments, strict=True)), JUDGMENTS))
    facts = {"shards": ["passages/part.parquet"], "splits": {"test": {"num_judgments": 3, "num_queries": 2}}}
    store.finish(corpus, config, time.monotonic(), facts)
    write_run(store, config, WITH)
    write_run(store, strm_sides(config)[1].config, PLAIN)
    return store


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> CutWordsReport:
    return report(configured(), filled(tmp_path_factory.mktemp("found"), JUDGED), OPTIONS)


def test_the_misleading_passage_is_found_with_the_ranks_of_both_runs(found: CutWordsReport) -> None:
    (case,) = found.lowered
    assert (case.query_id, case.passage_id, case.is_judged) == ("q1", "bogus", True)
    assert (case.plain_rank, case.rank) == (1, 4)
    assert [(word.word, word.pieces, word.others) for word in case.words] == [
        ("bogue", ["bog", "##ue"], [["bog", "##us"]])
    ]
    # The dataset has no dev split to calibrate on: sigmoid(3) and sigmoid(-3).
    assert (case.plain_probability, case.probability) == (
        pytest.approx(0.9526, abs=1e-4),
        pytest.approx(0.0474, abs=1e-4),
    )
    assert found.raised == []


def test_passages_whose_shared_piece_is_never_read_and_relevant_ones_do_not_count(found: CutWordsReport) -> None:
    groups = {group.name: group for group in found.groups}
    sharing, others = groups["share pieces, all"], groups["share none, all"]
    assert (sharing.num_queries, sharing.num_pairs, sharing.mean_rank, sharing.plain_mean_rank) == (1, 1, 4.0, 1.0)
    # fish and unread, of which the input has no room for the last word; q2 has no cut word.
    assert (others.num_pairs, others.mean_rank, others.plain_mean_rank) == (2, 2.5, 3.5)


def test_queries_are_measured_as_by_evaluate(found: CutWordsReport) -> None:
    slices = {each.name: each for each in found.queries}
    assert (slices["with cut words"].mean, slices["with cut words"].baseline) == (1.0, 0.5)
    assert (slices["without cut words"].mean, slices["without cut words"].baseline) == (0.5, 0.25)


def test_without_a_judged_query_that_has_a_cut_word_the_report_shows_no_cases(tmp_path: Path) -> None:
    empty = report(configured(), filled(tmp_path, JUDGED[2:]), OPTIONS)
    assert (empty.lowered, empty.raised, empty.attention) == ([], [], [])
    assert [each.name for each in empty.queries] == ["all", "without cut words"]
    assert all(group.num_pairs == 0 for group in empty.groups)


def test_a_configuration_without_strm_is_compared_with_the_papers_mask() -> None:
    with_strm, without = strm_sides(configured("off"))
    assert (with_strm.config.strm.form, without.config.strm.form) == ("mask", "off")
    assert [side.config.strm.form for side in strm_sides(configured("bias"))] == ["bias", "off"]


def test_settings_that_leave_nothing_to_compare_are_refused() -> None:
    config = PipelineConfig(strm=StrmConfig(representative="all"))
    with pytest.raises(ConfigError, match=r"strm\.representative=all cannot be used"):
        strm_sides(config)
    measuring = PipelineConfig().model_copy(
        update={"evaluate": PipelineConfig().evaluate.model_copy(update={"run": "bm25"})}
    )
    with pytest.raises(ConfigError, match="--run bm25 cannot be used"):
        strm_sides(measuring)
