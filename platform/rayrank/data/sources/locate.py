"""Find a source's files on any fsspec storage."""

import glob
import re

import fsspec

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


_SPLITS = {"training": "train", "valid": "dev", "validation": "dev"} | {
    name: name for name in ("train", "dev", "test", "eval")
}


def named_split(name: str, default: str) -> str:
    """Return the split that a name mentions, such as train or dev; the last one if there are several."""
    words = reversed(re.findall("[a-z]+", name.lower()))
    return next((_SPLITS[word] for word in words if word in _SPLITS), default)
