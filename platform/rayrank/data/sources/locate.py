"""Find files on any fsspec storage, and digest their content."""

import glob
import hashlib
import re
from pathlib import Path

import fsspec
from fsspec.implementations.local import LocalFileSystem

from rayrank.core.errors import DatasetError


def find_all(folder: str, *patterns: str, what: str = "files", required: bool = True) -> list[str]:
    """Return the files below a folder that match any pattern, sorted."""
    filesystem, root = fsspec.url_to_fs(folder)
    if not filesystem.isdir(root):
        raise DatasetError(f"The dataset folder {folder} does not exist: check the path after --dataset.")
    base = glob.escape(root.rstrip("/"))
    found = sorted({name for pattern in patterns for name in filesystem.glob(f"{base}/{pattern}")})
    if required and not found:
        raise DatasetError(f"The dataset folder {folder} has no {what}: expected {' or '.join(patterns)} in it.")
    return [filesystem.unstrip_protocol(name).removeprefix("file://") for name in found]


def find_one(folder: str, *names: str) -> str:
    """Return the one file of a folder that has one of these names."""
    found = find_all(folder, *names, what=names[0])
    if len(found) > 1:
        raise DatasetError(f"The dataset folder {folder} has {' and '.join(found)}: keep one of them.")
    return found[0]


def listed(path: str) -> list[str]:
    """Return the paths of a comma-separated list; a path that exists as it is written may itself contain commas."""
    return [path] if _exists(path) else [each.strip() for each in path.split(",") if each.strip()]


def _exists(path: str) -> bool:
    try:
        filesystem, name = fsspec.url_to_fs(path)
        return bool(filesystem.exists(name))
    except (ImportError, ValueError):  # no package for this storage, or a list that cannot be read as one URL
        return False


def file_digest(path: str, fix: str) -> str:
    """Return a digest of a file's content; `fix` tells a user what to do about a file that cannot be read."""
    filesystem, name = fsspec.url_to_fs(path)
    if not isinstance(filesystem, LocalFileSystem):
        # An object store has a version or checksum for each object; reading all of them would take hours.
        return str(filesystem.ukey(name))
    try:
        with Path(name).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DatasetError(f"The file {path} cannot be read: {error.strerror}; {fix}.") from None


_SPLITS = {"training": "train", "valid": "dev", "validation": "dev", "val": "dev"} | {
    name: name for name in ("train", "dev", "test", "eval")
}


def usual_split(name: str) -> str:
    """Return the usual name of a split: dev for valid, val and validation; other names stay as they are."""
    return _SPLITS.get(name.lower(), name)


def named_split(name: str, default: str) -> str:
    """Return the split that a name mentions, such as train or dev; the last one if there are several."""
    words = reversed(re.findall("[a-z]+", name.lower()))
    return next((_SPLITS[word] for word in words if word in _SPLITS), default)
