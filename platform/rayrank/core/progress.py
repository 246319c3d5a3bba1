"""Progress of long work: a bar on a terminal, a line now and then everywhere else, and always in the log."""

import logging
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


Advance = Callable[..., None]
"""Takes how much was just done and, if there is one, a note on how it goes."""

_bars = Lock()


@contextmanager
def progress(label: str, total: int | None, unit: str, before: int = 0) -> Iterator[Advance]:
    """Show how far some work is, `before` of it done already; the yielded function takes what more was just done."""
    started = last = time.monotonic()
    done = before

    def advance(count: int, note: str = "") -> None:
        nonlocal done, last
        now = time.monotonic()
        done += count
        rate = (done - before) / max(now - started, 1e-9)
        # What takes longer than a second each has no speed worth telling.
        told = ", ".join(part for part in (f"{rate:,.0f}/s" if rate >= 1 else "", note) if part)
        bar.update(task, advance=count, note=told)
        if bar.disable and now - last >= LINE_EVERY_S:
            last = now
            of = f" of {total:,}" if total else ""
            left = f", {(total - done) / rate:,.0f} s left" if total and rate else ""
            say(f"{label}: {done:,}{of} {unit}{left}{f', {told}' if told else ''}")

    console = _console(screen())
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn(unit), TextColumn("{task.fields[note]}"))
    # A terminal holds one live bar; work beside it is told in lines.
    alone = _bars.acquire(blocking=False)
    with Progress(
        TextColumn("{task.description}"),
        *columns,
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not (alone and console.is_terminal),
        # What others print belongs in the log, where standard error goes.
        redirect_stdout=False,
        redirect_stderr=False,
    ) as bar:
        task = bar.add_task(label, total=total, completed=before, note="")
        try:
            yield advance
        finally:
            if alone:
                _bars.release()
    seconds = time.monotonic() - started
    (say if seconds > QUICK_S else log.info)(f"{label}: {done - before:,} {unit} in {seconds:.1f} s")


@contextmanager
def live(draw: Callable[[], RenderableType]) -> Iterator[None]:
    """Show on a terminal what `draw` returns, drawn anew every second; elsewhere the lines others say have to do."""
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
