"""Local paths that a user typed, made absolute for processes in other working directories."""

from pathlib import Path


def absolute_path(path: str) -> str:
    """Return a local path made absolute, with `~` replaced by the home folder; a URL stays as it was typed."""
    if "://" in path:
        return path
    return str(_expanded(path).absolute())


def is_directory(path: str) -> bool:
    """Return whether a local folder exists at this path; False for an invalid path."""
    try:
        return _expanded(path).is_dir()
    except OSError:  # a name that is too long, or a parent folder that may not be read
        return False


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:  # `~name` of a user that this machine does not have
        return Path(path)
