"""SDNet: layers that match the words of a query and a passage, on vectors of a frozen encoder.

This is the passage run of CCNU at TREC DL 2019: SDNet (Zhu, Zeng and Huang, 2018) with an output layer for ranking.
Query and passage are encoded apart, so the vectors of a text's words are the same in every pair.
"""

from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from rayrank.models.batches import PaddedBatch
from rayrank.models.encoder import Encoder

Match = Literal["cosine", "softmax"]
"""How the query's vector is matched with the words of a passage."""


class Words(NamedTuple):
    """The words of several texts, padded to the text with the most words."""

    vectors: Tensor
    """(texts, words, layers, hidden), or (texts, words, hidden) if the layers are mixed already."""
    present: Tensor
    """(texts, words): False for padding."""
    lengths: Tensor
    """The number of words of each text, at least 1; on the CPU, where packing reads them."""


class WordPairs(NamedTuple):
    """Pairs to score: each passage with one of the queries."""

    queries: Words
    passages: Words
    query_of: Tensor
    """For each passage the index of its query."""


class LayerMix(nn.Module):
    """The weighted sum of a word's vectors in all layers: the weights are a softmax, and a scale multiplies the sum."""

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.weights, self.scale = nn.Parameter(torch.zeros(num_layers)), nn.Parameter(torch.ones(1))

    def forward(self, vectors: Tensor) -> Tensor:
        """Return (..., hidden) from (..., layers, hidden)."""
        return torch.einsum("...lh,l->...h", vectors.float(), self.scale * self.weights.softmax(0))


class Attention(nn.Module):
    """FusionNet's attention: one ReLU projection for both sides, and a diagonal matrix between them."""

    def __init__(self, num_inputs: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.dropout, self.projection = nn.Dropout(dropout), nn.Linear(num_inputs, hidden, bias=False)
        # As in scaled dot-product attention, so that the first softmax does not pick a single word.
        self.diagonal = nn.Parameter(torch.full((hidden,), hidden**-0.5))

    def forward(self, words: Tensor, others: Tensor, present: Tensor, values: Tensor) -> Tensor:
        """Return for each of `words` the mean of `values`, weighted by how well `others` match it."""
        left, right = (functional.relu(self.projection(self.dropout(side))) for side in (words, others))
        match = (left * self.diagonal) @ right.transpose(1, 2)
        return match.masked_fill(~present[:, None], -torch.inf).softmax(-1) @ values


class BiLstm(nn.Module):
    """A bidirectional LSTM layer; padding is not read, and its output is 0."""

    def __init__(self, num_inputs: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(num_inputs, hidden, batch_first=True, bidirectional=True)

    def forward(self, vectors: Tensor, words: Words) -> Tensor:
        """Return (texts, words, 2 * hidden)."""
        packed = pack_padded_sequence(
            self.dropout(vectors), words.lengths.cpu(), batch_first=True, enforce_sorted=False
        )  # fmt: skip
        outputs, _ = self.lstm(packed)
        return pad_packed_sequence(outputs, batch_first=True, total_length=vectors.shape[1])[0]


class QueryReading(NamedTuple):
    """What the layers of the query's side compute."""

    vectors: Tensor
    present: Tensor
    levels: tuple[Tensor, Tensor, Tensor]
    """The outputs of the three LSTM layers."""
    summary: Tensor
    """One vector per query."""

    @property
    def history(self) -> Tensor:
        """All that is known of each word before query and passage meet."""
        return torch.cat([self.vectors, *self.levels[:2]], -1)

    def take(self, rows: Tensor) -> "QueryReading":
        """Return the queries at some indices."""
        first, second, third = (level[rows] for level in self.levels)
        return QueryReading(self.vectors[rows], self.present[rows], (first, second, third), self.summary[rows])


class QueryReader(nn.Module):
    """The query's side: two LSTM layers, a third one over both, self-attention, and one vector for all words."""

    def __init__(self, size: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = BiLstm(size, hidden, dropout), BiLstm(2 * hidden, hidden, dropout)
        self.third = BiLstm(4 * hidden, hidden, dropout)
        self.attention = Attention(2 * hidden, 2 * hidden, dropout)
        self.importance = nn.Linear(2 * hidden, 1, bias=False)

    def forward(self, queries: Words) -> QueryReading:
        """Return the query's words after each layer, and their sum, weighted by importance."""
        first = self.first(queries.vectors, queries)
        second = self.second(first, queries)
        third = self.third(torch.cat([first, second], -1), queries)
        read = self.attention(third, third, queries.present, third)
        importance = self.importance(read).squeeze(-1).masked_fill(~queries.present, -torch.inf).softmax(-1)
        summary = (importance[:, None] @ read).squeeze(1)
        return QueryReading(queries.vectors, queries.present, (first, second, third), summary)


class PassageReader(nn.Module):
    """The passage's side: its words attend to the query's words, then to each other."""

    def __init__(self, size: int, hidden: int, dropout: float) -> None:
        super().__init__()
        width = 2 * hidden
        history = size + 2 * width
        self.word_attention = Attention(size, width, dropout)
        self.first, self.second = BiLstm(2 * size, hidden, dropout), BiLstm(width, hidden, dropout)
        self.inter_attentions = nn.ModuleList(Attention(history, width, dropout) for _ in range(3))
        self.fusion = BiLstm(5 * width, hidden, dropout)
        self.self_attention = Attention(history + 4 * width, width, dropout)
        self.final = BiLstm(2 * width, hidden, dropout)

    def forward(self, passages: Words, query: QueryReading) -> Tensor:
        """Return (passages, words, 2 * hidden); row i of `query` is the query of passage i."""
        vectors = passages.vectors
        matched = self.word_attention(vectors, query.vectors, query.present, query.vectors)
        first = self.first(torch.cat([vectors, matched], -1), passages)
        second = self.second(first, passages)
        history, query_history = torch.cat([vectors, first, second], -1), query.history
        levels = [
            attention(history, query_history, query.present, level)
            for attention, level in zip(self.inter_attentions, query.levels, strict=True)
        ]
        fused = self.fusion(torch.cat([first, second, *levels], -1), passages)
        everything = torch.cat([history, *levels, fused], -1)
        own = self.self_attention(everything, everything, passages.present, fused)
        found: Tensor = self.final(torch.cat([fused, own], -1), passages)
        return found


class TopSignals(nn.Module):
    """The output layer: matches the query's vector with the passage's words, and scores the highest matches.

    The paper's formula has a softmax over the words of a passage; its text speaks of cosine similarities, which also
    say how well the words of one passage match compared with another's.
    """

    def __init__(self, width: int, num_signals: int, match: Match = "cosine") -> None:
        super().__init__()
        self.num_signals, self.is_cosine = num_signals, match == "cosine"
        self.match = nn.Linear(width, width, bias=False)
        first = nn.Linear(num_signals, width)
        if not self.is_cosine:
            # Large weights, because the outputs of LSTMs, and the shares of single words, are small at first: otherwise
            # all passages would get nearly the same score, and the loss would stay at 1 for a long time.
            nn.init.normal_(self.match.weight)
            nn.init.normal_(first.weight, std=4)
        # Without a bias: the loss compares scores of one query, so a bias would be trained by rounding errors alone.
        self.score = nn.Sequential(first, nn.ReLU(), nn.Linear(width, 1, bias=False))

    def forward(self, summaries: Tensor, passages: Tensor, present: Tensor) -> Tensor:
        """Return one score per pair."""
        scores: Tensor = self.score(self.signals(summaries, passages, present))
        return scores.squeeze(-1)

    def signals(self, summaries: Tensor, passages: Tensor, present: Tensor) -> Tensor:
        """Return the highest matches in descending order, and the lowest value there is where words are missing."""
        wanted = self.match(summaries)
        if self.is_cosine:
            found = functional.cosine_similarity(passages, wanted[:, None], dim=-1).masked_fill(~present, -1)
        else:
            products = (passages @ wanted[:, :, None]).squeeze(-1)
            found = products.masked_fill(~present, -torch.inf).softmax(-1)
        missing = max(0, self.num_signals - found.shape[1])
        return functional.pad(found, (0, missing), value=-1.0 if self.is_cosine else 0.0).topk(self.num_signals).values


class SDNet(nn.Module):
    """Scores pairs of a query and a passage; `encoder` is frozen, and only the layers above it are trained."""

    def __init__(
        self, encoder: Encoder, layers: int | None, hidden: int, signals: int, dropout: float, match: Match = "cosine"
    ) -> None:  # fmt: skip
        """Read the last `layers` layers of the encoder, or all of them and its embeddings if `layers` is None."""
        super().__init__()
        self._settings = {"layers": layers, "hidden": hidden, "signals": signals, "dropout": dropout, "match": match}
        base = encoder.base.config
        base.output_hidden_states = True
        self.encoder = encoder.requires_grad_(False)
        self.num_layers = layers or base.num_hidden_layers + 1
        self.size = int(base.hidden_size)
        self.mix = LayerMix(self.num_layers)
        self.query = QueryReader(self.size, hidden, dropout)
        self.passage = PassageReader(self.size, hidden, dropout)
        self.output = TopSignals(2 * hidden, signals, match)
        self.train()

    def description(self) -> dict[str, Any]:
        """Return how the model is saved, see `rayrank.models.saved`."""
        return {"kind": "sdnet", **self._settings}

    def train(self, mode: bool = True) -> Self:
        """Switch the trained layers to training or evaluation; the encoder never drops out anything."""
        super().train(mode)
        self.encoder.eval()
        return self

    @torch.no_grad()
    def states(self, batch: PaddedBatch) -> Tensor:
        """Return the encoder's states of texts that are encoded apart: (texts, positions, layers, hidden)."""
        found: list[tuple[Tensor, ...]] = []
        hook = self.encoder.base.register_forward_hook(lambda base, given, output: found.append(output.hidden_states))
        try:
            self.encoder(batch)
        finally:
            hook.remove()
        return torch.stack(found[0][-self.num_layers :], 2)

    def forward(self, pairs: WordPairs) -> Tensor:
        """Return one float32 score per passage."""
        queries, passages = (self._mixed(words) for words in (pairs.queries, pairs.passages))
        # float32: autocast would compute LSTMs in float16, whose small gradients become 0.
        with torch.autocast(passages.vectors.device.type, enabled=False):
            query = self.query(queries).take(pairs.query_of)
            read = self.passage(passages, query)
            scores: Tensor = self.output(query.summary, read, passages.present)
        return scores

    def _mixed(self, words: Words) -> Words:
        if words.vectors.ndim == 3:
            return words._replace(vectors=words.vectors.float())
        with torch.autocast(words.vectors.device.type, enabled=False):
            return words._replace(vectors=self.mix(words.vectors))
