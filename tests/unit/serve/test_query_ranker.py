"""The settings with which rayrank rank ranks queries, without HTTP."""

import argparse
from pathlib import Path
from types import SimpleNamespace

from rayrank.jobs.rank import settings_of


def test_a_query_that_is_ranked_alone_waits_for_no_other(tmp_path: Path) -> None:
    arguments = argparse.Namespace(model=str(tmp_path), backend="torch")
    run = SimpleNamespace(url=str(tmp_path / "run"), manifest={"config": {"run": {"depth": 50}}})

    found = settings_of(arguments, run, 1.0)  # type: ignore[arg-type]

    assert found.batching.wait_ms == 0
    assert (found.search.depth, found.resources.gpus) == (50, 1.0)
