"""Where a pre-trained tokenizer or encoder lies: a hub name, a folder, or a folder inside an installed package."""

import hashlib
import importlib.util
import json
from contextlib import suppress
from pathlib import Path

from rayrank.core.errors import ConfigError

_PACKAGE = "package:"


def content_digest(name: str, key: str) -> str:
    """Return what tells a folder's content from any other; a name on the hub or in a package stands for its content."""
    if not _is_folder(name):
        return ""
    folder, digest = Path(locate(name, key)), hashlib.sha256()
    try:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            with path.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            digest.update(json.dumps([path.relative_to(folder).as_posix(), content]).encode())
    except OSError as error:
        raise ConfigError(f"{key}={name} cannot be read: {error.strerror}; check the folder {folder}.") from None
    return digest.hexdigest()[:16]


def _is_folder(name: str) -> bool:
    return name.startswith(("/", ".", "~"))


def locate(name: str, key: str) -> str:
    """Return what `from_pretrained` takes; `key` is the setting to name when it cannot be found."""
    if _is_folder(name):
        folder = Path(name).expanduser()
        if not folder.is_dir():
            raise ConfigError(f"{key}={name} cannot be found: there is no folder {folder}.")
        return str(folder)
    if not name.startswith(_PACKAGE):
        return name
    module, _, inside = name.removeprefix(_PACKAGE).partition("/")
    spec = None
    with suppress(ImportError, ValueError):  # of a parent that is missing, of a name that cannot be one
        spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ConfigError(f"{key}={name} cannot be found: install the Python package that holds {module!r}.")
    place = Path(spec.origin).parent / inside
    if not place.is_dir():
        raise ConfigError(f"{key}={name} cannot be found: the package {module} has no folder {inside!r}.")
    return str(place)
