"""Lost and damaged files of finished artifacts: they are reported in one sentence, and never read as a shorter result.

A manifest lists the artifact's files with their sizes, which are compared when a process first finds the artifact. The
pages of Parquet files have checksums that are verified when they are read; a model's weights have one, too.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import fsspec
import pyarrow as pa

from rayrank.core.errors import StorageError

PASSING = ("checkpoints/", "tensorboard/", "lease-")
"""Prefixes of the files that are deleted or rewritten after the manifest, or that only people read."""


def inventory(filesystem: fsspec.AbstractFileSystem, place: str) -> dict[str, int]:
    """Return the size of every file in a folder that stays as it is once the manifest is written."""
    filesystem.invalidate_cache(place)  # workers on other nodes have written most files
    found = filesystem.find(place, detail=True)
    sizes = {path.removeprefix(place).lstrip("/"): int(about["size"]) for path, about in sorted(found.items())}
    return {name: size for name, size in sizes.items() if not name.startswith(PASSING) and not name.endswith(".tmp")}


def fault(expected: Mapping[str, int], present: Mapping[str, int]) -> str:
    """Return what is wrong with the files of an artifact, or an empty string."""
    for name, size in expected.items():
        if name not in present:
            return f"{name} is missing"
        # Another job that makes the same artifact may write a Parquet file anew, with other durations in its footer; a
        # shorter one is noticed when it is read.
        if present[name] < size and not name.endswith(".parquet"):
            return f"{name} has {present[name]:,} of {size:,} bytes"
    return ""


@contextmanager
def damage_reported(path: str, url: str) -> Iterator[None]:
    """Turn what pyarrow raises for a damaged Parquet file into a StorageError; other errors pass."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        # An error of the file system, such as a missing file or a lost connection, has an error number.
        if isinstance(error, OSError) and (error.errno is not None or type(error) is not OSError):
            raise
        raise damaged(path, url, str(error)) from None


def damaged(path: str, url: str, reason: str) -> StorageError:
    """Return the error about a damaged file: the artifact must be made again."""
    first = reason.strip().split("\n")[0].rstrip(".")
    return StorageError(f"The file {path} is damaged ({first}): delete the folder {url} and run again.")
