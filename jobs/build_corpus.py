"""Check a dataset, tokenise it once and store it as Parquet."""

from rayrank.jobs.entry import parser, run_job

if __name__ == "__main__":
    run_job(parser(__doc__).parse_args(), ["corpus"])
