"""Which run dev chooses, and which model is exported, on a storage whose runs are written by hand."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import build
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.jobs.export import chosen_model
from rayrank.stages.choice import choose

CONFIG = build("demo", assignments=["evaluate.resamples=200"])
QUERIES = 30


def storage(
    root: Path, runs: dict[str, float], split: str = "dev", queries: int = QUERIES, config: PipelineConfig = CONFIG
) -> Store:
    """Return a storage with runs that have the relevant passage first for a share of the queries, else second."""
    store = Store(str(root))
    rows = [(f"q{query:02d}", "a", 1, split) for query in range(queries)]
    table = pa.table([list(column) for column in zip(*rows, strict=True)], schema=JUDGMENTS)
    _finish(store, config, "corpus", "judgments.parquet", table)
    for name, share in runs.items():
        found = [(query, ["a", "b"] if row < share * queries else ["b", "a"]) for row, (query, *_) in enumerate(rows)]
        ranked = [(query, p, rank, -float(rank)) for query, passages in found for rank, p in enumerate(passages, 1)]
        table = pa.table([list(column) for column in zip(*ranked, strict=True)], schema=CANDIDATES)
        _finish(store, config, flow.run_node(name, config), f"{split}/part-0.parquet", table)
    return store


def _finish(store: Store, config: PipelineConfig, node: str, file: str, table: pa.Table) -> None:
    store.artifact(node, config).write_table(file, table)
    store.finish(store.artifact(node, config), config, time.monotonic(), {}, node)


def test_the_best_run_is_chosen_with_its_margin(tmp_path: Path) -> None:
    choice = choose(CONFIG, storage(tmp_path, {"bm25": 0.2, "pointwise": 0.6, "drbert": 0.8, "fused": 1.0}))
    assert choice
    assert (choice.name, choice.first_stage, choice.num_queries) == ("fused", "bm25", QUERIES)
    assert choice.means == pytest.approx({"bm25": 0.6, "pointwise": 0.8, "drbert": 0.9, "fused": 1.0})
    assert choice.finding() == (
        f"chosen on dev ({QUERIES} queries): fused with MRR@10 1.0000 (+0.4000 over bm25, "
        f"p = {choice.comparisons['fused'].p_value:.3f})"
    )


@pytest.mark.parametrize("drbert", [0.1, 0.2, 0.23])
def test_a_run_that_is_not_surely_better_leaves_the_first_stage_chosen(tmp_path: Path, drbert: float) -> None:
    choice = choose(CONFIG, storage(tmp_path, {"bm25": 0.2, "drbert": drbert}))
    assert choice
    assert choice.name == "bm25"
    assert "; no other run is significantly better: drbert has 0." in choice.finding()


def test_without_dev_judgments_nothing_is_chosen(tmp_path: Path) -> None:
    assert choose(CONFIG, storage(tmp_path, {"bm25": 0.2, "drbert": 1.0}, split="test")) is None


@pytest.mark.parametrize(
    ("runs", "model"),
    [
        ({"bm25": 0.2, "pointwise": 0.9, "drbert": 0.6, "fused": 0.7}, "pointwise"),
        ({"bm25": 0.2, "pointwise": 0.6, "drbert": 0.6, "fused": 0.9}, "drbert"),
    ],
)
def test_the_model_of_the_chosen_run_is_exported(tmp_path: Path, runs: dict[str, float], model: str) -> None:
    assert chosen_model(None, False, CONFIG, storage(tmp_path, runs))[0] == model


def test_a_model_no_better_than_its_first_stage_is_exported_only_by_force(tmp_path: Path) -> None:
    store = storage(tmp_path, {"bm25": 0.5, "pointwise": 0.9, "drbert": 0.3, "fused": 0.5})
    with pytest.raises(ConfigError, match=r"drbert is not exported: chosen on dev .*pointwise.* with --force"):
        chosen_model("drbert", False, CONFIG, store)
    assert chosen_model("drbert", True, CONFIG, store)[0] == "drbert"
    assert chosen_model(None, False, CONFIG, store)[0] == "pointwise"


def test_a_model_whose_interpolation_is_better_than_the_first_stage_is_exported(tmp_path: Path) -> None:
    store = storage(tmp_path, {"bm25": 0.5, "drbert": 0.5, "fused": 0.9})
    assert chosen_model("drbert", False, CONFIG, store)[0] == "drbert"


SDNET = build(
    "demo",
    assignments=[
        "evaluate.resamples=200",
        "runs.sdnet={kind: rerank, model: sdnet}",
        "runs.sdnet_fused={kind: interpolate, of: [sdnet, candidates]}",
    ],
)


def test_sdnet_is_refused_with_a_sentence_when_it_is_named_and_when_dev_chose_it(tmp_path: Path) -> None:
    store = storage(tmp_path, {"bm25": 0.2, "drbert": 0.6, "sdnet": 0.3, "sdnet_fused": 0.9}, config=SDNET)
    reason = "the endpoint cannot serve SDNet, which encodes query and passage apart; choose a run of kind rerank with "
    with pytest.raises(ConfigError, match=f"--model sdnet cannot be exported: {reason}--model: pointwise, drbert"):
        chosen_model("sdnet", True, SDNET, store)
    with pytest.raises(ConfigError, match=f"sdnet_fused, which dev chose, cannot be exported: {reason}"):
        chosen_model(None, True, SDNET, store)
    assert chosen_model("drbert", False, SDNET, store)[0] == "drbert"


def test_without_another_ranker_than_sdnet_nothing_is_exported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No model can be exported: the configuration has no run of kind rerank with"):
        chosen_model(None, True, build("sdnet"), Store(str(tmp_path)))


def test_a_model_that_was_never_compared_is_exported(tmp_path: Path) -> None:
    assert chosen_model(None, False, CONFIG, storage(tmp_path, {}, split="dev")) == ("drbert", None)
    assert chosen_model("pointwise", False, CONFIG, storage(tmp_path, {"bm25": 0.5}))[0] == "pointwise"
