"""The interface between a dataset format and the corpus stage."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from rayrank.core.records import Candidate, Judgment, Malformed, Passage, PassageFields, Query


class Part(NamedTuple):
    """A part of the corpus that one worker reads; each source defines the unit of `start` and `end`, such as bytes."""

    file: str
    start: int = 0
    end: int | None = None


class Source(ABC):
    """A dataset as plain records, in the order of its files; a row that cannot be read is yielded as Malformed.

    A source checks each row by itself. The corpus stage finds duplicates, unknown ids and queries of several splits.
    """

    repeats_passages: ClassVar[bool] = False
    """Whether the same passage may occur several times under the same id."""

    @abstractmethod
    def files(self) -> list[str]:
        """Return every file that this source reads; the fingerprint is a digest of their contents."""

    def candidate_files(self) -> list[str]:
        """Return the files that `candidates` reads; the fingerprint covers them only if the job uses candidates."""
        return []

    def notes(self) -> list[str]:
        """Return sentences for the user about how the files were read, such as which were ignored."""
        return []

    def identity(self) -> str:
        """Return whatever else decides the content besides the files: a generator's settings, a package's version."""
        return ""

    @abstractmethod
    def parts(self, part_bytes: int) -> list[Part]:
        """Return the corpus as parts of about `part_bytes`, in order."""

    @abstractmethod
    def passages(self, part: Part) -> Iterator[Passage | Malformed]:
        """Yield one part's passages in order, with only a few in memory at a time."""

    def fields(self, part: Part, names: Sequence[str]) -> Iterator[PassageFields | Malformed]:
        """Yield numeric fields of one part's passages, in the order of `passages`; few formats have any."""
        yield from ()

    @abstractmethod
    def queries(self) -> Iterator[Query | Malformed]:
        """Yield the queries of every split."""

    @abstractmethod
    def judgments(self) -> Iterator[Judgment | Malformed]:
        """Yield the judgments of every split."""

    def hidden(self) -> Iterator[Judgment]:
        """Yield relevant pairs that were kept out of the judgments; only generated datasets have any."""
        yield from ()

    def candidates(self) -> Iterator[Candidate | Malformed]:
        """Yield first-stage candidates that come with the dataset, if it has any."""
        yield from ()
