"""A cache of tokenised texts: the same passages come again and again, with other queries."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from rayrank.text.pieces import PieceEncoder
from rayrank.text.ragged import Ids, Ragged

ENTRY_OVERHEAD = 64
"""Memory of a cache entry besides its ids, counted in ids: the key and two Python objects."""


class PieceCache:
    """Tokenises texts, and keeps the ids of the texts used last, up to a number of word pieces."""

    def __init__(self, encode: PieceEncoder, pieces: int) -> None:
        self._encode, self._room = encode, pieces
        self._kept: OrderedDict[bytes, Ids] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text."""
        return self.look_up(texts)[0]

    def look_up(self, texts: Sequence[str]) -> tuple[list[Ids], int]:
        """Return the ids of each text, and the number of texts that were in the cache."""
        # The key is a digest: a long document is larger than its ids, which end at the model's maximum length.
        keys = [blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest() for text in texts]
        with self._lock:
            found = {key: self._kept[key] for key in keys if key in self._kept}
            for key in found:
                self._kept.move_to_end(key)
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if new:
            lists = self._encode(list(new.values()))
            rows = Ragged(lists.values.to_numpy(), lists.offsets.to_numpy())
            # Copied, because a view would keep the whole array in memory.
            fresh = {key: rows[row].copy() for row, key in enumerate(new)}
            found |= fresh
            self._keep(fresh)
        return [found[key] for key in keys], sum(key not in new for key in keys)

    def _keep(self, fresh: dict[bytes, Ids]) -> None:
        with self._lock:
            for key, ids in fresh.items():
                if key not in self._kept:
                    self._kept[key] = ids
                    self._room -= len(ids) + ENTRY_OVERHEAD
            while self._room < 0 and self._kept:
                _, ids = self._kept.popitem(last=False)
                self._room += len(ids) + ENTRY_OVERHEAD
