"""What a killed process leaves, on storage or on a node's disk, is removed by a later one; what is in use stays."""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from rayrank.cluster import every_node
from rayrank.core import copies
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.copies import temporary_folder
from rayrank.core.drafts import drafts, remove_folders
from rayrank.core.leases import Holder, is_leased, leased
from rayrank.core.presets import demo
from rayrank.stages import evaluate
from rayrank.stages.make import make


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def killed(script: str, *arguments: str, disk: Path) -> str:
    """Run a script that kills its own process; return what it printed."""
    order = [
        sys.executable,
        "-c",
        f"import os, signal, sys\n{script}\nos.kill(os.getpid(), signal.SIGKILL)",
        *arguments,
    ]
    answer = subprocess.run(order, env={**os.environ, "TMPDIR": str(disk)}, capture_output=True, text=True, check=False)
    assert answer.returncode == -signal.SIGKILL, answer.stderr
    return answer.stdout.strip()


TEMPORARY = """
from rayrank.core.copies import temporary_folder
opened = temporary_folder()
folder = opened.__enter__()
(folder / "large").touch()
print(folder, flush=True)
"""


def test_a_temporary_folder_of_a_killed_process_is_removed_by_the_next_one(disk: Path) -> None:
    left = Path(killed(TEMPORARY, disk=disk))
    assert (left / "large").exists()

    with temporary_folder() as folder:
        assert not left.exists()
        assert folder.is_dir()
    assert not [file for file in disk.rglob("*") if not file.is_dir()]
    assert not folder.exists()


def test_a_temporary_folder_in_use_stays(disk: Path) -> None:
    with temporary_folder() as first, temporary_folder() as second:
        (first / "file").touch()
        copies._release()
        with temporary_folder():
            assert (first / "file").exists()
            assert second.is_dir()


def test_a_temporary_folder_in_another_place_removes_only_its_own_kind(disk: Path) -> None:
    others = [".new.0123.temporary", ".new.files", "new", ".old." + "0" * 32 + ".temporary"]
    for name in (*others, ".new." + "0" * 32 + ".temporary"):
        (disk / name).mkdir()

    with temporary_folder(disk, ".new.") as folder:
        assert folder.parent == disk

    assert sorted(path.name for path in disk.iterdir()) == sorted(others)


WRITING = """
from rayrank.core.artifacts import Artifact
from rayrank.core.leases import leased
artifact = Artifact(sys.argv[1], "corpus", "key")
lease = leased(artifact, "making corpus")
lease.__enter__()
artifact.write_json("passages/whole.json", 1)
writing = artifact.create("passages/half.json")
writing.__enter__().write(b"ha")
"""


def test_files_that_a_killed_process_was_writing_are_removed_once_the_lease_is_taken(disk: Path) -> None:
    killed(WRITING, str(disk), disk=disk)
    artifact = Artifact(str(disk), "corpus", "key")
    assert len(drafts(*artifact.place)) == 1

    with leased(artifact, "making corpus"):
        assert not drafts(*artifact.place)
        (disk / "corpus" / "key" / f"of-a-killed-worker.{'0' * 32}.tmp").touch()

    assert [file.name for file in disk.rglob("*") if file.is_file()] == ["whole.json"]


def test_a_thread_may_take_its_own_lease_again_and_other_threads_wait(tmp_path: Path) -> None:
    artifact, seen = Artifact(str(tmp_path), "corpus", "key"), []

    def take() -> None:
        with leased(artifact, "making corpus"):
            seen.append("other")

    other = threading.Thread(target=take)
    with leased(artifact, "making corpus"):
        with leased(artifact, "making corpus"):
            other.start()
        assert is_leased(artifact)
        other.join(timeout=0.5)
        assert seen == []
    other.join(timeout=30)
    assert seen == ["other"]
    assert not is_leased(artifact)


def test_an_artifact_whose_process_was_killed_after_it_had_finished_is_cleared_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    artifact, calls = store.artifact("evaluate", demo()), []

    def run(config: PipelineConfig, store: Store) -> Artifact:
        calls.append(1)
        return store.find("evaluate", config) or store.finish(artifact, config, 0.0, {})

    monkeypatch.setattr(evaluate, "run", run)
    make("evaluate", demo(), store)
    # The start time of another process: the holder is dead.
    artifact.write_json("lease-1.json", vars(replace(Holder.of_this_process("making evaluate"), started="1")))
    left = Path(artifact.url, f"run.trec.{'0' * 32}.tmp")
    left.touch()
    finished = artifact.manifest

    for _ in range(2):
        assert make("evaluate", demo(), store) == artifact

    assert artifact.manifest == finished
    assert [file.name for file in Path(artifact.url).iterdir()] == ["manifest.json"]
    assert len(calls) == 2


def test_folders_of_attempts_that_did_not_end_are_removed(tmp_path: Path) -> None:
    artifact = Artifact(str(tmp_path), "index", "key")
    for name in ("lucene-1", "lucene-2", "documents"):
        artifact.write_json(f"{name}/file.json", 1)

    remove_folders(*artifact.place, "lucene-", keep="lucene-2")

    assert sorted(path.name for path in Path(artifact.url).iterdir()) == ["documents", "lucene-2"]


def test_probes_of_killed_processes_are_removed_from_storage(tmp_path: Path) -> None:
    alive = Holder.of_this_process("asking every node")
    elsewhere = replace(alive, machine="another")
    old = replace(elsewhere, since="2026-01-02 03:04:05 UTC")
    probes = {"alive": alive, "dead": replace(alive, started="1"), "elsewhere": elsewhere, "old": old}
    for name, holder in probes.items():
        folder = tmp_path / f".nodes.{name}"
        folder.mkdir()
        (folder / "driver").write_bytes(holder.to_bytes())
    (tmp_path / ".writable").touch()

    store = Store(str(tmp_path))
    every_node._remove_probes(Artifact(store.root, "any", "key").filesystem, store.root)

    assert sorted(path.name for path in tmp_path.iterdir()) == [".nodes.alive", ".nodes.elsewhere"]
