"""Storage faults: a full disk, lost, torn and corrupt files are one sentence each, and never a shorter result."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rayrank.core.artifacts import MANIFEST, Artifact, Store, check_files
from rayrank.core.errors import StorageError
from rayrank.core.presets import demo

SHARD = "passages/part-00000.parquet"
TABLE = pa.table({"text": [str(number) for number in range(20_000)], "rank": np.arange(20_000, dtype=np.int32)})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "store"))


@pytest.fixture
def finished(store: Store) -> Artifact:
    artifact = store.artifact("corpus", demo())
    artifact.write_table(SHARD, TABLE)
    artifact.write_json("words.json", {"words": ["a", "b"]})
    artifact.write_json("lease-1.json", {})
    return store.finish(artifact, demo(), 0.0, {})


def damage(artifact: Artifact, name: str, at: float) -> None:
    """Flip one bit of a file."""
    path = Path(artifact.path(name))
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 1
    path.write_bytes(content)


def test_the_manifest_lists_the_files_that_stay(finished: Artifact) -> None:
    files = finished.manifest["files"]
    assert set(files) == {SHARD, "words.json"}
    assert files["words.json"] == Path(finished.path("words.json")).stat().st_size


def test_an_artifact_that_lost_a_file_is_not_found_as_a_shorter_one(store: Store, finished: Artifact) -> None:
    Path(finished.path(SHARD)).unlink()
    with pytest.raises(StorageError, match=rf"{finished.url} is damaged, {SHARD} is missing: delete this folder"):
        store.find("corpus", demo())


def test_a_file_that_a_crash_left_empty_is_reported_at_the_first_use(store: Store, finished: Artifact) -> None:
    Path(finished.path("words.json")).write_bytes(b"")
    with pytest.raises(StorageError, match=r"words\.json has 0 of \d+ bytes"):
        store.require("corpus", demo())


def test_a_whole_artifact_is_listed_once_per_process(store: Store, finished: Artifact) -> None:
    assert store.find("corpus", demo()) == finished
    hits = check_files.cache_info().hits
    assert store.find("corpus", demo()) == finished
    assert check_files.cache_info().hits == hits + 1


def test_an_artifact_of_an_earlier_version_opens_without_a_list_of_files(store: Store, finished: Artifact) -> None:
    manifest = finished.manifest
    del manifest["files"]
    finished.write_json(MANIFEST, manifest)
    Path(finished.path("words.json")).unlink()
    assert store.find("corpus", demo()) == finished


@pytest.mark.parametrize("at", [0.1, 0.5, 0.75])
def test_a_flipped_bit_of_a_parquet_file_is_noticed_however_it_is_read(finished: Artifact, at: float) -> None:
    damage(finished, SHARD, at)
    with pytest.raises(StorageError, match=rf"{SHARD} is damaged \(.*\): delete the folder .* and run again") as caught:
        finished.read_table(SHARD)
    assert "\n" not in str(caught.value)
    with pytest.raises(StorageError, match="is damaged"):
        list(finished.batches(SHARD, ["text", "rank"]))


def test_a_torn_parquet_file_is_noticed(finished: Artifact) -> None:
    path = Path(finished.path(SHARD))
    path.write_bytes(path.read_bytes()[:-100])
    for read in (finished.read_table, finished.num_rows):
        with pytest.raises(StorageError, match="is damaged"):
            read(SHARD)


def test_errors_of_whoever_reads_are_not_taken_for_damage(finished: Artifact) -> None:
    with pytest.raises(FileNotFoundError):
        finished.read_table("passages/none.parquet")
    with pytest.raises(OSError, match="the reader's own"):  # noqa: PT012
        for _ in finished.batches(SHARD, ["text"]):
            raise OSError("the reader's own")


FULL = """
import resource, sys
import numpy as np, pyarrow as pa
from rayrank.core.artifacts import Store
from rayrank.core.errors import StorageError
from rayrank.core.presets import demo

artifact = Store(sys.argv[1]).artifact("corpus", demo())
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    artifact.write_table("part.parquet", pa.table({"x": np.random.default_rng(0).random(10**6)}))
except StorageError as error:
    print(error)
print(list(artifact.names("")), artifact.exists("part.parquet"))
"""


def test_a_write_that_the_disk_ends_halfway_leaves_one_sentence_and_no_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    sentence, left = answer.stdout.splitlines()
    assert "part.parquet cannot be written: File too large; make room there, or name another --storage." in sentence
    assert left == "[] False"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
