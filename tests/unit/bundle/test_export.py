"""An exported folder gives the model's scores in rayrank and, with plain attention, in other libraries."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save
from sentence_transformers import CrossEncoder
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertModel,
    BertTokenizer,
    PreTrainedTokenizerFast,
)

from rayrank.bundle import text_scorer
from rayrank.bundle.dev_sample import JudgedQuery
from rayrank.bundle.export import FORMAT, SETTINGS, Bundle, Settings, export, load, settings_of
from rayrank.bundle.golden import GoldenPair
from rayrank.bundle.text_scorer import check_golden, score
from rayrank.core.config import MINILM, EncoderConfig, InputConfig, QueryTypesConfig, StrmConfig
from rayrank.core.errors import ConfigError, StorageError
from rayrank.measure.metrics import MRR_10, Measure
from rayrank.models.encoder import Encoder, load_encoder
from rayrank.models.inference import scorer as scorer_module
from rayrank.models.reranker import Reranker
from rayrank.scores.calibration import fit
from rayrank.scores.fusion import Feature, Fusion
from rayrank.scores.precision import Level, PrecisionTable
from rayrank.text.pieces import load_tokenizer
from rayrank.text.words import word_table

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] what is a bog ##ue fish of number ##s".split()
SIZES = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}
PLAIN = StrmConfig(form="off")
FORMS = {
    "off": PLAIN,
    "all pieces": StrmConfig(representative="all"),
    "the paper's": StrmConfig(),
    "first piece": StrmConfig(representative="first"),
    "from layer 1": StrmConfig(first_layer=1),
    "bias": StrmConfig(form="bias"),
}
QUERIES = ["what is a bogue", "what is a number of fishs", "bogue"] * 2
PASSAGES = ["a bogue is a fish", "fish", "numbers of bogues " * 30, "what", "a number", "bogue bogue"]
TYPES = ["number", "fish", "what"] * 2


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    folder = tmp_path_factory.mktemp("tokenizer")
    BertTokenizer(vocab={piece: row for row, piece in enumerate(VOCABULARY)}).save_pretrained(str(folder))
    return load_tokenizer(str(folder))


def tiny(tokenizer: PreTrainedTokenizerFast, strm: StrmConfig, outputs: int = 1) -> Reranker:
    torch.manual_seed(0)
    model = Reranker(Encoder(BertModel(BertConfig(**SIZES)), word_table(tokenizer), strm), outputs).eval()
    nn.init.normal_(model.head.bias)
    if model.encoder.strm_bias is not None:
        nn.init.normal_(model.encoder.strm_bias, std=0.02)
    return model


def exported(model: Reranker, tokenizer: PreTrainedTokenizerFast, folder: Path, types: bool = True) -> Bundle:
    """Export a model and return the bundle that was written."""
    inputs = InputConfig(length=48, query_length=16, query_type=types)
    settings = settings_of(model, inputs, QueryTypesConfig(), ["number", "fish"] if types else [])
    bundle = Bundle(model, tokenizer, settings, "# A card\n")
    export(str(folder), bundle)
    return bundle


def scores(of: Bundle) -> np.ndarray:
    return score(of, QUERIES, PASSAGES, TYPES if of.settings.input.query_type else None)


def cross_encoder_scores(folder: Path, types: bool = True) -> np.ndarray:
    firsts = [f"{kind} [SEP] {query}" if types else query for kind, query in zip(TYPES, QUERIES, strict=True)]
    return CrossEncoder(str(folder), device="cpu").predict(list(zip(firsts, PASSAGES, strict=True)))


def test_what_is_exported_besides_the_model_is_loaded_as_it_was(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    before = exported(tiny(tokenizer, PLAIN), tokenizer, tmp_path / "plain")
    level = Level(wanted=0.8, logit=0.1, probability=0.7, num_queries=30, precision=0.9, low=0.7, high=0.97)
    judged = JudgedQuery(query="what", documents=("fish", "bog"), relevance=(0, 1), first_stage_scores=(0.1, -2.0))
    more = replace(before, precision=PrecisionTable(num_queries=31, levels=(level,)), dev=(judged, judged))
    price = Feature(name="price", kind="field", points=((1.0, 0.2), (9.0, 0.8)))
    fusion = Fusion(
        form="linear", normalize="rank", features=(Feature(name="bm25", kind="run"), price), weights=(2, -1)
    )
    more = replace(more, fusion=fusion)

    export(str(tmp_path / "more"), more)

    after, plain = load(str(tmp_path / "more")), load(str(tmp_path / "plain"))
    assert (after.precision, after.dev, after.fusion) == (more.precision, more.dev, fusion)
    assert (plain.precision, plain.dev, plain.fusion) == (None, (), None)


def test_a_folder_names_the_measure_that_selected_the_model(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model, folder, measure = tiny(tokenizer, PLAIN), tmp_path / "model", Measure("nDCG@10", 2)
    settings = settings_of(model, InputConfig(), QueryTypesConfig(), [], measure=measure)
    export(str(folder), Bundle(model, tokenizer, settings))

    assert load(str(folder)).settings.measure == measure
    # A folder of an earlier version names none.
    written = json.loads((folder / SETTINGS).read_text())
    (folder / SETTINGS).write_text(
        json.dumps({k: v for k, v in written.items() if k not in ("metric", "relevant_from")})
    )
    assert load(str(folder)).settings.measure == MRR_10


@pytest.mark.parametrize("strm", FORMS.values(), ids=FORMS)
def test_a_loaded_folder_scores_bit_for_bit_as_the_exported_model(
    tokenizer: PreTrainedTokenizerFast, strm: StrmConfig, tmp_path: Path
) -> None:
    before = exported(tiny(tokenizer, strm), tokenizer, tmp_path / "model")

    after = load(str(tmp_path / "model"))

    assert np.array_equal(scores(after), scores(before))
    assert len(np.unique(scores(after))) == len(QUERIES)
    assert (after.settings, after.card) == (before.settings, before.card)
    assert after.settings.strm == (PLAIN if strm.representative == "all" else strm)


@pytest.mark.parametrize("size", [1, 2, 5, 6, 100])
@pytest.mark.parametrize("types", [True, False])
def test_tokenising_in_blocks_while_scoring_does_not_change_scores(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, types: bool
) -> None:
    model = exported(tiny(tokenizer, StrmConfig()), tokenizer, tmp_path / "model", types)
    kinds = TYPES * 5 if types else None
    expected = score(model, QUERIES * 5, PASSAGES * 5, kinds)
    # As on a GPU, with rows that hold a few pairs.
    monkeypatch.setattr(text_scorer, "_num_tokenised_at_once", lambda bundle, count: size)
    monkeypatch.setattr(scorer_module, "CPU_TOKENS", 60)

    assert np.allclose(score(model, QUERIES * 5, PASSAGES * 5, kinds), expected, atol=1e-5)
    assert len(score(model, [], [], [] if types else None)) == 0


def test_loaded_weights_equal_the_exported_ones(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    for strm in (PLAIN, StrmConfig(form="bias")):
        model = tiny(tokenizer, strm)
        exported(model, tokenizer, tmp_path / strm.form)

        after = load(str(tmp_path / strm.form)).model.state_dict()

        assert after.keys() == model.state_dict().keys()
        assert all(torch.equal(after[name], tensor) for name, tensor in model.state_dict().items())


def test_a_pointwise_model_is_exported_with_one_output_the_difference_of_its_classes(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    before = exported(tiny(tokenizer, PLAIN, outputs=2), tokenizer, tmp_path / "model")

    after = load(str(tmp_path / "model"))

    assert after.model.head.out_features == 1
    assert before.model.head.out_features == 2
    assert np.allclose(scores(after), scores(before), atol=1e-5)
    assert np.allclose(cross_encoder_scores(tmp_path / "model"), scores(before), atol=1e-5)


@pytest.mark.parametrize("types", [True, False])
def test_a_plain_model_scores_the_same_in_sentence_transformers(
    tokenizer: PreTrainedTokenizerFast, types: bool, tmp_path: Path
) -> None:
    before = exported(tiny(tokenizer, PLAIN), tokenizer, tmp_path / "model", types)

    assert np.allclose(cross_encoder_scores(tmp_path / "model", types), scores(before), atol=1e-5)


def test_large_states_score_the_same_in_sentence_transformers(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = tiny(tokenizer, PLAIN)
    nn.init.constant_(model.encoder.base.encoder.layer[-1].output.LayerNorm.weight, 10)
    before = exported(model, tokenizer, tmp_path / "model")

    assert np.allclose(cross_encoder_scores(tmp_path / "model"), scores(before), rtol=1e-5, atol=1e-4)


def test_real_weights_and_long_texts_score_the_same_in_sentence_transformers(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(MINILM)
    torch.manual_seed(0)
    model = Reranker(load_encoder(EncoderConfig(), word_table(tokenizer), PLAIN), 1).eval()
    settings = settings_of(model, InputConfig(), QueryTypesConfig(), ["location"])
    bundle = Bundle(model, tokenizer, settings)
    export(str(tmp_path / "model"), bundle)
    queries = ["where is the bogue", "who asked insouciantly", "how tall is the lighthouse"]
    passages = ["The bogue lies in the bay. " * 80, "Zelda Rookhaven did.", "It is 40 m, 5\u2032 tall."]
    types = ["location", "person", "numeric"]

    ours = score(bundle, queries, passages, types)
    pairs = [(f"{kind} [SEP] {query}", text) for kind, query, text in zip(types, queries, passages, strict=True)]
    theirs = CrossEncoder(str(tmp_path / "model"), device="cpu").predict(pairs)

    assert np.ptp(ours) > 0.01
    assert np.allclose(theirs, ours, atol=1e-5)


def test_other_libraries_refuse_a_model_whose_scores_they_would_change(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    before = exported(tiny(tokenizer, StrmConfig()), tokenizer, tmp_path / "model")

    for opened in (CrossEncoder, AutoModelForSequenceClassification.from_pretrained):
        with pytest.raises(ValueError, match="model type `rayrank`"):
            opened(str(tmp_path / "model"))
    assert np.array_equal(scores(load(str(tmp_path / "model"))), scores(before))


def test_strm_changes_the_scores_of_these_texts(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    plain, strm = (
        exported(tiny(tokenizer, FORMS[name]), tokenizer, tmp_path / name) for name in ("off", "the paper's")
    )

    assert np.abs(scores(plain) - scores(strm)).max() > 0.01


def test_a_folder_contains_no_paths_of_the_machine_that_wrote_it(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = tiny(tokenizer, PLAIN)
    model.encoder.base.config._name_or_path = "/home/somebody/models/bert"
    exported(model, tokenizer, tmp_path / "model")

    for file in (tmp_path / "model").glob("*.json"):
        assert "/home/" not in file.read_text()
        assert str(tmp_path) not in file.read_text()
    assert json.loads((tmp_path / "model/tokenizer_config.json").read_text())["model_max_length"] == 48
    assert (tmp_path / "model/README.md").read_text() == "# A card\n"


def test_a_folder_that_is_not_empty_is_not_written_to(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    model = tiny(tokenizer, PLAIN)
    (tmp_path / "used").mkdir()
    (tmp_path / "used/mine.txt").write_text("mine")
    (tmp_path / "empty").mkdir()

    with pytest.raises(StorageError, match=r"--output .*/used is not empty: name another folder"):
        exported(model, tokenizer, tmp_path / "used")
    with pytest.raises(StorageError, match=r"mine\.txt cannot be written: it is a file"):
        exported(model, tokenizer, tmp_path / "used/mine.txt")
    with pytest.raises(StorageError, match=r"cannot be written: (File exists|Not a directory)"):
        exported(model, tokenizer, tmp_path / "used/mine.txt/model")
    with pytest.raises(StorageError, match="it is a URL"):
        export("s3://bucket/model", Bundle(model, tokenizer, settings_of(model, InputConfig(), QueryTypesConfig(), [])))
    exported(model, tokenizer, tmp_path / "empty")

    assert [file.name for file in (tmp_path / "used").iterdir()] == ["mine.txt"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["empty", "used"]


def test_a_folder_that_is_no_export_is_refused(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is no exported model: it has no rayrank\.json"):
        load(str(tmp_path))
    exported(tiny(tokenizer, PLAIN), tokenizer, tmp_path / "model")
    (tmp_path / "model/rayrank.json").write_text('{"format": 1}')
    with pytest.raises(ConfigError, match=r"cannot be opened: .* export the model again"):
        load(str(tmp_path / "model"))


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("config.json", b"{", "cannot be opened: "),
        ("config.json", b'{"hidden_size": "many"}', "cannot be opened: "),
        ("config.json", b'{"num_hidden_layers": 3}', "cannot be opened: model.safetensors has other weights than "),
        ("model.safetensors", save({"other": torch.zeros(2)}), "cannot be opened: model.safetensors has other weights"),
        ("model.safetensors", b"damaged", "cannot be opened: "),
        ("tokenizer.json", b"{", "cannot be loaded: "),
        ("tokenizer_config.json", b"[]", "cannot be loaded: "),
        ("rayrank.json", b'{"base": "none", "strm": {}, "input": {}}', "cannot be opened: "),
    ],
)
@pytest.mark.parametrize("strm", [PLAIN, StrmConfig()], ids=["portable", "strm"])
def test_a_damaged_file_of_a_folder_is_one_sentence_with_the_folder(
    tokenizer: PreTrainedTokenizerFast, strm: StrmConfig, file: str, content: bytes, reason: str, tmp_path: Path
) -> None:
    exported(tiny(tokenizer, strm), tokenizer, tmp_path / "model")
    (tmp_path / "model" / file).write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        load(str(tmp_path / "model"))
    assert f"{tmp_path}/model {reason}" in str(caught.value)


def test_a_folder_without_a_format_number_opens_and_a_newer_one_says_what_to_do(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    written = exported(tiny(tokenizer, PLAIN), tokenizer, tmp_path / "model").settings
    file = tmp_path / "model/rayrank.json"
    content = json.loads(file.read_text())
    assert content.pop("format") == FORMAT

    file.write_text(json.dumps(content))
    assert load(str(tmp_path / "model")).settings == written
    # A newer format may have settings that this version does not know.
    file.write_text(json.dumps({**content, "format": FORMAT + 1, "unheard_of": 1}))
    with pytest.raises(ConfigError, match=rf"has format {FORMAT + 1}, and this version .* install a newer"):
        load(str(tmp_path / "model"))


def test_types_are_required_if_the_model_was_trained_with_them_and_refused_otherwise(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    with_types = exported(tiny(tokenizer, PLAIN), tokenizer, tmp_path / "with")
    without = exported(tiny(tokenizer, PLAIN), tokenizer, tmp_path / "without", types=False)

    with pytest.raises(ConfigError, match=r"input\.query_type=True asks for one type per query"):
        score(with_types, QUERIES, PASSAGES)
    with pytest.raises(ConfigError, match=r"input\.query_type=False asks for no types"):
        score(without, QUERIES, PASSAGES, TYPES)


def test_settings_survive_json() -> None:
    settings = Settings(base="bert", strm=StrmConfig(form="bias", last_layer=3), input=InputConfig(), types=("a", "b"))

    assert Settings.model_validate_json(settings.model_dump_json()) == settings


def golden_of(of: Bundle) -> tuple[GoldenPair, ...]:
    rows = zip(QUERIES, TYPES, PASSAGES, scores(of).tolist(), strict=True)
    return tuple(
        GoldenPair(query=query, query_type=kind, passage=text, score=value) for query, kind, text, value in rows
    )


def test_calibration_and_golden_pairs_are_loaded_and_golden_scores_are_reproduced(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    model = tiny(tokenizer, StrmConfig())
    before = exported(model, tokenizer, tmp_path / "without")
    curve = fit([-1, 0, 1, 2], [0, 1, 0, 1], [1, 1, 2, 2])
    export(str(tmp_path / "with"), replace(before, calibration=curve, golden=golden_of(before)))

    after, without = load(str(tmp_path / "with")), load(str(tmp_path / "without"))

    assert after.calibration == curve
    assert after.golden == golden_of(before)
    found = check_golden(after)
    assert (found.max_difference, found.tau, found.num_pairs) == (0, 1, len(QUERIES))
    assert (without.calibration, without.golden) == (None, ())
    with pytest.raises(ConfigError, match=r"has no golden\.json: export it again"):
        check_golden(without)


def test_golden_pairs_detect_other_weights_and_other_input_lengths(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    strm = exported(tiny(tokenizer, StrmConfig()), tokenizer, tmp_path / "model")
    plain = exported(tiny(tokenizer, PLAIN), tokenizer, tmp_path / "plain")
    short = replace(strm, settings=strm.settings.model_copy(update={"input": InputConfig(length=20, query_length=4)}))

    for changed in (plain, short):
        found = check_golden(replace(changed, golden=golden_of(strm)))
        assert found.max_difference > 0.01
        assert "is allowed" in found.objection(exact=True)


def test_a_damaged_calibration_is_refused(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    exported(tiny(tokenizer, PLAIN), tokenizer, tmp_path / "model")
    (tmp_path / "model/calibration.json").write_text('{"kind": "platt"}')

    with pytest.raises(ConfigError, match=r"cannot be opened: .* export the model again"):
        load(str(tmp_path / "model"))
