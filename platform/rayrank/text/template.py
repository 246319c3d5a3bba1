"""The layout of encoder inputs made of ids: `[CLS] type [SEP] query [SEP] passage [SEP]`.

Training, scoring, serving and explaining all ask a `Template` which parts an input has, in which order, and what is
truncated.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rayrank.core.config import InputConfig
from rayrank.core.errors import ConfigError
from rayrank.text.markers import Markers
from rayrank.text.ragged import Ids, Ragged, Rows, Windows, join

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MIN_PASSAGE_PIECES = 4
"""Word pieces of a passage that always fit, however long the type is. `PipelineConfig` refuses an `input.query_length`
that would leave fewer."""


class Sequences(NamedTuple):
    """Model inputs, one row of ids each, and how many ids of each come before its passage."""

    ids: Ragged
    prefix_lengths: Rows

    def token_types(self) -> Ids:
        """Return 0 for type and query with their special tokens, 1 for the passage and its separator."""
        lengths = self.ids.lengths()
        within = np.arange(len(self.ids.values)) - np.repeat(self.ids.starts, lengths)
        return (within >= np.repeat(self.prefix_lengths, lengths)).astype(np.int32)


@dataclass(frozen=True)
class Template:
    """The order of an input's parts, its special tokens and the length of each part.

    A query is truncated to `query_length` pieces, a type to what the query and `passage_room` leave of `length`, a
    passage to what query and type leave. Each loses its end.
    """

    cls_id: int
    sep_id: int
    pad_id: int
    length: int
    """Maximum number of ids of an input, special tokens included."""
    query_length: int
    has_type: bool = False
    passage_room: int = MIN_PASSAGE_PIECES
    """Pieces of a passage that fit whatever the type is: all of a window, so that no text between windows is lost."""
    markers: Markers | None = field(default=None, compare=False)
    """The markers that `PairTexts` puts around the terms that query and passage share; they count as ids of the
    input."""

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerFast", inputs: InputConfig) -> "Template":
        """Return the template of a re-ranker's inputs."""
        # The settings of an exported model were not checked against each other, so a long query is limited here.
        max_query_length = inputs.length - (4 if inputs.query_type else 3) - MIN_PASSAGE_PIECES
        markers = Markers.of(tokenizer, inputs) if inputs.markers else None
        query_length = min(inputs.query_length, max_query_length)
        window = inputs.pieces_of_window() if inputs.long_passages == "windows" else 0
        room = max(window, MIN_PASSAGE_PIECES)
        return cls(*_special_ids(tokenizer), inputs.length, query_length, inputs.query_type, room, markers)

    @classmethod
    def of_one_text(cls, tokenizer: "PreTrainedTokenizerFast", query_length: int) -> "Template":
        """Return the template of inputs of one text, `[CLS] text [SEP]`; `prefixes` returns them whole."""
        return cls(*_special_ids(tokenizer), query_length + 2, query_length)

    def prefixes(self, queries: Windows, types: Windows | None = None) -> Ragged:
        """Return `[CLS] type [SEP] query [SEP]` for every query, without `type [SEP]` where inputs have no type."""
        if (types is not None) != self.has_type:
            wanted = "one type per query" if self.has_type else "no types"
            raise ConfigError(f"input.query_type={self.has_type} asks for {wanted}: pass types accordingly.")
        queries = queries.truncate(self.query_length)
        if types is None:
            return join(self.cls_id, queries, self.sep_id)
        room = self.length - 4 - self.passage_room - queries.lengths()
        return join(self.cls_id, types.truncate(room), self.sep_id, queries, self.sep_id)

    def lengths(self, prefixes: Rows, passages: Rows) -> Rows:
        """Return the lengths of inputs from those of their prefixes and passages."""
        if prefixes.max(initial=0) >= self.length:
            raise ValueError(f"an input of {self.length} ids has no room for a prefix of {prefixes.max()}")
        lengths: Rows = np.minimum(prefixes + passages + 1, self.length)
        return lengths

    def is_truncated(self, prefixes: Rows, passages: Rows) -> NDArray[np.bool_]:
        """Return whether an input leaves out the end of its passage, from the lengths of prefixes and passages."""
        return prefixes + passages + 1 > self.length

    def pairs(self, prefixes: Windows, passages: Windows) -> Sequences:
        """Return the input of each prefix and the passage in the same row."""
        before = prefixes.lengths()
        kept = self.lengths(before, passages.lengths()) - before - 1
        return Sequences(join(prefixes, passages.truncate(kept), self.sep_id), before)

    def halves(self, first: Rows, second: Rows) -> tuple[Rows, Rows]:
        """Return how many ids each of two texts keeps: all if both fit, else half of the room each.

        This is for pre-training's `[CLS] A [SEP] B [SEP]`; if one text is shorter than half, the other gets the rest.
        """
        room = self.length - 3
        before = np.minimum(first, np.maximum(room - second, room // 2))
        return before, np.minimum(second, room - before)


def _special_ids(tokenizer: "PreTrainedTokenizerFast") -> tuple[int, int, int]:
    """Return the ids of the classification, separator and padding tokens; refuse a tokenizer that lacks one."""
    found = {name: getattr(tokenizer, f"{name}_token_id") for name in ("cls", "sep", "pad")}
    if missing := [name for name, number in found.items() if number is None]:
        raise ConfigError(
            f"text.tokenizer cannot be used: its tokenizer has no {missing[0]}_token; name the tokenizer of an encoder "
            f"such as BERT or RoBERTa."
        )
    return found["cls"], found["sep"], found["pad"]
