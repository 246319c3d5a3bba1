"""What a category of subjects is made of: facts, each with its answers, its lures and its questions."""

from collections.abc import Sequence
from typing import NamedTuple

from rayrank.data.sources.demo.pools import PEOPLE, PLACES, YEARS

QUERY_TYPES = ("location", "numeric", "person", "description", "entity")

_ANY = ("details", "information", "facts")


class Fact(NamedTuple):
    """One thing to know about a subject.

    Sentences speak of {s} the subject, {S} the same with a capital, {n} its bare name and {v} the value;
    questions also of {k}, the subject as a keyword.
    """

    query_type: str
    values: Sequence[str] | range
    answers: tuple[str, ...]
    """Sentences that tell the value, mostly in other words than the questions."""
    lures: tuple[str, ...]
    """Sentences that repeat the questions' words and tell nothing."""
    questions: tuple[str, ...]
    keywords: tuple[str, ...]
    vague: tuple[str, ...] = ()
    """Keywords that other facts use too: only the query type says which fact is meant."""


class Category(NamedTuple):
    """Subjects of one kind."""

    noun: str
    article: str
    facts: tuple[Fact, ...]
    mentions: tuple[str, ...]
    """Sentences about a subject that tell none of its facts."""
    asides: tuple[str, ...]
    """Sentences about the category at large."""


def location(
    answers: tuple[str, ...],
    lures: tuple[str, ...],
    questions: tuple[str, ...] = (),
    values: tuple[str, ...] = PLACES,
) -> Fact:
    """Where the subject is found."""
    generic = ("where is {s}", "where can {s} be found", "where would one find {s}", *questions)
    keywords = ("{k} location", "{k} whereabouts", "location of {s}")
    answers += ("Asked where {s} can be found, any carter will name {v} as its location.",)
    return Fact("location", values, answers, lures, generic, keywords, (*_ANY, "origin"))


def person(verb: str, agent: str, answers: tuple[str, ...], lures: tuple[str, ...], natural: bool = False) -> Fact:
    """Who brought the subject about, or to light where it is natural."""
    questions = (f"who {verb} {{s}}", f"which person {verb} {{s}}", f"who was it that {verb} {{s}}")
    keywords = (f"{{k}} {agent}", f"{agent} of {{s}}", f"who {verb} {{k}}")
    answers += (f"The {agent} of {{s}} was {{v}}, who {verb} little else.",)
    return Fact("person", PEOPLE, answers, lures, questions, keywords, (*_ANY, *_births(natural)))


def year(verb: str, answers: tuple[str, ...], lures: tuple[str, ...], natural: bool = False) -> Fact:
    """When the subject was brought about, or to light where it is natural."""
    age = ("{k} year", "in which year was {s} " + verb) if natural else ("{k} age", "how old is {s}")
    questions = (f"when was {{s}} {verb}", f"what year was {{s}} {verb}", age[1])
    keywords = (age[0], f"{{k}} date {verb}", f"year {{s}} was {verb}")
    answers += (f"{{S}} was {verb} in the year {{v}}, a date on which all sources agree.",)
    return Fact("numeric", YEARS, answers, lures, questions, keywords, _births(natural))


def _births(natural: bool) -> tuple[str, ...]:
    return ("discovery", "first record") if natural else ("origin", "beginnings")


def size(
    values: range,
    answers: tuple[str, ...],
    lures: tuple[str, ...],
    questions: tuple[str, ...],
    keywords: tuple[str, ...],
) -> Fact:
    """How much of it there is."""
    return Fact("numeric", values, answers, lures, questions, keywords)


def description(
    values: tuple[str, ...],
    answers: tuple[str, ...],
    lures: tuple[str, ...],
    questions: tuple[str, ...],
    keywords: tuple[str, ...],
) -> Fact:
    """How it works or what it is like."""
    return Fact("description", values, answers, lures, questions, keywords, _ANY)


def entity(
    values: tuple[str, ...],
    answers: tuple[str, ...],
    lures: tuple[str, ...],
    questions: tuple[str, ...],
    keywords: tuple[str, ...],
) -> Fact:
    """Which thing goes with it."""
    return Fact("entity", values, answers, lures, questions, keywords, _ANY)
