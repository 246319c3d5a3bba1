"""The processes below one, of which some end while they are looked at."""

import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import psutil

T = TypeVar("T")


def of_those(processes: list[psutil.Process], look: Callable[[psutil.Process], T]) -> list[T]:
    """What is seen at each process that has not ended, waited for or not."""
    seen = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # A zombie is one of these too.
            seen.append(look(process))
    return seen


def below(pid: int, name: str = "") -> list[psutil.Process]:
    """The processes below this one whose command line has the name in it."""
    named = of_those(psutil.Process(pid).children(recursive=True), lambda one: (" ".join(one.cmdline()), one))
    return [one for line, one in named if name in line]


def kill_whole(process: subprocess.Popen[str]) -> None:
    """Kill -9 of a process and everything below it."""
    doomed = [*below(process.pid), psutil.Process(process.pid)]
    of_those(doomed, lambda one: one.kill())
    psutil.wait_procs(doomed, timeout=10)
    process.wait()
