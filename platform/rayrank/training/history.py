"""The log of a training: a progress bar, log.jsonl and TensorBoard files; no step is logged twice."""

import json
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from tensorboardX import SummaryWriter

from rayrank.core.artifacts import Artifact
from rayrank.core.copies import temporary_folder
from rayrank.core.progress import progress
from rayrank.training.loop import Log

FILE, FOLDER = "log.jsonl", "tensorboard"


class History:
    """Takes the log lines of one phase; a step that a resumed training repeats is not logged again."""

    def __init__(self, artifact: Artifact, label: str) -> None:
        self._artifact, self._label = artifact, label
        self._lines = _read(artifact)
        self._shown = self._lines[-1]["step"] if self._lines else 0
        self._resources = ExitStack()
        self._advance: Any = None

    def open(self) -> None:
        """Open the TensorBoard files; for remote storage they are written locally, and `close` copies them."""
        local = self._artifact.is_local
        self._folder = self._artifact.path(FOLDER) if local else str(self._resources.enter_context(temporary_folder()))
        self._events = SummaryWriter(self._folder)

    def add(self, line: Log) -> None:
        """Log a line and move the progress bar."""
        if self._advance is None:
            self._advance = self._resources.enter_context(progress(self._label, line.num_steps, "steps", self._shown))
        if line.step <= (self._lines[-1]["step"] if self._lines else 0):
            return
        self._lines.append(asdict(line))
        for name in ("loss", "lr", "grad_norm", "examples_per_s", "dev"):
            if (value := getattr(line, name)) is not None:
                self._events.add_scalar(f"{self._label}/{name}", value, line.step)
        note = f"loss {line.loss:.3f}" + (f", dev {line.dev:.4f}" if line.dev is not None else "")
        self._advance(line.step - self._shown, note)
        self._shown = line.step
        if line.saved:
            # A training resumed from this checkpoint does not send earlier lines again.
            self._write()

    def close(self) -> None:
        """Write log.jsonl and store the TensorBoard files."""
        self._events.close()
        self._write()
        if not self._artifact.is_local:
            self._artifact.put_folder(self._folder, FOLDER)
        self._resources.close()

    def _write(self) -> None:
        with self._artifact.create(FILE) as stream:
            stream.writelines(json.dumps(line).encode() + b"\n" for line in self._lines)


def _read(artifact: Artifact) -> list[dict[str, Any]]:
    """Return the lines that an interrupted training logged."""
    if not artifact.exists(FILE):
        return []
    with artifact.open(FILE) as stream:
        return [json.loads(line) for line in stream]
