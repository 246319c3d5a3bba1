"""What every source of passages, queries and judgments offers to the corpus stage."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, NamedTuple

from rayrank.core.records import Candidate, Judgment, Malformed, Passage, Query


class Part(NamedTuple):
    """A piece of the corpus that one worker reads on its own; what start and end count is the source's matter."""

    file: str
    start: int = 0
    end: int | None = None


class Source(ABC):
    """A dataset as plain records, in the order of its files; what cannot be read comes out as Malformed.

    Nothing here validates across rows: duplicates, unknown ids and shared queries are the
    corpus stage's to find.
    """

    repeats_passages: ClassVar[bool] = False
    """Whether the same passage under the same id is to be expected more than once."""

    @abstractmethod
    def files(self) -> list[str]:
        """Return every file this source reads; their contents are its fingerprint."""

    def candidate_files(self) -> list[str]:
        """Return the files behind `candidates`; they count only for runs that use them."""
        return []

    def notes(self) -> list[str]:
        """Return what a user should know of how the files were understood."""
        return []

    def identity(self) -> str:
        """Return what besides the files decides the content (a generator's settings, a release)."""
        return ""

    @abstractmethod
    def parts(self, part_bytes: int) -> list[Part]:
        """Return the corpus as parts of about `part_bytes`, in order."""

    @abstractmethod
    def passages(self, part: Part) -> Iterator[Passage | Malformed]:
        """Yield one part's passages in order, holding no more than a few at a time."""

    @abstractmethod
    def queries(self) -> Iterator[Query | Malformed]:
        """Yield the queries of every split."""

    @abstractmethod
    def judgments(self) -> Iterator[Judgment | Malformed]:
        """Yield the judgments of every split."""

    def hidden(self) -> Iterator[Judgment]:
        """Yield true answers kept out of the judgments, where the source knows them."""
        yield from ()

    def candidates(self) -> Iterator[Candidate | Malformed]:
        """Yield first-stage candidates that come with the source, where it has them."""
        yield from ()
