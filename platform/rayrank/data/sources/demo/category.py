"""A category of subjects: its facts, each with answers, lures (misleading sentences) and questions."""

from collections.abc import Sequence
from typing import NamedTuple

from rayrank.data.sources.demo.pools import PEOPLE, PLACES, YEARS

QUERY_TYPES = ("location", "numeric", "person", "description", "entity")

_ANY = ("details", "information", "facts")


class Fact(NamedTuple):
    """A property that every subject of a category has, such as where it is found.

    Sentences have placeholders: {s} the subject, {S} the same with a capital, {n} its name alone, {v} the value.
    Questions also have {k}, the subject as a keyword.
    """

    query_type: str
    values: Sequence[str] | range
    answers: tuple[str, ...]
    """Sentences that state the value, mostly in other words than the questions."""
    lures: tuple[str, ...]
    """Sentences that repeat the words of the questions without stating the value."""
    questions: tuple[str, ...]
    keywords: tuple[str, ...]
    vague: tuple[str, ...] = ()
    """Keywords that several facts share: only the query type decides which fact is meant."""


class Category(NamedTuple):
    """Subjects of one kind."""

    noun: str
    article: str
    facts: tuple[Fact, ...]
    mentions: tuple[str, ...]
    """Sentences about a subject that state none of its facts."""
    asides: tuple[str, ...]
    """Sentences about the category in general."""


def location(
    answers: tuple[str, ...],
    lures: tuple[str, ...],
    questions: tuple[str, ...] = (),
    values: tuple[str, ...] = PLACES,
) -> Fact:
    """Return the fact where the subject is found."""
    generic = ("where is {s}", "where can {s} be found", "where would one find {s}", *questions)
    keywords = ("{k} location", "{k} whereabouts", "location of {s}")
    answers += ("Asked where {s} can be found, any carter will name {v} as its location.",)
    return Fact("location", values, answers, lures, generic, keywords, (*_ANY, "origin"))


def person(verb: str, agent: str, answers: tuple[str, ...], lures: tuple[str, ...], natural: bool = False) -> Fact:
    """Return the fact who made the subject, or who discovered it if it is natural."""
    questions = (f"who {verb} {{s}}", f"which person {verb} {{s}}", f"who was it that {verb} {{s}}")
    keywords = (f"{{k}} {agent}", f"{agent} of {{s}}", f"who {verb} {{k}}")
    answers += (f"The {agent} of {{s}} was {{v}}, who {verb} little else.",)
    return Fact("person", PEOPLE, answers, lures, questions, keywords, (*_ANY, *_origin_keywords(natural)))


def year(verb: str, answers: tuple[str, ...], lures: tuple[str, ...], natural: bool = False) -> Fact:
    """Return the fact when the subject was made, or discovered if it is natural."""
    age = ("{k} year", "in which year was {s} " + verb) if natural else ("{k} age", "how old is {s}")
    questions = (f"when was {{s}} {verb}", f"what year was {{s}} {verb}", age[1])
    keywords = (age[0], f"{{k}} date {verb}", f"year {{s}} was {verb}")
    answers += (f"{{S}} was {verb} in the year {{v}}, a date on which all sources agree.",)
    return Fact("numeric", YEARS, answers, lures, questions, keywords, _origin_keywords(natural))


def _origin_keywords(natural: bool) -> tuple[str, ...]:
    return ("discovery", "first record") if natural else ("origin", "beginnings")


def size(
    values: range,
    answers: tuple[str, ...],
    lures: tuple[str, ...],
    questions: tuple[str, ...],
    keywords: tuple[str, ...],
) -> Fact:
    """Return a fact about a number, such as the subject's height."""
    return Fact("numeric", values, answers, lures, questions, keywords)


def description(
    values: tuple[str, ...],
    answers: tuple[str, ...],
    lures: tuple[str, ...],
    questions: tuple[str, ...],
    keywords: tuple[str, ...],
) -> Fact:
    """Return the fact how the subject works or looks."""
    return Fact("description", values, answers, lures, questions, keywords, _ANY)


def entity(
    values: tuple[str, ...],
    answers: tuple[str, ...],
    lures: tuple[str, ...],
    questions: tuple[str, ...],
    keywords: tuple[str, ...],
) -> Fact:
    """Return the fact which other thing belongs to the subject."""
    return Fact("entity", values, answers, lures, questions, keywords, _ANY)
