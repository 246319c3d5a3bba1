"""Search for better settings: many trials train the listwise model and share the artifacts of all earlier stages.

  --space default             listwise.negatives, noise.threshold and listwise.lr (TPE, weak trials are stopped early)
  --space n_minus             Figure 5 of the paper: 1 to 15 negatives, three seeds each, no trial is stopped early
  --space FILE                a YAML file of ranges and lists:  listwise.lr: {low: 1e-6, high: 1e-4, log: true}
                                                                strm.form: [mask, bias]
The same command resumes a killed sweep; a higher --trials adds trials to the same study.
"""

from typing import TYPE_CHECKING, Any

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, TrainingStopped
from rayrank.core.leases import leased
from rayrank.jobs.entry import Arguments, parser, run_task

if TYPE_CHECKING:
    from rayrank.tune.spaces import Space

TRIALS = 20


def chosen(arguments: Arguments, config: PipelineConfig) -> tuple["Space", int]:
    """Return the space and the number of trials that the options ask for; raises ConfigError for unusable options."""
    from rayrank.tune.spaces import open_space

    if not any(getattr(settings, "model", "") == "listwise" for settings in config.runs.values()):
        raise ConfigError("A sweep trains listwise models, and no run has model=listwise: add one to runs.")
    space = open_space(arguments.space, config, arguments.grid)
    points = space.initial_points(config)
    trials = _num_trials(arguments.trials, len(points) if space.grid else None)
    if arguments.parallel is not None and arguments.parallel < 1:
        raise ConfigError(f"--parallel {arguments.parallel} cannot be used: it must be at least 1.")
    return space, trials


def run(arguments: Arguments, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Run the remaining trials of the sweep, write its results, and return a summary."""
    space, trials = chosen(arguments, config)
    # Imported after the checks, because loading Ray and torch takes seconds.
    from rayrank.tune import results

    folder = results.sweep_folder(space, config, arguments.cost, store)
    with leased(folder, "running this sweep", waits=False):
        return _run(folder, space, arguments, config, store, trials)


def _run(
    folder: Artifact, space: "Space", arguments: Arguments, config: PipelineConfig, store: Store, trials: int
) -> dict[str, Any]:
    from rayrank.tune import results
    from rayrank.tune.execution import TUNE, execute
    from rayrank.tune.study import best, num_ended, open_storage, open_study, records

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


def _num_trials(asked: int | None, most: int | None) -> int:
    if asked is not None and asked < 1:
        raise ConfigError(f"--trials {asked} cannot be used: it must be at least 1.")
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
