"""Word pieces: text is tokenised once, here, and travels as int32 ids afterwards."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from rayrank.errors import ConfigError
from rayrank.pretrained import locate


def load_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """Return the tokenizer that `text.tokenizer` names."""
    place = locate(name, key="text.tokenizer")
    try:
        tokenizer = AutoTokenizer.from_pretrained(place)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ConfigError(
            f"text.tokenizer={name} cannot be loaded: {reason}; name a folder on disk, or a model the hub serves."
        ) from None
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ConfigError(f"text.tokenizer={name} has no fast (tokenizer.json) form: choose a model that has.")
    return tokenizer


class PieceEncoder:
    """Turns texts into ids without special tokens, on every core it is given."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, max_pieces: int) -> None:
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_padding()
        self._backend.enable_truncation(max_pieces)

    def __call__(self, texts: Sequence[str]) -> pa.Array:
        """Return one list of int32 ids a text."""
        encoded = [encoding.ids for encoding in self._backend.encode_batch_fast(texts, add_special_tokens=False)]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(ids) for ids in encoded], out=offsets[1:])
        flat = np.fromiter((piece for ids in encoded for piece in ids), dtype=np.int32, count=int(offsets[-1]))
        return pa.LargeListArray.from_arrays(offsets, flat)
