"""The execution of a sweep: makes the artifacts that its trials share, then runs the missing trials with Ray Tune."""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import optuna
import pyarrow.fs
import ray.tune

from rayrank.cluster.connection import start_ray
from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, RayrankError
from rayrank.core.progress import live, say
from rayrank.data.digests import varied
from rayrank.stages.graph import make_all
from rayrank.tune import results
from rayrank.tune.gpu_usage import gpu_watch
from rayrank.tune.halving import early_stopping
from rayrank.tune.placement import num_parallel_trials, trial_resources
from rayrank.tune.search import StudySearch
from rayrank.tune.spaces import THRESHOLD, Space
from rayrank.tune.study import add_gpu_usage, enqueue, num_ended, open_storage
from rayrank.tune.trial import missing, run_trial

TUNE = "tune"
"""The folder of Ray Tune's own files, inside the folder of the sweep."""

ENVIRONMENT = {
    # The scoring cost is only measured at the end of a trial, so earlier reports may lack it.
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # All results are in the study, so Tune writes no event files.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    # Ctrl-C is handled by the job.
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


def execute(
    folder: Artifact,
    space: Space,
    config: PipelineConfig,
    store: Store,
    *,
    trials: int,
    cost: bool,
    parallel: int | None,
) -> None:
    """Make the artifacts that all trials share, then run the missing trials, as many at once as the cluster can."""
    optuna.logging.disable_default_handler()  # its messages belong in the log, not on the terminal
    optuna.logging.enable_propagation()
    config = config.model_copy(update={"resources": trial_resources(config.resources)})
    start_ray()
    room = min(num_parallel_trials(config.resources), parallel or trials)
    make_all(shared_artifacts(space, config), store, room)
    metric, keys, seed = config.training.metric, list(space.dimensions), config.training.seed
    would_make = partial(missing, base=config, store=store)
    search = StudySearch(space, open_storage(folder), cost, seed, would_make, f"dev {metric}")
    enqueue(search.study, space.initial_points(config)[:trials])
    left = trials - num_ended(search.study)
    if space.widened:
        say(f"--space {space.name} is widened to include your values: {'; '.join(space.widened)}")
    say(f"{left} of {trials} trials to run, {min(room, left)} at a time")
    with gpu_watch() as usage, live(lambda: results.live_table(search.study, keys, metric, trials)):
        rungs = early_stopping(space, folder, config.listwise.epochs, cost)
        trial = ray.tune.with_parameters(run_trial, base=config, store=store, cost=cost, rungs=rungs)
        _tune(trial, search, folder, left, room, config.resources.retries)
        add_gpu_usage(search.study, usage())


def shared_artifacts(space: Space, config: PipelineConfig) -> list[tuple[str, PipelineConfig]]:
    """Return the stages before the listwise one of all initial points, and the noise report if thresholds are swept."""
    wanted = []
    for point in space.initial_points(config):
        with suppress(ConfigError):  # the settings cannot be used together: the trial fails with the reason
            pointed = varied(config, point)
            wanted += [(stage, pointed) for stage in flow.inputs("listwise", pointed)]
    if THRESHOLD in space.dimensions:
        wanted.append(("noise_report", results.threshold_config(config)))
    return wanted


def _tune(
    trial: Callable[..., None], search: StudySearch, folder: Artifact, trials: int, parallel: int, retries: int
) -> None:
    """Run trials with Ray Tune; one whose process is lost is started again at most `retries` times."""
    os.environ |= ENVIRONMENT
    tuner = ray.tune.Tuner(
        # A trial's own process only waits for the workers of its training, which reserve their own resources. Tune
        # does not accept a trial without resources, so it reserves a little memory and no core.
        ray.tune.with_resources(trial, {"memory": 1 << 20}),
        tune_config=ray.tune.TuneConfig(
            search_alg=search,
            num_samples=trials,
            max_concurrent_trials=parallel,
            # A new process for each trial would import torch again.
            reuse_actors=True,
        ),
        run_config=ray.tune.RunConfig(
            name=f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}",
            storage_path=folder.path(TUNE),
            storage_filesystem=pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(folder.filesystem)),
            # Such a trial resumes its training from the last checkpoint.
            failure_config=ray.tune.FailureConfig(max_failures=retries),
            verbose=0,
        ),
    )
    try:
        tuner.fit()
    except ray.tune.TuneError as error:
        raise own_error(error) from None


def own_error(error: BaseException) -> BaseException:
    """Return the RayrankError that caused an error of Tune, such as full storage; Tune's error if there is none."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, RayrankError):
        cause = cause.__context__
    return cause or error
