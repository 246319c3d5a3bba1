"""Index a corpus with Lucene."""

from rayrank.jobs.entry import parser, run_job

if __name__ == "__main__":
    run_job(parser(__doc__).parse_args(), ["index"])
