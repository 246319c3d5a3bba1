"""SDNet: what its layers compute on hand-worked cases, and that padding and batches change no score."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from rayrank.core.artifacts import Artifact
from rayrank.core.config import StrmConfig
from rayrank.models.batches import PaddedBatch
from rayrank.models.encoder import Encoder
from rayrank.models.inference import word_vectors
from rayrank.models.inference.sdnet_scorer import SdnetScorer
from rayrank.models.inference.word_vectors import WordVectors
from rayrank.models.pair_texts import PairTexts
from rayrank.models.saved import load_model, save
from rayrank.models.sdnet import Attention, BiLstm, LayerMix, Match, SDNet, TopSignals, WordPairs, Words
from rayrank.text.ragged import Ragged
from rayrank.text.words import CONTINUES, STARTS
from tests.unit.models.conftest import CLS, SEP, VOCABULARY, rows, template, texts

TABLE = np.where(np.arange(VOCABULARY) < VOCABULARY // 2, STARTS, CONTINUES).astype(np.int8)
SIZE = 32


def model(layers: int | None = None, dropout: float = 0.0, match: Match = "softmax") -> SDNet:
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=VOCABULARY, hidden_size=SIZE, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=64, initializer_range=0.5,
    )  # fmt: skip
    encoder = Encoder(BertModel(shape), None, StrmConfig(form="off"))
    return SDNet(encoder, layers, hidden=6, signals=10, dropout=dropout, match=match)


def words(*vectors: Tensor, width: int = 0) -> Words:
    """The words of texts, padded with large numbers, which nothing may read."""
    lengths = torch.tensor([len(each) for each in vectors])
    width = max(width, int(lengths.max()))
    padded = torch.full((len(vectors), width, *vectors[0].shape[1:]), 1e4)
    for row, each in zip(padded, vectors, strict=True):
        row[: len(each)] = each
    return Words(padded, torch.arange(width) < lengths[:, None], lengths)


def test_layers_are_mixed_by_a_softmax_of_weights_times_a_scale() -> None:
    mix = LayerMix(2)
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, math.log(3)]))
        mix.scale.fill_(2.0)

    # The weights are 1/4 and 3/4.
    assert mix(torch.tensor([[1.0, 0.0], [0.0, 4.0]])).tolist() == pytest.approx([0.5, 6.0])


def test_attention_weighs_words_by_their_match_and_leaves_padding_out() -> None:
    attention = Attention(1, 1, dropout=0.0)
    with torch.no_grad():
        attention.projection.weight.fill_(1.0)
        attention.diagonal.fill_(math.log(2))
    others = words(torch.tensor([[1.0], [2.0], [-5.0]]), width=4)

    found = attention(torch.tensor([[[1.0]]]), others.vectors, others.present, torch.eye(4)[None])

    # ReLU makes -5 a 0: the matches are ln 2, 2 ln 2 and 0, so the weights are 2, 4 and 1 out of 7.
    assert found.flatten().tolist() == pytest.approx([2 / 7, 4 / 7, 1 / 7, 0])


def test_an_lstm_reads_no_padding_in_either_direction() -> None:
    lstm, vectors = BiLstm(3, 2, dropout=0.0), torch.randn(4, 3)

    found = lstm((padded := words(vectors, torch.randn(9, 3))).vectors, padded)

    alone = words(vectors)
    torch.testing.assert_close(found[:1, :4], lstm(alone.vectors, alone))
    assert not found[0, 4:].any()


def signals_of(*match: float) -> list[float]:
    output = TopSignals(width=1, num_signals=10, match="softmax")
    torch.nn.init.ones_(output.match.weight)
    passage = words(torch.tensor(match)[:, None], width=12)
    found: list[float] = output.signals(torch.ones(1, 1), passage.vectors, passage.present)[0].tolist()
    return found


def test_the_strongest_signals_are_sorted_and_zeros_follow_if_words_are_few() -> None:
    assert signals_of(0.0, math.log(2), 0.0) == pytest.approx([1 / 2, 1 / 4, 1 / 4, *[0] * 7])
    # Twelve words: the ten strongest remain of shares that add up to 1 with the other two.
    assert signals_of(*[0.0] * 11, math.log(5)) == pytest.approx([5 / 16, *[1 / 16] * 9])


def test_cosine_signals_are_the_same_for_longer_vectors_and_missing_words_are_last() -> None:
    output = TopSignals(width=2, num_signals=4, match="cosine")
    with torch.no_grad():
        output.match.weight.copy_(torch.eye(2))
    passage = words(torch.tensor([[0.0, 3.0], [5.0, 0.0], [-2.0, 0.0]]), width=6)

    found = output.signals(torch.tensor([[1.0, 0.0]]), passage.vectors, passage.present)
    assert found[0].tolist() == pytest.approx([1.0, 0.0, -1.0, -1.0])


def test_signals_of_a_batch_without_ten_words_are_filled_with_zeros() -> None:
    output = TopSignals(width=1, num_signals=10, match="softmax")
    assert output.signals(torch.ones(1, 1), torch.ones(1, 2, 1), torch.ones(1, 2).bool()).tolist() == [
        pytest.approx([0.5, 0.5, *[0] * 8])
    ]


@pytest.mark.parametrize("match", ["softmax", "cosine"])
def test_padding_never_changes_a_score(match: Match) -> None:
    net, query, other = model(match=match).eval(), torch.randn(3, 3, SIZE), torch.randn(7, 3, SIZE)
    passages = [torch.randn(count, 3, SIZE) for count in (1, 5, 14)]
    batch = WordPairs(words(other, query, width=9), words(*passages, width=20), torch.tensor([1, 1, 0]))

    found = net(batch)

    alone = [
        net(WordPairs(words(asked), words(passage), torch.tensor([0])))
        for asked, passage in zip((query, query, other), passages, strict=True)
    ]
    torch.testing.assert_close(found, torch.cat(alone))
    assert len(set(found.tolist())) == 3


def texts_of(query: list[int], *passages: list[int]) -> PairTexts:
    return PairTexts(Ragged.of([[CLS, *query, SEP]]), Ragged.of(passages), template(24))


def test_a_words_vector_is_the_mean_of_its_pieces_in_each_layer_of_a_text_that_is_encoded_alone() -> None:
    net = model()
    # 40 and 41 continue a word.
    source = texts_of([7, 8], [10, 40, 41, 11], [12])

    pairs = WordVectors(source, TABLE).pairs(net, np.array([0, 0]), np.array([0, 1]))

    ids = torch.tensor([[CLS, 10, 40, 41, 11, SEP]])
    with torch.no_grad():
        outputs = net.encoder.base(ids, token_type_ids=torch.zeros_like(ids), output_hidden_states=True).hidden_states
    layers = torch.stack(outputs, 2)[0]
    expected = torch.stack([layers[1:4].mean(0), layers[4]])
    torch.testing.assert_close(pairs.passages.vectors[0].float(), expected, rtol=1e-3, atol=1e-3)
    assert pairs.passages.lengths.tolist() == [2, 1]
    assert pairs.passages.present.tolist() == [[True, True], [True, False]]
    assert pairs.queries.vectors.shape == (1, 2, 3, SIZE)
    assert pairs.query_of.tolist() == [0, 0]


def test_only_the_last_layers_are_read_if_their_number_is_set() -> None:
    source = texts_of([7, 8], [10, 11])
    all_layers, last = (WordVectors(source, TABLE).pairs(net, *2 * [np.zeros(1, int)]) for net in (model(), model(1)))
    torch.testing.assert_close(last.passages.vectors, all_layers.passages.vectors[:, :, -1:])


def test_a_text_without_pieces_is_one_word_of_zeros() -> None:
    pairs = WordVectors(texts_of([7], [], [8]), TABLE).pairs(model(), np.array([0, 0]), np.array([0, 1]))
    assert pairs.passages.lengths.tolist() == [1, 1]
    assert not pairs.passages.vectors[0].any()
    assert pairs.passages.vectors[1].any()


def test_a_text_is_encoded_once_and_again_only_after_memory_was_full(monkeypatch: pytest.MonkeyPatch) -> None:
    net, encoded = model().eval(), []
    states = net.states

    def counted(batch: PaddedBatch) -> Tensor:
        encoded.append(batch.num_inputs)
        return states(batch)

    monkeypatch.setattr(net, "states", counted)
    source = texts_of([7], [10, 11], [12, 13, 14], [15])
    asked = [np.array(each) for each in ([0, 1], [1, 0], [1, 2])]
    roomy = WordVectors(source, TABLE)
    expected = [roomy.pairs(net, np.zeros(2, int), each) for each in asked]
    assert sum(encoded) == 4
    encoded.clear()

    # Room for six words of three vectors: the query with the first two passages.
    monkeypatch.setattr(word_vectors, "CPU_BYTES", 6 * 3 * SIZE * 2)
    scarce = WordVectors(source, TABLE)
    found = [scarce.pairs(net, np.zeros(2, int), each) for each in asked]

    assert sum(encoded) == 3 + 3
    for first, second in zip(expected, found, strict=True):
        torch.testing.assert_close(first.passages.vectors, second.passages.vectors)


def test_the_encoder_is_frozen_and_everything_above_it_is_trained() -> None:
    net = model(dropout=0.4)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    vectors = WordVectors(texts(), TABLE)

    for _ in range(2):
        net.train()(vectors.pairs(net, *rows(12))).square().sum().backward()
        optimizer.step()

    assert all(parameter.grad is None for parameter in net.encoder.parameters())
    assert not net.encoder.training
    changed = {name for name, tensor in net.state_dict().items() if not torch.equal(tensor, before[name])}
    assert changed == {name for name in before if not name.startswith("encoder.")}


def test_a_scorer_gives_each_pair_the_score_it_has_alone_in_the_callers_order() -> None:
    net, source, (queries, passages) = model().eval(), texts(), rows(40)
    found = SdnetScorer(net, source, WordVectors(source, TABLE))(queries, passages)

    vectors = WordVectors(source, TABLE)
    with torch.no_grad():
        alone = [
            net(vectors.pairs(net, queries[row : row + 1], passages[row : row + 1])).item() for row in range(len(found))
        ]

    assert found == pytest.approx(alone, abs=1e-4)
    assert np.ptp(found) > 1e-3


def test_vectors_whose_layers_were_mixed_before_give_the_same_scores() -> None:
    net, source = model().eval(), texts()
    with torch.no_grad():
        net.mix.weights.copy_(torch.tensor([1.0, 0.0, 2.0]))
    mixed = WordVectors(source, TABLE, mixes_layers=True)

    found = SdnetScorer(net, source, mixed)(*rows(20))

    assert found == pytest.approx(SdnetScorer(net, source, WordVectors(source, TABLE))(*rows(20)), abs=5e-3)
    assert mixed.pairs(net, *rows(2)).passages.vectors.ndim == 3


def test_a_saved_model_scores_as_before(tmp_path: Path) -> None:
    net, source = model(layers=2, dropout=0.4).eval(), texts()
    artifact = Artifact(str(tmp_path), "sdnet", "1")
    save(artifact, net.encoder.base.config, net.state_dict(), net.description())

    again = load_model(artifact, StrmConfig(form="off"), TABLE)

    assert isinstance(again, SDNet)
    first, second = (SdnetScorer(each, source, WordVectors(source, TABLE))(*rows(8)) for each in (net, again))
    assert first == pytest.approx(second)
