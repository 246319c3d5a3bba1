"""API keys: from a file that is read again when it changes, and from the environment."""

import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rayrank.core.errors import ConfigError
from rayrank.serve.config import KEYS, ServeConfig

LOOK_S = 1.0
"""Seconds between two checks whether the file has changed."""

LIMIT = re.compile(r"(requests|passages)=([1-9]\d*)")
"""A limit, per minute, on the line of a key."""

NAME = re.compile(r"(?:^|\s)#")
"""Stands before the name of a key."""

MIN_CHARACTERS = 16
"""Characters of the shortest key in the environment variable, where a comma in a name would begin another key."""

Unit = Literal["requests", "passages"]

Digests = Mapping[str, Mapping[str, Any]]
"""The fields of keys by the SHA-256 of the key. Settings may hold them, because Ray shows its users all settings."""

log = logging.getLogger(__name__)


class Key(NamedTuple):
    """What the line of a key says."""

    name: str
    requests: int | None = None
    """The most requests of a minute; None for any number."""
    passages: int | None = None


class Allowance:
    """Grants units at a steady rate; what is not asked for adds up to the units of one minute."""

    def __init__(self, per_minute: float) -> None:
        self._per_minute = self._left = per_minute
        self._looked_at = time.monotonic()

    def take(self, count: int) -> float:
        """Take units and return 0, or return the seconds until they can be taken.

        More than a minute's units are granted when a full minute's worth is left; the rest is a debt that later
        requests wait for."""
        now = time.monotonic()
        self._left = min(self._per_minute, self._left + (now - self._looked_at) * self._per_minute / 60)
        self._looked_at = now
        missing = min(count, self._per_minute) - self._left
        if missing > 0:
            return missing * 60 / self._per_minute
        self._left -= count
        return 0.0

    def give_back(self, count: int) -> None:
        """Return units that were taken but not used."""
        self._left += count


class Client:
    """The holder of a key, and what is left of its limits in one ingress replica."""

    def __init__(self, key: Key, share: float) -> None:
        """Take the key, and the share of its limits that this replica grants."""
        self.key, self.name = key, key.name
        limits: dict[Unit, int | None] = {"requests": key.requests, "passages": key.passages}
        self._left = {unit: Allowance(limit * share) for unit, limit in limits.items() if limit}

    def take(self, unit: Unit, count: int) -> float:
        """Take requests or passages and return 0, or return the seconds until they can be taken."""
        return self._left[unit].take(count) if unit in self._left else 0.0

    def give_back(self, unit: Unit, count: int) -> None:
        """Return requests or passages that were taken but not used."""
        if unit in self._left:
            self._left[unit].give_back(count)


class ApiKeys:
    """The keys of one ingress replica. Without a file and without any key, requests need none."""

    def __init__(self, config: ServeConfig, given: Digests | None = None, num_ingresses: int = 1) -> None:
        """Read the keys; `given` are those that the environment of the process that built the application had."""
        self._file, self._share = config.keys_file, 1 / num_ingresses
        self._fixed = {digest: Key(**fields) for digest, fields in (given or {}).items()} | _environment_keys()
        self._looked_at, self._state = time.monotonic(), _state(self._file)
        own = _read(self._file)
        if self._file and not own:
            raise ConfigError(f"keys_file={self._file} has no keys: write one per line, or leave keys_file empty.")
        self._known: dict[str, Client] = {}
        self._replace({**self._fixed, **own})
        self.are_needed = bool(self._known)

    def client_of(self, key: bytes) -> Client | None:
        """Return the holder of a key, or None for a key that is unknown or revoked."""
        self._look()
        digest = hashlib.sha256(key).hexdigest()
        found = None
        # All keys are compared, each in constant time, so that the time taken reveals nothing about them.
        for known, client in self._known.items():
            if hmac.compare_digest(digest, known):
                found = client
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
        before, self._state = self._known, state
        self._replace(fresh)
        for keys, others, what in ((before, self._known, "revoked"), (self._known, before, "new")):
            if names := sorted(client.name for digest, client in keys.items() if digest not in others):
                log.warning("Keys %s: %s", what, ", ".join(names))

    def _replace(self, keys: Mapping[str, Key]) -> None:
        # A key whose line has not changed keeps what is left of its limits.
        same = {digest: client for digest, client in self._known.items() if keys.get(digest) == client.key}
        self._known = {digest: same.get(digest) or Client(key, self._share) for digest, key in keys.items()}


def environment_digests() -> dict[str, dict[str, Any]]:
    """Return the keys in the environment of this process, as a deployment's settings may hold them."""
    return {digest: key._asdict() for digest, key in _environment_keys().items()}


def first_key() -> str:
    """Return the first key in the environment of this process, as a client sends it; empty if there is none."""
    entries = (NAME.split(entry, maxsplit=1)[0].split() for entry in os.environ.get(KEYS, "").split(","))
    return next((words[0] for words in entries if words), "")


def _environment_keys() -> dict[str, Key]:
    text = os.environ.get(KEYS)
    if text is None:
        return {}
    found = _keys(text.split(","), f"{KEYS}, key", MIN_CHARACTERS)
    if not found:
        raise ConfigError(f"{KEYS} is set but has no keys: write some, separated by commas, or unset it.")
    return found


def _read(file: str) -> dict[str, Key]:
    if not file:
        return {}
    try:
        # With a byte order mark, which editors on Windows write, the first key would be another one.
        lines = Path(file).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ConfigError(f"keys_file={file} cannot be read: {reason}; name a file of keys.") from None
    return _keys(lines, f"keys_file={file}, line")


def _keys(lines: Sequence[str], source: str, shortest: int = 1) -> dict[str, Key]:
    """Return keys by digest from lines such as `KEY requests=600 passages=20000  # search team`.

    A key without a name is named by its digest."""
    found = {}
    for number, line in enumerate(lines, 1):
        words, *name = NAME.split(line, maxsplit=1)
        if not words.strip():
            continue
        key, *limits = words.split()
        if len(key) < shortest:
            raise ConfigError(
                f"{source} {number} has {len(key)} characters: use random keys of {shortest} or more, and names "
                f"without a comma, which would begin another key."
            )
        digest = hashlib.sha256(key.encode()).hexdigest()
        matches = [LIMIT.fullmatch(limit) for limit in limits]
        if None in matches:
            # The message must not show a part of a key.
            raise ConfigError(
                f"{source} {number} has something else than limits after the key: write requests=N or passages=N "
                f"(per minute), and the name after ' # '."
            )
        found[digest] = Key(
            "".join(name).strip() or f"key {digest[:8]}", **{match[1]: int(match[2]) for match in matches if match}
        )
    return found


def _state(file: str) -> tuple[int, int, int] | None:
    """Return what changes when the file is written or replaced; None if there is no file."""
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
