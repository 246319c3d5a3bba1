"""Combinations of first stages: a union of their candidates for every split, cut to a depth, a few files at a time."""

from pathlib import Path

import pyarrow as pa
import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.overrides import build
from rayrank.data.ids import Lookup
from rayrank.runs.blocks import read_together
from rayrank.stages.make import make
from tests.unit.runs.first_stages import finished, read, storage

SPLITS = {"train": ["t0", "t1"], "dev": ["d0", "d1", "d2"]}


def configured(run: str, *settings: str) -> PipelineConfig:
    return build("demo", assignments=[f"runs.both={run}", *settings])


def two_stages(root: Path, config: PipelineConfig) -> Store:
    """BM25's candidates in three files and dense ones in one, in another order of queries."""
    store = storage(root, config, SPLITS, t0="p1", d0="p1", d1="p1", d2="p1")
    finished(
        store,
        config,
        "run:bm25",
        {
            "train/part-00000": {"t0": {"p1": 9.0, "p2": 8.0, "p3": 7.0}},
            "dev/part-00000": {"d0": {"p1": 3.0, "p2": 2.0}, "d1": {"p2": 5.0, "p3": 1.0}},
            "dev/part-00001": {"d2": {"p9": 1.0, "p1": 0.9, "p8": 0.0}},
        },
    )
    dense = {"d2": {"p1": 0.9, "p9": 0.1}, "d0": {"p3": 0.7, "p1": 0.3}}
    finished(store, config, "run:dense", {"dev/part-00000": dense, "train/part-00000": {"t0": {"p4": 0.5, "p3": 0.4}}})
    return store


def test_reciprocal_ranks_of_a_hand_worked_case(tmp_path: Path) -> None:
    config = configured("{kind: rrf, of: [bm25, dense], k: 1}")

    made = make("both", config, two_stages(tmp_path, config))

    dev = read(made, "dev")
    # d0: p1 is 1st and 2nd, p3 only 1st of the dense ones, p2 only 2nd of BM25's.
    assert dev["d0"] == pytest.approx({"p1": 1 / 2 + 1 / 3, "p3": 1 / 2, "p2": 1 / 3})
    assert list(dev["d0"]) == ["p1", "p3", "p2"]
    assert dev["d1"] == pytest.approx({"p2": 1 / 2, "p3": 1 / 3})
    assert dev["d2"] == pytest.approx({"p9": 1 / 2 + 1 / 3, "p1": 1 / 2 + 1 / 3, "p8": 1 / 4})
    assert read(made, "train")["t0"] == pytest.approx({"p3": 1 / 4 + 1 / 3, "p1": 1 / 2, "p4": 1 / 2, "p2": 1 / 3})
    assert (made.manifest["num_queries"], made.manifest["num_candidates"]) == (4, 12)


def test_equal_reciprocal_ranks_are_ordered_by_the_first_runs_rank(tmp_path: Path) -> None:
    config = configured("{kind: rrf, of: [dense, bm25], k: 1}")

    made = make("both", config, two_stages(tmp_path, config))

    assert list(read(made, "train")["t0"]) == ["p3", "p4", "p1", "p2"]


@pytest.mark.parametrize("kind", ["rrf", "interpolate"])
@pytest.mark.parametrize(("settings", "depth"), [(["candidates.depth=2"], 2), (["runs.both.depth=1"], 1)])
def test_the_union_is_cut_to_the_depth(tmp_path: Path, kind: str, settings: list[str], depth: int) -> None:
    whole, config = (configured(f"{{kind: {kind}, of: [bm25, dense]}}", *more) for more in ([], settings))
    stores = [two_stages(tmp_path / name, each) for name, each in (("whole", whole), ("cut", config))]

    everything, cut = (read(make("both", *each), "dev") for each in zip((whole, config), stores, strict=True))

    assert {query: list(scores) for query, scores in cut.items()} == {
        query: list(scores)[:depth] for query, scores in everything.items()
    }


@pytest.mark.parametrize("kind", ["rrf", "interpolate"])
def test_training_queries_may_keep_fewer_passages(tmp_path: Path, kind: str) -> None:
    config = configured(f"{{kind: {kind}, of: [bm25, dense]}}", "candidates.train_depth=1")

    made = make("both", config, two_stages(tmp_path, config))

    assert {len(scores) for scores in read(made, "train").values()} == {1}
    assert max(len(scores) for scores in read(made, "dev").values()) == 3


@pytest.mark.parametrize("run", ["bm25", "dense", "both"])
def test_a_training_depth_is_in_the_key_only_if_it_is_lower_than_the_depth(run: str) -> None:
    keys = {
        value: flow.key(f"run:{run}", configured("{kind: rrf, of: [bm25, dense]}", f"candidates.train_depth={value}"))
        for value in ("null", "10", "4")
    }

    assert keys["null"] == keys["10"] != keys["4"]


@pytest.mark.parametrize("kind", ["rrf", "interpolate"])
def test_only_a_combination_of_first_stages_is_a_first_stage(kind: str) -> None:
    config = configured(f"{{kind: {kind}, of: [bm25, provided]}}")
    mixed = configured(f"{{kind: {kind}, of: [bm25, drbert]}}")

    assert flow.run_node("both", config, train=True) == "run:both"
    assert flow.run_node("both", mixed, train=True) == "run:both@train"
    assert flow.describe("both", config).settings["run"]["depth"] == config.candidates.depth  # type: ignore[index]
    assert flow.describe("both", mixed).settings["run"]["depth"] is None  # type: ignore[index]


def test_a_weight_found_on_dev_holds_for_train_too(tmp_path: Path) -> None:
    config = configured("{kind: interpolate, of: [bm25, dense]}")

    made = make("both", config, two_stages(tmp_path, config))

    # BM25 ranks the answer of d0 first, the dense run that of d2, and together they do both.
    weight = made.manifest["weight"]
    assert 0 < weight < 1
    assert made.manifest["MRR@10"][f"{weight:.2f}"] == max(made.manifest["MRR@10"].values())
    train = read(made, "train")["t0"]
    assert train == pytest.approx({"p1": 1 - weight, "p2": (1 - weight) / 2, "p3": 0.0, "p4": weight}, abs=1e-6)


def test_three_runs_have_a_list_of_weights(tmp_path: Path) -> None:
    config = configured("{kind: interpolate, of: [bm25, dense, provided], weight: [1, 0.5, 0.5]}")
    store = two_stages(tmp_path, config)
    finished(store, config, "run:provided", {"dev/part-00000": {"d1": {"p7": 4.0}}})

    made = make("both", config, store)

    assert made.manifest["weight"] == [0.5, 0.25, 0.25]
    assert read(made, "dev")["d1"] == pytest.approx({"p2": 0.5, "p7": 0.25, "p3": 0.0})
    assert made.manifest["findings"] == [
        "both: the weights are BM25 0.50, dense 0.25, provided 0.25, as runs.both.weight says",
        "both: provided has no rows in train; there only the other runs are combined",
    ]


def test_weights_of_three_runs_are_found_on_dev_and_the_finding_names_them(tmp_path: Path) -> None:
    config = configured("{kind: interpolate, of: [dense, bm25, rm3], normalize: rank}")
    store = two_stages(tmp_path, config)
    finished(store, config, "run:rm3", {"dev/part-00000": {"d1": {"p1": 4.0, "p2": 3.0}}})

    made = make("both", config, store)

    weights = made.manifest["weight"]
    assert sum(weights) == pytest.approx(1.0)
    assert min(weights) > 0
    assert made.manifest["findings"][0].startswith("both: the weights are dense 0.")
    assert ", the best on dev: MRR@10 1.0000; dense alone has 0.5556, BM25 alone" in made.manifest["findings"][0]


def test_a_run_without_scores_has_no_weight_but_its_passages_are_there(tmp_path: Path) -> None:
    config = configured("{kind: interpolate, of: [provided, bm25]}")
    store = two_stages(tmp_path, config)
    finished(store, config, "run:provided", {"dev/part-00000": {"d0": {"p8": -1.0, "p1": -2.0}}})

    made = make("both", config, store)

    assert made.manifest["weight"] == 1.0
    assert list(read(made, "dev")["d0"]) == ["p1", "p2", "p8"]
    assert made.manifest["findings"][0] == "both: BM25 alone, since provided has no scores"


def test_a_hybrid_can_be_the_first_stage_of_a_pipeline() -> None:
    config = build("demo", assignments=["candidates.first_stage=hybrid"])

    assert flow.used_runs(config) == ["bm25", "dense", "hybrid", "pointwise", "drbert", "fused"]
    assert "run:hybrid" in flow.plan("pointwise", config)


class Files:
    """Files of queries by their number; counts what is read."""

    def __init__(self, *files: list[int]) -> None:
        self.files, self.read = {f"dev/part-{place}": queries for place, queries in enumerate(files)}, list[str]()

    def names(self, split: str) -> list[str]:
        return list(self.files)

    def read_table(self, name: str, columns: list[str], **options: object) -> pa.Table:
        queries = [f"q{query}" for query in self.files[name]]
        if columns == ["query_id"]:
            return pa.table({"query_id": pa.array(queries, pa.string()).dictionary_encode()})
        self.read.append(name)
        number = len(queries)
        places = pa.array(range(number), pa.int32())
        scores = pa.array(range(number), pa.float32())
        return pa.table([pa.array(queries), [f"p{place}" for place in range(number)], places, scores], names=columns)


def test_all_rows_of_a_query_come_together_and_few_files_are_held() -> None:
    ordered, scattered = Files([0, 0, 1], [2, 3], [4], []), Files([3, 1], [0, 3], [5, 4])
    rows_of = Lookup(pa.array([f"q{number}" for number in range(6)]))

    blocks, read_so_far = [], []
    for tables in read_together([ordered, scattered], "dev", rows_of):  # type: ignore[list-item]
        blocks.append([sorted(table["query_id"].to_pylist()) for table in tables])
        read_so_far.append((len(ordered.read), len(scattered.read)))

    assert blocks == [
        [["q0", "q0"], ["q0"]],
        [["q1"], ["q1"]],
        [["q2", "q3"], ["q3", "q3"]],
        [["q4"], ["q4", "q5"]],
    ]
    assert read_so_far == [(1, 1), (1, 2), (2, 2), (3, 3)]
    assert list(read_together([Files()], "dev", rows_of)) == []  # type: ignore[list-item]
