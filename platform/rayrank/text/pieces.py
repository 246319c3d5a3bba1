"""Word pieces: text is tokenised once, here, and travels as int32 ids afterwards."""

import re
import tempfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from tokenizers import Encoding, Tokenizer

from rayrank.core.artifacts import Artifact
from rayrank.core.errors import ConfigError
from rayrank.core.pretrained import locate

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def load_tokenizer(name: str) -> "PreTrainedTokenizerFast":
    """Return the tokenizer that `text.tokenizer` names."""
    place = locate(name, key="text.tokenizer")
    # With torch behind it this takes seconds; a dataset's mistakes are found before.
    from transformers import PreTrainedTokenizerFast

    try:
        tokenizer = _pretrained(place)
    except Exception as error:  # the parsers of broken files raise whatever they stumble over
        reason = str(error).strip().split("\n")[0].rstrip(".: ") or type(error).__name__
        raise ConfigError(
            f"text.tokenizer={name} cannot be loaded: {reason}; name a folder on disk, or a model the hub serves."
        ) from None
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError(f"text.tokenizer={name} has no fast (tokenizer.json) form: choose a model that has.")
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        # transformers makes one up for a folder that says which model it holds but not which words.
        raise ConfigError(f"text.tokenizer={name} has no vocabulary: name a folder with tokenizer.json or vocab.txt.")
    return tokenizer


def _pretrained(place: str) -> Any:
    from huggingface_hub import model_info
    from transformers import AutoTokenizer

    try:
        # What is on this disk is enough, and many workers do not all ask the hub.
        return AutoTokenizer.from_pretrained(place, local_files_only=True)
    except (OSError, ValueError):
        if Path(place).is_dir():
            raise
    # transformers would try a hub it cannot reach for most of a minute; this asks once.
    model_info(place, timeout=10)
    return AutoTokenizer.from_pretrained(place)


def save_tokenizer(tokenizer: "PreTrainedTokenizerFast", artifact: Artifact) -> None:
    """Keep the tokenizer with the ids it made, whatever becomes of the place it came from."""
    with tempfile.TemporaryDirectory() as folder:
        for file in map(Path, tokenizer.save_pretrained(folder)):
            if file.is_file():
                with artifact.create(f"tokenizer/{file.name}") as stream:
                    stream.write(file.read_bytes())


LONGEST_WORD = 256
"""Characters that count as one word at most; a text is read up to as many of these as there may be pieces."""


class PieceEncoder:
    """Turns texts into ids without special tokens, on every core it is given."""

    def __init__(self, tokenizer: str, max_pieces: int) -> None:
        """Take the content of a tokenizer.json: workers start without transformers and torch behind them."""
        self._backend = Tokenizer.from_str(tokenizer)
        self._backend.no_padding()
        self._backend.enable_truncation(max_pieces)
        # The backend makes every piece of a text before it leaves some out. A word is a piece at least, so what comes
        # after so many words is left out anyhow, and so is the end of one that is cut here. White space may be no
        # piece and is not counted. Less would be read only of a text that is for the most part no text: words of
        # nothing but characters that a tokenizer drops, or that are far longer than any it has a piece for.
        self._words = re.compile(rf"(?:\s*+\S{{1,{LONGEST_WORD}}}+){{0,{max_pieces}}}+")
        self._most = max_pieces * LONGEST_WORD

    def __call__(self, texts: Sequence[str]) -> pa.Array:
        """Return one list of int32 ids a text."""
        texts = [self._start(text) for text in texts]
        encoded = [encoding.ids for encoding in self._backend.encode_batch_fast(texts, add_special_tokens=False)]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in encoded], out=offsets[1:])
        flat = np.fromiter(chain.from_iterable(encoded), dtype=np.int32, count=int(offsets[-1]))
        return pa.LargeListArray.from_arrays(offsets, flat)

    def with_characters(self, text: str) -> Encoding:
        """Return the same ids of one text, with the token and the characters of each."""
        return self._backend.encode(self._start(text), add_special_tokens=False)

    def _start(self, text: str) -> str:
        if len(text) <= self._most:
            return text
        found = self._words.match(text)
        return found[0] if found else ""
