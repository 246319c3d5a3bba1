"""Check what jobs need before they run: packages, Java, GPUs, the Ray cluster, its nodes, the storage, and the room
that the settings of this preset ask for. Each finding is one line: ok, warning or problem, what was found, and its fix.
The exit status is 1 if there is a problem.

Without --address and RAY_ADDRESS it checks the Ray that jobs start on this machine.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rayrank.core import overrides
from rayrank.core.artifacts import Store, check_files
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import RayrankError
from rayrank.core.progress import say
from rayrank.data.sources import open_source
from rayrank.jobs import checks
from rayrank.jobs.checks import Finding
from rayrank.jobs.entry import Arguments, assignment, check_absolute, check_file, parser, preset_of, write_json
from rayrank.jobs.node_report import NodeReport, node_report, versions

CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
COMPARED = ("ray", "torch", "transformers", "pyserini", "pyarrow", "numpy", "optuna")
"""Packages whose versions are compared between nodes where rayrank is installed without constraints.txt."""


def configured(arguments: Arguments) -> PipelineConfig:
    """Return the job's configuration without digests of the dataset, which would read it in full."""
    named = [] if arguments.dataset is None else [assignment("dataset.source", arguments.dataset)]
    return overrides.build(preset_of(arguments), arguments.config, [*named, *arguments.set])


def findings(config: PipelineConfig, root: str) -> Iterator[Finding]:
    """Yield what there is to say about this machine, the dataset, the storage and the cluster."""
    pinned = checks.pins(CONSTRAINTS) if CONSTRAINTS.is_file() else {}
    yield from checks.python_packages(pinned, versions(pinned))
    try:
        open_source(config.dataset)
        yield Finding("ok", f"the dataset {config.dataset.source} can be opened")
    except RayrankError as error:
        yield Finding("problem", str(error), "name another --dataset")
    root, *found = _storage(root)
    yield from found
    yield checks.token(os.environ, Path.home())
    try:
        yield from _cluster(config, root, list(pinned) or list(COMPARED))
    except RayrankError as error:
        yield Finding("problem", str(error), "start the cluster, then run this command again")


def _storage(root: str) -> list[Any]:
    """Return the root of a writable storage, empty if it is not writable, and the findings about it."""
    try:
        store = Store(root)
    except RayrankError as error:
        return ["", Finding("problem", str(error), "name another --storage")]
    found = [Finding("ok", f"the storage {store.root} can be written from here"), *_artifacts(store)]
    if "://" not in store.root:
        disk = shutil.disk_usage(store.root)
        found.append(checks.disk("the storage", disk.free, disk.total))
    return [store.root, *found]


def _artifacts(store: Store) -> Iterator[Finding]:
    """Look for files that finished artifacts have lost."""
    whole = 0
    for kind in store.kinds():
        for artifact in store.finished(kind):
            try:
                check_files(artifact)
                whole += 1
            except RayrankError as error:
                yield Finding("problem", str(error), f"delete {artifact.url}")
    yield Finding("ok", f"{whole} artifacts on it have all of their files")


def _cluster(config: PipelineConfig, root: str, packages: list[str]) -> Iterator[Finding]:
    """Join or start the cluster, and ask all of its nodes at once."""
    # Imported late: they load Ray and torch, which takes seconds.
    import ray

    from rayrank.cluster.connection import node_cpus, start_ray
    from rayrank.cluster.every_node import live_nodes, on_every_node, storage_faults
    from rayrank.training.worker_size import training_size

    start_ray()
    nodes = {name: node["Resources"] for name, node in live_nodes().items()}
    yield Finding("ok", f"Ray {ray.__version__}, {len(nodes)} node{'s' if len(nodes) > 1 else ''}")
    this_node: Any = ray._private.worker._global_node
    folder = str(this_node.get_session_dir_path())
    driver, asked = node_report(packages, folder), time.time()
    for name, report in on_every_node(node_report, packages, folder).items():
        if isinstance(report, NodeReport):
            yield from checks.node(name, report, driver, nodes[name])
            yield from checks.clock(name, report.clock, asked, time.time())
        else:
            yield Finding("problem", f"{name} did not answer: {report}", "look at that node's logs, or remove the node")
    if root:
        faults = storage_faults(root)
        for name, fault in faults.items():
            yield Finding(
                "problem", f"on {name} {root} cannot be used: {fault}", "use a bucket or a network file system"
            )
        if not faults:
            yield Finding("ok", f"every node reads and writes {root}")
    threads = {f"resources.{key}": getattr(config.resources, key) for key in ("index_threads", "search_threads")}
    grows = bool(os.environ.get("RAY_ADDRESS"))
    yield from checks.placement(training_size(config.resources), max(node_cpus()), threads, grows)


def main(arguments: Arguments) -> int:
    """Print every finding as soon as it is known, and return the exit status."""
    if arguments.json is not None:
        check_file("--json", arguments.json)
        check_absolute("--json", arguments.json)
    if arguments.address:
        os.environ["RAY_ADDRESS"] = arguments.address
    found = []
    for finding in findings(configured(arguments), arguments.storage):
        sys.stdout.write(f"{finding}\n")
        sys.stdout.flush()
        found.append(finding)
    problems = sum(finding.level == "problem" for finding in found)
    sys.stdout.write(f"{problems} problems, {sum(finding.level == 'warning' for finding in found)} warnings\n")
    write_json(arguments.json, {"findings": [asdict(finding) for finding in found]})
    return 1 if problems else 0


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--address", help="a running cluster's host:port; default: RAY_ADDRESS")
    try:
        sys.exit(main(options.parse_args()))
    except RayrankError as error:
        say(f"error: {error}")
        sys.exit(2)
