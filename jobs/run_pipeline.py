"""Run the whole flow, from a dataset to an evaluated run; what exists already is reused."""

from jobs.entry import STAGES, parser, run_job

if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--until", choices=STAGES, default=list(STAGES)[-1], help="the last stage to run")
    arguments = options.parse_args()
    stages = list(STAGES)
    run_job(arguments, stages[: stages.index(arguments.until) + 1])
