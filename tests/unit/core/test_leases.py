"""One process at a time holds a lease; others wait for it, learn who holds it, and take over if the holder died."""

import io
import os
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pytest

from rayrank.core import leases, progress as shown
from rayrank.core.artifacts import Artifact
from rayrank.core.errors import StorageError
from rayrank.core.leases import Holder, leased
from tests.buckets import Bucket

ELSEWHERE = Holder("training the pointwise model", "far", 7, "2026-01-02 03:04:05 UTC", "another boot", "1", "token")


@pytest.fixture(params=["local", "memory", "bucket"])
def artifact(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Artifact]:
    if request.param == "local":
        yield Artifact(str(tmp_path), "pointwise", "key")
        return
    root = f"{request.param}://{uuid.uuid4().hex}"
    yield Artifact(root, "pointwise", "key")
    filesystem, path = fsspec.filesystem("memory"), fsspec.url_to_fs(root)[1]
    if filesystem.exists(path):
        filesystem.rm(path, recursive=True)


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a user sees; the clock runs a hundred times faster than for a user."""
    monkeypatch.setattr(leases, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(leases, "STALE_S", 0.6)
    monkeypatch.setattr(leases, "POLL_S", 0.01)
    monkeypatch.setattr(leases, "SETTLE_S", 0.01)
    stream = io.StringIO()
    monkeypatch.setattr(shown, "_screen", stream)
    return stream


def files(artifact: Artifact) -> list[str]:
    return [name.lstrip("/") for name in artifact.names("", ".json")]


def write(artifact: Artifact, number: int, holder: Holder) -> None:
    artifact.write_json(f"lease-{number}.json", asdict(holder))


def test_a_lease_names_its_process_while_it_is_held_and_is_gone_afterwards(artifact: Artifact) -> None:
    with leased(artifact, "training"):
        (name,) = files(artifact)
        held = artifact.read_json(name)
        assert (held["pid"], held["work"]) == (os.getpid(), "training")
    assert files(artifact) == []


def test_a_lease_is_released_by_an_error(artifact: Artifact) -> None:
    with pytest.raises(KeyError), leased(artifact, "training"):
        raise KeyError
    with leased(artifact, "training", waits=False):
        pass


@pytest.mark.parametrize(("owner", "step"), [(leases._Lease, "_newest"), (Holder, "to_bytes")])
def test_a_heartbeat_that_storage_held_up_does_not_bring_a_released_lease_back(
    owner: type, step: str, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, goes_on, stalled = getattr(owner, step), threading.Event(), []

    def slowly(of: Any) -> Any:
        found = own(of)
        if threading.current_thread() is not threading.main_thread():
            stalled.append(threading.current_thread())
            goes_on.wait(30)
        return found

    monkeypatch.setattr(owner, step, slowly)
    with leased(artifact, "training"):
        while not stalled:
            time.sleep(0.01)
    assert files(artifact) == []

    goes_on.set()
    stalled[0].join(30)

    assert files(artifact) == []


def test_one_thread_at_a_time_holds_a_lease(artifact: Artifact) -> None:
    inside, most = 0, 0

    def work(_: int) -> None:
        nonlocal inside, most
        with leased(artifact, "training"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(12)))
    assert most == 1
    assert files(artifact) == []


def test_without_waiting_the_error_names_the_holder(artifact: Artifact) -> None:
    with (
        leased(artifact, "running this sweep"),
        pytest.raises(StorageError) as caught,
        leased(artifact, "running this sweep", waits=False),
    ):
        pass
    message = str(caught.value)
    assert f"process {os.getpid()}, which has been running this sweep since 2" in message
    assert message.endswith("UTC: wait for it, or end it.")


def test_a_dead_process_on_this_machine_loses_its_lease_at_once(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch, said: io.StringIO
) -> None:
    monkeypatch.setattr(leases, "STALE_S", 1000.0)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    here = {"machine": leases._machine(), "host": "here"}
    for pid, started in ((ended.pid, "1"), (os.getpid(), "the start of an earlier process with this id")):
        write(artifact, 3, Holder(**{**asdict(ELSEWHERE), **here, "pid": pid, "started": started}))
        with leased(artifact, "training", waits=False):
            assert files(artifact) == ["lease-4.json"]
    assert said.getvalue() == ""


@pytest.mark.parametrize("waits", [True, False])
def test_a_process_on_another_machine_loses_its_lease_when_its_heartbeat_stops(
    artifact: Artifact, waits: bool, said: io.StringIO
) -> None:
    write(artifact, 1, ELSEWHERE)
    began = time.monotonic()
    with leased(artifact, "training", waits=waits):
        assert time.monotonic() - began >= leases.STALE_S
    lines = said.getvalue().splitlines()
    who = "far, process 7, which has been training the pointwise model since 2026-01-02 03:04:05 UTC"
    assert lines == [f"waiting for {who}", f"no heartbeat for 1 s: taking over from {who}"]


def test_a_process_on_another_machine_keeps_its_lease_while_its_heartbeat_continues(artifact: Artifact) -> None:
    over = threading.Event()

    def beat() -> None:
        number = 0
        while not over.wait(0.1):
            number += 1
            write(artifact, 1, Holder(**{**asdict(ELSEWHERE), "heartbeats": number}))
        artifact.filesystem.rm_file(artifact.path("lease-1.json"))

    write(artifact, 1, ELSEWHERE)
    heart = threading.Thread(target=beat)
    heart.start()
    with pytest.raises(StorageError, match="in use by far, process 7"), leased(artifact, "", waits=False):
        pass
    threading.Timer(3 * leases.STALE_S, over.set).start()
    with leased(artifact, "training"):
        assert over.is_set()
    heart.join()


def test_one_thread_at_a_time_takes_over_from_a_dead_holder(artifact: Artifact) -> None:
    write(artifact, 1, Holder(**{**asdict(ELSEWHERE), "machine": leases._machine(), "pid": 2**22 + 1}))
    inside, most = 0, 0
    together = threading.Barrier(6)

    def work(_: int) -> None:
        nonlocal inside, most
        together.wait()
        with leased(artifact, "training"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.02)
            inside -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert most == 1
    assert files(artifact) == []


def test_losing_a_bucket_to_another_process_after_a_listing_is_no_error() -> None:
    artifact = Artifact(f"bucket://{uuid.uuid4().hex}", "pointwise", "key")
    artifact.write_json("other.json", {})
    assert files(artifact) == ["other.json"]
    with ThreadPoolExecutor(1) as pool:  # a thread has listings of its own, as another process has
        pool.submit(write, artifact, 1, ELSEWHERE).result()

    assert not leases._Lease(artifact, "training")._create(1, replaced=None)
    assert artifact.read_json("lease-1.json") == asdict(ELSEWHERE)


def test_a_bucket_that_refuses_a_creation_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = Artifact(f"bucket://{uuid.uuid4().hex}", "pointwise", "key")
    monkeypatch.setattr(Bucket, "conflicts", 1)
    with leased(artifact, "training"):
        assert files(artifact) == ["lease-1.json"]
    Bucket.conflicts = 10
    with pytest.raises(StorageError, match="ConditionalRequestConflict"), leased(artifact, "training"):
        pass


def test_a_lost_race_is_not_counted_as_a_refused_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    lease = leases._Lease(Artifact(f"bucket://{uuid.uuid4().hex}", "pointwise", "key"), "training")
    for number in (1, 2):
        monkeypatch.setattr(Bucket, "conflicts", 1)
        assert not lease._create(2 * number, None)
        write(lease._artifact, 2 * number, ELSEWHERE)
        assert not lease._create(2 * number, None)


@pytest.mark.parametrize("hours", [-5, 5])
def test_the_time_of_a_file_on_storage_does_not_count(
    artifact: Artifact, hours: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "STALE_S", 1000.0)
    write(artifact, 1, ELSEWHERE)
    shifted = time.time() + 3600 * hours
    if artifact.is_local:
        os.utime(artifact.path("lease-1.json"), (shifted, shifted))
    else:
        artifact.filesystem.store[artifact.path("lease-1.json")].modified = datetime.fromtimestamp(shifted, UTC)
    threading.Timer(0.2, artifact.filesystem.rm_file, [artifact.path("lease-1.json")]).start()

    began = time.monotonic()
    with leased(artifact, "training"):
        assert time.monotonic() - began >= 0.2  # the other process had to release it


def test_a_process_that_lost_its_lease_gets_an_error_and_keeps_the_new_one(artifact: Artifact) -> None:
    def lose() -> None:
        with leased(artifact, "training"):
            # As if this process had been suspended: another has taken over and has removed the file of this one.
            artifact.filesystem.rm_file(artifact.path("lease-1.json"))
            write(artifact, 2, ELSEWHERE)
            time.sleep(4 * leases.HEARTBEAT_S)
            raise KeyError("a checkpoint that the other process has removed")

    with pytest.raises(StorageError, match=r"lost the lease of .* to far, process 7, which .*: wait for that process"):
        lose()
    assert files(artifact) == ["lease-2.json"]


def test_another_processs_lease_of_the_same_number_is_not_deleted(artifact: Artifact) -> None:
    with leased(artifact, "training"):
        write(artifact, 1, ELSEWHERE)
        time.sleep(4 * leases.HEARTBEAT_S)
    assert artifact.read_json("lease-1.json") == asdict(ELSEWHERE)


@pytest.mark.parametrize("content", [b"", b'{"host": '])
def test_an_empty_or_damaged_lease_is_taken_over(artifact: Artifact, content: bytes, said: io.StringIO) -> None:
    with artifact.create("lease-1.json") as stream:
        stream.write(content)
    with leased(artifact, "training", waits=False):
        assert files(artifact) == ["lease-2.json"]
    path = artifact.path("lease-1.json")
    assert said.getvalue() == f"waiting for {path}, which is empty or damaged and is ignored after 1 s\n"


FULL_DISK = textwrap.dedent("""
    import resource, sys, time
    from rayrank.core import leases
    from rayrank.core.artifacts import Artifact
    from rayrank.core.errors import StorageError

    def let_files_have(size):  # a write beyond it fails, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    leases.HEARTBEAT_S = 0.05
    artifact = Artifact(sys.argv[1], "pointwise", "key")
    for size in (0, 20):
        let_files_have(size)
        try:
            with leases.leased(artifact, "training"):
                print("holds it")
        except StorageError as error:
            print(error)
    let_files_have(resource.RLIM_INFINITY)
    with leases.leased(artifact, "training"):
        let_files_have(0)
        time.sleep(10 * leases.HEARTBEAT_S)
        print(leases.Holder(**artifact.read_json("lease-1.json")).is_alive())
        let_files_have(resource.RLIM_INFINITY)
""")


def test_on_a_full_disk_no_empty_lease_is_left_and_a_held_one_keeps_its_content(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)], text=True, capture_output=True, check=True, timeout=60
    )

    path = tmp_path / "pointwise/key/lease-1.json"
    refused = f"{path} cannot be written: File too large; make room there, or name another --storage."
    assert done.stdout.splitlines() == [refused, refused, "True"]
    assert list(path.parent.iterdir()) == []


SCRIPT = textwrap.dedent("""
    import sys, time
    from rayrank.core.artifacts import Artifact
    from rayrank.core.leases import leased

    with leased(Artifact(sys.argv[1], "pointwise", "key"), "training the pointwise model"):
        print("holds it", flush=True)
        sys.stdin.readline()
    print("released it", flush=True)
""")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Starts processes that hold the lease until they are sent a line."""
    running = []

    def start() -> subprocess.Popen[str]:
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        running.append(subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], text=True, **pipes))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


def test_a_second_process_names_the_holder_it_waits_for_and_then_continues(start: Any) -> None:
    first = start()
    assert first.stdout.readline() == "holds it\n"
    second = start()
    line = second.stderr.readline()
    assert f", process {first.pid}, which has been training the pointwise model since 20" in line
    assert line.startswith("waiting for ")
    first.communicate("\n", timeout=30)
    assert second.stdout.readline() == "holds it\n"
    second.communicate("\n", timeout=30)
    assert second.returncode == 0


def test_the_lease_of_a_killed_process_is_taken_over_at_once(start: Any) -> None:
    first = start()
    assert first.stdout.readline() == "holds it\n"
    first.kill()
    first.wait()
    began = time.monotonic()
    second = start()
    assert second.stdout.readline() == "holds it\n"
    assert time.monotonic() - began < 30  # not the sixty seconds after which a silent process elsewhere counts as dead
    second.communicate("\n", timeout=30)
