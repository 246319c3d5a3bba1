"""An index that a killed job has copied halfway is not used, and of two jobs only one builds the index."""

import json
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

from rayrank.core.leases import Holder

from .conftest import FORKS, command


def unindexed(trained: Path, storage: Path) -> Path:
    """Copy a storage whose index is what a job has left that was killed while it copied it; return its folder."""
    shutil.copytree(trained, storage)
    (folder,) = (storage / "index").iterdir()
    (folder / "manifest.json").unlink()
    (copied,) = folder.glob("lucene-*")
    next(file for file in copied.iterdir() if not file.name.startswith("segments")).unlink()
    dead = replace(Holder.of_this_process("making index"), started="1")
    (folder / "lease-1.json").write_text(json.dumps(asdict(dead)))
    return folder


def assert_whole(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [path.name for path in folder.glob("lucene-*")] == [manifest["lucene"]]
    assert sorted(path.name for path in folder.iterdir()) == [manifest["lucene"], "manifest.json"]


def test_a_half_copied_index_is_built_again(trained: Path, joining: dict[str, str], tmp_path: Path) -> None:
    folder = unindexed(trained, tmp_path / "storage")
    half = next(folder.glob("lucene-*"))

    answer = FORKS.run(command("build_index", tmp_path / "storage"), joining)

    assert answer.returncode == 0, answer.stderr
    assert not half.exists()
    assert_whole(folder)


def test_two_jobs_build_an_index_once(trained: Path, joining: dict[str, str], tmp_path: Path) -> None:
    folder = unindexed(trained, tmp_path / "storage")
    order = command("build_index", tmp_path / "storage")

    jobs = [subprocess.Popen(order, env=joining, text=True, stderr=subprocess.PIPE) for _ in range(2)]
    said = [job.communicate(timeout=300)[1] for job in jobs]

    assert [job.returncode for job in jobs] == [0, 0], said
    assert sum("index: the other process has finished it; its result is used" in each for each in said) == 1, said
    assert_whole(folder)
