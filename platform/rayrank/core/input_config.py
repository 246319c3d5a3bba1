"""The settings of the encoder's inputs, and of the query types in them."""

from typing import Literal

from pydantic import Field

from rayrank.core.section import Section

PIECES_OF_A_TYPE = 2
"""Word pieces of a query's type and its separator; most types are one piece."""


class InputConfig(Section):
    """The input of the encoder, `[CLS] type [SEP] query [SEP] passage [SEP]`: the passage gets the remaining room."""

    length: int = Field(default=180, ge=16)
    query_length: int = Field(default=64, ge=4)
    query_type: bool = True
    markers: int = Field(
        default=0,
        ge=0,
        le=256,
        description="MarkedBERT: the number of distinct query terms that can have markers; [e1] and [/e1] surround "
        "the first term of the query wherever it occurs in query and passage, if both have it; 0: no markers",
    )
    marker_stems: bool = Field(default=True, description="words with the same English stem are the same term")
    marker_stop_words: bool = Field(
        default=False, description="Lucene's English stop words, such as the and of, get markers too"
    )
    long_passages: Literal["cut", "windows"] = Field(
        default="cut",
        description="cut: the end of a passage that does not fit is never read; windows: such a passage is read in "
        "overlapping windows and has the score of its best window",
    )
    window_length: int | None = Field(
        default=None, ge=4, description="word pieces of a window; if empty, what fits beside a query of full length"
    )
    window_stride: int | None = Field(
        default=None, ge=1, description="pieces from the start of a window to that of the next; half a window if empty"
    )
    max_windows: int = Field(
        default=8, ge=1, le=1000, description="the most windows of a passage; text after them is never read"
    )

    def pieces_of_window(self) -> int:
        """Return the length of a window in word pieces."""
        fitting = self.length - self.query_length - 3 - (PIECES_OF_A_TYPE if self.query_type else 0)
        return min(self.window_length or fitting, fitting)

    def check_windows(self, stored_pieces: int) -> None:
        """Raise ValueError for windows that do not fit, leave text between them, or reach beyond the stored pieces."""
        if self.long_passages == "cut":
            return
        if self.window_length and self.window_length > self.pieces_of_window():
            raise ValueError(
                f"input.window_length={self.window_length} does not fit beside a query of full length: lower it to "
                f"{self.pieces_of_window()}, or raise input.length"
            )
        if self.stride() > self.pieces_of_window():
            raise ValueError(
                f"input.window_stride={self.stride()} leaves out text between windows of {self.pieces_of_window()} "
                f"word pieces: lower input.window_stride"
            )
        if self.pieces_read() > stored_pieces:
            raise ValueError(
                f"text.passage_pieces={stored_pieces} is too small: input.max_windows={self.max_windows} windows reach "
                f"{self.pieces_read()} word pieces into a passage; set text.passage_pieces={self.pieces_read()}, or "
                f"lower input.max_windows"
            )

    def stride(self) -> int:
        """Return the number of pieces from the start of a window to the start of the next."""
        return self.window_stride or max(1, self.pieces_of_window() // 2)

    def pieces_read(self) -> int:
        """Return how many pieces of a passage are read, if it is long enough."""
        if self.long_passages == "cut":
            return self.length
        return self.pieces_of_window() + (self.max_windows - 1) * self.stride()


class QueryTypesConfig(Section):
    """Where the type of a query comes from: the dataset's label, or a prediction for queries without one."""

    ignore_labels: bool = Field(default=False, description="predict the types of labelled queries too")
    predict: Literal["rules", "trained"] = Field(
        default="rules",
        description="rules: for English (index.language), in other languages every query gets the type description; "
        "trained: the classifier that the typer section configures, for any language",
    )
    abbreviation: bool = Field(default=False, description="let the rules predict a sixth type, abbreviation")
