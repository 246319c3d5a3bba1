"""How much of the relevant passages a re-ranker never reads, because they are longer than its input."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import InputConfig, PipelineConfig
from rayrank.core.input_config import PIECES_OF_A_TYPE
from rayrank.core.records import SPLIT_PRIORITY
from rayrank.data.pair_set import relevant
from rayrank.text.aligned_words import ALL_PIECES
from rayrank.text.pieces import PieceEncoder, load_tokenizer

NOTICEABLE = 0.005
"""The smallest share of unread text that is worth a sentence."""

TEXTS_AT_ONCE = 8192
"""Passages whose texts are read and tokenised at a time."""


class Cut(NamedTuple):
    """The relevant pairs of a split: how many passages lose their end, and how much of all their text that is."""

    num_pairs: int
    num_cut: int
    num_pieces: int
    num_unread: int


def cut_passages(config: PipelineConfig, store: Store) -> dict[str, Cut]:
    """Return what inputs leave out of the relevant passages of each split; markers are not counted."""
    corpus = store.require("corpus", config)
    judgments = relevant(corpus.read_table("judgments.parquet"), config.dataset.relevant_from)
    queries = corpus.read_table("queries.parquet", ["query_id", "piece_ids"])
    rows = pc.index_in(judgments["query_id"], value_set=queries["query_id"].combine_chunks()).to_numpy()
    room = _room(pc.list_value_length(queries["piece_ids"]).to_numpy()[rows], config.input)
    pieces = _lengths(corpus, judgments["passage_id"].combine_chunks(), config.text.passage_pieces)
    unread = np.maximum(pieces - room, 0)
    found = {}
    for split in SPLIT_PRIORITY:
        chosen = pc.equal(judgments["split"], split).to_numpy()
        if chosen.any():
            cut = unread[chosen]
            found[split] = Cut(len(cut), int((cut > 0).sum()), int(pieces[chosen].sum()), int(cut.sum()))
    return found


def finding(found: dict[str, Cut], inputs: InputConfig) -> list[str]:
    """Return a sentence if a noticeable share of the relevant passages' text is never read."""
    unread = sum(each.num_unread for each in found.values()) / max(1, sum(each.num_pieces for each in found.values()))
    if unread < NOTICEABLE:
        return []
    cut = {split: each for split, each in found.items() if each.num_cut}
    shares = ", ".join(f"{each.num_cut / each.num_pairs:.1%} of {split}'s" for split, each in cut.items())
    in_windows = inputs.long_passages == "windows"
    more = {"max_windows": 2 * inputs.max_windows} if in_windows else {"long_passages": "windows"}
    reach = inputs.model_copy(update=more).pieces_read()
    limit = f"input.max_windows={inputs.max_windows}" if in_windows else f"input.length={inputs.length}"
    remedy = " ".join(f"input.{name}={value}" for name, value in more.items())
    return [
        f"{limit} cuts off the end of {shares} relevant passages; {unread:.1%} of the text of all relevant passages is "
        f"never read{', not counting markers' if inputs.markers else ''}; to read more of it, set {remedy} and "
        f"text.passage_pieces={reach}"
    ]


def _room(query_pieces: NDArray[np.int64], inputs: InputConfig) -> NDArray[np.int64]:
    """Return how many pieces of a passage are read with each query."""
    if inputs.long_passages == "windows":
        return np.full(len(query_pieces), inputs.pieces_read())
    special = 3 + (PIECES_OF_A_TYPE if inputs.query_type else 0)
    return inputs.length - special - np.minimum(query_pieces, inputs.query_length)


def _lengths(corpus: Artifact, passage_ids: pa.Array, stored: int) -> NDArray[np.int64]:
    """Return the number of pieces of each passage, those included that the corpus does not store."""
    distinct = pc.unique(passage_ids)
    lengths = np.zeros(len(distinct), np.int64)
    for name in corpus.manifest["shards"]:
        for batch in corpus.batches(name, ["passage_id", "piece_ids"]):
            rows = pc.index_in(batch["passage_id"], value_set=distinct)
            known = pc.is_valid(rows).to_numpy(zero_copy_only=False)
            lengths[rows.drop_null().to_numpy()] = pc.list_value_length(batch["piece_ids"]).to_numpy()[known]
    longest = np.flatnonzero(lengths >= stored)
    if len(longest):
        lengths[longest] = _whole_lengths(corpus, distinct.take(longest))
    found: NDArray[np.int64] = lengths[pc.index_in(passage_ids, value_set=distinct).to_numpy()]
    return found


def _whole_lengths(corpus: Artifact, passage_ids: pa.Array) -> NDArray[np.int64]:
    """Return the number of pieces of the whole texts of passages; the texts of one batch are in memory at a time."""
    encode = PieceEncoder(load_tokenizer(corpus.local("tokenizer")).backend_tokenizer.to_str(), ALL_PIECES)
    lengths = np.zeros(len(passage_ids), np.int64)
    for name in corpus.manifest["shards"]:
        for batch in corpus.batches(name, ["passage_id", "text"], TEXTS_AT_ONCE):
            rows = pc.index_in(batch["passage_id"], value_set=passage_ids)
            texts = batch["text"].filter(pc.is_valid(rows)).to_pylist()
            lengths[rows.drop_null().to_numpy()] = pc.list_value_length(encode(texts)).to_numpy()
    return lengths
