"""The small encoder of the preset demo: it knows the demo's words, and cuts its names into pieces."""

import string
from pathlib import Path

import pyarrow as pa
import pytest
from transformers import PreTrainedTokenizerFast

from rayrank.core.config import DemoConfig
from rayrank.core.presets import DEMO_ENCODER, demo
from rayrank.core.pretrained import locate
from rayrank.data.sources.demo import Demo
from rayrank.data.sources.demo.names import family_names
from rayrank.models.pretraining import build
from rayrank.text.pieces import PieceEncoder, load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.words import word_table
from rayrank.training.phases.pretrain import Pretraining, Vocabulary

TEXTS = DemoConfig(subjects=40, categories=1)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return load_tokenizer(DEMO_ENCODER)


def passages() -> list[str]:
    source = Demo(TEXTS)
    return [passage.text for part in source.parts(1 << 20) for passage in source.passages(part)]


def test_it_is_small_enough_for_the_package() -> None:
    files = list(Path(locate(DEMO_ENCODER, "encoder.name")).iterdir())
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in files}
    assert sum(file.stat().st_size for file in files) < 1_600_000


def test_most_names_are_cut_into_three_pieces_and_siblings_share_the_first(tokenizer: PreTrainedTokenizerFast) -> None:
    families = [[tokenizer.tokenize(name) for name in family_names(13, family)] for family in range(100)]
    counts = [len(pieces) for family in families for pieces in family]
    assert min(counts) >= 2
    assert sum(count >= 3 for count in counts) > 0.8 * len(counts)
    assert all(len({pieces[0] for pieces in family}) == 1 for family in families)
    assert all(len({tuple(pieces) for pieces in family}) == len(family) for family in families)


def test_no_ascii_text_is_unknown(tokenizer: PreTrainedTokenizerFast) -> None:
    texts = [*passages(), *(query.text for query in Demo(TEXTS).queries()), "Q" + string.printable + "zjqxw"]
    assert not any(tokenizer.unk_token_id in tokenizer(text, add_special_tokens=False).input_ids for text in texts)


def test_it_predicts_masked_pieces_and_next_sentences_of_passages_it_has_not_read(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    pieces = PieceEncoder(tokenizer.backend_tokenizer.to_str(), 512)(passages())
    phase = Pretraining(
        Ragged.from_arrow(pa.chunked_array([pieces])), Vocabulary.of(tokenizer), demo().pretrain, seed=13
    )
    loss, count = phase.evaluate(build(demo(), word_table(tokenizer)))
    # Guessing among 2,059 pieces and two classes has a loss of ln 2059 + ln 2 = 8.3.
    assert -loss / count < 2.5
