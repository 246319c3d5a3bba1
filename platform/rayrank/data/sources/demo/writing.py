"""The texts of one subject: its passages, its queries, and which passages answer which query."""

import random
from typing import NamedTuple

from rayrank.core.records import Passage, Query
from rayrank.data.sources.demo.phrases import CHATTER, ECHOES, GENERALITIES, MIX_UPS, NAMESAKES
from rayrank.data.sources.demo.pools import FILLERS
from rayrank.data.sources.demo.subject import Subject, subject

# How many passages answer each fact that is asked for; at least a third of them can stay unjudged.
_ANSWER_COUNTS = ((1, 1, 2, 2), (1, 1, 2, 3), (1, 1, 2, 2), (1, 2, 2))

# Probabilities of optional passages and sentences, and of vague and keyword queries.
_UNASKED = 0.7
_VAGUE = 0.4
_KEYWORDS = 0.35
_MIX_UP = 0.25
_ECHO = 0.3
_NAMESAKE = 0.25
_GENERALITY = 0.25

_SHORTEST = 20
_LONGEST = 60


class Truth(NamedTuple):
    """A passage that answers a query; the first answer of a query always keeps its judgment."""

    query_id: str
    passage_id: str
    first: bool


class Written(NamedTuple):
    """All passages and queries of one subject."""

    passages: list[Passage]
    queries: list[Query]
    truths: list[Truth]


class _Draft(NamedTuple):
    text: str
    fact: int | None = None


def write(seed: int, index: int, num_categories: int) -> Written:
    """Return the texts of one subject; no other subject is needed for it."""
    about = subject(seed, index, num_categories)
    writer = _Writer(about, random.Random(f"{seed}:{index}"))
    order = list(range(len(about.category.facts)))
    writer.rng.shuffle(order)
    counts = writer.rng.choice(_ANSWER_COUNTS)
    asked, unasked = order[: len(counts)], order[len(counts) :]
    drafts = writer.drafts(dict(zip(asked, counts, strict=True)), unasked)
    passages = [Passage(f"{about.slug}-{n}", draft.text) for n, draft in enumerate(drafts, 1)]
    texts = writer.queries(sorted(asked))
    queries, truths = [], []
    for number, (fact, text) in enumerate(texts.items(), 1):
        query_id = f"{about.slug}-q{number}"
        queries.append(Query(query_id, text, about.split, about.category.facts[fact].query_type))
        answers = [passages[n].passage_id for n, draft in enumerate(drafts) if draft.fact == fact]
        truths += [Truth(query_id, passage_id, not n) for n, passage_id in enumerate(answers)]
    return Written(passages, queries, truths)


class _Writer:
    """Writes sentences about one subject, with one random generator."""

    def __init__(self, about: Subject, rng: random.Random) -> None:
        self.about, self.rng = about, rng

    def drafts(self, asked: dict[int, int], unasked: list[int]) -> list[_Draft]:
        """Return every passage of the subject in random order, so that its number is no clue to its content."""
        facts, rng = self.about.category.facts, self.rng
        drafts = []
        for fact, count in asked.items():
            value = str(rng.choice(facts[fact].values))
            answers = rng.sample(facts[fact].answers, count)
            drafts += [_Draft(self.answer(answer, value), fact) for answer in answers]
        for fact in unasked:
            if rng.random() < _UNASKED:
                value = str(rng.choice(facts[fact].values))
                drafts.append(_Draft(self.answer(rng.choice(facts[fact].answers), value)))
        for fact in rng.sample(sorted(asked), rng.choice((0, 1, 1))):
            drafts.append(_Draft(self.around(self.fill(rng.choice(facts[fact].lures)))))
        if rng.random() < _NAMESAKE:
            drafts.append(_Draft(self.compose(rng.choice(NAMESAKES), *rng.sample(CHATTER, 2))))
        if rng.random() < _GENERALITY:
            drafts.append(_Draft(self.compose(rng.choice(GENERALITIES), *rng.sample(self.about.category.asides, 2))))
        rng.shuffle(drafts)
        return drafts

    def answer(self, template: str, value: str) -> str:
        """Return a passage that states a value."""
        core = self.fill(template, v=value)
        if self.rng.random() < _MIX_UP:
            other = self.reference(self.rng.choice(self.about.siblings).capitalize())
            core += " " + self.fill(self.rng.choice(MIX_UPS), other=other)
        elif self.rng.random() < _ECHO:
            core += " " + self.fill(self.rng.choice(ECHOES))
        return self.around(core)

    def around(self, core: str) -> str:
        """Return a passage with the core sentence among sentences that state no fact."""
        category = self.about.category
        pool = [*self.rng.sample(category.asides, 2), self.rng.choice(category.mentions)]
        self.rng.shuffle(pool)
        sentences, wanted = [core], self.rng.choice((1, 1, 2))
        for template in pool:
            sentence = self.fill(template)
            words = sum(len(s.split()) for s in sentences)
            if words >= _SHORTEST and (len(sentences) > wanted or words + len(sentence.split()) > _LONGEST):
                break
            sentences.insert(self.rng.randrange(len(sentences) + 1), sentence)
        return " ".join(sentences)

    def queries(self, asked: list[int]) -> dict[int, str]:
        """Return one query for each asked fact; two of them may have the same text and different types."""
        texts: dict[int, str] = {}
        if self.rng.random() < _VAGUE:
            texts = self.vague(asked)
        for number in asked:
            if number not in texts:
                fact = self.about.category.facts[number]
                pool = fact.keywords if self.rng.random() < _KEYWORDS else fact.questions
                texts[number] = self.ask(self.rng.choice(pool))
        return dict(sorted(texts.items()))

    def vague(self, asked: list[int]) -> dict[int, str]:
        """Return the same keyword query for two facts, if two have a keyword in common."""
        facts = self.about.category.facts
        cues = sorted({cue for number in asked for cue in facts[number].vague})
        shared = {cue: [number for number in asked if cue in facts[number].vague] for cue in cues}
        usable = [cue for cue in cues if len(shared[cue]) > 1]
        if not usable:
            return {}
        cue = self.rng.choice(usable)
        return dict.fromkeys(self.rng.sample(shared[cue], 2), self.ask(f"{{k}} {cue}"))

    def ask(self, template: str) -> str:
        noun = self.about.category.noun
        return template.format(s=self.reference(self.about.name), k=f"{self.about.name} {noun}")

    def reference(self, name: str) -> str:
        """Return a name with article and noun, as in running text."""
        return f"{self.about.category.article}{name} {self.about.category.noun}"

    def compose(self, *templates: str) -> str:
        return " ".join(self.fill(template) for template in templates)

    def fill(self, template: str, **known: str) -> str:
        """Return a sentence with words in place of its placeholders."""
        name = self.about.name.capitalize()
        s = self.reference(name)
        chance = {slot: self.rng.choice(pool) for slot, pool in FILLERS.items() if f"{{{slot}}}" in template}
        return template.format(s=s, S=s[0].upper() + s[1:], n=name, noun=self.about.category.noun, **chance, **known)
