"""Errors that a user can fix, each as one sentence that names the field, the value and the fix.

RayrankError                 any error that a user can fix; jobs print it and exit with code 2
├── ConfigError              a preset, key or value that cannot be used
├── DatasetError             a source that is missing or cannot be read
│   └── ProblemsFound        malformed lines, duplicates, unknown ids ... that the configuration says to stop at
├── StorageError             storage that cannot be written, or that holds a damaged file
├── MissingArtifact          a stage whose result is not on storage yet
├── TrainingStopped          training that cannot succeed: the loss is not a number, or the scores collapsed
└── StoppedEarly             training that its caller, such as a sweep, ended early
"""


class RayrankError(Exception):
    """An error that a user can fix; its text is the whole message, always on one line."""

    def __str__(self) -> str:
        return " ".join(super().__str__().split("\n"))


class ConfigError(RayrankError):
    """A preset, key or value that cannot be used."""


class DatasetError(RayrankError):
    """A source that is missing or cannot be read."""


class ProblemsFound(DatasetError):
    """Rows of a source that the configuration says to stop at."""


class StorageError(RayrankError):
    """Storage that cannot be written, or that holds a damaged file."""


class MissingArtifact(RayrankError):
    """A stage whose result is not on storage; the message names the command that makes it."""

    def __init__(self, stage: str, command: str, options: str = "") -> None:
        """Take the command, as in `rayrank build-index`, and the options of the user where they are known."""
        super().__init__(stage, command, options)

    def with_options(self, options: str) -> "MissingArtifact":
        """Return the error with the options of the user's own command line."""
        stage, command, _ = self.args
        return MissingArtifact(stage, command, options)

    def __str__(self) -> str:
        stage, command, options = self.args
        run = f"`{command} {options}`" if options else f"`{command}` with the same options"
        return f"The {stage} artifact for this configuration does not exist yet: first run {run}."


class TrainingStopped(RayrankError):
    """Training that cannot succeed; the message is the diagnosis."""


class StoppedEarly(RayrankError):
    """Training that its caller, such as a sweep, ended early; its checkpoint is kept."""
