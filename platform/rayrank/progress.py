"""Progress of long work: a bar on a terminal, a line now and then everywhere else, and always in the log."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_EVERY_S = 10.0
QUICK_S = 1.0
"""Steps shorter than this go to the log only."""

log = logging.getLogger("rayrank")


def screen() -> TextIO:
    """Return where the user looks: standard error, or what a job kept of it when it sent that to the log."""
    return _screen or sys.stderr


def keep_screen(stream: TextIO) -> None:
    """Let `screen` be this stream from now on."""
    global _screen
    _screen = stream


_screen: TextIO | None = None


@cache
def _console(stream: TextIO) -> Console:
    # One a stream: a console prints around its own bar, not around another's.
    return Console(file=stream)


def say(message: str) -> None:
    """Tell the user one thing, on the screen and in the log."""
    log.info(message)
    _console(screen()).print(message, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def progress(label: str, total: int | None, unit: str) -> Iterator[Callable[[int], None]]:
    """Show how far some work is; call the yielded function with how much was just done."""
    started = time.monotonic()
    done, last = 0, started

    def advance(count: int) -> None:
        nonlocal done, last
        done += count
        bar.advance(task, count)
        now = time.monotonic()
        if bar.disable and now - last >= LINE_EVERY_S:
            last = now
            say(f"{label}: {done:,}{f' of {total:,}' if total else ''} {unit}, {done / (now - started):,.0f}/s")

    console = _console(screen())
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(
        TextColumn("{task.description}"),
        *columns,
        console=console,
        transient=True,
        disable=not console.is_terminal,
        # What others print belongs in the log, where standard error goes.
        redirect_stdout=False,
        redirect_stderr=False,
    ) as bar:
        task = bar.add_task(label, total=total)
        yield advance
    seconds = time.monotonic() - started
    (say if seconds > QUICK_S else log.info)(f"{label}: {done:,} {unit} in {seconds:.1f} s")
