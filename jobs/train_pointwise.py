"""Train the pointwise model: relevant or not, one pair at a time, with the query's type as part of the input."""

from jobs.entry import parser, run_job

if __name__ == "__main__":
    run_job(
        parser(__doc__).parse_args(),
        lambda config: [
            (stage, config)
            for stage in ("query_types", "pointwise")
            if stage != "query_types" or config.input.query_type
        ],
    )
