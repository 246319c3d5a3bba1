"""Vectors of words for SDNet: the mean of a word's pieces in each layer of the frozen encoder, computed once a text."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rayrank.models.batches import pad
from rayrank.models.inference.scorer import CPU_TOKENS, length_sorted_batches
from rayrank.models.pair_texts import PairTexts
from rayrank.models.sdnet import SDNet, WordPairs, Words
from rayrank.text.ragged import Ragged, Rows, Windows, join
from rayrank.text.template import Sequences
from rayrank.text.words import starts_of_words

GPU_TOKENS = 16_384
"""Tokens that a GPU encodes at a time: with all layers of BERT-large their states take 1.7 GB."""

CPU_BYTES, GPU_SHARE = 1 << 30, 1 / 4
"""How much memory the kept vectors may take: a fixed size, or a share of the GPU memory that the process may use."""


class WordVectors:
    """The words of queries and passages as vectors, kept in float16 on the device of the model.

    They are kept in memory and not on storage: InsuranceQA's 27,000 passages take 16 GB in all layers of MiniLM, which
    fit on a GPU, and MS MARCO's 8.8 million take 30 TB in all layers of BERT-large, which fit nowhere, while encoding
    a text again takes less time than the layers above it.
    """

    def __init__(self, texts: PairTexts, words: NDArray[np.int8], mixes_layers: bool = False) -> None:
        """Take the vocabulary's word table; `mixes_layers` if the model is not trained any more.

        Vectors whose layers are mixed already need less memory.
        """
        queries, self._template = texts.prefixes, texts.template
        # Rows of queries come first. Their prefixes are taken without [CLS] and [SEP].
        bare = Windows(queries.values, queries.starts + 1, queries.stops - 1)
        self._pieces, self._num_queries = bare + texts.passages.truncate(texts.length - 2), len(queries)
        self._words, self.mixes_layers = words, mixes_layers
        self._starts = np.full(len(self._pieces), -1, np.int64)
        """Where each text's words begin in `_kept`, -1 if they are not there."""
        self._counts = np.zeros(len(self._pieces), np.int64)
        """The number of words of each text, 0 if it has not been counted yet."""
        self._kept, self._used = torch.empty(0), 0

    def pairs(self, model: SDNet, query_rows: Rows, passage_rows: Rows) -> WordPairs:
        """Return pairs of rows as the model reads them; each query is read once."""
        device = next(model.parameters()).device
        queries, query_of = np.unique(query_rows, return_inverse=True)
        passages = passage_rows + self._num_queries
        self._keep(model, np.unique(np.concatenate([queries, passages])))
        index = torch.from_numpy(query_of).to(device, non_blocking=True)
        return WordPairs(self._kept_words(queries), self._kept_words(passages), index)

    def passage_lengths(self, passage_rows: Rows) -> Rows:
        """Return the number of words of each passage."""
        return self._num_words(passage_rows + self._num_queries)

    def _num_words(self, rows: Rows) -> Rows:
        """Return the number of words of each text; a text without pieces counts as one word, whose vector is 0."""
        unknown = np.unique(rows[self._counts[rows] == 0])
        if len(unknown):
            pieces = join(self._pieces.take(unknown))
            self._counts[unknown] = np.maximum(1, _sums(starts_of_words(pieces, self._words), pieces))
        counts: Rows = self._counts[rows]
        return counts

    def _keep(self, model: SDNet, rows: Rows) -> None:
        """Encode the texts that are not kept yet. If there is no room for them, forget all others."""
        missing = rows[self._starts[rows] < 0]
        if not len(missing):
            return
        if self._used + self._num_words(missing).sum() > len(self._kept):
            self._starts[:], self._used, missing = -1, 0, rows
            self._allocate(model, int(self._num_words(rows).sum()))
        device = self._kept.device
        lengths = self._pieces.lengths(missing) + 2
        for chosen in length_sorted_batches(lengths, GPU_TOKENS if device.type == "cuda" else CPU_TOKENS):
            batch = missing[chosen]
            vectors = self._encode(model, batch, device)
            num_words = self._num_words(batch)
            self._starts[batch] = self._used + np.cumsum(num_words) - num_words
            self._kept[self._used : self._used + len(vectors)] = vectors
            self._used += len(vectors)

    def _allocate(self, model: SDNet, num_words: int) -> None:
        """Make room for at least this many words, and for all words of all texts if memory allows."""
        device = next(model.parameters()).device
        shape = (1 if self.mixes_layers else model.num_layers, model.size)
        most = int(_budget(device) // (2 * shape[0] * shape[1]))
        size = max(num_words, min(most, int(self._pieces.lengths().sum()) + len(self._pieces)))
        if len(self._kept) < size:
            self._kept = torch.empty(0)  # released first, because memory may have no room for both
            # Not an inference tensor, even if a scorer asks first: a training could not write to it.
            with torch.inference_mode(False):
                self._kept = torch.zeros(size, *shape, dtype=torch.float16, device=device)

    @torch.no_grad()
    def _encode(self, model: SDNet, rows: Rows, device: torch.device) -> Tensor:
        """Return the (words, layers, hidden) vectors of some texts, one text after another."""
        pieces = join(self._pieces.take(rows))
        inputs = join(self._template.cls_id, pieces, self._template.sep_id)
        batch = pad(Sequences(inputs, inputs.lengths()), self._template.pad_id).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            states = model.states(batch)
        if self.mixes_layers:
            # As in training: a scorer's autocast would mix them in bfloat16.
            with torch.autocast(device.type, enabled=False):
                states = model.mix(states)[:, :, None]
        word_of, num_words = self._word_of_positions(pieces, batch.ids.shape[1])
        # Counted here, because torch.bincount would wait for the GPU.
        num_pieces = np.maximum(1, np.bincount(word_of, minlength=num_words + 1)).astype(np.float32)
        index, counts = (torch.from_numpy(each).to(device, non_blocking=True) for each in (word_of, num_pieces))
        sums = torch.zeros(num_words + 1, *states.shape[2:], device=device)
        sums.index_add_(0, index, states.flatten(0, 1).float())
        return (sums / counts[:, None, None])[:num_words].half()

    def _word_of_positions(self, pieces: Ragged, width: int) -> tuple[Rows, int]:
        """Return the word number of each position of padded inputs, and the number of words.

        Special tokens and padding get the number after the last word.
        """
        starts, lengths = starts_of_words(pieces, self._words), pieces.lengths()
        own = _sums(starts, pieces)
        num_words = np.maximum(1, own)
        before, own_before = np.cumsum(num_words) - num_words, np.cumsum(own) - own
        positions = np.arange(width)
        is_piece = (positions >= 1) & (positions <= lengths[:, None])
        found = np.full(is_piece.shape, num_words.sum(), np.int64)
        found[is_piece] = np.cumsum(starts) - 1 + np.repeat(before - own_before, lengths)
        return found.ravel(), int(num_words.sum())

    def _kept_words(self, rows: Rows) -> Words:
        """Return texts that are kept, padded to the one with the most words."""
        num_words = self._num_words(rows)
        device = self._kept.device
        starts, lengths = (
            torch.from_numpy(each).to(device, non_blocking=True)[:, None] for each in (self._starts[rows], num_words)
        )
        positions = torch.arange(int(num_words.max()), device=device)
        # Padding repeats a text's first word; it is masked.
        present = positions < lengths
        vectors = self._kept[starts + positions * present]
        vectors = vectors.squeeze(2) if self.mixes_layers else vectors
        return Words(vectors, present, torch.from_numpy(num_words))


def _sums(values: NDArray[np.bool_], rows: Ragged) -> Rows:
    """Return the number of true values in each row."""
    before = np.concatenate([[0], np.cumsum(values)])
    sums: Rows = before[rows.offsets[1:]] - before[rows.offsets[:-1]]
    return sums


def _budget(device: torch.device) -> float:
    if device.type != "cuda":
        return CPU_BYTES
    _, total = torch.cuda.mem_get_info(device)
    return GPU_SHARE * total * torch.cuda.get_per_process_memory_fraction(device)
