"""A file system that behaves as those of S3 and GCS: it creates a file conditionally and remembers listings."""

from contextlib import suppress
from threading import Lock
from typing import Any

import fsspec
from fsspec import AbstractFileSystem
from fsspec.implementations.memory import MemoryFileSystem


class Bucket(MemoryFileSystem):  # type: ignore[misc]
    """`bucket://` in memory; as fsspec makes an instance for each thread, a thread has listings of its own."""

    protocol = "bucket"
    conflicts = 0
    """How many creations are refused although there is no file, as S3 does when two processes write at once."""
    _writing = Lock()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(path.replace("bucket://", "memory://", 1)))

    def ls(self, path: str, detail: bool = True, refresh: bool = False, **options: Any) -> Any:
        path = self._strip_protocol(path)
        if refresh or path not in self.dircache:
            self.dircache[path] = super().ls(path, detail=True, **options)
        found = self.dircache[path]
        return found if detail else [each["name"] for each in found]

    def info(self, path: str, **options: Any) -> Any:
        path = self._strip_protocol(path)
        with suppress(TypeError):  # nothing was listed
            return self._ls_from_cache(path)[0]
        return super().info(path, **options)

    def exists(self, path: str, **options: Any) -> bool:
        return bool(AbstractFileSystem.exists(self, path, **options))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **options: Any) -> None:
        with self._writing:
            if mode == "create":
                if Bucket.conflicts:
                    Bucket.conflicts -= 1
                    raise OSError("An error occurred (ConditionalRequestConflict)")
                if self._strip_protocol(path) in self.store:
                    raise FileExistsError(path)
            super().pipe_file(path, value, **options)
        self.invalidate_cache(self._parent(self._strip_protocol(path)))

    def invalidate_cache(self, path: str | None = None) -> None:
        self.dircache.pop(path and self._strip_protocol(path), None)


fsspec.register_implementation("bucket", Bucket, clobber=True)
