"""Query types by rules: their accuracy on held-out questions and on web queries."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rayrank.text.query_types import predict
from rayrank.text.type_rules import NOUNS, RULES

TYPES = {"location", "numeric", "person", "description", "entity"}
COARSE = {
    "HUM": "person",
    "LOC": "location",
    "NUM": "numeric",
    "DESC": "description",
    "ENTY": "entity",
    "ABBR": "abbreviation",
}


def accuracy(lines: list[str], abbreviation: bool) -> float:
    labels = [COARSE[line.partition(":")[0]] for line in lines]
    if not abbreviation:
        labels = ["description" if label == "abbreviation" else label for label in labels]
    predicted = predict([line.partition(" ")[2] for line in lines], abbreviation)
    return sum(map(str.__eq__, labels, predicted)) / len(labels)


@pytest.fixture(scope="module")
def trec(shared_data: Path) -> Path:
    folder = shared_data / "trec-question-types"
    if not folder.is_dir():
        pytest.skip(f"the TREC question types are not at {folder}")
    return folder


@pytest.mark.parametrize("abbreviation", [False, True])
def test_accuracy_on_held_out_trec_questions(trec: Path, abbreviation: bool) -> None:
    lines = (trec / "TREC_10.label").read_text(encoding="latin-1").splitlines()

    assert len(lines) == 500
    assert accuracy(lines, abbreviation) >= 0.9


@pytest.mark.parametrize("abbreviation", [False, True])
def test_accuracy_on_the_questions_that_the_rules_were_written_from(trec: Path, abbreviation: bool) -> None:
    lines = gzip.decompress((trec / "train_5500.label.gz").read_bytes()).decode("latin-1").splitlines()

    assert accuracy(lines, abbreviation) >= 0.94


@pytest.mark.parametrize("abbreviation", [False, True])
def test_lower_case_lowers_accuracy_little(trec: Path, abbreviation: bool) -> None:
    lines = (trec / "TREC_10.label").read_text(encoding="latin-1").splitlines()
    labels, questions = zip(*(line.split(" ", 1) for line in lines), strict=True)
    lowered = [f"{label} {question.lower().strip('? .')}" for label, question in zip(labels, questions, strict=True)]

    assert accuracy(lowered, abbreviation) >= accuracy(lines, abbreviation) - 0.03


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Where is the Velmora lighthouse ?", "location"),
        ("what county is denver in", "location"),
        ("What's the longest river in the world?", "location"),
        ("name of the capital of peru", "location"),
        ("location of the frelenin river", "location"),
        ("How tall is Mount Elbert ?", "numeric"),
        ("velmora lighthouse height", "numeric"),
        ("population of france", "numeric"),
        ("cost of a new roof", "numeric"),
        ("average meal cost in amsterdam", "numeric"),
        ("in which year was the broskata river mapped", "numeric"),
        ("Who invented the zipper ?", "person"),
        ("what actor played the joker", "person"),
        ("inventor of the telephone", "person"),
        ("What company makes tyres ?", "person"),
        ("What is Alice Cooper's real name ?", "person"),
        ("the telephone was invented by whom", "person"),
        ("What is osmosis ?", "description"),
        ("why is the sky blue", "description"),
        ("how to boil an egg", "description"),
        ("What is the difference between jam and jelly ?", "description"),
        ("dyad definition", "description"),
        ("does milk go bad", "description"),
        ("What color is a ruby ?", "entity"),
        ("what kind of fish did the old man catch", "entity"),
        ("What does a deltiologist collect ?", "entity"),
        ("wood used for the grevarith harp", "entity"),
        ("What is the fastest fish in the world ?", "entity"),
    ],
)
def test_each_type_is_predicted_from_typical_wordings(text: str, expected: str) -> None:
    assert predict([text]) == [expected]
    assert predict([text.lower()]) == [expected]
    assert predict([text.upper()]) == [expected]


@pytest.mark.parametrize(
    "text", ["What does NASA stand for ?", "What is HTML ?", "abbreviation for trinitrotoluene", "What does BTU mean ?"]
)
def test_abbreviations_are_a_separate_type_only_if_requested(text: str) -> None:
    assert predict([text], abbreviation=True) == ["abbreviation"]
    assert predict([text]) == ["description"]


def test_what_xs_y_asks_for_the_owner_and_what_is_xs_y_for_the_property() -> None:
    assert predict(["What country's capital is Tirana ?", "What company's trademark was His Master's Voice ?"]) == [
        "location",
        "person",
    ]
    assert predict(["What is Canada's population ?", "What was Hitler's favorite movie ?"]) == ["numeric", "entity"]


@pytest.mark.parametrize("text", ["", "   ", "?", "'s", "\u0000", "\ud800", "İ", "什么是渗透", "🤔🤔", "¿qué?"])
def test_odd_text_is_a_description(text: str) -> None:
    assert predict([text]) == ["description"]


_WORDS = ["what", "What's", "which", "is", "the", "a", "'s", "'", ",", "of", "name", "who", "in", "river", "-", "U.S."]


@given(st.lists(st.one_of(st.text(max_size=20), st.lists(st.sampled_from(_WORDS), max_size=8).map(" ".join))))
def test_any_text_gets_one_type_and_always_the_same(texts: list[str]) -> None:
    predicted = predict(texts)

    assert len(predicted) == len(texts)
    assert set(predicted) <= TYPES
    assert set(predict(texts, abbreviation=True)) <= TYPES | {"abbreviation"}
    assert predicted == predict(texts) == [predict([text])[0] for text in texts]


def test_rules_and_nouns_use_known_types_and_rules_say_what_is_asked_for() -> None:
    assert {rule.query_type for rule in RULES} | set(NOUNS.values()) <= TYPES | {"abbreviation"}
    assert all(rule.asks_for for rule in RULES)
