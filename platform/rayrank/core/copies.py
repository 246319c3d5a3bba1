"""Local copies of folders on remote storage, shared by the processes of one user on one machine.

Guarantee: a copy is fetched once, is complete, and stays while any process that asked for it runs. The last of these
processes removes the copy when it ends. If they were killed, the copy is removed when any later process that uses
copies ends. Each process holds a shared lock (flock) on the folder around the copy, and only a process that gets the
exclusive lock may remove the copy.
"""

import atexit
import fcntl
import getpass
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Lock

import fsspec

_held: dict[Path, int] = {}
"""The copies that this process uses, and the file descriptors that hold their locks."""
_fetching = Lock()


def local_copy(filesystem: fsspec.AbstractFileSystem, path: str, identity: str, name: str) -> str:
    """Return a local folder `name` with the content of a remote folder; `identity` is unique to that content."""
    target = Path(tempfile.gettempdir()) / f"rayrank-{getpass.getuser()}" / f"{identity}-{name}" / name
    with _fetching:
        while target not in _held:
            _hold(target, filesystem, path)
    return str(target)


def _hold(target: Path, filesystem: fsspec.AbstractFileSystem, path: str) -> None:
    """Keep a lock on the copy if it exists; otherwise fetch it, so that the next call can lock it."""
    target.parent.mkdir(parents=True, exist_ok=True)
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
        # One process fetches; the others wait here for its lock and find the copy at their next call.
        _lock(descriptor, fcntl.LOCK_EX)
        if _is_same(descriptor, target.parent) and not target.is_dir():
            _fetch(filesystem, path, target)
    finally:
        if keep:
            if not _held:
                atexit.register(_release)
            _held[target] = descriptor
        else:
            os.close(descriptor)


def _fetch(filesystem: fsspec.AbstractFileSystem, path: str, target: Path) -> None:
    draft = Path(tempfile.mkdtemp(dir=target.parent))
    try:
        filesystem.get(path.rstrip("/") + "/", f"{draft}/", recursive=True)
        try:
            draft.rename(target)
        except OSError:  # without locks, another process may have been first
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _release() -> None:
    """Release this process's locks, and remove every copy that no process has locked."""
    folders = {target.parent.parent for target in _held}
    for descriptor in _held.values():
        os.close(descriptor)
    _held.clear()
    for copy in (copy for folder in folders for copy in folder.glob("*")):
        with suppress(OSError):  # held by another process, or removed by one
            descriptor = os.open(copy, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(copy, ignore_errors=True)
            finally:
                os.close(descriptor)


def _lock(descriptor: int, kind: int) -> None:
    with suppress(OSError):  # a file system without locks: copies there are never removed
        fcntl.flock(descriptor, kind)


def _is_same(descriptor: int, folder: Path) -> bool:
    """Return whether the locked folder is still the one at this path."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), folder.stat())
    return False
