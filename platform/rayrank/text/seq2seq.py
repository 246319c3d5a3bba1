"""Inputs of a sequence-to-sequence model from ids: the passage that it reads and the query that it writes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rayrank.core.errors import ConfigError
from rayrank.text.ragged import Ragged, Windows, join

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class Seq2SeqTemplate:
    """The special tokens around passages and queries, and the length of each.

    A passage is read as `before passage after`, for example `[CLS] passage [SEP]` by BERT's tokenizer and
    `passage </s>` by T5's. The model writes the query and `after` behind `prompt`.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    pad_id: int
    prompt: tuple[int, ...]
    """What a decoder is given before it writes: its start token, and `before` where that is not the same."""
    length: int
    """Ids of a passage at most, special tokens included."""
    query_length: int
    """Pieces of a query at most, without special tokens."""

    @classmethod
    def of(
        cls, tokenizer: "PreTrainedTokenizerFast", start_id: int | None, length: int, query_length: int
    ) -> "Seq2SeqTemplate":
        """Return the template of a tokenizer and a decoder's start token, by default the first token of every text."""
        before, after = special_tokens(tokenizer)
        if start_id is None:
            start_id = before[0] if before else tokenizer.pad_token_id
        prompt = before if before[:1] == (start_id,) else (start_id, *before)
        return cls(before, after, tokenizer.pad_token_id, prompt, length, query_length)

    @property
    def start_id(self) -> int:
        return self.prompt[0]

    @property
    def end_id(self) -> int:
        return self.after[-1]

    def passages(self, pieces: Windows) -> Ragged:
        """Return passages as the model reads them; a long one loses its end."""
        room = self.length - len(self.before) - len(self.after)
        return join(*self.before, pieces.cut(room), *self.after)

    def queries(self, pieces: Windows) -> Ragged:
        """Return queries as the model writes them, the prompt included."""
        return join(*self.prompt, pieces.cut(self.query_length), *self.after)


def special_tokens(tokenizer: "PreTrainedTokenizerFast") -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that a tokenizer puts before and after a text; refuse one that cannot mark a text's end."""
    piece, whole = (tokenizer.encode("a", add_special_tokens=added) for added in (False, True))
    start = next(place for place in range(len(whole)) if whole[place : place + len(piece)] == piece)
    before, after = tuple(whole[:start]), tuple(whole[start + len(piece) :])
    if not after or tokenizer.pad_token_id is None:
        lacking = "padding token" if after else "token at the end of a text"
        raise ConfigError(
            f"The tokenizer {tokenizer.name_or_path} has no {lacking}, which doc2query needs: name another "
            f"doc2query.model, or another text.tokenizer for doc2query.model=scratch."
        )
    return before, after
