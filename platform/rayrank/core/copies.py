"""Folders on a node's own disk, made from storage and shared by the processes of one user on that node.

They are copies of folders on remote storage, files of a corpus that processes map into memory, and folders that a
process needs only for a while. They lie in the folder for temporary files, which TMPDIR names.

Guarantee: a folder is made once, is complete, and stays while any process that asked for it runs. The last of these
processes removes it when it ends. If they were killed, it is removed when any later process makes such a folder, or
ends after using one. Each process holds a shared lock (flock) on the folder around it, and only a process that gets the
exclusive lock may remove it.
"""

import atexit
import errno
import fcntl
import getpass
import glob
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

import fsspec

from rayrank.core.errors import StorageError

_FULL = (errno.ENOSPC, errno.EDQUOT)
_TEMPORARY, _HEX = ".temporary", "[0-9a-f]"
_held: dict[Path, int] = {}
"""The folders that this process uses, and the file descriptors that hold their locks."""
_making = Lock()


def local_copy(filesystem: fsspec.AbstractFileSystem, path: str, identity: str, name: str) -> str:
    """Return a local folder `name` with the content of a remote folder; `identity` is unique to that content."""

    def fetch(draft: Path) -> None:
        filesystem.get(path.rstrip("/") + "/", f"{draft}/", recursive=True)

    return str(node_folder(identity, name, fetch))


def node_folder(identity: str, name: str, fill: Callable[[Path], None]) -> Path:
    """Return a local folder `name`, which `fill` fills unless another process of this node has done so.

    `identity` is unique to its content.
    """
    target = _place() / f"{identity}-{name}" / name
    with _making:
        while target not in _held:
            _hold(target, fill)
    return target


@contextmanager
def temporary_folder(place: Path | None = None, prefix: str = "") -> Iterator[Path]:
    """Yield a new, empty folder, which is removed afterwards; if this process is killed, a later call removes it.

    It lies in this node's folder for temporary files. If `place` is given, it lies there instead, and only a later call
    with the same `prefix` removes it.
    """
    try:
        folder, descriptor = _locked_folder(place or _place(), prefix)
    except OSError as error:
        raise error if place else _unusable(_place(), error) from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _locked_folder(place: Path, prefix: str) -> tuple[Path, int]:
    """Return a new folder and the file descriptor that holds its lock; folders without a lock are removed."""
    while True:
        folder = place / f"{prefix}{uuid.uuid4().hex}{_TEMPORARY}"
        place.mkdir(parents=True, exist_ok=True)
        _remove_unused(place, f"{glob.escape(prefix)}{_HEX * 32}{_TEMPORARY}" if prefix else "*")
        folder.mkdir(mode=0o700)
        with suppress(FileNotFoundError):  # another process removed it before this one had the lock
            descriptor = os.open(folder, os.O_RDONLY)
            _lock(descriptor, fcntl.LOCK_SH)
            if _is_same(descriptor, folder):
                return folder, descriptor
            os.close(descriptor)


def _place() -> Path:
    try:
        return Path(tempfile.gettempdir()) / f"rayrank-{_user()}"
    except FileNotFoundError as error:  # none of the folders that Python tries is writable
        raise _unusable("the folder for temporary files", error) from None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run under a number that has no name
        return str(os.getuid())


def _hold(target: Path, fill: Callable[[Path], None]) -> None:
    """Keep a lock on the folder if it exists; otherwise make it, so that the next call can lock it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(target.parent.parent, error) from None
    try:
        descriptor = os.open(target.parent, os.O_RDONLY)
    except FileNotFoundError:
        return  # another process has just removed the folder
    keep = False
    try:
        _lock(descriptor, fcntl.LOCK_SH)
        if not _is_same(descriptor, target.parent):
            return
        if target.is_dir():
            keep = True
            return
        # One process makes it; the others wait here for its lock and find the folder at their next call.
        _lock(descriptor, fcntl.LOCK_EX)
        if _is_same(descriptor, target.parent) and not target.is_dir():
            _remove_unused(target.parent.parent)
            _make(target, fill)
    finally:
        if keep:
            if not _held:
                atexit.register(_release)
            _held[target] = descriptor
        else:
            os.close(descriptor)


def _make(target: Path, fill: Callable[[Path], None]) -> None:
    place = target.parent.parent
    try:
        draft = Path(tempfile.mkdtemp(dir=target.parent))
    except OSError as error:
        raise _unusable(place, error) from None
    try:
        try:
            fill(draft)
        except OSError as error:
            if error.errno not in _FULL:  # an error of the storage that is copied
                raise
            raise _unusable(place, error) from None
        try:
            draft.rename(target)
        except OSError:  # without locks, another process may have been first
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _unusable(place: Path | str, error: OSError) -> StorageError:
    if error.errno in _FULL:
        return StorageError(
            f"{place} has no room for a local copy of what is on storage: make room there, or name a folder on a "
            f"larger disk in TMPDIR."
        )
    return StorageError(
        f"{place} cannot be written: {error.strerror or error}; make it writable, or name another folder in TMPDIR."
    )


def _release() -> None:
    """Release this process's locks, and remove every folder that no process has locked."""
    places = {target.parent.parent for target in _held}
    for descriptor in _held.values():
        os.close(descriptor)
    _held.clear()
    for place in places:
        _remove_unused(place)


def _remove_unused(place: Path, pattern: str = "*") -> None:
    for folder in place.glob(pattern):
        with suppress(OSError):  # held by another process, or removed by one
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_same(descriptor, folder):
                    # If this process is killed halfway, what is left must not be taken for a complete folder.
                    is_temporary = folder.name.endswith(_TEMPORARY)
                    removed = folder if is_temporary else folder.rename(place / f"removed-{uuid.uuid4().hex}")
                    shutil.rmtree(removed, ignore_errors=True)
            finally:
                os.close(descriptor)


def _lock(descriptor: int, kind: int) -> None:
    with suppress(OSError):  # a file system without locks: folders there are never removed
        fcntl.flock(descriptor, kind)


def _is_same(descriptor: int, folder: Path) -> bool:
    """Return whether the locked folder is still the one at this path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    return False
