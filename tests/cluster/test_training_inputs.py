"""The training and dev candidates of the phases, read from the pipeline's storage."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.core.overrides import apply
from rayrank.jobs.entry import configure, parser
from rayrank.measure.metrics import Measure
from rayrank.models.saved import load_reranker
from rayrank.stages import listwise, pointwise
from rayrank.text.template import MIN_PASSAGE_PIECES
from rayrank.training.data import Split, inputs_of
from rayrank.training.phases.listwise import start as start_listwise
from rayrank.training.phases.pointwise import start as start_pointwise

from .conftest import settings


@pytest.fixture
def config() -> PipelineConfig:
    chosen = [part for setting in settings() for part in ("--set", setting)]
    return configure(parser("").parse_args(chosen))


@pytest.fixture
def halfway(config: PipelineConfig, trained: Path) -> PipelineConfig:
    """The threshold that half of the training candidates are above."""
    noise = Store(str(trained)).require("noise", config)
    scores = pa.concat_tables(map(noise.read_table, noise.names("train")))["score"].to_numpy()
    return apply(config.model_dump(), {"noise.threshold": float(1 / (1 + np.exp(-np.median(scores))))})


def sizes(split: Split) -> int:
    return sum(len(split.negatives(index)) for index in range(len(split.queries)))


def test_lists_lack_candidates_above_the_threshold_but_keep_every_positive(
    halfway: PipelineConfig, trained: Path
) -> None:
    store = Store(str(trained))
    whole, kept = (
        start_listwise(apply(halfway.model_dump(), change), store)[1].inputs.data.splits
        for change in ({"noise.threshold": 1.0}, {})
    )

    assert 0.3 * sizes(whole["train"]) < sizes(kept["train"]) < 0.7 * sizes(whole["train"])
    for place in range(len(whole["train"].queries)):
        assert set(kept["train"].positives[place]) == set(whole["train"].positives[place])
    assert sizes(kept["dev"]) == sizes(whole["dev"])


def test_the_phases_measure_dev_by_the_metric_and_the_grade_of_the_configuration(
    config: PipelineConfig, trained: Path
) -> None:
    chosen, store = apply(config.model_dump(), {"training.metric": "nDCG@5"}), Store(str(trained))

    # Everything before the phase is the same artifact; only what it selects by differs.
    assert start_pointwise(chosen, store)[1]._measure == Measure("nDCG@5", 1)
    assert start_pointwise(config, store)[1]._measure == start_listwise(config, store)[1]._measure == Measure()


def test_a_fresh_head_is_not_the_difference_of_the_pointwise_classes(config: PipelineConfig, trained: Path) -> None:
    store = Store(str(trained))
    pointwise = load_reranker(store.require("pointwise", config), config.strm, np.zeros(30_522, np.int8))
    heads = []
    for head in ("difference", "fresh"):
        heads.append(start_listwise(apply(config.model_dump(), {"listwise.head": head}), store)[0].head.weight)

    irrelevant, relevant = pointwise.head.weight
    assert torch.equal(heads[0][0], relevant - irrelevant)
    assert not torch.equal(heads[0], heads[1])


def test_a_type_that_leaves_no_room_for_a_passage_is_truncated(config: PipelineConfig, trained: Path) -> None:
    store = Store(str(trained))
    whole = inputs_of(config, store, {}).data.prefixes
    # The queries keep their length; what is left is too short for the longest of them, its type and a passage.
    length = int(whole.lengths().max()) + MIN_PASSAGE_PIECES
    short = config.model_copy(update={"input": config.input.model_copy(update={"length": length})})

    cut = inputs_of(short, store, {}).data.prefixes

    assert cut.lengths().max() == length - 1 - MIN_PASSAGE_PIECES
    assert (whole.lengths() - cut.lengths()).max() == 1


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"input.query_length": 70}, "input.query_length=70 cannot be used: the corpus keeps text.query_pieces=64 of"),
        ({"text.passage_pieces": 16}, "input.length=96 cannot be used: the corpus keeps text.passage_pieces=16 of"),
    ],
)
def test_inputs_longer_than_the_stored_pieces_are_one_sentence(
    changes: dict[str, int], told: str, config: PipelineConfig, tmp_path: Path
) -> None:
    asked, store = apply(config.model_dump(), {"pretrain.enabled": False, **changes}), Store(str(tmp_path))
    for stage in flow.plan("pointwise", asked)[:-1]:
        store.finish(store.artifact(stage, asked), asked, 0.0, {}, stage)

    with pytest.raises(ConfigError, match=told):
        pointwise.run(asked, store)


def test_an_error_names_a_threshold_that_leaves_no_list(config: PipelineConfig, trained: Path) -> None:
    with pytest.raises(DatasetError, match=r"or noise\.threshold if the noise filter removed them"):
        start_listwise(apply(config.model_dump(), {"noise.threshold": 1e-6}), Store(str(trained)))


def test_dev_queries_without_candidates_are_an_error_before_training(
    config: PipelineConfig, trained: Path, tmp_path: Path
) -> None:
    shutil.copytree(trained, tmp_path / "storage")
    for file in tmp_path.glob("storage/search/*/dev/*.parquet"):
        pq.write_table(pq.read_table(file).slice(0, 0), file)

    with pytest.raises(DatasetError, match="No judged dev query of the dataset demo has candidates"):
        start_pointwise(config, Store(str(tmp_path / "storage")))


def test_checkpoints_that_a_killed_job_left_are_removed(config: PipelineConfig, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "storage")
    store = Store(str(tmp_path / "storage"))
    left = Path(store.require("listwise", config).path("checkpoints/checkpoint_1/state.pt"))
    left.parent.mkdir(parents=True)
    left.touch()

    listwise.run(config, store)

    assert not left.parent.parent.exists()
