"""Score the training candidates with the pointwise model, and report what the threshold takes out of them."""

from jobs.entry import parser, run_job

if __name__ == "__main__":
    run_job(parser(__doc__).parse_args(), ["noise", "noise_report"])
