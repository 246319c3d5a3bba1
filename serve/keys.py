"""API keys: from a file that is read again when it changes, and from the environment."""

import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from rayrank.core.errors import ConfigError
from rayrank.serve.config import KEYS, ServeConfig

LOOK_S = 1.0
"""Seconds between two checks whether the file has changed."""

Digests = Mapping[str, str]
"""Names of keys by the SHA-256 of the key. Settings may hold them, because Ray shows its users all settings."""

log = logging.getLogger(__name__)


class ApiKeys:
    """The keys of one ingress replica. Without a file and without any key, requests need none."""

    def __init__(self, config: ServeConfig, given: Digests | None = None) -> None:
        """Read the keys; `given` are those that the environment of the process that built the application had."""
        self._file = config.keys_file
        self._fixed = {**(given or {}), **environment_keys()}
        self._looked_at, self._state = time.monotonic(), _state(self._file)
        own = _read(self._file)
        if self._file and not own:
            raise ConfigError(f"keys_file={self._file} has no keys: write one per line, or leave keys_file empty.")
        self._known = {**self._fixed, **own}
        self.are_needed = bool(self._known)

    def name_of(self, key: bytes) -> str | None:
        """Return the name of a key, or None for a key that is unknown or revoked."""
        self._look()
        digest = hashlib.sha256(key).hexdigest()
        found = None
        # All keys are compared, each in constant time, so that the time taken reveals nothing about them.
        for known, name in self._known.items():
            if hmac.compare_digest(digest, known):
                found = name
        return found

    def _look(self) -> None:
        now = time.monotonic()
        if not self._file or now - self._looked_at < LOOK_S:
            return
        self._looked_at, state = now, _state(self._file)
        if state == self._state:
            return
        try:
            fresh = {**self._fixed, **_read(self._file)}
        except ConfigError as error:
            # An editor may replace the file right now, so it is looked at again. A lost file locks nobody out; a file
            # that was emptied does.
            log.warning("%s The keys that were read before stay valid.", error)
            return
        revoked, new = self._known.keys() - fresh.keys(), fresh.keys() - self._known.keys()
        for digests, known, what in ((revoked, self._known, "revoked"), (new, fresh, "new")):
            if digests:
                log.warning("Keys %s: %s", what, ", ".join(sorted(known[digest] for digest in digests)))
        self._known, self._state = fresh, state


def environment_keys() -> dict[str, str]:
    """Return the digests and names of the keys in the environment of this process."""
    return _named(os.environ.get(KEYS, "").split(","))


def _read(file: str) -> dict[str, str]:
    if not file:
        return {}
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"keys_file={file} cannot be read: {reason}; name a file of keys.") from None
    return _named(lines)


def _named(lines: list[str]) -> dict[str, str]:
    """Return names by digest of lines such as `KEY  # search team`; a key without a name is named by its digest."""
    found = {}
    for line in lines:
        key, *name = re.split(r"(?:^|\s)#", line, maxsplit=1)
        if key.strip():
            digest = hashlib.sha256(key.strip().encode()).hexdigest()
            found[digest] = "".join(name).strip() or f"key {digest[:8]}"
    return found


def _state(file: str) -> tuple[int, int, int] | None:
    """Return what changes when the file is written or replaced; None if there is no file."""
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
