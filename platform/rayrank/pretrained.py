"""Where a pre-trained tokenizer or encoder lies: a hub name, a folder, or a folder inside an installed package."""

import importlib.util
from pathlib import Path

from rayrank.errors import ConfigError

_PACKAGE = "package:"


def locate(name: str, key: str) -> str:
    """Return what `from_pretrained` takes; `key` is the setting to name when it cannot be found."""
    if not name.startswith(_PACKAGE):
        return name
    module, _, folder = name.removeprefix(_PACKAGE).partition("/")
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ConfigError(f"{key}={name} cannot be found: install the Python package that holds {module}.")
    place = Path(spec.origin).parent / folder
    if not place.is_dir():
        raise ConfigError(f"{key}={name} cannot be found: the package {module} has no folder {folder!r}.")
    return str(place)
