"""Rounds of the listwise phase: the model of a round scores the candidates that the next round learns from."""

import time
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import ListwiseConfig, TrainingConfig
from rayrank.core.errors import ConfigError
from rayrank.core.nodes import stage_of
from rayrank.core.overrides import apply, as_file, build
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.jobs.run_pipeline import whole
from rayrank.models.saved import save
from rayrank.text.pieces import load_tokenizer
from rayrank.training.data import Inputs
from rayrank.training.noise import training_candidates
from rayrank.training.phases.listwise import Listwise, _first_model
from tests.unit.training.conftest import inputs as inputs, tiny_model

ROUNDS = ["listwise.rounds=3", "listwise.negative_ranks=[2, 3]"]


def test_the_first_round_is_the_model_that_exists_without_rounds_and_later_ones_are_shared() -> None:
    one, two, three = (build("demo", assignments=[f"listwise.rounds={number}"]) for number in (1, 2, 3))
    first, second = flow.key("listwise", one), flow.key("listwise", two)
    assert flow.key("listwise@round1", two) == flow.key("listwise@round1", three) == first
    assert flow.key("listwise@round2", three) == second
    assert len({first, second, flow.key("listwise", three)}) == 3
    assert flow.describe("listwise@round1", three).folder == "listwise"
    assert flow.key("pointwise", three) == flow.key("pointwise", one)


def test_each_round_reads_the_scores_of_the_round_before() -> None:
    config = build("demo", assignments=ROUNDS)
    plan = flow.plan("listwise", config)
    expected = [
        "run:pointwise@train", "listwise@round1", "run:round1@train", "listwise@round2", "run:round2@train", "listwise",
    ]  # fmt: skip
    assert [node for node in plan if node in expected] == expected
    # What a round reads is the same whether it is seen from the last round or is the last round itself.
    for number in (1, 2):
        _, own = stage_of(f"listwise@round{number}", config)
        assert flow.key("listwise", own) == flow.key(f"listwise@round{number}", config)
        assert flow.inputs("listwise", own) == flow.inputs(f"listwise@round{number}", config)
    assert "run:pointwise@train" not in flow.inputs("listwise", config)


def test_a_pipeline_measures_every_round_and_reports_the_noise_that_each_one_leaves_out() -> None:
    config = build("demo", assignments=ROUNDS)
    nodes = [node for node, _ in whole(config)]
    assert [node for node in nodes if node.startswith("noise_report")] == [
        "noise_report@round1", "noise_report@round2", "noise_report",
    ]  # fmt: skip
    evaluated = [each.evaluate.run for node, each in whole(config) if node == "evaluate"]
    assert evaluated == ["bm25", "pointwise", "round1", "round2", "drbert", "fused"]
    keys = {flow.key(node, config) for node in nodes if node.startswith("noise_report")}
    assert len(keys) == 3
    assert flow.title("round2", config) == "round 2"
    # The model that ablations and exports take for the full one is that of the last round.
    assert flow.pair_rankers(config)[-1] == "drbert"


def test_without_a_filter_rounds_have_no_report_on_noise() -> None:
    config = build("demo", assignments=[*ROUNDS, "noise.threshold=1"])
    assert not [node for node, _ in whole(config) if node.startswith("noise_report")]


def test_twenty_rounds_are_planned_at_once_and_more_are_refused() -> None:
    config = build("demo", assignments=[*ROUNDS, "listwise.rounds=20", "listwise.continued=true"])
    plan = flow.plan("listwise", config)
    assert len(set(plan)) == len(plan)
    assert plan.index("listwise@round18") < plan.index("listwise@round19") < plan.index("listwise")
    with pytest.raises(ConfigError, match=r"listwise\.rounds"):
        build("demo", assignments=["listwise.rounds=21"])


def test_the_runs_of_rounds_come_and_go_with_their_number() -> None:
    config = build("demo", assignments=ROUNDS)
    fewer = apply(config.model_dump(), {"listwise.rounds": 2})
    assert [name for name in fewer.runs if name.startswith("round")] == ["round1"]
    assert apply(config.model_dump(), {"listwise.rounds": 1}).runs == build("demo").runs
    assert apply(build("demo").model_dump(), {}) == build("demo")
    assert as_file(config)["runs"]["round2"]["model"] == "listwise@round2"


def test_a_round_that_continues_starts_from_the_model_before_it(tmp_path: Path) -> None:
    config = build("demo", assignments=[*ROUNDS, "listwise.continued=true", "strm.form=off"])
    assert "listwise@round2" in flow.inputs("listwise", config)
    assert "pointwise" not in flow.inputs("listwise", config)
    assert "pointwise" in flow.inputs("listwise@round1", config)
    store = Store(str(tmp_path))
    stage, own = stage_of("listwise@round2", config)
    model, artifact, corpus = tiny_model(1, 0.0), store.artifact(stage, own), store.artifact("corpus", config)
    save(artifact, model.encoder.base.config, model.state_dict(), model.description())
    store.finish(artifact, own, time.monotonic(), {})
    load_tokenizer(config.text.tokenizer).save_pretrained(corpus.local("tokenizer"))
    store.finish(corpus, config, time.monotonic(), {})

    found = _first_model(config, store)

    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], tensor)
    assert found.training


def test_a_round_draws_its_negatives_from_the_ranking_of_the_model_before_it(tmp_path: Path) -> None:
    config, store = build("demo", assignments=[*ROUNDS, "noise.threshold=0.9"]), Store(str(tmp_path))
    scored = pa.table([["q"] * 4, ["a", "b", "c", "d"], [1, 2, 3, 4], [-1.0, 1.5, 9.0, 2.0]], schema=CANDIDATES)
    judged = pa.table([["q"], ["away"], [1], ["train"]], schema=JUDGMENTS)
    for node, name, table in (("corpus", "judgments", judged), ("run:round2@train", "train/part-00000", scored)):
        artifact = store.artifact(node, config)
        artifact.write_table(f"{name}.parquet", table)
        store.finish(artifact, config, time.monotonic(), {}, node)

    (found,) = training_candidates(config, store)

    # Ranks 2 and 3 are d and b; the noise filter would leave out c, and d's probability is 0.88.
    assert found["passage_id"].to_pylist() == ["d", "b"]


def test_rounds_draw_other_lists_and_a_repeated_round_the_same_ones(inputs: Inputs) -> None:
    def lists(rounds: int) -> list[list[int]]:
        phase = Listwise(inputs, ListwiseConfig(rounds=rounds, negatives=3), TrainingConfig())
        return [[query, *passages.tolist()] for query, passages, _ in phase.examples(0)]

    assert lists(2) == lists(2)
    assert lists(1) != lists(2) != lists(3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["noise.threshold=1"], "listwise.rounds=2 cannot be used: nothing reads the scores of a round; set noise.thr"),
        (["listwise.negatives_from=pointwise"], "cannot be used with listwise.negatives_from: set listwise.rounds=1"),
        (["listwise.soup=[13, 14]"], "cannot be used with listwise.soup: set listwise.rounds=1"),
        (["runs.round1={kind: search}"], "runs.round1 exists already, but listwise.rounds adds a run of this name"),
    ],
)
def test_settings_that_make_no_second_round_are_one_sentence(settings: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build("demo", assignments=["listwise.rounds=2", *settings])
