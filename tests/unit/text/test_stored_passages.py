"""The passages of a corpus exist once a node, as files that its processes map into memory."""

import getpass
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rayrank.core import copies
from rayrank.core.artifacts import MANIFEST, Artifact
from rayrank.core.errors import StorageError
from rayrank.core.records import PASSAGES
from rayrank.text.stored_passages import stored_passages

SHARDS = ["passages/part-0.parquet", "passages/part-1.parquet"]


def written(root: Path, shards: list[dict[str, list[int]]]) -> Artifact:
    corpus = Artifact(str(root), "corpus", "key")
    for name, passages in zip(SHARDS, shards, strict=False):
        columns = {"passage_id": list(passages), "text": [""] * len(passages), "piece_ids": list(passages.values())}
        corpus.write_table(name, pa.table(columns, schema=PASSAGES))
    corpus.write_json(MANIFEST, {"shards": SHARDS[: len(shards)]})
    return corpus


@pytest.fixture(autouse=True)
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The node's own disk."""
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(copies, "_held", {})
    return folder


@pytest.mark.parametrize(
    "shards",
    [
        [{"a": [1, 2, 3], "b": []}, {"c": [4]}],
        [{}, {"a": [5]}],
        [{"a": []}],
        [{}],
        [],
    ],
)
def test_the_mapped_passages_are_those_of_all_shards_in_order(
    shards: list[dict[str, list[int]]], tmp_path: Path
) -> None:
    found = stored_passages(written(tmp_path, shards))

    expected = {name: ids for shard in shards for name, ids in shard.items()}
    assert found.ids.to_pylist() == list(expected)
    assert [found.pieces[row].tolist() for row in range(len(found.pieces))] == list(expected.values())
    assert found.pieces.values.dtype == np.int32


def test_passages_are_written_to_the_disk_once_and_follow_the_corpus(tmp_path: Path, disk: Path) -> None:
    corpus = written(tmp_path, [{"a": [1]}])
    first, again = stored_passages(corpus), stored_passages(corpus)
    (folder,) = disk.glob("rayrank-*/corpus-*")
    assert first.pieces.values.tolist() == again.pieces.values.tolist() == [1]

    changed = written(tmp_path, [{"a": [1]}, {"b": [2]}])

    assert stored_passages(changed).ids.to_pylist() == ["a", "b"]
    assert len(list(disk.glob("rayrank-*/corpus-*"))) == 2
    assert folder.is_dir()


READ = """
import sys, tempfile
from pathlib import Path
import numpy as np
from rayrank.core.artifacts import Artifact
from rayrank.text.stored_passages import stored_passages

def private():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1])

tempfile.tempdir = sys.argv[2]
before = private()
found = stored_passages(Artifact(sys.argv[1], "corpus", "key"))
total = int(found.pieces.values.sum(dtype=np.int64))
print(total, (private() - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_a_second_process_has_no_ids_of_its_own(tmp_path: Path, disk: Path) -> None:
    rows, length = 50_000, 160
    columns = [
        pa.array(map(str, range(rows))),
        pa.array([""] * rows, pa.large_string()),
        pa.LargeListArray.from_arrays(np.arange(rows + 1) * length, pa.array(np.ones(rows * length, np.int32))),
    ]
    corpus = written(tmp_path, [{}])
    corpus.write_table(SHARDS[0], pa.table(columns, schema=PASSAGES))
    assert len(stored_passages(corpus).ids) == rows

    order = [sys.executable, "-c", READ, corpus.root, str(disk)]
    answer = subprocess.run(order, capture_output=True, text=True, check=True)

    total, grown = map(int, answer.stdout.split())
    assert total == rows * length
    assert grown < 8  # MB; the ids have 31


def test_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path, disk: Path) -> None:
    corpus = written(tmp_path, [{"a": [1]}])
    script = f"""
import errno, tempfile
from rayrank.core import copies
tempfile.tempdir = {str(disk)!r}

def full(folder):
    # A quota that is used up is a full disk, too.
    (folder / "begun").touch()
    raise OSError(errno.EDQUOT, "Disk quota exceeded")

try:
    copies.node_folder("corpus-1", "passages", full)
except Exception as error:
    print(type(error).__name__, error)
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert answer.stdout.startswith("StorageError ")
    assert "has no room for a local copy" in answer.stdout
    assert "TMPDIR" in answer.stdout
    assert not [file for file in disk.rglob("*") if file.is_file()]
    assert corpus.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="it writes to /dev/full")
def test_a_disk_that_is_full_for_the_offsets_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rayrank.text.stored_passages._OFFSETS", "/dev/full")

    with pytest.raises(StorageError, match=r"has no room for a local copy .* in TMPDIR"):
        stored_passages(written(tmp_path, [{"a": [1]}]))


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path, disk: Path) -> None:
    (disk / f"rayrank-{getpass.getuser()}").touch()

    with pytest.raises(StorageError, match=r"cannot be written: .*; make it writable, or name another .* in TMPDIR"):
        stored_passages(written(tmp_path, [{"a": [1]}]))


def test_a_folder_whose_removal_was_interrupted_is_made_again(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(folder: Path) -> None:
        (folder / "first").touch()
        (folder / "second").touch()

    def killed(folder: Path, **_: bool) -> None:
        next(folder.rglob("first")).unlink()
        raise KeyboardInterrupt

    copies.node_folder("corpus-1", "passages", fill)
    with monkeypatch.context() as interrupted:
        interrupted.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            copies._release()

    found = copies.node_folder("corpus-1", "passages", fill)

    assert sorted(file.name for file in disk.rglob("*") if file.is_file()) == ["first", "second"]
    assert (found / "first").exists()
