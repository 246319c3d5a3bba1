"""Drafts: files and folders that are being written, and how those that killed processes have left are removed.

Only a process that holds the lease of an artifact may remove drafts from it, since then nobody else writes to it.
"""

import re
import uuid
from contextlib import suppress

import fsspec

_DRAFT = re.compile(r"\.[0-9a-f]{32}\.tmp$")


def draft_of(path: str) -> str:
    """Return the name under which a file is written until it is complete; no other process uses the same name."""
    return f"{path}.{uuid.uuid4().hex}.tmp"


def drafts(filesystem: fsspec.AbstractFileSystem, folder: str) -> list[str]:
    """Return the paths of all drafts of files below a folder."""
    filesystem.invalidate_cache(folder)
    return [path for path in filesystem.find(folder) if _DRAFT.search(path)]


def remove_drafts(filesystem: fsspec.AbstractFileSystem, folder: str) -> None:
    """Delete the drafts of files below a folder."""
    for path in drafts(filesystem, folder):
        with suppress(FileNotFoundError):  # its process was still alive, and has completed it
            filesystem.rm_file(path)


def remove_folders(filesystem: fsspec.AbstractFileSystem, place: str, prefix: str, keep: str) -> None:
    """Delete the folders of a place whose names begin with a prefix, except one: each was copied by one attempt."""
    with suppress(FileNotFoundError):
        for path in filesystem.ls(place, detail=False, refresh=True):
            name = path.rstrip("/").rsplit("/", 1)[-1]
            if name.startswith(prefix) and name != keep:
                with suppress(FileNotFoundError):
                    filesystem.rm(path, recursive=True)
