"""Results on storage: content-addressed folders whose manifest is written last. Only this module builds paths."""

import errno
import hashlib
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from rayrank.core import flow
from rayrank.core.config import PipelineConfig
from rayrank.core.copies import local_copy
from rayrank.core.drafts import draft_of
from rayrank.core.errors import MissingArtifact, StorageError
from rayrank.core.integrity import damage_reported, damaged, fault, inventory

MANIFEST = "manifest.json"
PARQUET: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
"""How every Parquet file of an artifact is written."""


def digest_of(parts: object) -> str:
    """Return a digest of a JSON value, for example of what a report depends on, as the key of its folder."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Artifact:
    """The folder of one result; only its three strings are sent to workers."""

    root: str
    stage: str
    key: str

    @property
    def url(self) -> str:
        return f"{self.root}/{self.stage}/{self.key}"

    def path(self, name: str) -> str:
        """Return where a file of this artifact lies, as its file system names it."""
        return f"{self.place[1]}/{name}"

    @property
    def filesystem(self) -> fsspec.AbstractFileSystem:
        return self.place[0]

    @property
    def place(self) -> tuple[fsspec.AbstractFileSystem, str]:
        """The file system that the folder lies on, and its path there."""
        filesystem, path = fsspec.url_to_fs(self.url)
        return filesystem, str(path)

    @property
    def is_local(self) -> bool:
        """Whether its files lie on this machine's own file system."""
        return isinstance(self.filesystem, LocalFileSystem)

    def exists(self, name: str = MANIFEST) -> bool:
        # The file system of a bucket remembers listings; an old one would hide what others have written since.
        self.filesystem.invalidate_cache(self.path(name).rpartition("/")[0])
        return bool(self.filesystem.exists(self.path(name)))

    def names(self, folder: str, suffix: str = ".parquet") -> list[str]:
        """Return the finished files of a sub-folder, sorted, as names within the artifact."""
        filesystem, place = self.place
        with suppress(FileNotFoundError):
            found = filesystem.ls(f"{place}/{folder}", detail=False, refresh=True)
            return sorted(f"{folder}/{name.rsplit('/', 1)[-1]}" for name in found if name.endswith(suffix))
        return []

    @contextmanager
    def create(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file for writing that appears under its name only once it is complete."""
        filesystem, path = self.filesystem, self.path(name)
        draft = draft_of(path)
        try:
            with storage_errors(path):
                filesystem.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
                with filesystem.open(draft, "wb") as stream:
                    yield stream
                filesystem.mv(draft, path)
        except BaseException:
            with suppress(OSError):
                filesystem.rm_file(draft)
            raise

    def open(self, name: str) -> IO[bytes]:
        return self.filesystem.open(self.path(name), "rb")  # type: ignore[no-any-return]

    def write_table(self, name: str, table: pa.Table) -> None:
        with self.create(name) as stream:
            pq.write_table(table, stream, **PARQUET)

    def read_table(self, name: str, columns: list[str] | None = None, **options: Any) -> pa.Table:
        path = self.path(name)
        with damage_reported(path, self.url):
            return pq.read_table(
                path, columns=columns, filesystem=self.filesystem, page_checksum_verification=True, **options
            )

    def metadata(self, name: str) -> pq.FileMetaData:
        """Return the footer of a Parquet file."""
        with self.open(name) as stream, damage_reported(self.path(name), self.url):
            return pq.read_metadata(stream)

    def num_rows(self, name: str) -> int:
        """Return the number of rows of a Parquet file."""
        return int(self.metadata(name).num_rows)

    def batches(self, name: str, columns: list[str] | None, rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """Yield a Parquet file in bounded pieces; all of its columns if `columns` is None."""
        with self.open(name) as stream:
            with damage_reported(self.path(name), self.url):
                found = pq.ParquetFile(stream, page_checksum_verification=True).iter_batches(rows, columns=columns)
            while True:
                # The caller's errors are its own.
                with damage_reported(self.path(name), self.url):
                    batch = next(found, None)
                if batch is None:
                    return
                yield batch

    def write_json(self, name: str, value: object) -> None:
        with self.create(name) as stream:
            stream.write(json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n")

    def read_json(self, name: str) -> Any:
        try:
            with self.open(name) as stream:
                return json.load(stream)
        except (json.JSONDecodeError, UnicodeDecodeError):
            raise damaged(self.path(name), self.url, "it is not JSON") from None

    @property
    def manifest(self) -> dict[str, Any]:
        return self.read_json(MANIFEST)  # type: ignore[no-any-return]

    def put_folder(self, local: str, name: str) -> None:
        """Copy a local folder to storage, under a name that no other process uses: the copy is not atomic."""
        with storage_errors(self.path(name)):
            self.filesystem.put(local.rstrip("/") + "/", f"{self.path(name)}/", recursive=True)

    def remove_folder(self, name: str) -> None:
        """Delete a folder that was needed only while the artifact was made."""
        with suppress(FileNotFoundError):
            self.filesystem.rm(self.path(name), recursive=True)

    def local(self, name: str) -> str:
        """Return a local path of a folder.

        It is the folder itself on local storage, otherwise a temporary copy, removed once no process uses it.
        """
        path = self.path(name)
        return path if self.is_local else local_copy(self.filesystem, path, f"{self.stage}-{self.key}", name)


class Store:
    """All artifacts of one storage root, found by configuration."""

    def __init__(self, root: str, *, is_read_only: bool = False) -> None:
        """Take any fsspec path; a local one may be relative. Unless it is only read, make it and try to write to it."""
        try:
            filesystem, path = fsspec.url_to_fs(root)
            # Workers run in other folders, so a local root is made absolute, without file://.
            self.root = str(Path(path).resolve()) if isinstance(filesystem, LocalFileSystem) else _without_slashes(root)
            if is_read_only:
                return
            filesystem.makedirs(path, exist_ok=True)
            probe = f"{path}/.writable"  # one name, so that the next process removes what a killed one left
            filesystem.pipe_file(probe, b"")
            with suppress(FileNotFoundError):
                filesystem.rm_file(probe)
        except Exception as error:  # each file system raises its own, such as missing credentials
            raise _unwritable(root, error) from None

    def artifact(self, name: str, config: PipelineConfig) -> Artifact:
        """Return the folder that the result of a stage or a run belongs in, finished or not."""
        return Artifact(self.root, flow.describe(name, config).folder, flow.key(name, config))

    def find(self, name: str, config: PipelineConfig) -> Artifact | None:
        """Return a finished artifact, or None."""
        artifact = self.artifact(name, config)
        if not artifact.exists():
            return None
        check_files(artifact)
        return artifact

    def require(self, name: str, config: PipelineConfig) -> Artifact:
        """Return a finished artifact; the error names the command that makes a missing one."""
        artifact = self.find(name, config)
        if artifact is None:
            raise MissingArtifact(name.removeprefix(flow.RUN), flow.describe(name, config).command)
        return artifact

    def kinds(self) -> list[str]:
        """Return the names of the folders of artifacts, those of stages and those of kinds of runs, sorted."""
        filesystem, path = fsspec.url_to_fs(self.root)
        found = [place["name"] for place in filesystem.ls(path, detail=True) if place["type"] == "directory"]
        return sorted(place.rstrip("/").rsplit("/", 1)[-1] for place in found)

    def finished(self, stage: str) -> Iterator[Artifact]:
        """Yield every finished artifact of a stage, whatever its settings, in the order of their keys."""
        return (artifact for artifact in self.folders(stage) if artifact.exists())

    def folders(self, stage: str) -> Iterator[Artifact]:
        """Yield every folder of a stage or of a kind of report, finished or not, in the order of their keys."""
        filesystem, path = fsspec.url_to_fs(f"{self.root}/{stage}")
        with suppress(FileNotFoundError):
            for place in sorted(filesystem.ls(path, detail=False)):
                yield Artifact(self.root, stage, place.rstrip("/").rsplit("/", 1)[-1])

    def finish(
        self, artifact: Artifact, config: PipelineConfig, started: float, facts: dict[str, Any], node: str = ""
    ) -> Artifact:
        """Write the manifest, which marks the artifact as finished.

        `node` names the node; leave it empty for a stage, whose folder has the same name.
        """
        described = flow.describe(node or artifact.stage, config)
        manifest = {
            "stage": artifact.stage,
            "key": artifact.key,
            "version": described.version,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - started, 2),
            "revision": _revision(),
            "config": described.settings,
            "inputs": {each: flow.key(each, config) for each in described.inputs},
            **facts,
            "files": inventory(*artifact.place),
        }
        artifact.write_json(MANIFEST, manifest)
        return artifact


@cache
def check_files(artifact: Artifact) -> None:
    """Raise if a file that the manifest lists is missing or too short; a process asks once for each artifact."""
    # Manifests of earlier versions have no list.
    expected = artifact.manifest.get("files", {})
    if wrong := fault(expected, inventory(*artifact.place) if expected else {}):
        raise StorageError(f"The artifact {artifact.url} is damaged, {wrong}: delete this folder and run again.")


def check_root(root: str) -> None:
    """Raise if a storage root is empty, has an unknown protocol, or lies below a file; nothing is created."""
    try:
        if not root.strip():
            raise ValueError("it is empty")
        filesystem, path = fsspec.url_to_fs(root)
        if isinstance(filesystem, LocalFileSystem):
            place = Path(path).absolute()
            existing = next(folder for folder in (place, *place.parents) if folder.exists())
            if not existing.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, f"{existing} is a file")
    except Exception as error:  # each file system raises its own
        raise _unwritable(root, error) from None


def _unwritable(root: str, error: Exception) -> StorageError:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return StorageError(f"--storage {root} cannot be written: {reason}; name a writable folder or bucket.")


def _without_slashes(url: str) -> str:
    """Return a URL without its trailing slashes; those of `://` stay."""
    protocol, separator, path = url.partition("://")
    return protocol + separator + path.rstrip("/")


@contextmanager
def storage_errors(path: str) -> Iterator[None]:
    """Turn an OSError into a StorageError: a full disk or a missing permission is for the user to fix."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        fix = "make it writable" if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) else "make room there"
        raise StorageError(f"{path} cannot be written: {reason}; {fix}, or name another --storage.") from None


@cache
def _revision() -> str:
    """Return the git revision of this code; a repository that does not know this file is another project's."""
    file = Path(__file__)
    try:
        for command in (["ls-files", "--error-unmatch", file.name], ["rev-parse", "HEAD"]):
            answer = subprocess.run(["git", *command], cwd=file.parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return answer.stdout.strip()
