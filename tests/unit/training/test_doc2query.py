"""doc2query's phase: its loss, its pairs, and that it learns."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

from rayrank.core.config import Doc2QueryConfig, PipelineConfig, TrainingConfig
from rayrank.core.flow import key
from rayrank.data.digests import varied
from rayrank.models.pretraining import IGNORED
from rayrank.models.query_writer import QueryWriter
from rayrank.text.ragged import Ragged
from rayrank.text.seq2seq import Seq2SeqTemplate
from rayrank.training.draws import POOL, by_length
from rayrank.training.loop import Log, fit
from rayrank.training.losses import query_pieces
from rayrank.training.phases.doc2query import QueryWriting

PAD, START, END = 0, 1, 2
TEMPLATE = Seq2SeqTemplate((START,), (END,), PAD, (START,), length=12, query_length=4)


class Forgets:
    def load(self) -> None:
        return None

    def save(self, state: dict[str, object], log: Log) -> None:
        pass


def phase(size: int = 200, seed: int = 3, template: Seq2SeqTemplate = TEMPLATE) -> QueryWriting:
    """Passages whose first id is the query; a query has two passages."""
    rng = np.random.default_rng(1)
    words = rng.integers(10, 20, size)
    passages = [[int(word), *rng.integers(20, 30, rng.integers(1, 8)).tolist()] for word in words]
    config = Doc2QueryConfig(model="scratch", batch_size=16)
    of_query = np.arange(size) // 2
    return QueryWriting(Ragged.of(passages), Ragged.of([[int(w)] for w in words]), of_query, template, config, seed)


def tiny() -> QueryWriter:
    torch.manual_seed(0)
    shape = T5Config(
        vocab_size=30, d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, dropout_rate=0.1,
        decoder_start_token_id=START,
    )  # fmt: skip
    return QueryWriter(T5ForConditionalGeneration(shape), START)


def test_the_loss_is_the_mean_over_queries_of_the_mean_over_their_pieces() -> None:
    """By hand: probabilities 1/4 and 3/4 in the first query, 1/2 in the second, whose padding does not count."""
    probabilities = torch.tensor([[[0.25, 0.75], [0.25, 0.75]], [[0.5, 0.5], [0.99, 0.01]]])
    labels = torch.tensor([[0, 1], [1, IGNORED]])

    loss = query_pieces(probabilities.log(), labels)

    assert loss.item() == pytest.approx(((math.log(4) + math.log(4 / 3)) / 2 + math.log(2)) / 2)


def test_the_loss_of_a_batch_is_the_mean_of_its_parts() -> None:
    made, model = phase(), tiny().eval()
    whole, *parts = (made.loss(model, made.prepare(model, rows))[0] for rows in (range(6), range(2), range(2, 6)))

    assert whole.item() == pytest.approx((2 * parts[0].item() + 4 * parts[1].item()) / 6, rel=1e-5)


def test_the_labels_are_the_query_and_its_end_without_prompt_and_padding() -> None:
    template = Seq2SeqTemplate((START,), (END,), PAD, (5, START), length=12, query_length=4)
    passages, queries = Ragged.of([[20, 21], [22]]), Ragged.of([[11, 12], [13]])
    made = QueryWriting(passages, queries, np.arange(2), template, Doc2QueryConfig(), seed=1)

    found = made.prepare(tiny(), [0, 1])

    assert found.inputs.ids.tolist() == [[START, 20, 21, END], [START, 22, END, PAD]]
    assert found.inputs.attention_mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    assert found.queries.tolist() == [[5, START, 11, 12], [5, START, 13, END]]
    assert found.labels.tolist() == [[IGNORED, 11, 12, END], [IGNORED, 13, END, IGNORED]]


class Marked(nn.Module):
    """Returns the position of each logit."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, passages: object, queries: Tensor) -> Tensor:
        positions = torch.arange(queries.shape[1], dtype=torch.float32)
        return positions[None, :, None].expand(len(queries), -1, 30)


def test_the_scores_are_the_logits_of_the_first_piece_behind_the_prompt() -> None:
    made = phase(template=Seq2SeqTemplate((), (END,), PAD, (5, START), length=12, query_length=4))
    model = Marked()

    _, scores = made.loss(model, made.prepare(model, [0, 1, 2]))

    assert scores.shape == (3, 30)
    assert (scores == 1).all()


def test_a_tenth_of_the_queries_is_held_out_depending_only_on_the_seed() -> None:
    made, other = phase(), phase(seed=4)

    assert len(made.dev) == 20
    assert sorted([*made.dev, *made.train]) == list(range(200))
    assert not set(made.dev // 2) & set(made.train // 2), "a query's pairs are on one side"
    assert made.dev.tolist() == phase().dev.tolist() != other.dev.tolist()
    assert made.facts() == {"num_pairs": 180, "num_held_out": 20}


def test_an_epoch_has_every_training_pair_once_in_its_own_order() -> None:
    made = phase()
    epochs = [made.examples(epoch) for epoch in range(2)]

    assert all(sorted(examples) == made.train.tolist() for examples in epochs)
    assert epochs[0] != epochs[1]
    assert epochs[1] == phase().examples(1)


def test_batches_of_similar_length_hold_every_row_once() -> None:
    rows, size = np.arange(100, 100 + 8 * POOL * 3 + 5), 8
    lengths = np.random.default_rng(0).integers(1, 500, len(rows))

    found = by_length(rows, lengths, size, np.random.default_rng(1))

    assert sorted(found) == rows.tolist()
    batches = lengths[np.array(found[: len(rows) // size * size]) - 100].reshape(-1, size)
    assert np.median(np.ptp(batches, axis=1)) < 60


def test_the_shares_of_dev_add_up() -> None:
    made, model = phase(), tiny()
    whole, shares = made.evaluate(model), [made.evaluate(model, rank, 3) for rank in range(3)]

    assert whole[0] == pytest.approx(sum(share[0] for share in shares), rel=1e-5)
    assert whole[1] == sum(share[1] for share in shares) == 20
    assert model.training


def test_the_model_learns_to_write_the_word_that_a_passage_begins_with() -> None:
    made, model = phase(), tiny()
    config = Doc2QueryConfig(epochs=12, batch_size=16, lr=1e-2)
    before = made.evaluate(model)[0] / 20

    fitted = fit(
        model, made, config, training=TrainingConfig(), device=torch.device("cpu"), checkpoint=Forgets(),
        log=lambda line: None,
    )  # fmt: skip

    assert before < -2
    assert fitted.state.best > -0.2


def test_how_many_queries_are_sampled_changes_the_documents_and_not_the_model() -> None:
    config = PipelineConfig()
    more = varied(config, {"doc2query.queries": 40, "doc2query.top_k": 20})

    assert key("train_doc2query", config) == key("train_doc2query", more)
    assert key("doc2query_documents", config) != key("doc2query_documents", more)
