"""Score the training candidates with the model of noise.run, and report what the noise filter does to them."""

from rayrank.jobs.entry import parser, run_job

if __name__ == "__main__":
    run_job(parser(__doc__).parse_args(), ["noise", "noise_report"])
