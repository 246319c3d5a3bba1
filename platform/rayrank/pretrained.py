"""Where a pre-trained tokenizer or encoder lies: a hub name, a folder, or a folder inside an installed package."""

import importlib.util
from contextlib import suppress
from pathlib import Path

from rayrank.errors import ConfigError

_PACKAGE = "package:"


def locate(name: str, key: str) -> str:
    """Return what `from_pretrained` takes; `key` is the setting to name when it cannot be found."""
    if name.startswith(("/", ".", "~")):
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
