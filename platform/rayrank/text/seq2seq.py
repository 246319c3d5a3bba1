"""Inputs of a sequence-to-sequence model from ids: the passage that it reads and the query that it generates."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rayrank.core.errors import ConfigError
from rayrank.text.ragged import Ragged, Windows, join

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class Seq2SeqTemplate:
    """The special tokens around passages and queries, and the length of each.

    The encoder reads a passage between `prefix_ids` and `suffix_ids`, as in `[CLS] passage [SEP]` (BERT's tokenizer) or
    `passage </s>` (T5's). The decoder reads `prompt`, then generates the query and `suffix_ids`.
    """

    prefix_ids: tuple[int, ...]
    suffix_ids: tuple[int, ...]
    pad_id: int
    prompt: tuple[int, ...]
    """What the decoder is given first: its start token, then `prefix_ids`, without this token if they begin with it."""
    length: int
    """Maximum number of ids of a passage, special tokens included."""
    query_length: int
    """Maximum number of pieces of a query, without special tokens."""

    @classmethod
    def of(
        cls, tokenizer: "PreTrainedTokenizerFast", start_id: int | None, length: int, query_length: int
    ) -> "Seq2SeqTemplate":
        """Return the template; `start_id` is the decoder's start token.

        If it is None, the decoder starts with the first token that the tokenizer puts before a text, else with padding.
        """
        prefix, suffix = special_tokens(tokenizer)
        if start_id is None:
            start_id = prefix[0] if prefix else tokenizer.pad_token_id
        prompt = prefix if prefix[:1] == (start_id,) else (start_id, *prefix)
        return cls(prefix, suffix, tokenizer.pad_token_id, prompt, length, query_length)

    @property
    def start_id(self) -> int:
        return self.prompt[0]

    @property
    def end_id(self) -> int:
        return self.suffix_ids[-1]

    def passages(self, pieces: Windows) -> Ragged:
        """Return passages as the model reads them, truncated to `length`."""
        room = self.length - len(self.prefix_ids) - len(self.suffix_ids)
        return join(*self.prefix_ids, pieces.truncate(room), *self.suffix_ids)

    def queries(self, pieces: Windows) -> Ragged:
        """Return the decoder's texts in training: the prompt, at most `query_length` pieces, and `suffix_ids`."""
        return join(*self.prompt, pieces.truncate(self.query_length), *self.suffix_ids)


def special_tokens(tokenizer: "PreTrainedTokenizerFast") -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the ids that a tokenizer puts before and after a text; refuse one without an end or a padding token."""
    piece, whole = (tokenizer.encode("a", add_special_tokens=added) for added in (False, True))
    start = next(index for index in range(len(whole)) if whole[index : index + len(piece)] == piece)
    prefix, suffix = tuple(whole[:start]), tuple(whole[start + len(piece) :])
    if not suffix or tokenizer.pad_token_id is None:
        lacking = "padding token" if suffix else "token at the end of a text"
        raise ConfigError(
            f"The tokenizer {tokenizer.name_or_path} has no {lacking}, which doc2query needs: name another "
            f"doc2query.model, or another text.tokenizer for doc2query.model=scratch."
        )
    return prefix, suffix
