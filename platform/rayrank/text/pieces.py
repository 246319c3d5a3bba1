"""Tokenisation: texts become int32 ids of word pieces here; other modules work on the ids."""

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from tokenizers import Encoding, Tokenizer

from rayrank.core.artifacts import Artifact
from rayrank.core.copies import temporary_folder
from rayrank.core.errors import ConfigError
from rayrank.core.pretrained import locate

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def load_tokenizer(name: str, key: str = "text.tokenizer") -> "PreTrainedTokenizerFast":
    """Return the tokenizer of a name or folder; errors name the setting `key`."""
    found = locate(name, key=key)
    # Imported late: transformers loads torch, which takes seconds, and mistakes in a dataset are reported before.
    from transformers import PreTrainedTokenizerFast

    try:
        tokenizer = _pretrained(found)
    except Exception as error:  # the parsers of broken files raise many kinds of errors
        reason = str(error).strip().split("\n")[0].rstrip(".: ") or type(error).__name__
        raise ConfigError(
            f"{key}={name} cannot be loaded: {reason}; name a folder on disk, or a model on the Hugging Face hub."
        ) from None
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError(f"{key}={name} has no fast (tokenizer.json) form: choose a model that has.")
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        # For a folder with a model's configuration but no vocabulary, transformers makes an empty tokenizer.
        raise ConfigError(f"{key}={name} has no vocabulary: name a folder with tokenizer.json or vocab.txt.")
    return tokenizer


def _pretrained(name: str) -> Any:
    from huggingface_hub import model_info
    from transformers import AutoTokenizer

    try:
        # Local files are tried first, so that many workers do not all ask the hub.
        return AutoTokenizer.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError):
        if Path(name).is_dir():
            raise
    # transformers retries an unreachable hub for most of a minute; this request is made once.
    model_info(name, timeout=10)
    return AutoTokenizer.from_pretrained(name)


def save_tokenizer(tokenizer: "PreTrainedTokenizerFast", artifact: Artifact) -> None:
    """Store a copy of the tokenizer with the ids it made, in case its original is changed or deleted."""
    with temporary_folder() as folder:
        for file in map(Path, tokenizer.save_pretrained(folder)):
            if file.is_file():
                with artifact.create(f"tokenizer/{file.name}") as stream:
                    stream.write(file.read_bytes())


LONGEST_WORD = 256
"""Maximum characters of a word when a long text is cut to its first words; a longer word counts as several."""


class PieceEncoder:
    """Turns texts into ids without special tokens; a batch is tokenised on all cores in parallel."""

    def __init__(self, tokenizer: str, max_pieces: int) -> None:
        """Take the content of a tokenizer.json, so that workers need neither transformers nor torch."""
        self._backend = Tokenizer.from_str(tokenizer)
        self._backend.no_padding()
        self._backend.enable_truncation(max_pieces)
        # The backend tokenises a whole text before it truncates the pieces. A word has at least one piece, so a long
        # text is first cut to max_pieces words of at most LONGEST_WORD characters. White space may have no piece and
        # is not counted. The cut loses pieces only of a text that is hardly language: words whose characters the
        # tokenizer drops, or words far longer than any in its vocabulary.
        self._first_words = re.compile(rf"(?:\s*+\S{{1,{LONGEST_WORD}}}+){{0,{max_pieces}}}+")
        self._max_characters = max_pieces * LONGEST_WORD

    def __call__(self, texts: Sequence[str]) -> pa.Array:
        """Return one list of int32 ids per text."""
        texts = [self._cut(text) for text in texts]
        encoded = [encoding.ids for encoding in self._backend.encode_batch_fast(texts, add_special_tokens=False)]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in encoded], out=offsets[1:])
        flat = np.fromiter(chain.from_iterable(encoded), dtype=np.int32, count=int(offsets[-1]))
        return pa.LargeListArray.from_arrays(offsets, flat)

    def with_offsets(self, text: str) -> Encoding:
        """Return the ids of one text as `__call__` does, each with its token and its character offsets."""
        return self._backend.encode(self._cut(text), add_special_tokens=False)

    def batch_with_offsets(self, texts: Sequence[str], with_special: bool = False) -> list[Encoding]:
        """Return the ids of many texts, each with its token and its character offsets."""
        return self._backend.encode_batch([self._cut(text) for text in texts], add_special_tokens=with_special)

    def _cut(self, text: str) -> str:
        if len(text) <= self._max_characters:
            return text
        found = self._first_words.match(text)
        return found[0] if found else ""
