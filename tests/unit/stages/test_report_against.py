"""Two storages whose artifacts are written by hand, compared figure by figure."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import build
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.jobs.report import run
from rayrank.stages import evaluate
from rayrank.stages.report.collect import folder
from tests.unit.reports.test_report_page import check_figures
from tests.unit.stages.test_report_facts import OPTIONS, corpus, finish, table

RUNS = {"bm25": "bac", "drbert": "abc"}
WORSE = {"bm25": "bac", "drbert": "cba"}


def config_of(*changes: str) -> PipelineConfig:
    return build("demo", assignments=[*OPTIONS.set, *changes])


def made(folder: Path, runs: dict[str, str], config: PipelineConfig) -> Store:
    """Return a storage with a report on the evaluations of some runs."""
    store = Store(str(folder))
    corpus(store, config)
    for name, ranked in runs.items():
        node = flow.run_node(name, config)
        for split in ("dev", "test"):
            rows = [(f"{split}{query}", passage, rank, -float(rank)) for query in range(4)
                    for rank, passage in enumerate(ranked, 1)]  # fmt: skip
            store.artifact(node, config).write_table(f"{split}/part-0.parquet", table(rows, CANDIDATES))
        finish(store, config, node, {})
        evaluate.run(flow.evaluating(name, config), store)
    run(asked(), config, store)
    return store


def asked(**options: Any) -> Namespace:
    return Namespace(**{**vars(OPTIONS), **options})


def compared(config: PipelineConfig, store: Store, against: str) -> tuple[dict[str, Any], str]:
    """Return the facts and the page of a comparison."""
    page = Path(run(asked(against=against), config, store)["comparison"])
    return json.loads(page.with_suffix(".json").read_text()), page.read_text()


def test_two_storages_are_compared_query_by_query(tmp_path: Path) -> None:
    old, new = config_of(), config_of("listwise.negatives=7")
    other = made(tmp_path / "old", WORSE, old)
    store = made(tmp_path / "new", RUNS, new)

    facts, page = compared(new, store, other.root)

    drbert = next(each for each in facts["runs"] if each["title"] == each["other"] == "DR-BERT")["metrics"]["MRR@10"]
    # The fourth query's answer is no candidate; the others have it first, and third on the other storage.
    assert (drbert["mean"]["mean"], drbert["other"]["mean"]) == pytest.approx((3 / 4, 3 / 4 / 3))
    paired = drbert["paired"]
    assert paired["comparison"]["difference"] == pytest.approx(3 / 4 * (1 - 1 / 3))
    assert [paired[name] for name in ("wins", "ties", "losses")] == [3, 1, 0]
    assert facts["settings"] == [{"key": "listwise.negatives", "value": 7, "other": old.listwise.negatives}]
    same = {each["node"]: each["is_same"] for each in facts["cost"]}
    assert same["corpus"]
    assert not same["run:drbert"]
    assert check_figures(page, facts) > 50
    assert "no p value" not in page


def test_storages_with_other_judgments_are_not_tested_against_each_other(tmp_path: Path) -> None:
    config = config_of()
    other, store = made(tmp_path / "old", RUNS, config), made(tmp_path / "new", RUNS, config)
    judged = [(f"{split}{query}", "c", 1, split) for split in ("dev", "test") for query in range(4)]
    other.artifact("corpus", config).write_table("judgments.parquet", table(judged, JUDGMENTS))
    run(asked(), config, other)

    facts, page = compared(config, store, other.root)

    assert all(found["paired"] is None for each in facts["runs"] for found in each["metrics"].values())
    assert "were not measured on the same judged queries" in page


def test_the_report_of_one_storage_is_not_compared_with_itself(tmp_path: Path) -> None:
    config = config_of()
    store = made(tmp_path / "only", RUNS, config)

    with pytest.raises(ConfigError, match="has no other report: make one with rayrank report"):
        run(asked(against=store.root), config, store)
    with pytest.raises(ConfigError, match="nowhere has no other report"):
        run(asked(against=str(tmp_path / "nowhere")), config, store)
    assert not (tmp_path / "nowhere").exists()


def test_a_report_is_named_by_its_folder_with_or_without_a_slash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = config_of(), config_of("listwise.negatives=7")
    other, store = made(tmp_path / "old", WORSE, old), made(tmp_path / "new", RUNS, new)
    url = folder(old, other).url
    monkeypatch.chdir(other.root)

    relative = url.removeprefix(f"{other.root}/")
    _, named = compared(new, store, url)[0]["sides"]  # the first side is the new report, which is made each time
    assert named["label"] == "old"
    for place in (f"{url}/", relative, f"{relative}/"):
        assert compared(new, store, place)[0]["sides"][1] == named


@pytest.mark.parametrize("place", ["foo://x", "{file}"])
def test_a_report_that_cannot_be_read_is_one_sentence_before_anything_is_written(place: str, tmp_path: Path) -> None:
    config, store = config_of(), Store(str(tmp_path / "storage"))
    corpus(store, config)
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"^--against .* cannot be read: .*; name a storage, or the folder of a"):
        run(asked(against=place.format(file=tmp_path / "file")), config, store)
    assert not folder(config, store).exists("report.html")
