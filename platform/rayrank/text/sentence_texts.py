"""Inputs of a sentence encoder: `[CLS] prefix text [SEP]`, put together by the template like all others."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from rayrank.core.artifacts import Artifact
from rayrank.core.errors import ConfigError
from rayrank.text.pieces import PieceEncoder, load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.stored_passages import stored_passages
from rayrank.text.template import Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

QUERY, PASSAGE = 0, 1
"""The rows of the two prefixes."""


class SentenceInputs(NamedTuple):
    """What a sentence encoder's inputs are made of: the template, the two prefixes, and ids of texts."""

    template: Template
    prefixes: Ragged
    """Two rows, for queries and for passages: `[CLS]` and the pieces of the prefix."""
    encode: PieceEncoder | None
    """Turns texts into ids where the corpus's own ids are of another vocabulary; None if they can be used."""

    @classmethod
    def of(
        cls, tokenizer_name: str, corpus_tokenizer: str | None, prefixes: Sequence[str], length: int
    ) -> "SentenceInputs":
        """Return what inputs are made of; `prefixes` are the texts put before queries and before passages.

        Texts are tokenised if `corpus_tokenizer`, which made the corpus's ids, is None or has another vocabulary.
        """
        tokenizer = load_tokenizer(tokenizer_name, "dense.encoder")
        if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
            raise ConfigError(
                f"dense.encoder={tokenizer_name} cannot be used: its tokenizer has no tokens for the start and the end "
                f"of a text ([CLS], [SEP]); name an encoder whose tokenizer has them, as BERT's has."
            )
        has_ids = corpus_tokenizer and tokenizer.get_vocab() == load_tokenizer(corpus_tokenizer).get_vocab()
        rows = [[tokenizer.cls_token_id, *_pieces(prefix, tokenizer)] for prefix in prefixes]
        longest = max(map(len, rows)) + 1
        if longest >= length:
            raise ConfigError(
                f"dense.length={length} leaves no room for a text: the longer of dense.query_prefix and "
                f"dense.passage_prefix takes {longest} pieces with [CLS] and [SEP]; raise dense.length, or shorten the "
                f"prefix."
            )
        template = Template(
            tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, length, query_length=length
        )
        encode = None if has_ids else PieceEncoder(tokenizer.backend_tokenizer.to_str(), length)
        return cls(template, Ragged.of(rows), encode)

    def pieces(self, table: pa.Table) -> Ragged:
        """Return the ids of the texts of a corpus table with the columns text and piece_ids."""
        if self.encode is None:
            return Ragged.from_arrow(table["piece_ids"])
        return Ragged.from_arrow(pa.chunked_array([self.encode(table["text"].to_pylist())]))

    @property
    def column(self) -> str:
        """The column of the corpus's tables that `pieces` reads."""
        return "piece_ids" if self.encode is None else "text"

    def read(self, corpus: Artifact) -> Ragged:
        """Return the ids of all passages of a corpus."""
        if self.encode is None:
            return stored_passages(corpus).pieces
        parts = [self.pieces(corpus.read_table(name, [self.column])) for name in corpus.manifest["shards"]]
        values = np.concatenate([part.flat() for part in parts])
        lengths = np.concatenate([part.lengths() for part in parts])
        return Ragged(values, np.concatenate([[0], np.cumsum(lengths)]))


def _pieces(text: str, tokenizer: "PreTrainedTokenizerFast") -> list[int]:
    return list(tokenizer(text, add_special_tokens=False).input_ids) if text else []
