"""What all jobs share: the command line, the log file, which also gets Ray's output, the summary, error messages."""

import argparse
import json
import logging
import os
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from rayrank.core import flow, overrides
from rayrank.core.artifacts import Artifact, Store, check_root
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, MissingArtifact, RayrankError, StorageError
from rayrank.core.presets import PRESETS
from rayrank.core.progress import LOG_FORMAT, add_place, keep_screen, say, screen
from rayrank.data.digests import digested
from rayrank.data.sources import absolute, fingerprint, open_source

Arguments = argparse.Namespace


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options every job has."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--preset",
        help=f"the preset to start from: {', '.join(PRESETS)}; default: demo for the dataset demo, else minilm",
    )
    options.add_argument(
        "--dataset", help="demo (the default), or KIND:PATH (beir, msmarco, msmarco-qa, trec, car, irds, mnli)"
    )
    options.add_argument("--storage", default=".rayrank", help="a folder or any fsspec URL; default %(default)s")
    options.add_argument("--config", metavar="FILE", help="YAML with the same keys as --set")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in candidates.depth=100")
    options.add_argument("--json", metavar="FILE", help="also write the summary to this file")
    return options


def add_repeat_options(options: argparse.ArgumentParser, repeated: str) -> None:
    """Add the options of jobs that train the same thing with several seeds."""
    options.add_argument(
        "--seeds", type=int, default=1, help=f"trainings per {repeated}, with seeds from training.seed on"
    )
    options.add_argument("--parallel", type=int, default=1, help="maximum number of stages made at once")


def seeds_of(arguments: Arguments, config: PipelineConfig) -> list[int]:
    """Return the seeds that --seeds asks for; raises ConfigError if --seeds or --parallel cannot be used."""
    for name in ("seeds", "parallel"):
        if getattr(arguments, name) < 1:
            raise ConfigError(f"--{name} {getattr(arguments, name)} cannot be used: it must be at least 1.")
    if arguments.seeds > 1:
        check_seeds("--seeds", config)
    return [config.training.seed + number for number in range(arguments.seeds)]


def check_seeds(option: str, config: PipelineConfig) -> None:
    """Raise ConfigError if a phase has a seed of its own, with which all trainings of this phase would be the same."""
    for phase in ("pointwise", "listwise"):
        if (seed := getattr(config, phase).seed) is not None:
            raise ConfigError(f"{option} cannot be used with {phase}.seed={seed}: leave this setting out.")


def assignment(key: str, value: str) -> str:
    """Return `key=value` for --set, with the value quoted, so that a file named 2019 stays text."""
    return f"{key}={json.dumps(value, ensure_ascii=False)}"


def options_of(arguments: Arguments) -> str:
    """Return the options that name the configuration and the storage, as a shell reads them, for another command."""
    same = {"--preset": arguments.preset, "--dataset": arguments.dataset, "--storage": arguments.storage}
    given = [part for pair in {**same, "--config": arguments.config}.items() if pair[1] for part in pair]
    return shlex.join([*given, *(part for setting in arguments.set for part in ("--set", setting))])


def preset_of(arguments: Arguments) -> str:
    """Return the preset that is named, or the default: the encoder of `demo` knows only the words of its own corpus."""
    return arguments.preset or ("demo" if arguments.dataset in (None, "demo") else "minilm")


def configure(arguments: Arguments, extra: Sequence[str] = ()) -> PipelineConfig:
    """Return the job's configuration with the digests of the files that it reads from outside storage."""
    named = [] if arguments.dataset is None else [assignment("dataset.source", arguments.dataset)]
    config = overrides.build(preset_of(arguments), arguments.config, [*named, *arguments.set, *extra])
    source = absolute(config.dataset.source)
    dataset = config.dataset.model_copy(update={"source": source})
    dataset = dataset.model_copy(update={"fingerprint": fingerprint(open_source(dataset))})
    return digested(config.model_copy(update={"dataset": dataset}))


Plan = Callable[[PipelineConfig], Sequence[tuple[str, PipelineConfig]]]
"""Takes a job's configuration; returns its stages, each with its own configuration."""
Work = Callable[[Store, str], None]
"""The work of a job, started once its command line is checked; takes the storage and the path of the log."""


Conclude = Callable[[dict[str, Any], PipelineConfig, Store], dict[str, Any]]
"""Takes the summary of a job's stages, prints the job's conclusion, and returns facts to add to the summary."""


def run_job(
    arguments: Arguments, stages: Sequence[str] | Plan, extra: Sequence[str] = (), conclude: Conclude | None = None,
    is_long: bool = False,
) -> None:  # fmt: skip
    """Make stages in order and print the summary; a user's mistake is printed as one sentence, with exit status 2.

    A long job says what each stage found when the stage ends, and leaves the summary to `conclude`.
    """

    def prepare(config: PipelineConfig) -> Work:
        plan = stages(config) if callable(stages) else [(stage, config) for stage in stages]

        def work(store: Store, log_file: str) -> None:
            summary = _run_stages(plan, store, log_file, is_long)
            if conclude:
                with redirect_stdout(sys.__stdout__):
                    summary = {**summary, **conclude(summary, config, store)}
            write_json(arguments.json, summary)

        return work

    _attempt(arguments, prepare, extra)


def run_task(
    arguments: Arguments,
    task: Callable[[PipelineConfig, Store], dict[str, Any]],
    check: Callable[[PipelineConfig], object] = lambda config: None,
    extra: Sequence[str] = (),
) -> None:
    """Run a task on storage, print the `findings` among the facts it returns, and exit as `run_job` does.

    `check` raises if an option of the job cannot be used; nothing has been created at that time. `extra` are settings,
    as of --set, that options of the job stand for.
    """

    def prepare(config: PipelineConfig) -> Work:
        check(config)
        return lambda store, log_file: show_facts(task(config, store), log_file)

    def show_facts(facts: dict[str, Any], log_file: str) -> None:
        summary = {**facts, "log": log_file}
        with redirect_stdout(sys.__stdout__):
            sys.stdout.write("\n".join([*summary["findings"], f"log: {log_file}", ""]))
        write_json(arguments.json, summary)

    _attempt(arguments, prepare, extra)


def _attempt(arguments: Arguments, prepare: Callable[[PipelineConfig], Work], extra: Sequence[str]) -> None:
    """Check the whole command line, and only then create the storage folder and the log, and do the work."""
    log_file = "your command line (there is no log yet)"
    if isinstance(sys.__stdout__, TextIOWrapper):
        # A path may contain bytes that are not UTF-8; the summary is printed all the same.
        sys.__stdout__.reconfigure(errors="backslashreplace")
    try:
        if arguments.json is not None:
            check_file("--json", arguments.json)
            check_absolute("--json", arguments.json)
        _check_storage(arguments.storage)
        work = prepare(configure(arguments, extra))
        store = Store(arguments.storage)
        log_file = _log_to_file(store)
        work(store, log_file)
    except MissingArtifact as error:
        say(f"error: {error.with_options(options_of(arguments))}")
        sys.exit(2)
    except RayrankError as error:
        say(f"error: {error}")
        sys.exit(2)
    except Exception:
        traceback.print_exc(file=screen())
        say(f"error: this is a fault of rayrank, not of your input; please report the lines above with {log_file}")
        sys.exit(1)
    except KeyboardInterrupt:
        say("stopped; finished work is kept, and the same command resumes from there")
        sys.exit(130)


def _run_stages(
    plan: Sequence[tuple[str, PipelineConfig]], store: Store, log_file: str, is_long: bool
) -> dict[str, Any]:  # fmt: skip
    # Imported late: these modules load Ray and SciPy, which takes seconds, and a wrong option is reported before.
    from rayrank.cluster.every_node import check_shared
    from rayrank.jobs.summary import show, stage_facts, stage_line, summarise
    from rayrank.stages.make import make

    if not all(store.find(name, config) for name, config in plan):
        check_shared(store.root)
    results: list[tuple[str, Artifact, bool]] = []
    for name, config in plan:
        reused = store.find(name, config) is not None
        results.append((flow.node(name, config), make(name, config, store), reused))
        if is_long:
            facts = stage_facts(*results[-1])
            say("\n".join([stage_line(facts), *facts.get("findings", [])]))
    summary = summarise(results, log_file)
    if not is_long:
        with redirect_stdout(sys.__stdout__):
            show(summary)
    return summary


def _check_storage(root: str) -> None:
    if "://" not in root:
        check_absolute("--storage", root)
    check_root(root)


def check_file(option: str, file: str) -> None:
    """Refuse an output file that cannot be written, before hours of work instead of after."""
    path = Path(file)
    try:
        if path.is_dir():
            raise StorageError(f"{option} {file} cannot be written: it is a folder; name a file.")
        if not path.parent.is_dir():
            raise StorageError(f"{option} {file} cannot be written: there is no folder {path.parent}; make it first.")
    except OSError as error:
        raise StorageError(f"{option} {file} cannot be written: {error.strerror}; name another file.") from None


def check_absolute(option: str, path: str) -> None:
    """Refuse a relative path in a submitted job, whose working directory Ray deletes."""
    if os.environ.get("RAY_ADDRESS") and not Path(path).expanduser().is_absolute():
        raise StorageError(f"{option} {path} is a relative path: a job on a cluster needs an absolute one.")


def write_json(file: str | None, summary: dict[str, Any]) -> None:
    """Write the summary of a job to the file that --json names, if it names one."""
    if file is None:
        return
    try:
        Path(file).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"--json {file} cannot be written: {error.strerror}; the results are in storage.") from None


def _log_to_file(store: Store) -> str:
    """Send every log record, Ray's too, to a file instead of the screen."""
    local = "://" not in store.root
    # A new folder: on a shared machine a fixed name in /tmp may belong to another user.
    folder = Path(store.root, "logs") if local else Path(tempfile.mkdtemp(prefix="rayrank-logs-"))
    file = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    try:
        folder.mkdir(exist_ok=True)
        # A logged path may contain bytes that are not UTF-8.
        stream = file.open("a", encoding="utf-8", errors="backslashreplace", buffering=1)
    except OSError as error:
        raise StorageError(f"The log {file} cannot be written: {error.strerror}; remove {folder}.") from None
    handler = logging.StreamHandler(stream)
    handler.addFilter(add_place)
    logging.basicConfig(level=logging.INFO, handlers=[handler], format=LOG_FORMAT, force=True)
    logging.captureWarnings(True)
    # Ray's native code and the JVM write to file descriptor 2, which becomes the log; the user sees a copy of it.
    keep_screen(os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8", errors="backslashreplace"))
    os.dup2(handler.stream.fileno(), sys.stderr.fileno())
    # Ray prints messages about its workers on standard output, which only the summary may use.
    sys.stdout = sys.stderr
    return str(file)
