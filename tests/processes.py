"""Finds and kills the child processes of a process, some of which may end in the meantime."""

import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import psutil

T = TypeVar("T")


def of_those(processes: list[psutil.Process], look: Callable[[psutil.Process], T]) -> list[T]:
    """Return the result of `look` for each process that still runs."""
    seen = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # psutil raises this for zombies too.
            seen.append(look(process))
    return seen


def below(pid: int, name: str = "") -> list[psutil.Process]:
    """Return the children of a process, and their children, whose command line contains the name."""
    named = of_those(psutil.Process(pid).children(recursive=True), lambda one: (" ".join(one.cmdline()), one))
    return [one for line, one in named if name in line]


def kill_whole(process: subprocess.Popen[str]) -> None:
    """Kill a process, its children and their children with signal 9."""
    doomed = [*below(process.pid), psutil.Process(process.pid)]
    of_those(doomed, lambda one: one.kill())
    psutil.wait_procs(doomed, timeout=10)
    process.wait()
