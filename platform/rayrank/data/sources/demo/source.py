"""The generated corpus as a source: nothing is stored, and each part is generated independently of the others."""

import random
from collections.abc import Iterator

from rayrank.core.config import DemoConfig
from rayrank.core.errors import ConfigError
from rayrank.core.records import Judgment, Passage, Query
from rayrank.data.sources.demo.writing import write
from rayrank.data.sources.source import Part, Source

VERSION = 1
"""Raise it whenever the same settings generate another corpus."""

MOST_UNLABELLED = 1 / 3
"""The largest share of answers that can be hidden, because every query keeps one judgment."""

_SUBJECT_BYTES = 2500
_PART_SUBJECTS = 100


class Demo(Source):
    """Passages, queries and judgments about invented things."""

    def __init__(self, config: DemoConfig) -> None:
        if config.unlabelled > MOST_UNLABELLED:
            raise ConfigError(
                f"dataset.demo.unlabelled={config.unlabelled} is more than the demo corpus can hide, because "
                f"every query keeps one labelled answer: set it to at most {MOST_UNLABELLED:.2f}."
            )
        self.config = config

    def files(self) -> list[str]:
        return []

    def identity(self) -> str:
        values = " ".join(f"{name}={value}" for name, value in self.config.model_dump().items())
        return f"demo version={VERSION} {values}"

    def parts(self, part_bytes: int) -> list[Part]:
        step = max(1, min(_PART_SUBJECTS, part_bytes // _SUBJECT_BYTES))
        last = self.config.subjects
        return [Part("demo", start, min(start + step, last)) for start in range(0, last, step)]

    def passages(self, part: Part) -> Iterator[Passage]:
        end = self.config.subjects if part.end is None else part.end
        for index in range(part.start, end):
            yield from write(self.config.seed, index, self.config.categories).passages

    def queries(self) -> Iterator[Query]:
        for index in range(self.config.subjects):
            yield from write(self.config.seed, index, self.config.categories).queries

    def judgments(self) -> Iterator[Judgment]:
        labelled, _ = self._truth()
        yield from labelled

    def hidden(self) -> Iterator[Judgment]:
        _, hidden = self._truth()
        yield from hidden

    def _truth(self) -> tuple[list[Judgment], list[Judgment]]:
        """Return the judged and the hidden relevant pairs; only train has hidden ones, so that metrics stay correct."""
        truths: list[Judgment] = []
        spare: list[int] = []
        for index in range(self.config.subjects):
            written = write(self.config.seed, index, self.config.categories)
            split = written.queries[0].split
            for query_id, passage_id, first in written.truths:
                if split == "train" and not first:
                    spare.append(len(truths))
                truths.append(Judgment(query_id, passage_id, 1, split))
        num_hidden = round(self.config.unlabelled * sum(truth.split == "train" for truth in truths))
        chosen = set(random.Random(f"{self.config.seed}:hidden").sample(spare, num_hidden))
        labelled = [truth for place, truth in enumerate(truths) if place not in chosen]
        return labelled, [truths[place] for place in sorted(chosen)]
