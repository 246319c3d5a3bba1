"""Search for better settings: many trials train the listwise model and share the artifacts of all earlier stages.

  --space default             listwise.negatives, noise.threshold and listwise.lr (TPE, weak trials are stopped early)
  --space n_minus             Figure 5 of the paper: 1 to 15 negatives, three seeds each, no trial is stopped early
  --space FILE                a YAML file of ranges and lists:  listwise.lr: {low: 1e-6, high: 1e-4, log: true}
                                                                strm.form: [mask, bias]
The same command resumes a killed sweep; a higher --trials adds trials to the same study.
"""

import os
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from jobs.entry import Arguments, parser, run_task
from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, RayrankError, TrainingStopped
from rayrank.core.leases import leased
from rayrank.core.progress import live, say
from rayrank.data.digests import varied

if TYPE_CHECKING:
    from tune.spaces import Space

TRIALS = 20
TUNE = "tune"


def chosen(arguments: Arguments, config: PipelineConfig) -> tuple["Space", int]:
    """Return the space and the number of trials that the options ask for; raises ConfigError for unusable options."""
    from tune.spaces import open_space

    if not any(getattr(settings, "model", "") == "listwise" for settings in config.runs.values()):
        raise ConfigError("A sweep trains listwise models, and no run has model=listwise: add one to runs.")
    space = open_space(arguments.space, config, arguments.grid)
    points = space.initial_points(config)
    trials = _num_trials(arguments.trials, len(points) if space.grid else None)
    if arguments.parallel is not None and arguments.parallel < 1:
        raise ConfigError(f"--parallel {arguments.parallel} cannot be used: at least 1.")
    return space, trials


def run(arguments: Arguments, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Run the remaining trials of the sweep, write its results, and return a summary."""
    space, trials = chosen(arguments, config)
    # Imported after the checks, because loading Ray and torch takes seconds.
    from tune import results

    folder = results.sweep_folder(space, config, arguments.cost, store)
    with leased(folder, "running this sweep", waits=False):
        return _run(folder, space, arguments, config, store, trials)


def _run(
    folder: Artifact, space: "Space", arguments: Arguments, config: PipelineConfig, store: Store, trials: int
) -> dict[str, Any]:
    from tune import results
    from tune.study import best, num_ended, open_storage, open_study, records

    study = open_study(open_storage(folder), arguments.cost)
    if num_ended(study) < trials:
        execute(folder, space, config, store, trials=trials, cost=arguments.cost, parallel=arguments.parallel)
        study = open_study(open_storage(folder), arguments.cost)
    found = records(study)
    # Also if all trials had ended before: the process that ended the last one may have been killed right after that.
    results.remove_checkpoints(found, config, store)
    if all(record.state != "running" for record in found):  # else another process may be running the sweep
        folder.remove_folder(TUNE)
    lines = results.write(folder, study, space, config, store)
    winner = best(found)
    if winner is None:
        first = next((record.reason for record in found if record.reason), "see the log")
        raise TrainingStopped(f"No trial of {len(found)} finished; the first failed with: {first}")
    facts = {"trial": winner.number, "dev": winner.dev, "settings": winner.changes}
    return {"folder": folder.url, "num_trials": num_ended(study), "best": facts, "findings": lines}


def execute(
    folder: Artifact,
    space: "Space",
    config: PipelineConfig,
    store: Store,
    *,
    trials: int,
    cost: bool,
    parallel: int | None,
) -> None:
    """Make the artifacts that all trials share, then run the missing trials, as many at once as the cluster can."""
    import optuna

    from rayrank.cluster.connection import start_ray
    from rayrank.stages.graph import make_all
    from tune import results
    from tune.gpu_usage import gpu_watch
    from tune.placement import num_parallel_trials, trial_resources
    from tune.search import StudySearch
    from tune.study import add_gpu_usage, enqueue, num_ended, open_storage
    from tune.trial import missing

    optuna.logging.disable_default_handler()  # its messages belong in the log, not on the terminal
    optuna.logging.enable_propagation()
    config = config.model_copy(update={"resources": trial_resources(config.resources)})
    start_ray()
    room = min(num_parallel_trials(config.resources), parallel or trials)
    make_all(_shared(space, config), store, room)
    search = StudySearch(
        space,
        open_storage(folder),
        cost,
        config.training.seed,
        partial(missing, base=config, store=store),
        f"dev {config.training.metric}",
    )
    enqueue(search.study, space.initial_points(config)[:trials])
    left = trials - num_ended(search.study)
    if space.widened:
        say(f"--space {space.name} is widened to include your values: {'; '.join(space.widened)}")
    say(f"{left} of {trials} trials to run, {min(room, left)} at a time")
    metric, keys = config.training.metric, list(space.dimensions)
    with gpu_watch() as usage, live(lambda: results.live_table(search.study, keys, metric, trials)):
        _tuned(folder, search, space, config, store, left=left, room=room, cost=cost)
        add_gpu_usage(search.study, usage())


def _tuned(
    folder: Artifact,
    search: Any,
    space: "Space",
    config: PipelineConfig,
    store: Store,
    *,
    left: int,
    room: int,
    cost: bool,
) -> None:
    import pyarrow.fs
    import ray.tune

    from tune.halving import early_stopping
    from tune.trial import run_trial

    # All results are in the study, so Tune writes no event files. The scoring cost is only measured at the end of a
    # trial, so earlier reports may lack it. Ctrl-C is handled by the job.
    os.environ |= {
        "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "TUNE_DISABLE_SIGINT_HANDLER": "1",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
    }
    rungs = early_stopping(space, search.study, config.listwise.epochs, cost)
    work = ray.tune.with_parameters(run_trial, base=config, store=store, cost=cost, rungs=rungs)
    settings = ray.tune.RunConfig(
        name=f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}",
        storage_path=folder.path(TUNE),
        storage_filesystem=pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(folder.filesystem)),
        verbose=0,
    )
    tuner = ray.tune.Tuner(
        # A trial's own process only waits for the workers of its training, which reserve their own resources. Tune
        # does not accept a trial without resources, so it reserves a little memory and no core.
        ray.tune.with_resources(work, {"memory": 1 << 20}),
        tune_config=ray.tune.TuneConfig(
            search_alg=search,
            num_samples=left,
            max_concurrent_trials=room,
            # A new process for each trial would import torch again.
            reuse_actors=True,
        ),
        run_config=settings,
    )
    try:
        tuner.fit()
    except ray.tune.TuneError as error:
        raise _own_sentence(error) from None


def _own_sentence(error: BaseException) -> BaseException:
    """Return our own error behind an error of Tune, such as full storage; without one, return Tune's error."""
    behind: BaseException | None = error
    while behind is not None and not isinstance(behind, RayrankError):
        behind = behind.__context__
    return behind or error


def _shared(space: "Space", config: PipelineConfig) -> list[tuple[str, PipelineConfig]]:
    """Return the stages before the listwise one of all initial points, and the noise report if thresholds are swept."""
    from tune.results import threshold_config
    from tune.spaces import THRESHOLD

    wanted = []
    for point in space.initial_points(config):
        with suppress(ConfigError):  # the settings cannot be used together: the trial fails with the reason
            pointed = varied(config, point)
            wanted += [(stage, pointed) for stage in flow.inputs("listwise", pointed)]
    if THRESHOLD in space.dimensions:
        wanted.append(("noise_report", threshold_config(config)))
    return wanted


def _num_trials(asked: int | None, most: int | None) -> int:
    if asked is not None and asked < 1:
        raise ConfigError(f"--trials {asked} cannot be used: at least 1.")
    trials = asked or most or TRIALS
    return min(trials, most) if most is not None else trials


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--space", default="default", help="default, n_minus, or a YAML file (default: %(default)s)")
    options.add_argument(
        "--trials", type=int, help=f"number of trials of the whole sweep (default: {TRIALS}, or all points of a grid)"
    )
    options.add_argument(
        "--parallel", type=int, help="maximum number of concurrent trials (default: as many as fit on the cluster)"
    )
    options.add_argument("--grid", action="store_true", help="try every combination of the space once; stop none early")
    options.add_argument(
        "--cost", action="store_true", help="two objectives: training.metric on dev, and the time to score a query"
    )
    arguments = options.parse_args()
    run_task(arguments, lambda config, store: run(arguments, config, store), lambda config: chosen(arguments, config))
