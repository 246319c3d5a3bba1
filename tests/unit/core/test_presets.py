import pytest

from rayrank.core.config import PipelineConfig, StrmConfig
from rayrank.core.flow import rankers
from rayrank.core.presets import PRESETS, demo, markedbert, monobert, paper, sdnet

MSMARCO_TRAIN_JUDGMENTS = 532_761


def test_paper_has_the_hyperparameters_of_the_dr_bert_paper() -> None:
    config = paper()
    assert config.encoder.name == "bert-large-uncased"
    assert config.text.tokenizer == "bert-large-uncased"
    assert config.strm == StrmConfig(form="mask", representative="last", first_layer=0, last_layer=None)
    assert config.input.query_type
    assert config.input.length == 180
    assert (config.candidates.first_stage, config.candidates.depth) == ("bm25", 1000)
    pretrain, pointwise, listwise = config.pretrain, config.pointwise, config.listwise
    assert (pretrain.epochs, pretrain.batch_size, pretrain.lr, pretrain.warmup) == (5, 128, 1e-6, 0.1)
    assert (pointwise.epochs, pointwise.batch_size) == (1, 16)
    assert (listwise.epochs, listwise.batch_size, listwise.positives, listwise.negatives) == (5, 16, 1, 5)
    assert pretrain.enabled
    assert config.runs["drbert"].title == "DR-BERT"
    for phase in (pretrain, pointwise, listwise):
        assert phase.max_steps is None


def test_monobert_has_the_hyperparameters_of_the_monobert_paper() -> None:
    config = monobert()
    assert config.encoder.name == "bert-large-uncased"
    assert config.text.tokenizer == "bert-large-uncased"
    assert config.encoder.dropout == 0.1
    assert config.strm.form == "off"
    assert not config.input.query_type
    assert (config.input.length, config.input.query_length) == (512, 64)
    assert (config.candidates.first_stage, config.candidates.depth) == ("bm25", 1000)
    pointwise = config.pointwise
    assert (pointwise.max_steps, pointwise.batch_size) == (400_000, 32)
    assert (pointwise.lr, pointwise.weight_decay) == (3e-6, 0.01)
    assert pointwise.warmup * 400_000 == pytest.approx(10_000)
    assert not config.pretrain.enabled
    assert rankers(config) == ["pointwise"]


def test_markedbert_has_the_hyperparameters_of_the_markedbert_paper() -> None:
    config = markedbert()

    assert (config.encoder.name, config.encoder.dropout) == ("bert-base-uncased", 0.1)
    assert (config.candidates.first_stage, config.candidates.depth) == ("doc2query", 1000)
    assert (config.input.length, config.input.query_type, config.input.markers) == (512, False, 64)
    pointwise = config.pointwise
    assert (pointwise.epochs, pointwise.batch_size, pointwise.negatives, pointwise.lr) == (2, 32, 1, 3e-6)
    assert not config.pretrain.enabled


def test_sdnet_has_the_hyperparameters_of_the_ccnu_paper() -> None:
    config = sdnet()

    assert config.encoder.name == config.text.tokenizer == "bert-large-uncased"
    assert (config.sdnet.length, config.sdnet.layers, config.sdnet.signals) == (256, None, 10)
    assert (config.sdnet.lr, config.sdnet.weight_decay, config.sdnet.dropout) == (1e-3, 0, 0.4)
    assert config.runs["sdnet_fused"].model_dump()["weight"] == 0.8
    assert rankers(config) == ["sdnet"]


def test_monobert_has_examples_for_400_000_steps_on_ms_marco() -> None:
    pointwise = monobert().pointwise
    pairs = MSMARCO_TRAIN_JUDGMENTS * (1 + pointwise.negatives)
    assert pointwise.epochs * pairs // pointwise.batch_size >= 400_000


def test_the_first_stage_is_anserinis_bm25_by_default() -> None:
    defaults = {"k1": 0.9, "b": 0.4}
    assert defaults.items() <= PipelineConfig().runs["bm25"].model_dump().items()
    for preset in PRESETS.values():
        assert defaults.items() <= preset().runs["bm25"].model_dump().items()


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_valid(name: str) -> None:
    config = PRESETS[name]()
    assert PipelineConfig.model_validate(config.model_dump()) == config


@pytest.mark.parametrize("name", PRESETS)
def test_no_preset_stores_fewer_pieces_than_its_input_uses(name: str) -> None:
    config = PRESETS[name]()
    assert config.text.query_pieces >= config.input.query_length
    assert config.text.passage_pieces >= config.input.length - config.input.query_length


def test_a_preset_returns_equal_and_immutable_configurations() -> None:
    assert demo() == demo()
    with pytest.raises(ValueError, match="frozen"):
        demo().candidates.depth = 5
