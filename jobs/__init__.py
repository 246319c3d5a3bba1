"""Entry points for `rayrank NAME`, `python -m jobs.NAME` and `ray job submit`."""
