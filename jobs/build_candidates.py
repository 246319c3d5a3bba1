"""Find the passages worth re-ranking for every query."""

from jobs.entry import parser, run_job

if __name__ == "__main__":
    run_job(parser(__doc__).parse_args(), ["candidates"])
