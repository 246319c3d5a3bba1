"""Entry points for `python -m jobs.NAME` and `ray job submit`."""
