"""Query-term recall as the targets of word pieces, worked by hand."""

from rayrank.core.config import MINILM
from rayrank.stages.train_deepct import windows_with_targets
from rayrank.text.aligned_words import ALL_PIECES
from rayrank.text.pieces import PieceEncoder, load_tokenizer

TOKENIZER = load_tokenizer(MINILM)
ENCODER = PieceEncoder(TOKENIZER.backend_tokenizer.to_str(), ALL_PIECES)


def test_targets_stand_at_the_first_pieces_of_words() -> None:
    passages = ["Insouciantly the harp, the Harp", "a sea"]
    queries = [["is the harp insouciantly played", "whose harps"], ["seas"]]

    found = windows_with_targets(passages, queries, ENCODER, max_pieces=512, first_number=7).to_pylist()

    assert [row["passage"] for row in found] == [7, 8]
    pieces = TOKENIZER.convert_ids_to_tokens(found[0]["piece_ids"])
    assert pieces == ["ins", "##ou", "##cian", "##tly", "the", "harp", ",", "the", "harp"]
    assert found[0]["targets"] == [0.5, -1, -1, -1, 0.5, 1, -1, 0.5, 1]
    assert found[1]["targets"] == [0, 1]


def test_a_long_passage_becomes_several_windows_and_one_without_words_none() -> None:
    found = windows_with_targets(["a harp or a sea", "? !", "..."], [["harp"], ["a"], ["b"]], ENCODER, max_pieces=2)
    assert found["passage"].to_pylist() == [0, 0, 0]
    assert found["targets"].to_pylist() == [[0, 1], [0, 0], [0]]
    assert len(windows_with_targets([], [], ENCODER, max_pieces=2)) == 0
