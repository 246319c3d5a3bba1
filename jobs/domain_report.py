"""Compare the corpus's most frequent words with general text's; their difference is the paper's reason to pre-train."""

from rayrank.jobs.entry import parser, run_job

if __name__ == "__main__":
    run_job(parser(__doc__).parse_args(), ["domain_report"])
