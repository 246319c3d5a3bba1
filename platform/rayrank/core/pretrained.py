"""Find a pre-trained tokenizer or encoder by its name: a hub name, a local folder, or a folder of a Python package."""

import hashlib
import importlib.util
import json
from contextlib import suppress
from pathlib import Path

from rayrank.core.errors import ConfigError
from rayrank.core.paths import absolute_path, is_directory

_PACKAGE = "package:"


def is_folder(name: str) -> bool:
    """Return whether a name means a local folder: it begins like a path, or a folder of that name exists."""
    if not name or name.startswith(_PACKAGE):
        return False
    # transformers looks for a local folder first as well, and only then asks the hub.
    return name.startswith(("/", ".", "~")) or is_directory(name)


def is_hub_name(name: str) -> bool:
    """Return whether a name is one on the Hugging Face hub."""
    return bool(name) and not name.startswith(_PACKAGE) and not is_folder(name)


def resolved(name: str) -> str:
    """Return a folder's absolute path, so that workers in other working directories find it; other names unchanged."""
    return absolute_path(name) if is_folder(name) else name


def content_digest(name: str, key: str) -> str:
    """Return a digest of all files in a local folder; it is empty for a hub name or a package, which keys have by name.

    `key` is the setting that the error message names when the folder cannot be read.
    """
    if not is_folder(name):
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


def locate(name: str, key: str) -> str:
    """Return the name or folder that `from_pretrained` takes; `key` is the setting to name if it does not exist."""
    if is_folder(name):
        folder = absolute_path(name)
        if not is_directory(folder):
            raise ConfigError(f"{key}={name} cannot be found: there is no folder {folder}.")
        return folder
    if not name.startswith(_PACKAGE):
        return name
    module, _, inside = name.removeprefix(_PACKAGE).partition("/")
    spec = None
    with suppress(ImportError, ValueError):  # a parent package that is missing, or a name that no module can have
        spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ConfigError(f"{key}={name} cannot be found: install the Python package that holds {module!r}.")
    place = Path(spec.origin).parent / inside
    if not place.is_dir():
        raise ConfigError(f"{key}={name} cannot be found: the package {module} has no folder {inside!r}.")
    return str(place)
