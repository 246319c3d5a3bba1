"""A kind of run that somebody else wrote: known by its name alone, it is made, measured and compared as any other."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KIND = '''
import pyarrow as pa

from rayrank.core.run_kinds import CANDIDATES, RunKind, RunSettings


class ByLength(RunKind):
    """Candidates by the length of their passages, the longest first."""

    class Settings(RunSettings):
        of: str = CANDIDATES

    def inputs(self, settings, config):
        return ("corpus",)

    def make(self, run):
        corpus = run.store.require("corpus", run.config)
        tables = [corpus.read_table(shard, ["passage_id", "text"]).to_pydict() for shard in corpus.manifest["shards"]]
        lengths = {name: len(text) for table in tables for name, text in zip(*table.values())}
        for split in run.splits:
            rows = run.read(run.settings.of, split)
            scores = pa.array([lengths[name] for name in rows["passage_id"].to_pylist()], pa.float32())
            run.write(split, rows.set_column(3, "score", scores))
        return {"num_candidates": len(lengths)}
'''
RUNS = ["--set", "runs.longest={kind: toy_kind:ByLength, title: Longest}"]


@pytest.fixture(scope="module")
def toy(joining: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of jobs that can import the kind, as a user's own package would be."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "toy_kind.py").write_text(KIND)
    # Workers of the cluster look where the driver says.
    path = os.pathsep.join([str(folder), *filter(None, [joining.get("PYTHONPATH")])])
    environment = {"PYTHONPATH": path}
    return {**joining, **environment, "RAY_RUNTIME_ENV_HOOK": "", "TOY": str(folder)}


def job(name: str, environment: dict[str, str], *arguments: str) -> dict[str, object]:
    file = Path(environment["TOY"]) / "summary.json"
    command = [sys.executable, "-m", name, *arguments, *RUNS, "--json", str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(file.read_text())  # type: ignore[no-any-return]
