"""A served model gives the scores of its exported folder, in shared batches, with deadlines and a full queue."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel, BertTokenizer

from rayrank.bundle.export import Bundle, export, load, settings_of
from rayrank.bundle.text_scorer import score
from rayrank.core.config import InputConfig, QueryTypesConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.models.encoder import Encoder
from rayrank.models.inference.onnx_graph import int8, onnx_graph
from rayrank.models.inference.scorer import Scorer
from rayrank.models.reranker import Reranker
from rayrank.scores.calibration import fit
from rayrank.scores.precision import Level, PrecisionTable
from rayrank.serve import model as served_model
from rayrank.serve.batching import Batcher
from rayrank.serve.config import read
from rayrank.serve.model import EXPLANATIONS_S, MAX_EXPLANATIONS, ServedModel
from rayrank.serve.order import ranked
from rayrank.serve.piece_cache import ENTRY_OVERHEAD, PieceCache
from rayrank.serve.records import Answer, Ask, Overloaded
from rayrank.serve.relevance import UNCALIBRATED
from rayrank.text.pieces import PieceEncoder, load_tokenizer
from rayrank.text.words import word_table

pytestmark = pytest.mark.timed

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] what is a bog ##ue fish of number ##s location description where".split()
SIZES = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}
WEIGHT = 0.7
THRESHOLD = 2.2
TABLE = PrecisionTable(num_queries=9, levels=(Level(wanted=0.8, logit=THRESHOLD), Level(wanted=0.9)))
PASSAGES = ["a bogue is a fish", "fish", "numbers of bogues " * 30, "what", "a number", "", "bogue bogue"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model with query types, an int8 graph and a calibration, and one without."""
    place = tmp_path_factory.mktemp("models")
    BertTokenizer(vocab={piece: row for row, piece in enumerate(VOCABULARY)}).save_pretrained(str(place / "words"))
    tokenizer = load_tokenizer(str(place / "words"))
    torch.manual_seed(0)
    model = Reranker(Encoder(BertModel(BertConfig(**SIZES)), word_table(tokenizer), StrmConfig()), 1).eval()
    nn.init.normal_(model.head.bias)
    curve = fit(np.arange(40) / 10 - 2, np.arange(40) % 3 > 0, np.arange(40) % 4, "platt")
    for name, types in (("types", True), ("plain", False)):
        inputs = InputConfig(length=48, query_length=16, query_type=types)
        settings = settings_of(model, inputs, QueryTypesConfig(), ["description", "location"] if types else [], WEIGHT)
        graph, calibration, table = (int8(onnx_graph(model)), curve, TABLE) if types else (None, None, None)
        export(str(place / name), Bundle(model, tokenizer, settings, "", graph, calibration, table))
    return place


@pytest.fixture(scope="module")
def types(folders: Path) -> Path:
    return folders / "types"


@pytest.fixture(scope="module")
def shared(types: Path) -> Iterator[ServedModel]:
    model = opened(types)
    yield model
    asyncio.run(model.close())


def opened(folder: Path, **settings: Any) -> ServedModel:
    return ServedModel(read({"model": str(folder), **settings}))


def asked(model: ServedModel, *asks: Ask) -> list[Answer]:
    async def ask_all() -> list[Answer]:
        return list(await asyncio.gather(*map(model.rerank, asks)))

    return asyncio.run(ask_all())


def test_requests_that_share_batches_get_the_scores_of_the_exported_model(shared: ServedModel, types: Path) -> None:
    queries = ["what is a bogue", "where is a fish", "number " * 30]
    answers = asked(shared, *(Ask(query, PASSAGES[row:], "location") for row, query in enumerate(queries)))

    exported = load(str(types))
    for row, (query, answer) in enumerate(zip(queries, answers, strict=True)):
        passages = PASSAGES[row:]
        wanted = score(exported, [query] * len(passages), passages, ["location"] * len(passages))
        assert np.allclose(answer.logits, wanted, atol=1e-5)
        assert list(answer.order) == np.argsort(-wanted, kind="stable").tolist()
        assert not answer.partial


def test_onnx_int8_gives_the_scores_of_the_exported_graph(types: Path) -> None:
    model = opened(types, backend="onnx-int8")
    (answer,) = asked(model, Ask("what is a bogue", PASSAGES, "location"))
    asyncio.run(model.close())

    count = len(PASSAGES)
    wanted = score(load(str(types), "onnx-int8"), ["what is a bogue"] * count, PASSAGES, ["location"] * count)
    assert np.allclose(answer.logits, wanted, atol=1e-5)


def test_a_missing_query_type_is_predicted_if_the_model_uses_types(shared: ServedModel, folders: Path) -> None:
    said, predicted = asked(shared, Ask("where is a bogue", PASSAGES, "location"), Ask("where is a bogue", PASSAGES))
    assert predicted.query_type == "location"
    assert predicted.logits == said.logits

    plain = opened(folders / "plain")
    with_type, without = asked(plain, Ask("where", PASSAGES, "location"), Ask("where", PASSAGES))
    asyncio.run(plain.close())
    assert with_type.query_type is None
    assert with_type.logits == without.logits


def test_a_query_type_of_any_length_is_truncated_as_by_the_bundle(shared: ServedModel, types: Path) -> None:
    query, kind, count = "what is a bogue " * 10, "number " * 500, len(PASSAGES)
    (answer,) = asked(shared, Ask(query, PASSAGES, kind))

    wanted = score(load(str(types)), [query] * count, PASSAGES, [kind] * count)
    assert np.allclose(answer.logits, wanted, atol=1e-5)
    # Query and type leave room for four pieces of a passage.
    assert list(answer.cut) == [0, 2]


def test_a_passage_that_is_too_long_is_truncated_and_reported(shared: ServedModel) -> None:
    # [CLS] location [SEP] what [SEP] ... [SEP]: 42 of 48 positions are left for the passage.
    fits, too_long = "fish " * 42, "fish " * 43
    # The last one is so long that the tokeniser only reads its start.
    (answer,) = asked(shared, Ask("what", ["fish", too_long, fits, too_long * 9, too_long * 999], "location"))

    assert list(answer.cut) == [1, 3, 4]
    # Equal inputs in different rows of a batch may differ by rounding.
    assert np.allclose(answer.logits[1:], answer.logits[1], atol=1e-6)
    assert not np.isclose(answer.logits[0], answer.logits[1], atol=1e-3)
    assert answer.num_tokens == 7 + 48 * 4


def test_a_query_that_is_too_long_is_reported(shared: ServedModel) -> None:
    fits, too_long = asked(shared, Ask("what " * 16, ["fish"], "location"), Ask("what " * 17, ["fish"], "location"))

    assert (fits.query_cut, too_long.query_cut) == (False, True)
    assert too_long.logits == pytest.approx(fits.logits, abs=1e-6)


def test_a_query_type_that_the_model_does_not_know_is_reported_with_the_known_ones(shared: ServedModel) -> None:
    # The tokenizer ignores case, so the model reads the same pieces.
    kinds = ("location", "Location", None, "fish")
    known, same, missing, unknown = asked(shared, *(Ask("what", ["fish"], kind) for kind in kinds))

    assert [known.warnings, same.warnings, missing.warnings] == [[], [], []]
    (warning,) = unknown.warnings
    assert "was not trained with 'fish'" in warning
    assert "send description, location, or leave it out." in warning


def test_probabilities_are_calibrated_logits_or_their_sigmoid(shared: ServedModel, folders: Path) -> None:
    (answer,) = asked(shared, Ask("what", PASSAGES, "location"))
    curve = load(str(folders / "types")).calibration
    assert curve is not None
    assert np.allclose(answer.probabilities, curve.apply(answer.logits))
    assert asyncio.run(shared.info()).calibration == curve.figures()

    plain = opened(folders / "plain")
    (answer,) = asked(plain, Ask("what", PASSAGES))
    asyncio.run(plain.close())
    assert np.allclose(answer.probabilities, 1 / (1 + np.exp(-np.array(answer.logits))))


def test_passages_below_the_wanted_relevance_are_left_out(folders: Path) -> None:
    model = opened(folders / "plain")
    (whole,) = asked(model, Ask("what", PASSAGES))
    best = [whole.probabilities[place] for place in whole.order]
    bars = ((best[1] + best[2]) / 2, 1.0)

    likely, none = asked(model, *(Ask("what", PASSAGES, min_relevance=bar) for bar in bars))

    asyncio.run(model.close())
    assert (likely.order, none.order) == (whole.order[:2], [])
    assert likely.warnings == [UNCALIBRATED]
    assert none.warnings[1].startswith("No result: no passage reaches min_relevance=1;")


def test_passages_below_the_threshold_of_the_wanted_precision_are_left_out(shared: ServedModel) -> None:
    whole, sure = asked(shared, *(Ask("what", PASSAGES, "location", min_precision=wanted) for wanted in (None, 0.8)))

    assert 0 < len(sure.order) < len(PASSAGES), whole.logits
    assert sure.order == [place for place in whole.order if whole.logits[place] >= THRESHOLD]
    assert sure.warnings == []
    with pytest.raises(ConfigError, match=r"min_precision=0\.9 cannot be given"):
        asked(shared, Ask("what", PASSAGES, "location", min_precision=0.9))
    assert asyncio.run(shared.info()).precision == TABLE.model_dump()


def test_an_explanation_has_the_score_that_is_served(shared: ServedModel) -> None:
    (answer,) = asked(shared, Ask("where is a bogue", ["a bogue is a fish"]))

    explained = asyncio.run(shared.explain("where is a bogue", "a bogue is a fish", None))

    assert explained["query_type"] == answer.query_type
    assert explained["score"] == pytest.approx(answer.logits[0], abs=1e-5)


def test_with_a_deadline_the_best_passages_of_the_first_stage_are_scored_first(types: Path) -> None:
    model = opened(types, **{"batching.tokens": "48"})
    passages, first = ["fish " * 42] * 4000, np.arange(4000) % 1999
    (answer,) = asked(model, Ask("what", passages, "location", first.tolist(), deadline_ms=800))
    asyncio.run(model.close())

    assert answer.partial
    scored = [place for place, logit in enumerate(answer.logits) if logit is not None]
    assert 0 < len(scored) < 4000
    best = np.argsort(-first, kind="stable")[: len(scored)]
    assert sorted(scored) == sorted(best.tolist())
    assert sorted(answer.order) == scored
    assert [place for place, chance in enumerate(answer.probabilities) if chance is not None] == scored


def test_a_deadline_includes_tokenising(shared: ServedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = shared.reader._inputs
    monkeypatch.setattr(shared.reader, "_inputs", lambda *given: (time.sleep(1.0), slow(*given))[1])
    began = time.monotonic()

    (answer,) = asked(shared, Ask("what is a bogue", PASSAGES, deadline_ms=50))

    assert time.monotonic() - began < 0.8
    assert answer.partial
    assert answer.logits == [None] * len(PASSAGES)
    assert not answer.order


def test_a_deadline_includes_the_time_before_a_request_reached_the_replica(shared: ServedModel) -> None:
    late, in_time = asked(
        shared,
        Ask("what is a bogue", PASSAGES, deadline_ms=30_000, received_at=time.time() - 60),
        Ask("what is a bogue", PASSAGES, deadline_ms=30_000),
    )

    assert late.partial
    assert late.logits == [None] * len(PASSAGES)
    assert not in_time.partial


def test_the_wait_for_a_replica_to_start_is_no_wait_in_its_queue(
    shared: ServedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(Batcher, "_check_wait", lambda batcher, request, waited: waits.append(waited))
    began = time.time()

    asked(shared, Ask("what is a bogue", PASSAGES, received_at=began - 86_400))

    assert len(waits) == 1
    assert 0 < waits[0] < 3_600


def test_too_many_concurrent_explanations_are_refused(shared: ServedModel) -> None:
    async def explain_all() -> list[object]:
        wanted = (shared.explain("what is a bogue", "a bogue is a fish", None) for _ in range(MAX_EXPLANATIONS + 2))
        return list(await asyncio.gather(*wanted, return_exceptions=True))

    found = asyncio.run(explain_all())
    assert [isinstance(each, Overloaded) for each in found] == [False] * MAX_EXPLANATIONS + [True] * 2
    assert isinstance(refused := found[-1], Overloaded)
    assert refused.retry_after == EXPLANATIONS_S


def test_the_order_interpolates_logits_and_first_stage_scores() -> None:
    logits, first = [-5.0, 0.0, 5.0, None], [30.0, 20.0, 10.0, 99.0]

    assert ranked(logits, first, 0.0) == [2, 1, 0]
    assert ranked(logits, first, 1.0) == [0, 1, 2]
    assert ranked(logits, first, 0.4) == [2, 1, 0]
    assert ranked(logits, first, 0.6) == [0, 1, 2]
    # Equal interpolated scores: the order of the request.
    assert ranked(logits, first, 0.5) == [0, 1, 2]
    assert ranked([1.0, 2.0], [1e308, -1e308], 0.9) == [0, 1]
    assert ranked([1.0, 2.0], [3.0, 3.0], 0.9) == [1, 0]
    assert ranked([None], [1.0], 0.5) == []


def test_the_exported_first_stage_weight_is_the_default(shared: ServedModel) -> None:
    first = list(np.random.default_rng(0).permutation(len(PASSAGES)).astype(float))
    weights = (None, WEIGHT, 0.0, 1.0)

    default, same, model_only, first_stage_only = asked(
        shared, *(Ask("what is a bogue", PASSAGES, None, first, weight) for weight in weights)
    )

    assert default.order == same.order == ranked(default.logits, first, WEIGHT)
    assert model_only.order == ranked(model_only.logits, None, 0.0) != default.order
    assert first_stage_only.order == np.argsort(-np.array(first)).tolist()
    assert asyncio.run(shared.info()).first_stage_weight == WEIGHT


def test_a_model_with_damaged_weights_is_not_served(folders: Path, tmp_path: Path) -> None:
    damaged = load(str(folders / "plain"))
    nn.init.constant_(damaged.model.head.bias, torch.nan)
    export(str(tmp_path / "damaged"), damaged)
    with pytest.raises(ConfigError, match=r"damaged cannot be served: its scores with backend=torch are not finite;"):
        opened(tmp_path / "damaged")


def test_a_full_queue_refuses_requests(types: Path) -> None:
    model = opened(types, **{"batching.tokens": "48", "batching.queued_pairs": "50"})
    many = Ask("what", ["fish " * 42] * 400, "location")

    async def work() -> None:
        long = asyncio.create_task(model.rerank(many))
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded):
            await model.rerank(many)
        assert len((await long).order) == 400

    asyncio.run(work())
    asyncio.run(model.close())


def test_requests_that_wait_to_be_tokenised_fill_the_queue(types: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = opened(types, **{"batching.queued_pairs": "50"})
    may_go, inputs = threading.Event(), model.reader._inputs
    monkeypatch.setattr(model.reader, "_inputs", lambda *given: (may_go.wait(), inputs(*given))[1])
    many = Ask("what", ["fish"] * 60, "location")

    async def work() -> None:
        first = asyncio.create_task(model.rerank(many))
        await asyncio.sleep(0.01)
        try:
            async with asyncio.timeout(5):
                with pytest.raises(Overloaded):
                    await model.rerank(Ask("what", ["fish"], "location"))
        finally:
            may_go.set()
        assert len((await first).order) == 60
        assert len((await model.rerank(many)).order) == 60

    asyncio.run(work())
    asyncio.run(model.close())


def test_a_short_request_is_tokenised_between_the_slices_of_a_long_one(
    types: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = opened(types, **{"batching.tokenisers": "1"})
    tokenised, look_up = [], model.reader._pieces.look_up
    monkeypatch.setattr(model.reader._pieces, "look_up", lambda texts: (tokenised.append(texts[0]), look_up(texts))[1])
    long, short = ["fish " * 2000] * 50, ["bogue"]

    answers = asked(model, Ask("what", long, "location"), Ask("what", short, "location"))
    asyncio.run(model.close())

    assert [len(answer.order) for answer in answers] == [50, 1]
    assert tokenised.count(long[0]) == 10
    assert tokenised.index("bogue") < 2


def test_a_model_whose_scorer_is_stuck_is_not_ready_and_fails_its_check(
    types: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_model, "PROBE_S", 0.1)
    model = opened(types, **{"batching.stuck_s": "0.1", "batching.queued_pairs": "1"})
    may_go, start = threading.Event(), model._batcher._start_batch
    monkeypatch.setattr(model._batcher, "_start_batch", lambda pairs: (may_go.wait(), start(pairs))[1])

    async def work() -> None:
        may_go.set()
        assert await model.ready()
        assert model.load().is_ready
        model.check()
        may_go.clear()
        waiting = asyncio.create_task(model.rerank(Ask("what", ["fish"], "location")))
        await asyncio.sleep(1.0)
        assert not await model.ready()
        assert not model.load().is_ready
        # The probe finds no room in a full queue.
        queued = asyncio.create_task(model.rerank(Ask("what", ["fish"], "location")))
        await asyncio.sleep(0.2)
        with pytest.raises(Overloaded):
            await model.rerank(Ask("what", ["fish"], "location"))
        assert not await model.ready()
        with pytest.raises(RuntimeError, match="its scorer is stuck in a batch"):
            model.check()
        may_go.set()
        assert len((await waiting).order) == len((await queued).order) == 1
        assert await model.ready()
        model.check()
        assert model.load().is_ready
        monkeypatch.setattr(model._batcher, "_start_batch", lambda pairs: 1 / 0)
        assert not await model.ready()
        assert not model.load().is_ready

    asyncio.run(work())
    asyncio.run(model.close())


def test_a_batch_is_answered_before_the_next_one_is_scored(types: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = opened(types, **{"batching.tokens": "48"})
    slow = Scorer.begin
    monkeypatch.setattr(Scorer, "begin", lambda *given: (time.sleep(1.0), slow(*given))[1])
    # Each request fills a batch; the tokeniser threads decide which one is first.
    answers = asked(model, *(Ask("what", ["fish " * 42] * 2, "location") for _ in range(2)))
    first, second = sorted(answers, key=lambda answer: answer.timing.queue)
    asyncio.run(model.close())

    assert (first.timing.queue, first.timing.score) == pytest.approx((0.0, 1.0), abs=0.45)
    assert (second.timing.queue, second.timing.score) == pytest.approx((1.0, 1.0), abs=0.45)


def test_closing_a_model_waits_for_its_requests(types: Path) -> None:
    model = opened(types, **{"batching.tokens": "48"})

    async def work() -> Answer:
        long = asyncio.create_task(model.rerank(Ask("what", ["fish"] * 300, "location")))
        await asyncio.sleep(0)
        await model.close()
        assert long.done()
        return await long

    assert len(asyncio.run(work()).order) == 300


def test_a_model_is_unhealthy_after_three_failed_batches(types: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = opened(types)
    model.check()

    def broken(*_: object) -> None:
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(model, "_scorer", SimpleNamespace(with_texts=broken))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="the device is lost"):
            asked(model, Ask("what", PASSAGES, "location"))
    with pytest.raises(RuntimeError, match="3 batches in a row failed"):
        model.check()
    asyncio.run(model.close())


def test_the_cache_returns_the_same_ids_and_stays_within_its_size(types: Path) -> None:
    tokenizer = (types / "tokenizer.json").read_text()
    encode = PieceEncoder(tokenizer, 48)
    calls: list[int] = []

    def counted(texts: list[str]) -> Any:
        calls.append(len(texts))
        return encode(texts)

    room = 3 * (ENTRY_OVERHEAD + 1)
    cache = PieceCache(counted, room)  # type: ignore[arg-type]
    fish, what = cache(["fish", "what"])
    assert [fish.tolist(), what.tolist()] == [encode([text]).values.to_pylist() for text in ("fish", "what")]
    cache(["fish", "fish", "what"])
    assert calls == [2]

    # Two entries too many: the texts used last are kept.
    cache(["fish"])
    cache(["number", "bog", "fish"])
    cache(["fish", "number"])
    assert calls == [2, 2]
    cache(["what"])
    assert calls == [2, 2, 1]
    assert [len(ids) for ids in cache(["fish " * 100, ""])] == [48, 0]
