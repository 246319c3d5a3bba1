"""Run the whole flow, from a dataset to an evaluated run; what exists already is reused."""

from jobs.entry import parser, run_job
from rayrank.flow import FLOW

if __name__ == "__main__":
    stages = list(FLOW)
    options = parser(__doc__)
    options.add_argument("--until", choices=stages, default=stages[-1], help="the last stage to run")
    arguments = options.parse_args()
    run_job(arguments, stages[: stages.index(arguments.until) + 1])
