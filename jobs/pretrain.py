"""Pre-train the encoder on the corpus with masked language modelling and next-sentence prediction."""

from rayrank.jobs.entry import parser, run_job

if __name__ == "__main__":
    run_job(parser(__doc__).parse_args(), ["pretrain"])
