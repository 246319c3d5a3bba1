"""DeepCT's documents: weights of pieces become texts, and no passage is lost."""

import numpy as np

from rayrank.core.config import MINILM
from rayrank.stages.deepct_documents import documents_of
from rayrank.text.aligned_words import ALL_PIECES, align
from rayrank.text.pieces import PieceEncoder, load_tokenizer

ENCODER = PieceEncoder(load_tokenizer(MINILM).backend_tokenizer.to_str(), ALL_PIECES)


def test_a_word_has_the_weight_of_its_first_piece_and_its_own_spelling() -> None:
    texts = ["Insouciantly, the Harp", "a sea of Harps"]
    aligned = align(texts, ENCODER, 4)
    weights = np.zeros(len(aligned.windows.values), np.float32)
    # ins ##ou ##cian ##tly , the harp | a sea of harp ##s
    weights[[0, 1, 6]] = [0.2, 9.0, 0.1]
    weights[[8, 10, 11]] = [0.1, 0.3, 9.0]

    documents, facts = documents_of(texts, aligned, weights, scale=10)

    assert documents == ["Insouciantly Insouciantly Harp", "sea Harps Harps Harps"]
    assert facts == {"num_passages": 2, "num_empty": 0, "num_words": 4, "num_terms": 7}


def test_a_passage_whose_words_all_vanish_keeps_its_own_text() -> None:
    texts = ["A harp, by the sea.", "a sea", "…"]
    aligned = align(texts, ENCODER, 512)
    weights = np.full(len(aligned.windows.values), -0.1, np.float32)
    weights[-2] = 0.1  # sea, before the last text's dots

    documents, facts = documents_of(texts, aligned, weights, scale=10)

    assert documents == ["A harp, by the sea.", "sea", "…"]
    assert facts["num_empty"] == 2
