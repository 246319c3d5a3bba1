"""The stages, one file each with `run(config, store) -> Artifact`, the code they share, and the work of comparing jobs.

Stages exchange data only through artifacts on storage.
"""
