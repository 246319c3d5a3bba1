"""What every job does around its stages: read the command line, start Ray quietly, sum up, explain mistakes."""

import argparse
import hashlib
import json
import logging
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ray

from jobs.summary import show, summarise
from rayrank import overrides
from rayrank.artifacts import Artifact, Store
from rayrank.config import RunConfig
from rayrank.datasets import fingerprint, open_source
from rayrank.errors import ConfigError, RayrankError, StorageError
from rayrank.presets import PRESETS
from rayrank.progress import keep_screen, say, screen
from rayrank.stages import candidates, corpus, evaluate, index

STAGES: dict[str, Callable[[RunConfig, Store], Artifact]] = {
    "corpus": corpus.run,
    "index": index.run,
    "candidates": candidates.run,
    "evaluate": evaluate.run,
}

Arguments = argparse.Namespace


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options every job has."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--preset", default="demo", help=f"where the settings start from: {', '.join(PRESETS)}")
    options.add_argument(
        "--dataset", default="demo", help="demo, or KIND:PATH (beir, msmarco, msmarco-qa, trec, car, irds)"
    )
    options.add_argument("--storage", default=".rayrank", help="a folder or any fsspec URL; default %(default)s")
    options.add_argument("--config", metavar="FILE", help="YAML with the same keys as --set")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in candidates.depth=100")
    options.add_argument("--json", metavar="FILE", help="also write the summary here")
    return options


def configure(arguments: Arguments, extra: Sequence[str] = ()) -> RunConfig:
    """Return the run's configuration with the digests of what it reads from outside."""
    assignments = [f"dataset.source={json.dumps(arguments.dataset)}", *arguments.set, *extra]
    config = overrides.build(arguments.preset, arguments.config, assignments)
    dataset = config.dataset.model_copy(update={"fingerprint": fingerprint(open_source(config.dataset))})
    runs = "".join(_digest(name) for name in (config.evaluate.run, config.evaluate.baseline))
    return config.model_copy(
        update={"dataset": dataset, "evaluate": config.evaluate.model_copy(update={"fingerprint": runs})}
    )


def _digest(run: str) -> str:
    if not run or run in evaluate.RUNS:
        return ""
    try:
        return hashlib.sha256(Path(run).read_bytes()).hexdigest()[:16]
    except OSError as error:
        names = ", ".join(evaluate.RUNS)
        raise ConfigError(
            f"The run {run} cannot be read: {error.strerror}; name a TREC run file or one of {names}."
        ) from None


def run_job(arguments: Arguments, stages: Sequence[str], extra: Sequence[str] = ()) -> None:
    """Run stages in order, print the summary, and exit with 0, or with 2 and one sentence."""
    try:
        store = Store(arguments.storage)
        log_file = _log_to_file(store)
        config = configure(arguments, extra)
        results = []
        for stage in stages:
            reused = store.find(stage, config) is not None
            if not reused:
                start_ray()
            results.append((STAGES[stage](config, store), reused))
        summary = summarise(results, log_file)
        show(summary)
        _write_json(arguments.json, summary)
    except RayrankError as error:
        say(f"error: {error}")
        sys.exit(2)
    except Exception:
        traceback.print_exc(file=screen())
        say("error: this is a fault of rayrank, not of your input; please report it with the lines above and the log")
        sys.exit(1)
    except KeyboardInterrupt:
        say("stopped; what is finished is kept, and the same command goes on from there")
        sys.exit(130)


def _write_json(file: str | None, summary: dict[str, Any]) -> None:
    if file is None:
        return
    try:
        Path(file).write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"--json {file} cannot be written: {error.strerror}; the results are in storage.") from None


def _log_to_file(store: Store) -> str:
    """Send every log record, Ray's too, to a file instead of the screen."""
    local = "://" not in store.root
    folder = Path(store.root if local else tempfile.gettempdir()) / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.log"
    handler = logging.StreamHandler(file.open("a", encoding="utf-8", buffering=1))
    logging.basicConfig(
        level=logging.INFO, handlers=[handler], format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
    logging.captureWarnings(True)
    # Ray's native code and the JVM write to standard error directly; the user keeps a copy of the real one.
    keep_screen(os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8"))
    os.dup2(handler.stream.fileno(), sys.stderr.fileno())
    return str(file)


def start_ray() -> None:
    """Join the cluster a submitted job runs in, or start one inside this process."""
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
    if address:
        ray.init(address=address, **quiet)
    else:
        ray.init(address="local", include_dashboard=False, **quiet)
    ray.data.DataContext.get_current().enable_progress_bars = False
    for name in ("ray", "ray.data", "ray.serve", "ray.train", "ray.tune"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
