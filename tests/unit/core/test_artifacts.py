import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

from rayrank.command import named
from rayrank.core import artifacts, flow
from rayrank.core.artifacts import MANIFEST, Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import MissingArtifact, StorageError
from rayrank.core.presets import demo
from tests import buckets  # noqa: F401  (registers bucket://)

TABLE = pa.table({"passage_id": ["a", "b", "c"], "rank": pa.array([1, 2, 3], pa.int32())})


@pytest.fixture
def memory() -> Iterator[str]:
    root = f"memory://{uuid.uuid4().hex}"
    yield root
    filesystem, path = fsspec.url_to_fs(root)
    if filesystem.exists(path):
        filesystem.rm(path, recursive=True)


@pytest.fixture(params=["plain", "file://", "memory://"])
def root(request: pytest.FixtureRequest, tmp_path: Path, memory: str) -> str:
    return {"plain": str(tmp_path / "store"), "file://": f"file://{tmp_path}/store", "memory://": memory}[request.param]


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder where files of other storage are fetched to."""
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def files(artifact: Artifact) -> set[str]:
    filesystem, place = fsspec.url_to_fs(artifact.url)
    return {found.removeprefix(f"{place}/") for found in filesystem.find(place)}


def test_an_artifact_without_manifest_does_not_exist(root: str) -> None:
    store = Store(root)
    artifact = store.artifact("corpus", demo())
    artifact.write_table("passages/part-00000.parquet", TABLE)
    assert not artifact.exists()
    assert store.find("corpus", demo()) is None
    with pytest.raises(MissingArtifact):
        store.require("corpus", demo())
    store.finish(artifact, demo(), time.monotonic(), {"num_passages": 3})
    assert store.find("corpus", demo()) == artifact
    assert store.require("corpus", demo()) == artifact


def test_the_manifest_says_what_the_artifact_was_made_from(root: str) -> None:
    store, config = Store(root), demo()
    started = time.monotonic() - 2
    artifact = store.finish(store.artifact("index", config), config, started, {"num_rows": 7})
    manifest = artifact.manifest
    assert manifest["stage"] == "index"
    assert manifest["key"] == flow.key("index", config)
    assert manifest["config"] == {"index": config.index.model_dump()}
    assert manifest["inputs"] == {"corpus": flow.key("corpus", config)}
    assert manifest["num_rows"] == 7
    assert 2 <= manifest["seconds"] < 10
    assert manifest["revision"]


def test_a_required_artifact_that_is_missing_names_the_command(tmp_path: Path) -> None:
    jobs = {name: stage.job for name, stage in flow.STAGES.items()}
    runs = {"candidates": "jobs.build_candidates", "drbert": "jobs.evaluate --run drbert"}
    for name, job in {**jobs, **runs}.items():
        with pytest.raises(MissingArtifact) as caught:
            Store(str(tmp_path)).require(name, demo())
        assert f"The {name} artifact" in str(caught.value)
        program, command, *options = str(caught.value).split("`")[1].split()
        assert program == "rayrank"
        assert [named(command).runs, *options] == f"rayrank.{job}".split()


def test_the_options_of_the_user_follow_the_command_that_makes_a_missing_artifact() -> None:
    error = MissingArtifact("index", "rayrank build-index")
    assert str(error).endswith("first run `rayrank build-index` with the same options.")
    own = "--storage s --set 'runs.bm25.title=my words'"
    assert str(error.with_options(own)).endswith(f"first run `rayrank build-index {own}`.")


@pytest.fixture
def copied_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the module's file, as an installation would put it into the folder of another project."""
    copy = tmp_path / "project/.venv/artifacts.py"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(Path(artifacts.__file__).read_bytes())
    monkeypatch.setattr(artifacts, "__file__", str(copy))
    artifacts._revision.cache_clear()
    yield copy
    artifacts._revision.cache_clear()


def test_the_revision_is_that_of_the_repository_that_has_this_code(copied_code: Path) -> None:
    def git(*arguments: str) -> str:
        own = ("-c", "user.name=one", "-c", "user.email=one@example.org")
        command = ["git", *own, *arguments]
        return subprocess.run(command, cwd=copied_code.parent.parent, capture_output=True, text=True, check=True).stdout

    git("init")
    git("commit", "--allow-empty", "-m", "the code of another project")
    assert artifacts._revision() == "unknown"

    git("add", str(copied_code))
    git("commit", "-m", "and this code")
    artifacts._revision.cache_clear()
    assert artifacts._revision() == git("rev-parse", "HEAD").strip()


def test_a_run_is_stored_by_its_kind_and_its_manifest_has_its_settings(tmp_path: Path) -> None:
    store, config = Store(str(tmp_path)), demo()
    manifest = store.finish(store.artifact("bm25", config), config, 0.0, {}, "bm25").manifest
    assert manifest["stage"] == "search"
    assert manifest["config"]["run"]["k1"] == 0.9
    assert manifest["config"]["run"]["depth"] == config.candidates.depth
    assert manifest["inputs"] == {node: flow.key(node, config) for node in ("corpus", "index")}


def test_a_missing_artifact_can_be_reported_from_a_worker() -> None:
    error = MissingArtifact("index", "rayrank build-index", "--storage s")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_another_configuration_is_another_artifact(root: str) -> None:
    store = Store(root)
    store.finish(store.artifact("corpus", demo()), demo(), time.monotonic(), {})
    other = PipelineConfig.model_validate({"dataset": {"fingerprint": "other"}})
    assert store.find("corpus", other) is None


def test_a_file_appears_only_when_it_is_complete(root: str) -> None:
    artifact = Store(root).artifact("corpus", demo())
    with artifact.create("part.parquet") as stream:
        stream.write(b"half")
        assert not artifact.exists("part.parquet")
        assert artifact.names("", ".parquet") == []
        stream.write(b" and half")
    assert files(artifact) == {"part.parquet"}
    with artifact.open("part.parquet") as stream:
        assert stream.read() == b"half and half"


def write_half(artifact: Artifact, name: str, error: BaseException | type[BaseException]) -> None:
    with artifact.create(name) as stream:
        stream.write(b"half")
        raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_while_writing_leaves_nothing_behind(root: str, error: type[BaseException]) -> None:
    artifact = Store(root).artifact("corpus", demo())
    with pytest.raises(error):
        write_half(artifact, "passages/part.parquet", error)
    assert files(artifact) == set()


def test_an_exception_while_rewriting_leaves_the_old_file(root: str) -> None:
    artifact = Store(root).artifact("corpus", demo())
    artifact.write_json("facts.json", {"old": True})
    with pytest.raises(StorageError, match="full"):
        write_half(artifact, "facts.json", OSError("full"))
    assert artifact.read_json("facts.json") == {"old": True}
    assert files(artifact) == {"facts.json"}


def test_tables_and_json_survive_writing_and_reading(root: str) -> None:
    artifact = Store(root).artifact("corpus", demo())
    artifact.write_table("passages/one.parquet", TABLE)
    assert artifact.read_table("passages/one.parquet").equals(TABLE)
    assert artifact.read_table("passages/one.parquet", ["rank"]).equals(TABLE.select(["rank"]))
    batches = list(artifact.batches("passages/one.parquet", ["passage_id"], rows=2))
    assert [batch.num_rows for batch in batches] == [2, 1]
    assert pa.Table.from_batches(batches).equals(TABLE.select(["passage_id"]))
    artifact.write_json("facts.json", {"name": "größe", "count": [1, 2]})
    assert artifact.read_json("facts.json") == {"name": "größe", "count": [1, 2]}


def test_a_storage_folder_that_looks_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    artifact = Store(str(tmp_path / "team=search")).artifact("corpus", demo())
    artifact.write_table("one.parquet", TABLE)
    assert artifact.read_table("one.parquet").column_names == TABLE.column_names


def test_names_lists_finished_files_in_order(root: str) -> None:
    artifact = Store(root).artifact("corpus", demo())
    assert artifact.names("passages") == []
    for name in ("b", "a"):
        artifact.write_table(f"passages/{name}.parquet", TABLE)
    artifact.write_json("passages/other.json", {})
    with artifact.create("passages/c.parquet"):
        assert artifact.names("passages") == ["passages/a.parquet", "passages/b.parquet"]
    assert artifact.names("passages")[-1] == "passages/c.parquet"


@pytest.mark.parametrize("content", [b"", b'{"stage": "cor', b"\xff\xfe"])
def test_a_damaged_manifest_names_the_folder_to_delete(root: str, content: bytes) -> None:
    store = Store(root)
    artifact = store.artifact("corpus", demo())
    with artifact.create(MANIFEST) as stream:
        stream.write(content)
    with pytest.raises(StorageError, match=r"is damaged \(it is not JSON\): delete the folder") as caught:
        _ = artifact.manifest
    assert artifact.url in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "made"
    (made / "deep" / "deeper").mkdir(parents=True)
    (made / "top.txt").write_text("top")
    (made / "deep" / "deeper" / "low.txt").write_text("low")
    return made


def contents(folder: str) -> dict[str, str]:
    paths = Path(folder).rglob("*")
    return {str(path.relative_to(folder)): path.read_text() for path in paths if path.is_file()}


def test_a_stored_folder_can_be_read_as_a_local_folder(root: str, folder: Path, disk: Path) -> None:
    artifact = Store(root).artifact("index", demo())
    artifact.put_folder(str(folder), "lucene")
    assert contents(artifact.local("lucene")) == {"top.txt": "top", "deep/deeper/low.txt": "low"}


def test_a_manifest_that_another_process_wrote_after_a_listing_is_found() -> None:
    artifact = Artifact(f"bucket://{uuid.uuid4().hex}", "index", "key")
    artifact.write_json("other.json", {})
    assert artifact.names("", ".json") == ["/other.json"]
    # A thread has listings of its own, as another process has.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(artifact.write_json, "manifest.json", {}).result()

    assert artifact.exists()


def test_storage_that_fails_while_writing_is_one_sentence(tmp_path: Path, folder: Path) -> None:
    store = Store(str(tmp_path / "store"))
    (tmp_path / "store" / "index").write_text("a file where the stage's folder belongs")
    artifact = store.artifact("index", demo())
    with pytest.raises(StorageError, match=r"index/.*/x\.json cannot be written: .*; make room there, or name another"):
        artifact.write_json("x.json", {})
    with pytest.raises(StorageError, match="cannot be written"):
        artifact.put_folder(str(folder), "lucene")


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_folder_on_local_storage_is_not_copied(prefix: str, tmp_path: Path, folder: Path, disk: Path) -> None:
    artifact = Store(f"{prefix}{tmp_path}/store").artifact("index", demo())
    artifact.put_folder(str(folder), "lucene")
    assert artifact.local("lucene") == f"{tmp_path}/store/index/{artifact.key}/lucene"
    assert list(disk.iterdir()) == []


def test_a_folder_on_remote_storage_is_fetched_once(memory: str, folder: Path, disk: Path) -> None:
    artifact = Store(memory).artifact("index", demo())
    artifact.put_folder(str(folder), "lucene")
    first = artifact.local("lucene")
    artifact.filesystem.rm(artifact.path("lucene"), recursive=True)
    assert artifact.local("lucene") == first
    assert contents(first) == {"top.txt": "top", "deep/deeper/low.txt": "low"}
    assert [path.name for path in Path(first).parent.iterdir()] == ["lucene"]


def test_a_fetch_that_fails_leaves_nothing_behind(memory: str, disk: Path) -> None:
    artifact = Store(memory).artifact("index", demo())
    with pytest.raises(FileNotFoundError):
        artifact.local("lucene")
    assert contents(str(disk)) == {}
    assert not any(path.name.startswith("tmp") for path in disk.rglob("*"))


def test_workers_that_fetch_concurrently_all_get_the_whole_folder(memory: str, folder: Path, disk: Path) -> None:
    # The same artifact in several places: threads cannot read one file of memory:// at once.
    artifacts = [Store(f"{memory}/{number}").artifact("index", demo()) for number in range(8)]
    for artifact in artifacts:
        artifact.put_folder(str(folder), "lucene")
    together = threading.Barrier(8)

    def fetch(artifact: Artifact) -> dict[str, str]:
        together.wait()
        return contents(artifact.local("lucene"))

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(fetch, artifacts))
    assert found == [{"top.txt": "top", "deep/deeper/low.txt": "low"}] * 8
    assert [path.name for path in Path(artifacts[0].local("lucene")).parent.iterdir()] == ["lucene"]


COPYING = """
import sys
from rayrank.core.artifacts import Artifact

print(Artifact("simplecache::file://" + sys.argv[1], "index", "key").local("lucene"), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def copying(tmp_path: Path, folder: Path, disk: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts processes that copy a folder from storage that is not local, and end when they are sent a line."""
    shutil.copytree(folder, tmp_path / "store" / "index" / "key" / "lucene")
    running = []

    def start() -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        order = [sys.executable, "-c", COPYING, str(tmp_path / "store")]
        running.append(subprocess.Popen(order, text=True, env={**os.environ, "TMPDIR": str(disk)}, **pipes))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_a_fetched_copy_lasts_as_long_as_a_process_that_uses_it(
    copying: Callable[[], subprocess.Popen[str]], disk: Path
) -> None:
    first, second = copying(), copying()
    (place,) = {process.stdout.readline().strip() for process in (first, second) if process.stdout}
    whole = {"top.txt": "top", "deep/deeper/low.txt": "low"}
    first.communicate("\n", timeout=30)
    assert contents(place) == whole
    second.communicate("\n", timeout=30)
    assert list(disk.glob("rayrank-*/*")) == []


def test_a_copy_of_a_killed_process_is_removed_by_the_next_one(
    copying: Callable[[], subprocess.Popen[str]], disk: Path
) -> None:
    killed = copying()
    assert killed.stdout
    place = killed.stdout.readline().strip()
    killed.kill()
    killed.wait()
    left = next(disk.glob("rayrank-*/*"))
    left.rename(left.with_name("of-another-artifact"))
    following = copying()
    assert following.stdout
    assert following.stdout.readline().strip() == place
    following.communicate("\n", timeout=30)
    assert list(disk.glob("rayrank-*/*")) == []


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_storage_below_a_regular_file_is_one_sentence(prefix: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    root = f"{prefix}{tmp_path}/file/store"
    with pytest.raises(StorageError) as caught:
        Store(root)
    sentence = str(caught.value)
    assert sentence == f"--storage {root} cannot be written: Not a directory; name a writable folder or bucket."


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_storage_without_permission_is_one_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match=r"cannot be written: Permission denied"):
        Store(str(tmp_path / "store"))


@pytest.mark.parametrize("root", ["nope://bucket/x", "http://localhost:1/store"])
def test_storage_that_cannot_be_reached_is_one_sentence(root: str) -> None:
    with pytest.raises(StorageError) as caught:
        Store(root)
    assert str(caught.value).startswith(f"--storage {root} cannot be written: ")
    assert "\n" not in str(caught.value)


def test_opening_a_store_leaves_only_the_folder(root: str) -> None:
    store = Store(root)
    filesystem, path = fsspec.url_to_fs(store.root)
    assert filesystem.isdir(path)
    assert filesystem.ls(path) == []


def test_a_relative_root_is_resolved_when_the_store_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    expected = str(tmp_path / "store")
    assert Store("store").root == expected
    assert Store("./store/").root == expected
    assert Store("file://store").root == expected


def test_a_root_may_start_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store("~/store").root == str(tmp_path / "store")


def test_slashes_at_the_end_of_a_root_do_not_matter(memory: str, tmp_path: Path) -> None:
    assert Store(f"{memory}//").root == memory
    assert Store(f"{tmp_path}//").root == str(tmp_path)
    assert Store(f"file://{tmp_path}/").root == str(tmp_path)
    assert Store("memory://").artifact("corpus", demo()).path("x").startswith("/corpus/")


def test_an_artifact_can_be_pickled(root: str) -> None:
    artifact = Store(root).artifact("corpus", demo())
    artifact.write_json("facts.json", {"count": 1})
    copy = pickle.loads(pickle.dumps(artifact))
    assert copy == artifact
    assert copy.read_json("facts.json") == {"count": 1}


def test_threads_may_finish_the_same_artifact_concurrently(root: str) -> None:
    together = threading.Barrier(8)

    def finish(_: int) -> Artifact:
        together.wait()
        store = Store(root)
        artifact = store.artifact("corpus", demo())
        artifact.write_table("passages/one.parquet", TABLE)
        return store.finish(artifact, demo(), time.monotonic(), {"num_passages": 3})

    with ThreadPoolExecutor(8) as pool:
        artifacts = list(pool.map(finish, range(8)))
    assert len(set(artifacts)) == 1
    assert artifacts[0].manifest["num_passages"] == 3
    assert artifacts[0].read_table("passages/one.parquet").equals(TABLE)
    assert files(artifacts[0]) == {MANIFEST, "passages/one.parquet"}


def test_processes_may_finish_the_same_artifact_concurrently(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from rayrank.core.artifacts import Store\n"
        "from rayrank.core.presets import demo\n"
        "store = Store(sys.argv[1])\n"
        "for _ in range(20):\n"
        "    store.finish(store.artifact('corpus', demo()), demo(), time.monotonic(), {})\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) for _ in range(2)]
    artifact = Store(str(tmp_path)).artifact("corpus", demo())
    while any(process.poll() is None for process in running):
        # Whoever looks meanwhile sees no manifest or a whole one.
        if artifact.exists():
            assert artifact.manifest["stage"] == "corpus"
    assert [process.returncode for process in running] == [0, 0]
    assert files(artifact) == {MANIFEST}
