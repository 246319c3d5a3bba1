"""Leases: one process at a time works on an artifact, on any storage, and other processes can see which one it is.

A lease is a file `lease-N.json` in the artifact's folder. It names the process that holds it, and that process rewrites
it every HEARTBEAT_S seconds. A process takes a free lease, or one whose holder has died, by creating the file with the
next N, so that only one of several processes succeeds.

Guarantee: where a file can be created exclusively (local file systems, and object stores whose fsspec implementation
writes conditionally with `mode="create"`, such as S3, GCS and Azure) two processes never hold a lease at once, unless
one of them was suspended for longer than STALE_S. On other storage, two processes that start within SETTLE_S may both
hold it. Neither another machine's clock nor a time of modification is read: a holder is silent if its file has kept its
content for STALE_S by the monotonic clock of the process that waits.
"""

import json
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rayrank.core.artifacts import Artifact, storage_errors
from rayrank.core.drafts import remove_drafts
from rayrank.core.errors import StorageError
from rayrank.core.progress import log, say

HEARTBEAT_S = 10.0
STALE_S = 60.0
"""A lease that has not been rewritten for this long, by the waiting process's clock, may be taken over."""
POLL_S = 1.0
SETTLE_S = 1.0

_PREFIX, _SUFFIX = "lease-", ".json"
_TIME = "%Y-%m-%d %H:%M:%S UTC"
_of_thread = threading.local()
"""Its attribute `held` has the artifacts whose leases the thread holds."""


@dataclass(frozen=True)
class Holder:
    """The process that holds a lease, and what it does."""

    work: str
    host: str
    pid: int
    since: str
    machine: str
    """The boot id and the PID namespace; empty on a system without /proc."""
    started: str
    """The start time of the process: a later process with the same pid has a different one."""
    token: str
    """A random id, which distinguishes the lease from a later one of the same process."""
    heartbeats: int = 0

    def __str__(self) -> str:
        return f"{self.host}, process {self.pid}, which has been {self.work} since {self.since}"

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of_this_process(cls, work: str) -> "Holder":
        """Return what a file on storage says about this process."""
        since = datetime.now(UTC).strftime(_TIME)
        pid = os.getpid()
        return cls(work, socket.gethostname(), pid, since, _machine(), _start_time(pid), uuid.uuid4().hex)

    def age(self) -> timedelta:
        """Return for how long the process has done its work, by the clocks of two machines."""
        return datetime.now(UTC) - datetime.strptime(self.since, _TIME).replace(tzinfo=UTC)

    def is_alive(self) -> bool | None:
        """Return whether the process still runs, or None if this machine cannot tell."""
        if not self.machine or self.machine != _machine():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return None
        return _start_time(self.pid) == self.started


@contextmanager
def leased(artifact: Artifact, work: str, *, waits: bool = True) -> Iterator[None]:
    """Hold an artifact's lease; `work` is what the process does meanwhile, as in "training the pointwise model".

    If another process holds the lease, say which and wait; with `waits=False`, raise an error that names the process.
    Files that a killed process was writing are removed. A thread that holds the lease may take it again.
    """
    held: set[Artifact] = _of_thread.__dict__.setdefault("held", set())
    if waits and artifact in held:
        yield
        return
    lease = _Lease(artifact, work)
    with storage_errors(artifact.url):
        lease.take(waits)
    work_ended = threading.Event()
    heartbeat = threading.Thread(target=lease.renew_until, args=(work_ended,), daemon=True)
    heartbeat.start()
    held.add(artifact)
    try:
        remove_drafts(*artifact.place)
        yield
    except Exception as error:
        if lease.lost_to:
            raise StorageError(
                f"This process showed no heartbeat for {STALE_S:.0f} s and lost the lease of {artifact.url} to "
                f"{lease.lost_to}: wait for that process, or run the same command again."
            ) from error
        raise
    finally:
        held.remove(artifact)
        work_ended.set()
        heartbeat.join(timeout=STALE_S)
        if not lease.lost_to:
            with suppress(OSError):
                remove_drafts(*artifact.place)  # those of workers that were killed while others went on
        lease.release()


def is_leased(artifact: Artifact) -> bool:
    """Return whether a process holds an artifact's lease, or was killed while it held it."""
    return any(name.startswith(f"/{_PREFIX}") for name in artifact.names("", _SUFFIX))


class _Lease:
    def __init__(self, artifact: Artifact, work: str) -> None:
        self._artifact = artifact
        self._holder = Holder.of_this_process(work)
        self._number = 0
        self._has_failed = False
        """Whether the last attempt to create a file failed although no other process was first."""
        self._is_released = False
        self.lost_to = ""

    def take(self, waits: bool) -> None:
        """Return once this process holds the lease; a holder that is dead or shows no heartbeat loses it."""
        first = last = self._newest()
        changed, announced = time.monotonic(), ""
        while True:
            number, content = newest = self._newest()
            if newest != last:
                last, changed = newest, time.monotonic()
            holder = _parsed(content)
            alive = holder.is_alive() if holder else None
            silent = alive is None and time.monotonic() - changed >= STALE_S
            if content is None or alive is False or silent:
                if silent and holder:
                    say(f"no heartbeat for {STALE_S:.0f} s: taking over from {holder}")
                if self._create(number + 1, replaced=content):
                    return
                # A random delay, so that two processes that both gave up the lease do not collide again.
                time.sleep(POLL_S * random.random())
                continue
            if holder and not waits and (alive or newest != first):
                raise StorageError(f"{self._artifact.url} is in use by {holder}: wait for it, or end it.")
            who = holder or f"{self._path(number)}, which is empty or damaged and is ignored after {STALE_S:.0f} s"
            if announced != str(who):
                announced = str(who)
                say(f"waiting for {who}")
            time.sleep(POLL_S)

    def renew_until(self, work_ended: threading.Event) -> None:
        """Rewrite the lease every HEARTBEAT_S until the work ends or another process has taken the lease over."""
        while not work_ended.wait(HEARTBEAT_S):
            try:
                number, content = self._newest()
                if number != self._number or not self._is_own(content):
                    self.lost_to = str(_parsed(content) or "another process")
                    log.warning("the lease of %s was lost to %s", self._artifact.url, self.lost_to)
                    return
                self._holder = replace(self._holder, heartbeats=self._holder.heartbeats + 1)
                self._rewrite()
            except Exception:  # storage that fails for a moment must not end the heartbeat
                log.exception("the lease of %s could not be renewed", self._artifact.url)

    def _rewrite(self) -> None:
        """Rewrite the lease's file, unless storage stalled for so long that the lease has been released meanwhile."""
        if self._is_released:
            return
        name, content = f"{_PREFIX}{self._number}{_SUFFIX}", self._holder.to_bytes()
        if self._artifact.is_local:
            # By way of a draft: on a full disk the file stays as it is, and still names this process.
            with self._artifact.create(name) as stream:
                stream.write(content)
        else:
            self._artifact.filesystem.pipe_file(self._artifact.path(name), content)
        if self._is_released:
            self._remove()

    def release(self) -> None:
        """Give the lease up for good."""
        self._is_released = True
        self._remove()

    def _remove(self) -> None:
        """Remove the lease file if it is still this process's."""
        with suppress(OSError):  # another process removed the file, or storage is unreachable and the lease goes stale
            if self._is_own(self._artifact.filesystem.cat_file(self._path(self._number))):
                self._artifact.filesystem.rm_file(self._path(self._number))

    def _create(self, number: int, replaced: bytes | None) -> bool:
        """Create the file with this number unless another process was first; return whether the lease is held now.

        `replaced` is the content of the dead holder's file, which is removed.
        """
        artifact, content = self._artifact, self._holder.to_bytes()
        filesystem, path = artifact.filesystem, self._path(number)
        with storage_errors(path):
            filesystem.makedirs(artifact.path("").rstrip("/"), exist_ok=True)
            try:
                if artifact.is_local:
                    _create_whole(Path(path), content)
                else:
                    filesystem.pipe_file(path, content, mode="create")
            except OSError as error:
                # Another process was first, or two wrote at once, which a bucket may refuse to both of them.
                filesystem.invalidate_cache(artifact.path("").rstrip("/"))
                was_late = isinstance(error, FileExistsError)
                if not was_late and self._has_failed and not filesystem.exists(path):
                    raise
                self._has_failed = not was_late
                return False
        if not artifact.is_local:
            # A store without conditional writes accepts two writers; the content of the later one stays.
            time.sleep(SETTLE_S)
            if self._newest() != (number, content):
                return False
        self._number = number
        return self._is_sole_holder(replaced)

    def _is_sole_holder(self, replaced: bytes | None) -> bool:
        """Remove the dead holder's file; release the lease if another process has created a file at the same time.

        Every process creates its file before it looks for others, so at least one of two processes sees both files.
        """
        filesystem = self._artifact.filesystem
        for other in self._numbers():
            with suppress(FileNotFoundError):  # released in the meantime
                if other == self._number:
                    continue
                if other < self._number and filesystem.cat_file(self._path(other)) == replaced:
                    filesystem.rm_file(self._path(other))
                    continue
                filesystem.cat_file(self._path(other))
                self._remove()
                return False
        return True

    def _newest(self) -> tuple[int, bytes | None]:
        """Return the highest number and the content of its file, or 0 and None if there is no lease."""
        for number in sorted(self._numbers(), reverse=True):
            with suppress(FileNotFoundError):  # released in the meantime
                return number, self._artifact.filesystem.cat_file(self._path(number))
        return 0, None

    def _numbers(self) -> list[int]:
        names = self._artifact.names("", _SUFFIX)
        found = [name.removeprefix(f"/{_PREFIX}").removesuffix(_SUFFIX) for name in names if _PREFIX in name]
        return [int(text) for text in found if text.isdigit()]

    def _path(self, number: int) -> str:
        return self._artifact.path(f"{_PREFIX}{number}{_SUFFIX}")

    def _is_own(self, content: bytes | None) -> bool:
        # If a heartbeat fails halfway on storage that is not local, this process's own file may be unreadable, so an
        # unreadable file counts as its own.
        holder = _parsed(content)
        return content is not None and (holder is None or holder.token == self._holder.token)


def _create_whole(path: Path, content: bytes) -> None:
    """Create a local file, or none if the disk is full: other processes would wait for the holder of an empty lease."""
    stream = path.open("xb")
    try:
        with stream:
            stream.write(content)
    except OSError:
        path.unlink()
        raise


def _parsed(content: bytes | None) -> Holder | None:
    """Return the holder, or None if there is no file or it is just being written."""
    with suppress(ValueError, TypeError):
        return Holder(**json.loads(content or b""))
    return None


def _machine() -> str:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return ""


def _start_time(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; empty if it has ended."""
    with suppress(OSError, IndexError):
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "" if state in ("Z", "X") else fields[18]
    return ""
