"""Train the encoder on the corpus itself: masked words and next sentences."""

from jobs.entry import parser, run_job

if __name__ == "__main__":
    run_job(parser(__doc__).parse_args(), ["pretrain"])
