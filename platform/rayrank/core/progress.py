"""Progress of long work: a bar on a terminal, a line every ten seconds elsewhere; the end is always logged."""

import logging
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_EVERY_S = 10.0
QUICK_S = 1.0
"""Work that took less than this is logged, but not shown on the screen."""

log = logging.getLogger("rayrank")


def screen() -> TextIO:
    """Return the stream that the user reads: standard error, or its copy once a job sends standard error to the log."""
    return _screen or sys.stderr


def keep_screen(stream: TextIO) -> None:
    """Make `screen` return this stream from now on."""
    global _screen
    _screen = stream


_screen: TextIO | None = None


@contextmanager
def working_on(node: str, key: str) -> Iterator[None]:
    """Let log lines say which node of the flow the process makes meanwhile, in all of its threads."""
    global _work
    before, _work = _work, f"{node} {key}"
    try:
        yield
    finally:
        _work = before


_work = "-"

LOG_FORMAT = "%(asctime)s %(levelname)s %(host)s:%(process)d [%(work)s] %(name)s %(message)s"


def add_place(record: logging.LogRecord) -> bool:
    """Complete a log record, as a filter of a handler, by what LOG_FORMAT needs: the machine, the node and its key."""
    vars(record).update(host=socket.gethostname(), work=_work)
    return True


@cache
def _console(stream: TextIO) -> Console:
    # One console per stream: a console prints above its own progress bar, but would garble the bar of another console.
    return Console(file=stream)


def say(message: str) -> None:
    """Show the user a message, on the screen and in the log."""
    log.info(message)
    _console(screen()).print(message, markup=False, highlight=False, soft_wrap=True)


Advance = Callable[..., None]
"""Takes how many more units are done and, optionally, a note such as the present loss."""

_bars = Lock()


def _bar(unit: str, is_shown: bool) -> Progress:
    console = _console(screen())
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), TextColumn("{task.fields[note]}"))
    return Progress(
        TextColumn("{task.description}"),
        *columns,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (is_shown and console.is_terminal),
        # Nothing needs redirecting: a job has already sent standard error, and with it the output of other code, to
        # the log.
        redirect_stdout=False,
        redirect_stderr=False,
    )


@contextmanager
def progress(label: str, total: int | None, unit: str, before: int = 0) -> Iterator[Advance]:
    """Show how much of some work is done; call the yielded function with the number of units just finished.

    `before` units were finished earlier; they count as done, but not for the speed.
    """
    started = last = time.monotonic()
    done = before

    def advance(count: int, note: str = "") -> None:
        nonlocal done, last
        now = time.monotonic()
        done += count
        rate = (done - before) / max(now - started, 1e-9)
        # A speed is shown only if at least one unit is done per second.
        details = ", ".join(part for part in (f"{rate:,.0f}/s" if rate >= 1 else "", note) if part)
        bar.update(task, advance=count, note=details)
        if bar.disable and now - last >= LINE_EVERY_S:
            last = now
            of = f" of {total:,}" if total else ""
            left = f", {(total - done) / rate:,.0f} s left" if total and rate else ""
            say(f"{label}: {done:,}{of} {unit}{left}{f', {details}' if details else ''}")

    # A terminal shows one live bar at a time; other work that runs meanwhile is reported in lines.
    has_bar = _bars.acquire(blocking=False)
    with _bar(unit, is_shown=has_bar) as bar:
        task = bar.add_task(label, total=total, completed=before, note="")
        try:
            yield advance
        finally:
            if has_bar:
                _bars.release()
    seconds = time.monotonic() - started
    (say if seconds > QUICK_S else log.info)(f"{label}: {done - before:,} {unit} in {seconds:.1f} s")


@contextmanager
def live(draw: Callable[[], RenderableType]) -> Iterator[None]:
    """Show the result of `draw` on a terminal, updated every second; without a terminal nothing is drawn."""
    console = _console(screen())
    if not console.is_terminal or not _bars.acquire(blocking=False):
        yield
        return
    try:
        with Live(
            get_renderable=draw,
            console=console,
            refresh_per_second=1,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            yield
    finally:
        _bars.release()
